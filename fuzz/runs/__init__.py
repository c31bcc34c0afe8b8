"""One run of a target: with a model, without one, or two targets side by side."""
