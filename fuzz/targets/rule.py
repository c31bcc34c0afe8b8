"""A model as a target: the rule itself, or the rule with known deviations of a release."""

from collections.abc import Callable, Collection

from ...model.core import Model
from ...model.ops import Done, Operation, Outcome, Shape
from ...model.shown.snapshot import Snapshot
from .deviations import DeviatingModel


class Rule:
    """A model as a target: without deviations, or with those of a release."""

    lacks: Collection[str] = ()
    hides: Collection[str] = ()
    loses: Collection[str] = ()

    def __init__(self, made: Callable[[Shape], Model] = Model, name: str = "the rule") -> None:
        self.name, self._made = name, made

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """See `Target.start`."""
        self.model = self._made(shape)
        built = isinstance(self.model.construction, Done)
        return self.model.construction, self.model.snapshot() if built else None

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """See `Target.step`."""
        return self.model.step(operation)

    @property
    def undefined(self) -> bool:
        """True if a deviation has left the state undefined: no rule says what the last operation came to."""
        return isinstance(self.model, DeviatingModel) and self.model.undefined

    def close(self) -> None:
        """There is nothing to end."""
