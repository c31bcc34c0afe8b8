"""Names of the oracles, and which of them suit which target (properties.md)."""

LOCKSTEP, SHADOW, CONTRACT, LIVENESS = "lockstep", "shadow", "contract", "liveness"
DIFFERENCE = "difference"
"""Not an oracle, but the `Finding.oracle` of a pair run: the two targets differ (`runs.pair`)."""
STRICT = "strict"
"""An addition to the names of oracles: known losses, which oracles otherwise only count, are findings too."""
EVERY = (LOCKSTEP, SHADOW, CONTRACT, LIVENESS)
"""All oracles, the strictest first."""
ORACLES: tuple[str, ...] = (LOCKSTEP, SHADOW)
"""Default for a target that the model describes exactly."""
MODEL_FREE: tuple[str, ...] = (SHADOW, CONTRACT, LIVENESS)
"""Oracles that need no exact model, so they can judge any target (§§2-4)."""
