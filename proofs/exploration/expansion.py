"""What follows from a state: every move is made on both sides, compared and checked."""

from typing import Any, NamedTuple

from ...model.ops import Allocate, Free, Lookup, Operation, Submit
from .core_look import UnreadableError
from .core_side import Answer
from .moves import Move, Moves
from .packing import ALLOCATED, LOOKED_UP, SUBMITTED, Focus, Look, Packed, Packer
from .pair import Pair
from .properties import Broken, Properties
from .scope import NAMES, Scope

_REST = Focus()
_NOTHING: Answer = ("done", None)


class BrokenError(Exception):
    """Properties do not hold in a state, or of one of its moves."""

    def __init__(self, broken: list[Broken], move: int | None = None, last: Operation | None = None) -> None:
        super().__init__("; ".join(f"{name}: {text}" for name, text in broken))
        self.broken = broken
        self.move = move
        """Which move of the state; None for the state itself."""
        self.last = last
        """What was tried in the state in addition to its moves."""


class Step(NamedTuple):
    """What a move has led to."""

    look: Look
    focus: Focus


class Expansion:
    """Expands states of a scope; `canonical`: up to renaming (`packing`), `reduced`: one request a time (`moves`)."""

    def __init__(self, scope: Scope, canonical: bool = True, reduced: bool = True) -> None:
        self.scope, self.canonical, self.reduced = scope, canonical, reduced
        self.pair = Pair(scope)
        self.packer = Packer(
            scope.shape.num_blocks, scope.requests, len(scope.shape.groups), self.pair.model.state.sinks
        )
        self.properties = Properties(scope, self.pair.model, self.pair.contents)
        self.moves = Moves(scope, self.pair.contents)
        self.reached = self.pair.reached
        self._now: Look | None = None
        """What both sides show; None if that is not known."""
        self._quiet = False
        """True if the last operation left everything but the requests as it was."""

    def first(self) -> bytes:
        """The state of a new core. BrokenError if the two sides differ."""
        self._now = self._same(Free(NAMES[0]), ("done", None), ("done", None), None)
        return self.pack(self._now, _REST).state

    def pack(self, look: Look, focus: Focus) -> Packed:
        """A state as bytes."""
        return self.packer.canonical(look, focus) if self.canonical else self.packer.exact(look, focus)

    def moves_of(self, look: Look, focus: Focus) -> list[Move]:
        """The moves in a state."""
        return self.moves.of(look, focus) if self.reduced else self.moves.everything(look, focus)

    def expand(self, state: bytes) -> list[tuple[bytes, bool]]:
        """The states that the moves lead to, in order, and whether the move is the scheduler's own.

        BrokenError if a property does not hold.
        """
        look, focus, pool = self.packer.unpack(state, self.canonical)
        broken = self.properties.of_state(look, focus)
        if broken:
            raise BrokenError(broken)
        if not focus.phase:
            self._free_unknown(look, focus)
        found = []
        for number, (op, own) in enumerate(self.moves_of(look, focus)):
            try:
                after, left = self.make(look, focus, op)
            except BrokenError as error:
                error.move = number
                raise
            packed = self.packer.again(pool, after, left) if self._quiet and self.canonical else None
            found.append((packed or self.pack(after, left).state, own))
        return found

    def make(self, look: Look, focus: Focus, op: Operation) -> Step:
        """Make one move from a state. BrokenError if a property does not hold of it."""
        pair = self.pair
        pair.restore(look, focus, self._now)
        self._now = None
        answer, other = pair.step_model(op), pair.step_core(op)
        after = self._same(op, answer, other, look)
        # Every field of the look that stayed the same is the very object it was: the next restore then sees it at once.
        self._now = Look(after.requests, *look[1:]) if self._quiet else after
        return Step(after, self._focus(op, answer))

    def _same(self, op: Operation, answer: Answer, other: Answer, before: Look | None) -> Look:
        """What both sides show after an operation."""
        pair = self.pair
        try:
            after = pair.look_model(before)
            events, their_events = pair.events()
            new, their_new = pair.new_block_ids()
            if answer != other or not pair.core_shows(after) or events != their_events or new != their_new:
                theirs = pair.look_core()
                broken = [] if before is None else self._meaning(before, op, other, theirs, their_events)
                text = _difference(op, (answer, after, events, new), (other, theirs, their_events, their_new))
                raise BrokenError([*broken, ("lockstep", text)])
        except UnreadableError as error:
            raise BrokenError([("lockstep", f"{op}: {error}")]) from None
        if before is not None:
            # The queue is the same object if the tables are as before, the codes if the identities are (`look_model`).
            self._quiet = (
                after.queue is before.queue
                and after.codes is before.codes
                and after.registered == before.registered
                and after.states == before.states
                and after.this_step == before.this_step
            )
            if self._quiet and not events:
                broken = self.properties.of_quiet(before, op, answer)
            else:
                broken = self.properties.of_transition(before, op, answer, after, events)
            if broken:
                raise BrokenError(broken)
        return after

    def _meaning(self, before: Look, op: Operation, answer: Answer, after: Look, events: Any) -> list[Broken]:
        """What a difference between the sides means, as far as the properties can tell: what our core does wrong."""
        return [
            *self.properties.of_transition(before, op, answer, after, events),
            *self.properties.of_state(after, self._focus(op, answer)),
        ]

    def _focus(self, op: Operation, answer: Answer) -> Focus:
        """What an operation has left its request in the middle of."""
        kind = type(op)
        if kind is Lookup:
            return Focus(LOOKED_UP, NAMES.index(op.request), *answer[1])  # type: ignore[attr-defined]
        if self.reduced and answer[0] == "done":
            if kind is Submit:
                return Focus(SUBMITTED, NAMES.index(op.request))  # type: ignore[attr-defined]
            if kind is Allocate:
                return Focus(ALLOCATED, NAMES.index(op.request))  # type: ignore[attr-defined]
        return _REST

    def _free_unknown(self, look: Look, focus: Focus) -> None:
        """S12, in a state where a name is free."""
        pair = self.pair
        for name, request in zip(pair.names, look.requests, strict=True):
            if request[0]:
                continue
            pair.restore(look, focus, self._now)
            self._now = None
            op = Free(name)
            answer, other = pair.step_model(op), pair.step_core(op)
            try:
                after = pair.look_model(look)
                quiet = answer == other == _NOTHING and after == look and pair.core_shows(look)
                if not quiet or any(pair.events()):
                    text = f"{op} answers {answer} and {other}, and of {look} it makes {after} and {pair.look_core()}"
                    raise BrokenError([("S12", text)], last=Free("nobody"))
            except UnreadableError as error:
                raise BrokenError([("S12", f"{op}: {error}")], last=Free("nobody")) from None
            self._now = look
            return


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
