"""What follows from a state: every move is made on both sides, compared and checked.

**Each operation once.** What an operation of a request comes to depends on the pool and on that request: a core is
handed no other one, and the model reads no other one. Whose the other tables are makes no difference either. So it is
made once for all states that look alike to the request (`Packer.view`): their other requests differ in what they ask
for, in how far they are, and in their order. A submission and the end of a step call no core at all, so they are made
once for each state of their request. What came of an operation is kept; that this loses nothing is not taken on trust:
`reductions` explores small scopes without it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from ...model.ops import Free, Operation
from .core_look import CorruptStateError
from .core_side import Answer
from .moves import ExploredMove, Moves
from .packing import LOOKED_UP, NOBODY, Focus, Look, Order, Packed, PackedPool, Packer, head
from .pair import ModelAndCore
from .properties import Broken, EventValue, Properties
from .scope import NAMES, Scope
from .situations import ScopeSituations

_REST = Focus()
_NOTHING: Answer = ("done", None)
_FREED = ("unknown request freed",)
"""Key of what is known of a move that is no move: `Free` of a request that there is none of (S12)."""


class BrokenError(Exception):
    """Properties do not hold in a state, or of one of its moves."""

    def __init__(self, broken: list[Broken], move: int | None = None, last: Operation | None = None) -> None:
        super().__init__("; ".join(f"{name}: {text}" for name, text in broken))
        self.broken = broken
        self.move = move
        """Which move of the state; None for the state itself."""
        self.last = last
        """What was tried in the state in addition to its moves."""


class Transition(NamedTuple):
    """What a move has led to."""

    look: Look
    focus: Focus
    situations: tuple[str, ...]


class Kept(NamedTuple):
    """What a move has led to, for every state in which it comes to the same."""

    request: tuple[int, int, int]
    """Its request afterwards."""
    phase: int
    situations: tuple[str, ...]
    parts: dict[Order, tuple[bytes, bytes]]
    """Pool and hit afterwards, by the order in which the requests are packed, as the view numbers them."""


Known: TypeAlias = dict[tuple[object, ...], Kept]
_KEPT_VIEWS = 30_000


class Expansion:
    """Expands states of a scope.

    `canonical`: up to renaming (`packing`); `reduced`: one request at a time (`moves`); `once`: each operation once for
    all states with the same pool.
    """

    def __init__(self, scope: Scope, canonical: bool = True, reduced: bool = True, once: bool = True) -> None:
        self.scope, self.canonical, self.reduced, self.once = scope, canonical, reduced, once
        self.pair = ModelAndCore(scope)
        self.packer = Packer(
            scope.shape.num_blocks, scope.requests, len(scope.shape.groups), self.pair.model.state.sinks
        )
        self.properties = Properties(scope, self.pair.model.rules, self.pair.model.state.sinks, self.pair.contents)
        self.moves = Moves(scope, self.pair.contents)
        self.situations = ScopeSituations(scope, self.pair.contents)
        self.reached: dict[str, int] = {}
        """How many moves brought each situation about."""
        self.made = 0
        """How many moves were made on both sides."""
        self._alone: Known = {}
        """What came of moves that call no core."""
        self._known: dict[bytes, Known] = {}
        self._older: dict[bytes, Known] = {}
        """What came of the others, by the view of the pool; those met before the last so many are forgotten next."""
        self._now: Look | None = None
        """What both sides show; None if that is not known."""
        self._quiet = False
        """True if the last operation left everything but the requests as it was."""

    def first(self) -> bytes:
        """The state of a new core. BrokenError if the two sides differ."""
        nothing = self.moves.move(Free(NAMES[0]), own=False)
        self._now, _ = self._same(nothing, _NOTHING, _NOTHING, None)
        return self.pack(self._now, _REST).state

    def pack(self, look: Look, focus: Focus) -> Packed:
        """A state as bytes."""
        return self.packer.canonical(look, focus) if self.canonical else self.packer.exact(look, focus)

    def moves_of(self, look: Look, focus: Focus) -> list[ExploredMove]:
        """The moves in a state."""
        return self.moves.of(look, focus) if self.reduced else self.moves.everything(look, focus)

    def expand(self, state: bytes) -> list[tuple[bytes, bool]]:
        """The states that the moves lead to, in order, and whether the move is the scheduler's own.

        BrokenError if a property does not hold.
        """
        look, focus, pool = self.packer.unpack(state, self.canonical)
        broken = self.properties.of_state(look)
        if broken:
            raise BrokenError(broken)
        if not focus.phase:
            self._free_unknown(look, focus, pool)
        reached = self.reached
        found = []
        for number, move in enumerate(self.moves_of(look, focus)):
            kept, after = self._after(look, focus, pool, move, number)
            for situation in kept.situations:
                reached[situation] = reached.get(situation, 0) + 1
            found.append((after, move.own))
        return found

    def _after(self, look: Look, focus: Focus, pool: PackedPool, move: ExploredMove, number: int) -> tuple[Kept, bytes]:
        """What a move leads to, and its packed state; made only if that is not known."""
        slot = move.slot
        if not (self.once and self.canonical):
            known: Known = {}
            key: tuple[object, ...] = ()
            place: Sequence[int] = self.packer.slots
        elif move.alone:
            known, key, place = self._alone, (move.code, look.requests[slot]), self.packer.slots
        elif slot < 0:
            known, key, place = self._known_of(pool.packed), (move.code,), self.packer.slots
        else:
            part, place = self.packer.view(pool, look, slot)
            hit = self.packer.hit(focus, part.names) if focus.phase else b""
            known, key = self._known_of(part.pool), (move.code, look.requests[slot], hit)
        kept = known.get(key)
        if kept is not None:
            return kept, self._again(look, pool, move, kept, place)
        try:
            after, left, situations = self.make(look, focus, move)
        except BrokenError as error:
            error.move = number
            raise
        packer = self.packer
        parts: dict[Order, tuple[bytes, bytes]] = {}
        states = []
        for order in self._orders(after.requests, left):
            if self._quiet and order == packer.slots:
                packed, hit = pool.packed, packer.hit(left, packer.unnamed)
            else:
                packed, hit, _ = packer.part(after, left, order, self.canonical)
            if not move.alone:
                parts[tuple([place[own] for own in order])] = packed, hit
            states.append(head(after.requests, left, order) + packed + hit)
        request = after.requests[slot] if slot >= 0 else NOBODY
        kept = known[key] = Kept(request, left.phase, situations, parts)
        return kept, min(states)

    def _orders(self, requests: Sequence[tuple[int, int, int]], focus: Focus) -> list[Order]:
        return self.packer.orders(requests, focus) if self.canonical else [self.packer.slots]

    def _known_of(self, view: bytes) -> Known:
        """What is known of the moves of a request that sees this."""
        known = self._known.get(view)
        if known is None:
            known = self._older.get(view, {})
            if len(self._known) > _KEPT_VIEWS:
                self._known, self._older = {}, self._known
            self._known[view] = known
        return known

    def _again(self, look: Look, pool: PackedPool, move: ExploredMove, kept: Kept, place: Sequence[int]) -> bytes:
        """The state that a move leads to which was made before."""
        slot, requests, packer = move.slot, look.requests, self.packer
        if slot >= 0:
            requests = requests[:]
            requests[slot] = kept.request
        focus = Focus(kept.phase, slot) if kept.phase else _REST
        states = []
        for order in packer.orders(requests, focus):
            if move.alone:
                packed = pool.packed if order == packer.slots else packer.reordered(pool, look, order).pool
                hit = b""
            else:
                seen = tuple([place[own] for own in order])
                part = kept.parts.get(seen)
                if part is None:
                    first, part = next(iter(kept.parts.items()))
                    part = kept.parts[seen] = packer.turned(*part, tuple([first.index(own) for own in seen]))
                packed, hit = part
            states.append(head(requests, focus, order) + packed + hit)
        return states[0] if len(states) == 1 else min(states)

    def make(self, look: Look, focus: Focus, move: ExploredMove) -> Transition:
        """Make one move from a state. BrokenError if a property does not hold of it."""
        pair, op = self.pair, move.operation
        pair.restore(look, focus, self._now)
        self._now = None
        self.made += 1
        answer, other = pair.step_model(op), pair.step_core(op)
        after, events = self._same(move, answer, other, look)
        # Every field of the look that stayed the same is the very object it was: the next restore then sees it at once.
        self._now = Look(after.requests, *look[1:]) if self._quiet else after
        situations = self.situations.of(look, focus, op, answer, after, events, pair.model.refusal)
        return Transition(after, self._focus(move, answer), situations)

    def _same(
        self, move: ExploredMove, answer: Answer, other: Answer, before: Look | None
    ) -> tuple[Look, list[EventValue]]:
        """What both sides show after an operation, and which events it had."""
        pair, op = self.pair, move.operation
        try:
            after = pair.look_model(before)
            events, their_events = pair.events()
            new, their_new = pair.new_block_ids()
            if answer != other or not pair.core_shows(after) or events != their_events or new != their_new:
                theirs = pair.look_core()
                broken = [] if before is None else self._meaning(before, move, other, theirs, their_events)
                text = _difference(op, (answer, after, events, new), (other, theirs, their_events, their_new))
                raise BrokenError([*broken, ("lockstep", text)])
        except CorruptStateError as error:
            raise BrokenError([("lockstep", f"{op}: {error}")]) from None
        if before is not None:
            # The queue is the same object if the tables are as before, the codes if the identities are (`look_model`).
            self._quiet = (
                after.queue is before.queue
                and after.codes is before.codes
                and after.registered == before.registered
                and after.this_step == before.this_step
            )
            if self._quiet and not events:
                broken = self.properties.of_quiet(before, op, answer, after)
            else:
                broken = self.properties.of_transition(before, op, answer, after, events)
            if broken:
                raise BrokenError(broken)
        return after, events

    def _meaning(self, before: Look, move: ExploredMove, answer: Answer, after: Look, events: Any) -> list[Broken]:
        """What a difference between the sides means, as far as the properties can tell: what our core does wrong."""
        return [
            *self.properties.of_transition(before, move.operation, answer, after, events),
            *self.properties.of_state(after),
        ]

    def _focus(self, move: ExploredMove, answer: Answer) -> Focus:
        """What an operation has left its request in the middle of."""
        if answer[0] != "done":
            return _REST
        if move.phase == LOOKED_UP:
            return Focus(LOOKED_UP, move.slot, *answer[1])
        return Focus(move.phase, move.slot) if move.phase and self.reduced else _REST

    def _free_unknown(self, look: Look, focus: Focus, pool: PackedPool) -> None:
        """S12, in a state where a name is free."""
        pair = self.pair
        slot = next((slot for slot, request in enumerate(look.requests) if not request[0]), None)
        if slot is None:
            return
        known = self._known_of(self.packer.view(pool, look, slot).part.pool if self.canonical else pool.packed)
        if _FREED in known and self.once:
            return
        pair.restore(look, focus, self._now)
        self._now = None
        op = Free(NAMES[slot])
        answer, other = pair.step_model(op), pair.step_core(op)
        try:
            after = pair.look_model(look)
            quiet = answer == other == _NOTHING and after == look and pair.core_shows(look)
            if not quiet or any(pair.events()):
                text = f"{op} answers {answer} and {other}, and of {look} it makes {after} and {pair.look_core()}"
                raise BrokenError([("S12", text)], last=Free("nobody"))
        except CorruptStateError as error:
            raise BrokenError([("S12", f"{op}: {error}")], last=Free("nobody")) from None
        self._now = look
        known[_FREED] = Kept(NOBODY, 0, (), {})


def _difference(op: Operation, model: tuple[Any, ...], core: tuple[Any, ...]) -> str:
    """The first part in which the two sides differ."""
    for what, ours, theirs in zip(("outcome", "state", "events", "new block ids"), model, core, strict=True):
        if ours == theirs:
            continue
        if isinstance(ours, Look) and isinstance(theirs, Look):
            what = next(name for name in Look._fields if getattr(ours, name) != getattr(theirs, name))
            ours, theirs = getattr(ours, what), getattr(theirs, what)
        return f"{op}: {what}: model {ours}, core {theirs}"
    return f"{op}: the core shows {core[1]}, but not in every place where it keeps that"
