"""Which oracles suit a target, by its name."""

from ..adapters import family_of
from ..findings.oracle_names import MODEL_FREE, ORACLES


def suited_to(spec: str) -> tuple[str, ...]:
    """The oracles for the target of this name: lockstep if the model describes it exactly. A user's own target, which
    has the model to keep to, is one of these; a release of an engine other than the reference is not."""
    family = family_of(spec)
    if family is None:
        return ORACLES
    version = spec.partition("==")[2] or family.here
    return ORACLES if version == family.reference else MODEL_FREE
