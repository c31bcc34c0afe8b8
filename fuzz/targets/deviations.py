"""Where a target is known to differ from the specification, as data (core.md, "Known deviations").

A deviation is the model with one rule replaced by what the target does instead. Lockstep runs against the model with
the deviations declared for its target, so everything else must still agree exactly, also after a deviation has
occurred. Each occurrence is counted under the deviation's id; one that never occurs in a long run is reported as stale.
An adapter declares those of its reference release.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from ...model.answers import Json
from ...model.core import Model
from ...model.legal import misuse
from ...model.ops import Allocate, Failed, Operation, Outcome, Shape
from ...model.snapshot import Snapshot


class Deviation(Model):
    """The model with declared deviations: a subclass for each, mixed together for a target."""

    id: ClassVar[str]
    reason: ClassVar[str]
    """What the release does, and why that is wrong."""
    condition: ClassVar[str]
    """When it shows."""
    chaos_only: ClassVar[bool] = False
    """Does it show only where preconditions are broken on purpose?"""
    corrupts: ClassVar[bool] = False
    """Can a request read wrong content after it? Then what the shadow memory sees is put down to it."""

    def __init__(self, shape: Shape) -> None:
        self.deviated: Counter[str] = Counter()
        """Occurrences in this run, by id."""
        super().__init__(shape)

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """As the model's. An allocation that fails after it was promised leaves half of its work behind: no rule
        says what follows, so the run ends there."""
        outcome, snapshot = super().step(operation)
        self.dead |= isinstance(operation, Allocate) and isinstance(outcome, Failed) and not misuse(self, operation)
        return outcome, snapshot


class MisuseUnchecked(Deviation):
    """core.md, deviation 6; vllm-project/vllm#42571, vllm-project/vllm#52707, ai-dynamo/dynamo#13398."""

    id = "misuse-unchecked"
    reason = (
        "broken preconditions of the pool (a block freed more often than it is held, a negative count, the null block "
        "touched) are carried out, which corrupts the free queue or its counter; lockstep reports what happens and "
        "ends the run"
    )
    condition = "an operation that `legal.misuse` names"
    chaos_only = True


def corrupting(model: Model) -> list[type[Deviation]]:
    """The deviations that have occurred in this run and after which a request may read wrong content."""
    if not isinstance(model, Deviation):
        return []
    kinds = [kind for kind in type(model).__mro__ if issubclass(kind, Deviation) and vars(kind).get("corrupts")]
    return [kind for kind in kinds if model.deviated[kind.id]]


@dataclass(frozen=True)
class ConfigurationDeviation:
    """A known defect of the release, under the chapter's id: what it does instead, and when that shows."""

    id: str
    reason: str
    condition: str


class DeviatingRules(Protocol):
    """The arithmetic with the defects of a release."""

    fired: set[str]
    """Ids of the defects that made a difference since the set was last cleared."""

    def answer(self, op: str, inputs: Mapping[str, object]) -> dict[str, Json]:
        """The release's answer to a question."""
