"""Where a target is known to differ from the specification, as data (core.md, "Known deviations").

For each deviation of a core there is the model with one rule replaced by what the target does instead. Lockstep runs
against the model with all that are declared for its target, so everything else must still agree exactly, also after a
deviation has occurred. Those of the arithmetic of configurations are in rules of their own (`DeviatingRules`). Each
occurrence is counted under the deviation's id; one that never occurs in a long run is reported as stale. An adapter
declares those of its reference release.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from ...model.config_json import Json
from ...model.core import Model
from ...model.legal import misuse
from ...model.ops import Allocate, Failed, Operation, Outcome, Shape
from ...model.snapshot import Snapshot


@dataclass(frozen=True)
class Deviation:
    """A known deviation of a release, of its core or of its arithmetic of configurations."""

    id: str
    """For the arithmetic of configurations, the one in the reference."""
    reason: str
    """What the release does, and why that is wrong."""
    condition: str
    """When it shows."""
    source: str = ""
    """Who has reported it, or what has found it."""
    chaos_only: bool = False
    """True if it shows only where preconditions are broken on purpose."""
    corrupts: bool = False
    """True if a request can read wrong content after it. What the shadow memory sees then is put down to it."""


class DeviatingModel(Model):
    """The model with declared deviations: a subclass for each, mixed together for a target."""

    deviation: ClassVar[Deviation]

    def __init__(self, shape: Shape) -> None:
        self.deviated: Counter[str] = Counter()
        """Occurrences in this run, by id."""
        super().__init__(shape)

    def note(self, deviation: Deviation, occurred: bool) -> None:
        """Count the deviation if it has occurred."""
        self.deviated[deviation.id] += occurred

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """As the model's. An allocation that fails after it was promised leaves half of its work behind: no rule
        says what follows, so the run ends there."""
        outcome, snapshot = super().step(operation)
        self.dead |= isinstance(operation, Allocate) and isinstance(outcome, Failed) and not misuse(self, operation)
        return outcome, snapshot


class MisuseUnchecked(DeviatingModel):
    """Lockstep excuses what follows a broken precondition: no rule of the model is replaced."""

    deviation = Deviation(
        "misuse-unchecked",
        reason=(
            "broken preconditions of the pool (a block freed more often than it is held, a negative count, the null "
            "block touched) are carried out, which corrupts the free queue or its counter; lockstep reports what "
            "happens and ends the run"
        ),
        condition="an operation that `legal.misuse` names",
        source="core.md, deviation 6; vllm-project/vllm#42571, vllm-project/vllm#52707, ai-dynamo/dynamo#13398.",
        chaos_only=True,
    )


def corrupting(model: Model) -> list[Deviation]:
    """The deviations that have occurred in this run and after which a request may read wrong content."""
    if not isinstance(model, DeviatingModel):
        return []
    declared = [vars(kind)["deviation"] for kind in type(model).__mro__ if "deviation" in vars(kind)]
    return [deviation for deviation in declared if deviation.corrupts and model.deviated[deviation.id]]


class DeviatingRules(Protocol):
    """The arithmetic with the deviations of a release."""

    fired: set[str]
    """Ids of the deviations that made a difference since the set was last cleared."""

    def answer(self, op: str, inputs: Mapping[str, object]) -> dict[str, Json]:
        """The release's answer to a question."""
