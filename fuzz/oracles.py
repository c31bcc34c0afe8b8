"""What can judge a target, and what suits which (properties.md)."""

from .adapters import family_of

LOCKSTEP, SHADOW, CONTRACT, LIVENESS = "lockstep", "shadow", "contract", "liveness"
DIFFERENCE = "difference"
"""Not an oracle: another target, whose behaviour is compared (`beside`)."""
STRICT = "strict"
"""Beside oracles: what they would count as a known loss, since the reference has it too, is a finding."""
EVERY = (LOCKSTEP, SHADOW, CONTRACT, LIVENESS)
"""All oracles, the strictest first."""
ORACLES: tuple[str, ...] = (LOCKSTEP, SHADOW)
"""What judges a target of which there is an exact model, unless told otherwise."""
MODEL_FREE: tuple[str, ...] = (SHADOW, CONTRACT, LIVENESS)
"""What can judge any target (§§2-4)."""


def suited_to(spec: str) -> tuple[str, ...]:
    """The oracles for the target of this name: lockstep if the model describes it exactly. A user's own target, which
    has the model to keep to, is one of these; a release of an engine other than the reference is not."""
    family = family_of(spec)
    if family is None:
        return ORACLES
    version = spec.partition("==")[2] or family.here
    return ORACLES if version == family.reference else MODEL_FREE
