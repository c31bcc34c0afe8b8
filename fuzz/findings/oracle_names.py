"""What can judge a target, and what suits which (properties.md)."""

LOCKSTEP, SHADOW, CONTRACT, LIVENESS = "lockstep", "shadow", "contract", "liveness"
DIFFERENCE = "difference"
"""Not an oracle: another target, whose behaviour is compared (`pair`)."""
STRICT = "strict"
"""PairRun oracles: what they would count as a known loss, since the reference has it too, is a finding."""
EVERY = (LOCKSTEP, SHADOW, CONTRACT, LIVENESS)
"""All oracles, the strictest first."""
ORACLES: tuple[str, ...] = (LOCKSTEP, SHADOW)
"""What judges a target of which there is an exact model, unless told otherwise."""
MODEL_FREE: tuple[str, ...] = (SHADOW, CONTRACT, LIVENESS)
"""What can judge any target (§§2-4)."""
