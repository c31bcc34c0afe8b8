"""A model as a target: the rule itself, or the rule with known deviations of a release."""

from collections.abc import Callable, Collection

from ...model.core import Model
from ...model.ops import Done, Operation, Outcome, Refused, Shape, Value
from ...model.snapshot import Snapshot
from ..findings.starved import Starved
from .deviations import DeviatingModel


def model_answer(model: Model, operation: Operation) -> Outcome:
    """What the model makes of an operation of a trace. It refuses what the world has refused, and nothing changes."""
    if not isinstance(operation, Starved):
        return model.apply(operation)
    model.state.metrics.now += 1  # it is a call
    model.last = (operation, Refused())
    return model.last[1]


class Rule:
    """A model as a target: without deviations, or with those of a release."""

    lacks: Collection[str] = ()
    hides: Collection[str] = ()
    loses: Collection[str] = ()
    offers: Collection[str] = ()

    def __init__(self, made: Callable[[Shape], Model] = Model, name: str = "the rule") -> None:
        self.name, self._made = name, made

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """See `Target.start`."""
        self.model = self._made(shape)
        built = isinstance(self.model.construction, Done)
        return self.model.construction, self.model.snapshot() if built else None

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """See `Target.step`."""
        return model_answer(self.model, operation), self.model.snapshot()

    @property
    def copies(self) -> tuple[tuple[int, int], ...]:
        """Copies between blocks that the last operation asked for (`targets.base.copies_of`)."""
        return self.model.copied

    @property
    def handed(self) -> tuple[Value, ...]:
        """What the last operation told besides its outcome (`targets.base.handed_of`)."""
        return self.model.offered

    @property
    def undefined(self) -> bool:
        """True if a deviation has left the state undefined: no rule says what the last operation came to."""
        return isinstance(self.model, DeviatingModel) and self.model.undefined

    def close(self) -> None:
        """There is nothing to end."""
