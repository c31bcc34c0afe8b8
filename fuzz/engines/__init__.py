"""How runs are drawn: from a seed, by a Hypothesis state machine, in several processes."""
