"""Which rule makes two releases differ in a trace, where the model describes both: a deviation that one of them has, or
an entry of the policy that they decide otherwise."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

from ...model.core import Model
from ...model.ops import DONE
from ...model.tables import Policy
from ..findings.finding import Trace
from ..opening.known_deviations import known_of
from ..targets.family import Known

Entries = Sequence[str]


def changed_rules(first: str, second: str, trace: Trace) -> list[str]:
    """The names of those that suffice to make one release answer as the other at the end of the trace or, if their
    answers are equal, show the same; empty if none does, or the model does not describe both."""
    known = known_of(first), known_of(second)
    if known[0] is None or known[1] is None:
        return []
    sides = [_Side(one, {deviation.id for deviation in one.deviations}, trace) for one in known if one is not None]
    ends = [side.end() for side in sides]
    if ends[0] == ends[1]:
        return []
    part = 0 if ends[0][0] != ends[1][0] else 1
    turned = [(sides[0], sides[1], ends[1][part]), (sides[1], sides[0], ends[0][part])]
    names = [
        name
        for side, other, wanted in turned
        for name in sorted(side.ids - other.ids)
        if side.end(without=name)[part] == wanted
    ]
    for entries in () if names else _entries(sides[1].policy()):
        if names and len(entries) > 1:
            break
        if any(side.end(other.policy(), entries)[part] == wanted for side, other, wanted in turned):
            names.append(", ".join(entries))
    return names


@dataclass(frozen=True)
class _Side:
    known: Known
    ids: set[str]
    trace: Trace

    def policy(self, without: str = "") -> Policy:
        return self.known.policy_of({name for name in self.ids if name != without}, _unheard)

    def end(self, taken: Policy | None = None, entries: Entries = (), without: str = "") -> tuple[object, object]:
        """The last answer of a model of this release, and what it shows; without a deviation, or with some entries
        taken from another. Nothing if these do not go together."""
        policy = self.policy(without)
        if taken is not None:
            policy = replace(policy, **{name: getattr(taken, name) for name in entries})
        try:
            model = Model(self.trace.shape, policy)
            answers = [model.construction]
            if answers == [DONE]:
                answers += [model.apply(operation) for operation in self.trace.operations]
            return answers[-1], model.snapshot() if answers[0] == DONE else None
        except Exception:
            return None, None


def _entries(policy: Policy) -> Iterator[Entries]:
    """Those of a policy, one by one; then those that are decided together, as parts of one object."""
    together = defaultdict[int, list[str]](list)
    for entry in fields(Policy):
        yield [entry.name]
        if (owner := getattr(getattr(policy, entry.name), "__self__", None)) is not None:
            together[id(owner)].append(entry.name)
    yield from (names for names in together.values() if len(names) > 1)


def _unheard(name: str, occurred: bool, harmless: bool = False) -> None:
    """Nobody counts what has occurred here."""
