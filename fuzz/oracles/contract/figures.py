"""Checks of figures that a core reports: the share of the pool in use, and the statistics of its prefix cache (S19)."""

from typing import TypeAlias

from ....model import arith, ops
from ....model.ops import Done, Outcome
from ....model.snapshot import Snapshot
from .moves import Move
from .properties import Break
from .run_record import RunRecord

_Counts: TypeAlias = list[int]
"""Whether the cache was reset; requests, asked tokens, hit tokens, of requests that were never preempted and of others
(`ops.TakeStats`)."""
SEVEN = 7
COUNTED = frozenset({ops.Submit, ops.Free, ops.Preempt, ops.Lookup, ops.Allocate, ops.Reset, ops.TakeStats})
"""Operations after which statistics may be others."""
_TOLD = frozenset({ops.Lookup, ops.TakeStats})
TOLERANCE = 1e-6
"""Of the share of the pool: other engines may compute it in single precision."""


class Figures:
    """Judges figures; what lookups have answered is counted."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self._usage = record.shows("usage", "num_free")
        self.counts = record.shows("stats") and record.shape.stats
        """True while there are statistics to judge."""
        self._due: dict[type[ops.Operation], _Counts] = {kind: [0] * SEVEN for kind in (ops.Lookup, ops.Allocate)}
        """What the statistics must be now if lookups are counted at once, and if they are where the hit is used.
        Either is right, but a core must not mix them. What does not agree any more is left out."""
        self._begun = False
        """True once the core has counted anything. Another one may leave that to its scheduler."""
        self._preempted: set[str] = set()

    def check_usage(self, shown: Snapshot) -> None:
        """S19 of the share of the pool in use."""
        if not self._usage:
            return
        share = arith.usage(shown.num_free, self.record.shape.num_blocks)
        if abs(shown.usage - share) > TOLERANCE:
            free = f"{shown.num_free} of {self.record.shape.num_blocks - 1} blocks are free"
            raise Break("S19", f"usage is {shown.usage}, but {free}: {share}", "usage")
        self.record.reached["contract: S19 checked"] += 1

    def check_stats(self, move: Move) -> None:
        """S19 of the statistics after one operation, which is one of `COUNTED` or has changed them."""
        operation, outcome = move.operation, move.outcome
        shown = self._read(move.after.stats) if self.counts else None
        if shown is None:
            return
        match operation:
            case ops.Submit(name) | ops.Free(name):
                self._preempted.discard(name)
            case ops.Preempt(name):
                self._preempted.add(name)
            case ops.Lookup() if isinstance(outcome, Done):
                self._count(move)
            case ops.Allocate() if operation.hit and isinstance(outcome, Done):
                self._count(move)
            case ops.Reset() if isinstance(outcome, Done) and outcome.value is True:
                for due in self._due.values():
                    due[0] = 1
            case ops.TakeStats():
                self._check_drained(outcome)
        self._begun |= any(shown[1:])
        if self._begun:
            self._keep(shown, f"after {type(operation).__name__} the statistics are")
        self.record.reached["contract: S19 of statistics"] += type(operation) in _TOLD

    def _check_drained(self, outcome: Outcome) -> None:
        drained = self._read(outcome.value) if isinstance(outcome, Done) else None
        if self._begun:
            self._keep(drained, "the statistics handed out are")
        for due in self._due.values():
            due[:] = [0] * SEVEN

    def _keep(self, shown: _Counts | None, what: str) -> None:
        """Go on with what agrees with the counts that are shown."""
        wanted, self._due = self._due, {kind: due for kind, due in self._due.items() if due == shown}
        if not self._due:
            self.counts = False  # one violation is enough
            raise Break("S19", f"{what} {shown}, and should be {' or '.join(map(str, wanted.values()))}", "statistics")

    def _count(self, move: Move) -> None:
        """A lookup counts if the cache was asked: where it answers, or where its hit is used."""
        request, due = move.request, self._due.get(type(move.operation))
        if due is None or request is None or request.hit is None:
            return
        if request.submit.skip_lookup or not self.record.shape.caching:
            return
        first = 4 if move.name in self._preempted else 1
        for place, amount in enumerate((1, len(request.tokens), request.hit[0]), first):
            due[place] += amount

    def _read(self, shown: object) -> _Counts | None:
        """The seven counts; None if statistics have another form."""
        if self.record.shape.sampling and isinstance(shown, tuple) and shown:
            shown = shown[0]
        if not isinstance(shown, tuple) or len(shown) != SEVEN:
            return None
        return [int(count) for count in shown if isinstance(count, int)]
