"""Where a target is known to differ from the specification, as data (core.md, "Known deviations")."""

from ..model.core import Model
from ..model.ops import Shape


def model_for(target_name: str, shape: Shape) -> Model:
    """The model that a target is held against."""
    return Model(shape)
