"""What is known to differ in a target, by its name: looked up in its adapter."""

from collections.abc import Collection

from ...model.core import Model
from ...model.ops import Shape
from ..adapters import family_of
from ..targets.deviations import ConfigurationDeviation, Deviation
from ..targets.family import Known


def known_of(target_name: str) -> Known | None:
    """What is known to differ in this target; None for any but a reference release."""
    family = family_of(target_name)
    if family is None or family.known is None or family.reference is None:
        return None
    return family.known() if target_name == family.spec(family.reference) else None


def declared_for(target_name: str) -> tuple[type[Deviation], ...]:
    """The deviations that are declared for a target."""
    known = known_of(target_name)
    return () if known is None else known.deviations


def declared_in_configurations(target_name: str) -> tuple[ConfigurationDeviation, ...]:
    """The defects that are declared for a target."""
    known = known_of(target_name)
    return () if known is None else known.configuration_deviations


def model_for(target_name: str, shape: Shape, without: Collection[str] = ()) -> Model:
    """The model that a target is held against; deviations whose ids are in `without` count as undeclared."""
    mixins = tuple(deviation for deviation in declared_for(target_name) if deviation.id not in without)
    return type("DeviatingModel", mixins, {})(shape) if mixins else Model(shape)
