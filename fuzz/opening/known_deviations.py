"""Known deviations of a target, looked up by its name, and the model with these deviations."""

from collections.abc import Collection

from ...model.core import Model
from ...model.ops import Shape
from ..adapters import family_of
from ..targets.deviations import DeviatingModel, Deviation
from ..targets.family import Known, unpatched


def known_of(target_name: str) -> Known | None:
    """The known deviations of this target; None unless it is a reference release, patched or not."""
    family = family_of(target_name)
    if family is None or family.known is None or family.reference is None:
        return None
    return family.known() if unpatched(target_name) == family.spec(family.reference) else None


def family_known(target_name: str) -> Known | None:
    """The known deviations of the family's reference release, whichever of its releases this is; None for what is no
    release of a family that has them."""
    family = family_of(target_name)
    return None if family is None or family.known is None else family.known()


def declared_for(target_name: str) -> tuple[Deviation, ...]:
    """Known deviations of the target's core."""
    known = known_of(target_name)
    return () if known is None else known.deviations


def model_for(target_name: str, shape: Shape, without: Collection[str] = ()) -> Model:
    """The model to compare a target with: it has the target's known deviations, except those with ids in `without`."""
    known = known_of(target_name)
    declared = [deviation for deviation in known.deviations if deviation.id not in without] if known else []
    return DeviatingModel(shape, declared, known.policy_of, known.reaction_to) if known and declared else Model(shape)
