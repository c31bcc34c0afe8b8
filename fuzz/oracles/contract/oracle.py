"""The contract oracle: checks every property after every operation that could break it."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ....model import ops
from ....model.ops import Done, Failed, Operation, Outcome, Refused, Shape, Value
from ....model.snapshot import Snapshot
from ...findings.difference import difference
from ...targets.declarations import EVICTS_MORE, FORGETS_PREEMPTED, HOLDS_BACK, PUBLISHES_AT_END
from ...workload.scene import Scene
from .answered import Answered
from .block_answers import ANSWERS, BlockAnswers
from .designs import without_evictions
from .figures import COUNTED, Figures
from .hits import Hits
from .landing import Flights
from .moves import Move, check_not_held, check_same_content, move_of
from .order import check_given_back
from .pool import check_conserved, check_failure, check_null_untouched, check_order, check_refusal
from .properties import Break, Violation
from .published import STEPS, Published, RegisteredNames
from .registered import Mirror, check_registered
from .room import Room
from .run_record import RunRecord, held_by_tables
from .steps import check_in_flight, check_needed, check_written_alone
from .told_besides import Told
from .tracked import Tracked

_ASKS = frozenset({ops.Allocate, ops.Take})
"""Operations that take blocks, and may evict some."""
_OF_ROOM = frozenset({ops.Allocate, ops.Free, ops.Preempt})
_RESTS = frozenset({ops.Advance, ops.Reject, ops.Arrive, ops.RemoveSkipped})
"""Operations after which a request is asked about its next query."""


class Contract:
    """Judges one run of one target."""

    def __init__(
        self,
        shape: Shape,
        hides: Collection[str] = (),
        losses: Collection[str] = (),
        passing: Collection[str] = (),
        landed: bool = False,
        designs: Collection[str] = (),
    ) -> None:
        """`hides`: what the target cannot show. `losses`: what it is known for (`targets.base.losing`), which is
        counted. `passing`: properties of `oracle_names.PASSABLE` whose violations are gathered (`passed`), so that they
        hide nothing that comes later. `landed`: whether it is a violation, too, if somebody beside the device's queue
        writes into a block that a running step uses (`oracle_names.LANDED`). `designs`: what the target does otherwise
        than most, and is no mistake (`targets.base.designs_of`)."""
        self.record = RunRecord(shape, hides, losses, passing, designs)
        self.hits = Hits(self.record)
        self.flights = Flights(self.record)
        self._room, self._told = Room(self.record), BlockAnswers(self.record)
        self._beside = Told(self.record)
        self._published, self._figures = Published(self.record), Figures(self.record)
        self._names = RegisteredNames(self.record) if self.record.shows("labels") else None
        self._tells = self.record.shows("tables")
        self._labelled = self.record.shows("labels")
        self._landed = landed
        self._holds_back = HOLDS_BACK in hides
        self.reached: Counter[str] = self.record.reached
        self._mirror = Mirror(self.record) if shape.events and self.record.shows("labels", "events") else None
        self._answered = None if self.record.shows("tables") else Answered(self.record, self.hits)
        self._counted = self.record.shows("free") or self.record.shows("num_free")
        hidden = () if EVICTS_MORE not in self.record.designs else ("labels",)
        self._ordered = self.record.shows("free", "free_order", *hidden)

    def start(self, snapshot: Snapshot) -> None:
        """The core has been built. Blocks that are not free now are set aside for ever (sinks)."""
        self._held: Counter[int] = held_by_tables(snapshot)
        self.record.held = self._held
        self._outside: list[int] = []
        pool = set(range(1, self.record.shape.num_blocks))
        self._set_aside = pool - set(snapshot.free) if self.record.shows("free") else set()
        self._conserved = False
        self._sound: tuple[object, object] = (None, None)
        """The free blocks and the labels in which the null block was looked for last."""

    def cut_hit(self, name: str, tokens: int, rows: list[list[int]]) -> None:
        """The next allocation of this request uses only so many tokens of the hit that was found, in these blocks of
        each group; what is behind them comes from outside."""
        self.record.requests[name].hit = tokens, rows

    def _cut_inside(self, operation: ops.Allocate) -> None:
        """Tokens from outside follow whole blocks (`Shape.taken`)."""
        request = self.record.requests.get(operation.request)
        tokens, rows = (request.hit if request is not None else None) or (0, [])
        whole = self.record.shape.taken(operation, tokens)
        if whole < tokens:
            cut = [list(row[: whole // rule.b]) for rule, row in zip(self.record.rules, rows, strict=False)]
            self.cut_hit(operation.request, whole, cut)

    def step(
        self,
        operation: Operation,
        outcome: Outcome,
        before: Snapshot,
        after: Snapshot,
        scene: Scene,
        beside: tuple[Sequence[tuple[int, int]], Sequence[Value]] = ((), ()),
    ) -> Violation | None:
        """Judge one allowed operation (`model.legal`). `scene` is the state after it; `beside`: the copies that it
        asked for, and what it told (`targets.base.handed_of`). The first violation, if any."""
        violated = self.record.violated = []
        if isinstance(operation, ops.Allocate) and operation.hit and operation.external:
            self._cut_inside(operation)
        try:
            if isinstance(outcome, Failed):
                check_failure(self.record, operation, outcome, before, after)
            elif self._answered is not None:
                self._answered.judge(operation, outcome, before, after)
                self._check(self._answered.account, after, list(scene.state.outside))
            else:
                move = self._moved(operation, outcome, before, after, *beside)
                self._judge(move, list(scene.state.outside))
        except Break as broken:
            violated.append(broken.violation)
        return violated[0] if violated else None

    @property
    def violated(self) -> list[Violation]:
        """All violations at the last operation, in the order in which they were noticed: one that could be passed hides
        none behind it."""
        return self.record.violated

    def passed(self) -> list[Violation]:
        """The violations of properties to pass since the last call."""
        passed, self.record.passed = self.record.passed, []
        return passed

    def _check(self, check: Callable[..., None], *about: object) -> None:
        """Run a check whose property may be one to pass."""
        try:
            check(*about)
        except Break as broken:
            self.record.pass_or_break(broken)

    def _moved(
        self, operation: Operation, outcome: Done | Refused, before: Snapshot, after: Snapshot, *beside: Any
    ) -> Move:
        """The effect of an operation that did not fail, as far as it may have one."""
        record = self.record
        record.allocations += type(operation) in _ASKS
        record.labels = after.labels if self._labelled else ()
        if isinstance(operation, ops.Free) and operation.request not in record.requests:
            record.reached["contract: S12 checked"] += 1
            if without_evictions(record.designs, record.hides, before, after) != before:
                changes = "; ".join(difference(before, after))
                raise Break("S12", f"{operation.request} is unknown, yet freeing it changed {changes}", "changed")
        if isinstance(outcome, Refused):
            check_refusal(record, operation, before, after)
            record.reached["contract: S8 checked"] += 1
        return move_of(record, operation, outcome, before, after, *beside)

    def _judge(self, move: Move, outside: list[int]) -> None:
        record, operation, outcome, after = self.record, move.operation, move.outcome, move.after
        free, labels = self._sound
        if after.free is not free or after.labels is not labels or type(operation) is ops.Take:
            check_null_untouched(record, move)
            self._sound = after.free, after.labels
        record.reached["contract: S4 checked"] += 1
        if move.tables_changed:
            record.reached["contract: S5 checked"] += 1
        held_before, outside_before = self._held, self._outside
        held = held_by_tables(after) if move.tables_changed else self._held
        if held is not self._held or outside != self._outside:
            record.held = held + Counter(outside) if outside else held
        if move.taken:
            check_not_held(move, self._held, {*self._outside, *self._set_aside})
            record.reached["contract: S2 checked"] += 1
        self._check_landed(move)
        self._account(move, held, outside)
        if move.taken:
            record.handed_out(move.taken)
        self._follow_designs(move, held)
        if isinstance(outcome, Done):
            self._done(move, outcome, held)
            self.flights.follow(operation, move.request)
        elif move.request is not None:
            move.request.cut = max(move.request.cut, move.request.computed)
            self._at_rest(move.request, after)
        if self._labelled:
            self._check(check_registered, record, move, held, outside)
            if self._mirror is not None:
                self._check(self._mirror.follow, move)
        self._judge_told(move, held, outside)
        if self._tells:
            self._beside.check(move)
        if type(operation) in _OF_ROOM:
            self._check(self._room.check, move, held_before, outside_before)

    def _judge_told(self, move: Move, held: Counter[int], outside: list[int]) -> None:
        """S16, S18, S19, and the names of blocks, if the operation can have changed anything there."""
        operation, before, after = move.operation, move.before, move.after
        kind = type(operation)
        if self._tells and (kind in ANSWERS or before.new_block_ids != after.new_block_ids):
            self._told.check(move, held, outside)
        relabelled = self._names is not None and move.relabelled
        if self._names is not None and (relabelled or before.num_identities != after.num_identities):
            self._check(self._names.check, move)
        if self._names is not None and (relabelled or kind in STEPS):
            self._check(self._published.check, move)
        if before.num_free != after.num_free or before.usage != after.usage:
            self._check(self._figures.check_usage, after)
        if self._figures.counts and (kind in COUNTED or before.stats != after.stats):
            self._check(self._figures.check_stats, move)

    def _follow_designs(self, move: Move, held: Counter[int]) -> None:
        """What the target's designs make of an operation whose effect on blocks is known."""
        record, request = self.record, move.request
        if request is None:
            return
        record.follow_exchanges(request, move.after.tables)
        merged_later = record.merges and self._labelled and PUBLISHES_AT_END not in record.designs
        if merged_later and isinstance(move.operation, ops.Allocate):
            record.note_replay(request) if request.computed >= len(request.submit.prompt) else None
        if isinstance(move.operation, ops.Preempt) and FORGETS_PREEMPTED in record.designs:
            record.forgotten([block for block in set(move.given_up) if not held[block]])

    def _check_landed(self, move: Move) -> None:
        """S13 for blocks that are handed out: no step uses them any more that has not landed, and no load writes them.

        A core that does not hold blocks back is not told of landings. One queue in order then runs its steps, so that a
        later step does no harm; one who writes beside that queue does.
        """
        if move.given_up:
            self.flights.give_up(move)
        for use in self.flights.handed_out(move) if move.taken else ():
            if self._holds_back or (use.may_race and (use.by_core or self._landed)):
                raise Break("S13", str(use), use.kind)
            to = "to a second writer" if use.second else "to a later step"
            self.reached[f"contract: {use.kind} {to} before landing"] += 1

    def _account(self, move: Move, held: Counter[int], outside: list[int]) -> None:
        """S1 and S9, if anything has changed."""
        before, after = move.before, move.after
        moved = before.free is not after.free and before.free != after.free
        if (
            moved
            or held is not self._held
            or outside != self._outside
            or not self._conserved
            or before.num_free != after.num_free
            or (before.ref_cnt is not after.ref_cnt and before.ref_cnt != after.ref_cnt)
        ):
            back: list[int] = []
            if self._holds_back:
                references = after.ref_cnt if self.record.shows("ref_cnt") else []
                back = self.flights.held_back(self.record.held, after.free, references)
            self._check(check_conserved, self.record, after, held, [*outside, *back], self._set_aside)
            self._held, self._outside, self._conserved = held, outside, True
            self.reached["contract: S1 checked"] += self._counted and not self.record.violated
        if moved and self._ordered:
            self._check(check_order, self.record, move)
            self._check(check_given_back, self.record, move)
            self.reached["contract: S9 checked"] += 1

    def _done(self, move: Move, outcome: Done, held: Counter[int]) -> None:
        operation, request, after = move.operation, move.request, move.after
        record = self.record
        match operation:
            case ops.Lookup() if request is not None:
                self.hits.check_real(move)
                self.hits.check_longest(move)
                return
            case ops.Allocate() if request is not None:
                self._allocated(operation, move, held)
                return
            case ops.RemoveSkipped() if request is not None and request.scheduled:
                check_in_flight(record, request, after, request.computed + request.scheduled)
        record.follow(operation, outcome, after.tables)
        if request is not None and type(operation) in _RESTS:
            self._at_rest(request, after)

    def _allocated(self, operation: ops.Allocate, move: Move, held: Counter[int]) -> None:
        request, after, record = move.request, move.after, self.record
        assert request is not None
        in_flight = request.settled < request.computed
        start = request.computed + operation.external
        if operation.hit and request.hit is not None:
            start += request.hit[0]
            self.hits.check_used(move)
            record.attach(request, after.tables)
        check_same_content(record, move, held, start)
        if operation.new_tokens:
            check_written_alone(record, move, held, start, start + operation.new_tokens)
        record.follow(operation, Done(), after.tables)
        if operation.delay:
            return
        check_needed(record, request, after)
        if in_flight:
            check_in_flight(record, request, after, request.computed)

    def _at_rest(self, request: Tracked, after: Snapshot) -> None:
        """S6 for the next query, and S13 for steps that may still be running."""
        if request.arriving or request.scheduled:
            return
        check_needed(self.record, request, after)
        check_in_flight(self.record, request, after, request.computed)
