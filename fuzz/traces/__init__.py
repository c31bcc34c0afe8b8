"""What is done with a trace: file, replay, shrink, steps in words, reproduction."""
