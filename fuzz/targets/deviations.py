"""Where a target is known to differ from the specification, as data (core.md, "What 0.23.0 does otherwise").

A deviation of a core replaces an entry of `model.core.Policy` by what the target does instead. Lockstep runs against
the model with all that are declared for its target, so everything else must still agree exactly, also after a deviation
has occurred. Those of the arithmetic of configurations are in rules of their own (`DeviatingRules`). Each occurrence is
counted under the deviation's id; one that never occurs in a long run is reported as stale. An adapter declares those of
its reference release.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from ...model.attention import CoreError
from ...model.config_json import Json
from ...model.core import Model
from ...model.legal import misuse
from ...model.ops import Allocate, AllocateBatch, Done, Failed, Operation, Outcome, Shape
from ...model.snapshot import Snapshot
from ...model.tables import Policy

T = TypeVar("T")


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


def trace_names(deviation: Deviation) -> tuple[str, ...]:
    """The traces that a deviation must have, without `.json`: of the difference, and of what it corrupts."""
    return (deviation.id, f"{deviation.id}.corruption") if deviation.corrupts else (deviation.id,)


class UndefinedStateError(Exception):
    """A deviation leaves the core in a state of which no rule says anything."""


class Note(Protocol):
    """Counts a deviation, by its id, if it has occurred."""

    def __call__(self, name: str, occurred: bool, harmless: bool = False) -> None:
        """See `DeviatingModel.note`."""
        ...


PolicyOf: TypeAlias = Callable[[Collection[str], Note], Policy]
"""Makes the policy of a core that has the deviations with these ids."""


def blamed(compute: Callable[..., T], right: Callable[..., T], names: Collection[str], note: Note) -> Callable[..., T]:
    """What a core decides that has several deviations in one decision: `compute(names, ...)`.

    Where that is not what `right(...)` says, it is put down to those deviations without any one of which the decision
    would have been another. A decision may also be an error. Not for what changes the model.
    """

    def answer(names: Collection[str], *args: Any) -> T | CoreError:
        try:
            return compute(names, *args)
        except CoreError as error:
            return error

    def decide(*args: Any) -> T:
        given = answer(names, *args)
        if not _same(given, right(*args)):
            causes = [name for name in names if not _same(answer([n for n in names if n != name], *args), given)]
            for name in causes or names:
                note(name, True)
        if isinstance(given, CoreError):
            raise given
        return given

    return decide


def _same(one: object, other: object) -> bool:
    """Equal answers, or errors of one kind."""
    if isinstance(one, CoreError) and isinstance(other, CoreError):
        return str(one) == str(other)
    return one == other


Reaction: TypeAlias = tuple[Outcome, Snapshot]
"""What a release answers to misuse, and what it shows then."""
ReactionTo: TypeAlias = "Callable[[DeviatingModel, Operation, Snapshot], Reaction | None]"
"""The declared reaction to this misuse, of a model that has just answered it, from what was shown before; None where
none is declared."""


class DeviatingModel(Model):
    """The model with declared deviations."""

    def __init__(
        self,
        shape: Shape,
        deviations: Sequence[Deviation],
        policy_of: PolicyOf,
        reaction_to: ReactionTo = lambda model, operation, before: None,
    ) -> None:
        self.declared = tuple(deviations)
        self.reaction_to = reaction_to
        """What the target does where a precondition is broken."""
        self.deviated: Counter[str] = Counter()
        """Occurrences in this run, by id."""
        self.harmful: Counter[str] = Counter()
        """Those of them after which a request may read wrong content, if the deviation `corrupts`."""
        self.dead = False
        """True once a deviation has left the state undefined; the run ends there."""
        self.undefined = False
        """True if it was the last operation that did so: there is nothing to compare its result with."""
        super().__init__(shape, policy_of({deviation.id for deviation in deviations}, self.note))

    def note(self, name: str, occurred: bool, harmless: bool = False) -> None:
        """Count the deviation with this id if it has occurred; `harmless`: only in what is shown."""
        self.deviated[name] += occurred
        self.harmful[name] += occurred and not harmless

    def apply(self, operation: Operation) -> Outcome:
        """As the model's. An allocation that fails after it was promised leaves half of its work behind: no rule
        says what follows, so the run ends there."""
        try:
            outcome = super().apply(operation)
        except UndefinedStateError:
            self.dead = self.undefined = True
            return Done()
        failed = isinstance(operation, Allocate | AllocateBatch) and isinstance(outcome, Failed)
        self.dead |= failed and not misuse(self, operation)
        return outcome


MISUSE_UNCHECKED = Deviation(
    "misuse-unchecked",
    reason=(
        "broken preconditions of the pool (a block freed more often than it is held, a negative count, the null "
        "block touched) are carried out, which corrupts the free queue or its counter; lockstep reports what "
        "happens and ends the run"
    ),
    condition="an operation that `legal.misuse` names",
    source="Found by lockstep; vllm-project/vllm#42571, vllm-project/vllm#52707, ai-dynamo/dynamo#13398.",
    chaos_only=True,
)
"""Lockstep holds the target to the reaction that is declared for it, and ends the run: no entry is replaced."""


def corrupting(model: Model) -> list[Deviation]:
    """The deviations that have occurred in this run and after which a request may read wrong content."""
    if not isinstance(model, DeviatingModel):
        return []
    return [deviation for deviation in model.declared if deviation.corrupts and model.harmful[deviation.id]]


class DeviatingRules(Protocol):
    """The arithmetic with the deviations of a release."""

    fired: set[str]
    """Ids of the deviations that made a difference since the set was last cleared."""

    drawn: Mapping[str, Sequence[object]]
    """Settings that only such a release has, with values of them."""
    asks: Sequence[str]
    """Questions that only such a release can be asked (`configuration.today`)."""

    def answer(self, op: str, inputs: Mapping[str, object]) -> dict[str, Json]:
        """The release's answer to a question."""

    def right(self, op: str, inputs: Mapping[str, object]) -> dict[str, Json]:
        """The answer without deviations."""

    def asked(self, op: str, inputs: Mapping[str, object]) -> tuple[Mapping[str, object] | None, tuple[str, ...]]:
        """The question as such a release can be asked, None where it cannot be; and what it lacks of it."""
