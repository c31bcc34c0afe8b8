"""What can be judged of a target that hides its tables: answers, their lengths, and the free blocks or their number.

* S1: with nothing held, all blocks are free; the free blocks are as many as their number says, and each is there once.
* S4: the null block is never free.
* S7: a hit ends where a block does, leaves a token to compute, and is no longer than what was ever computed, unless the
  next query reads nothing of it.
* S8, S12: a refusal, and freeing an unknown request, change nothing that is shown.
* S14: a prompt whose request has ended hits up to its replay boundary, if nothing was allocated or forgotten since.
  With full attention only: of a window nothing is known.
"""

from collections import Counter

from ....model import ops
from ....model.ops import NULL, Done, Operation, Refused
from ....model.snapshot import Snapshot
from ...targets.declarations import EVICTS_MORE, FORGETS_PREEMPTED
from .designs import without_evictions
from .hits import Hits
from .moves import LEAVES, Move
from .pool import check_null_untouched, check_refusal
from .properties import Break
from .run_record import RunRecord
from .tracked import Tracked


class Answered:
    """Judges a run by what the target answers."""

    def __init__(self, record: RunRecord, hits: Hits) -> None:
        self.record, self.hits = record, hits
        self._computed: set[int] = set()
        """Contents of all prefixes that were ever in the cache, since it was reset."""
        self._asked = 0
        """How often blocks were asked for or forgotten."""
        self._holding: set[str] = set()
        """Requests that were given blocks and have not given them back."""
        self._ended: dict[int, int] = {}
        """Prompts whose requests have ended, by the content of their last token: `_asked` at that time."""

    def judge(self, operation: Operation, outcome: Done | Refused, before: Snapshot, after: Snapshot) -> None:
        """One operation that did not fail. Break if a property does not hold."""
        record = self.record
        name = operation.request if isinstance(operation, ops.OnRequest) else ""
        request = record.requests.get(name)
        if isinstance(operation, ops.Free) and request is None:
            record.reached["contract: S12 checked"] += 1
            if without_evictions(record.designs, record.hides, before, after) != before:
                raise Break("S12", f"{name} is unknown, yet freeing it changed something", "changed")
        if isinstance(outcome, Refused):
            check_refusal(record, operation, before, after)
            record.reached["contract: S8 checked"] += 1
        move = Move(operation, outcome, before, after, name, request, [], [], [])
        check_null_untouched(record, move)
        record.reached["contract: S4 checked"] += 1
        self._count(operation)
        if isinstance(outcome, Done):
            self._done(operation, outcome, move, request)

    def _count(self, operation: Operation) -> None:
        """Note whether what is cached may be less after this operation."""
        forgets = isinstance(operation, ops.Preempt) and FORGETS_PREEMPTED in self.record.designs
        asks = isinstance(operation, ops.Allocate | ops.Take | ops.Evict | ops.Reset)
        self._asked += asks or forgets or EVICTS_MORE in self.record.designs

    def _done(self, operation: Operation, outcome: Done, move: Move, request: Tracked | None) -> None:
        if request is not None and isinstance(operation, ops.Lookup):
            self._looked_up(move, request)
            return
        if request is not None and isinstance(operation, ops.Free):
            self._end(request)
        if isinstance(operation, ops.Reset) and outcome.value is True:
            self._computed.clear()
        self.record.follow(operation, outcome, move.after.tables)
        if request is not None and type(operation) in LEAVES:
            self._holding.discard(move.name)
        elif request is not None:
            self._computed.update(request.contents[: request.written])
            self._holding |= {move.name} if isinstance(operation, ops.Allocate) else set()

    def _end(self, request: Tracked) -> None:
        """A request ends: if its prompt was computed, it can be found from now on."""
        prompt = len(request.submit.prompt)
        if request.computed >= prompt:
            self._ended[request.contents[prompt - 1]] = self._asked

    def _looked_up(self, move: Move, request: Tracked) -> None:
        record, name = self.record, move.name
        length, _ = self.hits.check_length(move)
        reads = any(record.needed(request, group, length) for group in range(len(record.rules)))
        if reads and request.contents[length - 1] not in self._computed:
            raise Break("S7", f"{name}: hit of {length} tokens, which nobody has computed", "never computed")
        record.reached["contract: S7 checked"] += 1
        record.reached["contract: hit"] += length > 0
        if not record.shape.caching or request.submit.skip_lookup or not all(rule.is_full for rule in record.rules):
            return
        boundary = self.hits.limit(request)
        if self._ended.get(request.contents[-1]) == self._asked and boundary > 0:
            record.reached["contract: S14 checked"] += 1
            if length < boundary:
                what = f"hit of {length} tokens, but the same prompt was computed up to {len(request.contents)}"
                since = "and nobody has asked for a block since its request ended"
                broken = Break("S14", f"{name}: {what}, {since} (boundary {boundary})", "replay")
                record.pass_or_break(broken)

    def account(self, after: Snapshot, outside: list[int]) -> None:
        """S1, as far as it can be seen."""
        record = self.record
        pool, free = record.shape.num_blocks - 1 - record.sinks, Counter(after.free)
        if record.shows("free"):
            if twice := sorted(block for block, times in free.items() if times > 1):
                raise Break("S1", f"blocks {twice} stand twice in the free list {after.free}", "free twice")
            if both := sorted(block for block in set(outside) if block in free):
                raise Break("S1", f"blocks {both} are free and held by somebody outside", "free and held")
            if wrong := sorted(block for block in free if not NULL < block < record.shape.num_blocks):
                raise Break(
                    "S1",
                    f"blocks {wrong} are free; the pool has 1 .. {record.shape.num_blocks - 1}",
                    "outside of the pool",
                )
            if record.shows("num_free") and after.num_free != len(after.free):
                raise Break(
                    "S1", f"the free count is {after.num_free}, but {len(after.free)} blocks are free", "free count"
                )
        if not (record.shows("free") or record.shows("num_free")):
            return
        record.reached["contract: S1 checked"] += 1
        known = len(after.free) if record.shows("free") else after.num_free
        most = pool - len(set(outside))
        holds = bool(self._holding)
        alone = not outside and all(
            rule.is_full for rule in record.rules
        )  # else it may hold what others hold, or nothing
        if known > most or (holds and known == most and alone):
            raise Break(
                "S1", f"{known} blocks are free, though the pool has {pool} and requests hold some", "free and held"
            )
        if not holds and known < most:
            raise Break("S1", f"{known} blocks are free, but nobody holds any and the pool has {most}", "lost")
