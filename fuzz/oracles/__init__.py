"""The oracles that need no exact model: the contract, the shadow memory and liveness.

Lockstep, the comparison with the model, is in `runs.lockstep`.
"""
