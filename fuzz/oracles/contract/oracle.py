"""The contract: every property is asked after every operation that could break it."""

from collections import Counter
from collections.abc import Collection

from ....model import ops
from ....model.ops import Done, Failed, Operation, Outcome, Refused, Shape
from ....model.scene import Scene
from ....model.snapshot import Snapshot, difference
from .books import Books, Tracked, held_by_tables
from .hits import Hits
from .moves import Move, demand_nobody_holds, demand_same_content, move_of
from .pool import demand_conserved, demand_harmless_refusal, demand_null_untouched, demand_order, demand_success
from .properties import Break, Violation
from .registered import Mirror, demand_kept
from .steps import demand_in_flight, demand_needed, demand_written_alone


class Contract:
    """Follows one run of one target, from its construction on."""

    def __init__(self, shape: Shape, hides: Collection[str] = (), without: Collection[str] = ()) -> None:
        """`hides`: what the target cannot show. `without`: known losses that count as violations all the same."""
        self.books = Books(shape, hides, without)
        self.hits = Hits(self.books)
        self.reached: Counter[str] = self.books.reached
        self._mirror = Mirror(self.books) if shape.events and self.books.sees("labels", "events") else None
        self._counted = self.books.sees("free") or self.books.sees("num_free")
        self._ordered = self.books.sees("free", "free_order")

    def start(self, snapshot: Snapshot) -> None:
        """The core has been built; what is not free now is set aside for good."""
        self._held: Counter[int] = held_by_tables(snapshot)
        self._outside: list[int] = []
        pool = set(range(1, self.books.shape.num_blocks))
        self._set_aside = pool - set(snapshot.free) if self.books.sees("free") else set()
        self._conserved = False

    def step(
        self, operation: Operation, outcome: Outcome, before: Snapshot, after: Snapshot, scene: Scene
    ) -> Violation | None:
        """Judge one operation that makes sense (`model.legal`). `scene` has followed it already."""
        try:
            if isinstance(outcome, Failed):
                demand_success(self.books, operation, outcome, before, after)
            else:
                self._judge(operation, outcome, before, after, list(scene.state.outside))
        except Break as broken:
            return broken.violation
        return None

    def _judge(
        self, operation: Operation, outcome: Done | Refused, before: Snapshot, after: Snapshot, outside: list[int]
    ) -> None:
        books = self.books
        books.allocations += isinstance(operation, ops.Allocate | ops.Take)
        if isinstance(operation, ops.Free) and operation.request not in books.requests:
            books.reached["contract: S12 checked"] += 1
            if after != before:
                changes = "; ".join(difference(before, after))
                raise Break("S12", f"{operation.request} is unknown, yet freeing it changed {changes}")
        if isinstance(outcome, Refused):
            demand_harmless_refusal(books, operation, before, after)
            books.reached["contract: S8 checked"] += 1
        move = move_of(books, operation, outcome, before, after)
        demand_null_untouched(books, move)
        books.reached["contract: S4 checked"] += 1
        if move.tables_changed:
            books.reached["contract: S5 checked"] += 1
        held = held_by_tables(after) if move.tables_changed else self._held
        if move.taken:
            demand_nobody_holds(move, self._held, {*self._outside, *self._set_aside})
            books.reached["contract: S2 checked"] += 1
        self._account(move, held, outside)
        if move.taken:
            books.handed_out(move.taken)
        if isinstance(outcome, Done):
            self._done(move, outcome, held)
        elif move.request is not None:
            move.request.cut = max(move.request.cut, move.request.computed)
            self._at_rest(move.request, after)
        if books.sees("labels"):
            demand_kept(books, move)
            if self._mirror is not None:
                self._mirror.follow(move)

    def _account(self, move: Move, held: Counter[int], outside: list[int]) -> None:
        """S1 and S9, where anything has changed."""
        before, after = move.before, move.after
        moved = before.free != after.free
        if (
            moved
            or held is not self._held
            or outside != self._outside
            or not self._conserved
            or (before.num_free != after.num_free or before.ref_cnt != after.ref_cnt)
        ):
            demand_conserved(self.books, after, held, outside, self._set_aside)
            self._held, self._outside, self._conserved = held, outside, True
            self.reached["contract: S1 checked"] += self._counted
        if moved and self._ordered:
            demand_order(self.books, move)
            self.reached["contract: S9 checked"] += 1

    def _done(self, move: Move, outcome: Done, held: Counter[int]) -> None:
        operation, request, after = move.operation, move.request, move.after
        books = self.books
        match operation:
            case ops.Lookup() if request is not None:
                self.hits.demand_real(move)
                self.hits.demand_longest(move)
                return
            case ops.Allocate() if request is not None:
                self._allocated(operation, move, held)
                return
            case ops.RemoveSkipped() if request is not None and request.scheduled:
                demand_in_flight(books, request, after, request.computed + request.scheduled)
        books.follow(operation, outcome, after.tables)
        if request is not None and isinstance(operation, ops.Advance | ops.Reject | ops.Arrive | ops.RemoveSkipped):
            self._at_rest(request, after)

    def _allocated(self, operation: ops.Allocate, move: Move, held: Counter[int]) -> None:
        request, after, books = move.request, move.after, self.books
        assert request is not None
        in_flight = request.finished < request.computed
        start = request.computed + operation.external
        if operation.hit and request.hit is not None:
            start += request.hit[0]
            self.hits.demand_used(move)
            books.attach(request, after.tables)
        demand_same_content(books, move, held, start)
        if operation.new_tokens and not operation.delay:
            demand_written_alone(books, move, held, start, start + operation.new_tokens)
        books.follow(operation, Done(), after.tables)
        if operation.delay:
            return
        request.longest = max(request.longest, start + operation.new_tokens)
        demand_needed(books, request, after)
        if in_flight:
            demand_in_flight(books, request, after, request.computed)

    def _at_rest(self, request: Tracked, after: Snapshot) -> None:
        """S6 of the next query, and S13 of what is not known to be over."""
        if request.arriving or request.scheduled:
            return
        demand_needed(self.books, request, after)
        demand_in_flight(self.books, request, after, request.computed)
