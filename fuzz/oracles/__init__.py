"""What judges: lockstep with the model, the contract, the shadow memory, liveness."""
