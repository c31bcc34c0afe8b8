"""The default oracles for a target, by its name."""

from ..adapters import family_of
from ..findings.oracle_names import MODEL_FREE, ORACLES


def suited_to(spec: str) -> tuple[str, ...]:
    """Names of the default oracles for this target.

    With lockstep for reference releases, our own core and targets of users, which have to agree with the model; without
    it for all other releases of engines.
    """
    family = family_of(spec)
    if family is None:
        return ORACLES
    version = spec.partition("==")[2] or family.here
    return ORACLES if version == family.reference else MODEL_FREE
