"""Known deviations of a target, looked up by its name, and the model with these deviations."""

from collections.abc import Collection

from ...model.core import Model
from ...model.ops import Shape
from ..adapters import family_of
from ..adapters.impl import rule_for
from ..targets.deviations import DeviatingModel, Deviation
from ..targets.family import Known, unpatched


def known_of(target_name: str) -> Known | None:
    """The known deviations of this target; None unless it is a release that the model describes, patched or not."""
    family = family_of(target_name)
    known = None if family is None else family.exact.get(unpatched(target_name).partition("==")[2])
    return None if known is None else known()


def family_known(target_name: str) -> Known | None:
    """The same; for another release of a family that has such ones the deviations of its reference release."""
    family = family_of(target_name)
    if (known := known_of(target_name)) is not None or family is None or family.reference is None:
        return known
    return family.exact[family.reference]()


def declared_for(target_name: str) -> tuple[Deviation, ...]:
    """Known deviations of the target's core."""
    known = known_of(target_name)
    return () if known is None else known.deviations


def model_for(target_name: str, shape: Shape, without: Collection[str] = ()) -> Model:
    """The model to compare a target with: it goes by the target's rule, and has its known deviations, except those with
    ids in `without`."""
    known = known_of(target_name)
    declared = [deviation for deviation in known.deviations if deviation.id not in without] if known else []
    if known is None:
        return Model(shape, rule_for(target_name))
    return DeviatingModel(shape, declared, known.policy_of, known.reaction_to)
