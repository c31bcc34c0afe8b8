"""One run of a target: lockstep with the model, without a model, or a pair of targets that are compared."""
