"""What becomes of the loops of a queue that is a row of batches (`row_code.Hooks`), with their invariants.

Before a round of the loop that takes blocks from the front of the queue, some are taken, and what is left is any row
with the rest of them. Before a round of the loop that takes blocks from a batch, those of its blocks that wait before
some entry are taken.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import z3

from .loops import UNSET
from .refusal import refusal
from .row_changes import require_taken, shortened
from .row_code import RoundDone, hooked
from .row_facts import ANY_PLACE, NUMBER, AnyRow
from .row_lists import Entries, SymbolicList, Term, as_entries
from .row_scene import RowScene
from .row_sweep import Swept
from .symbolic import SymbolicBool, SymbolicInt, running, term


@contextmanager
def running_code(scene: RowScene) -> Iterator[None]:
    """While it lasts, the methods of the queue and of its batches can be run."""
    with hooked(scene.kinds, RowLoops(scene), {"list": SymbolicList, "deque": lambda row: row}):
        yield


class _State:
    """The state of a block of which `filtered` asks something."""

    def __init__(self, x: Term) -> None:
        self.of = x


class _AnyItem:
    """Such a block."""

    def __init__(self, x: Term) -> None:
        self.state = _State(x)


class _AnyBatch:
    """A batch of which it asks something."""

    def __init__(self, left: Term) -> None:
        self.left = SymbolicInt(left)


def _is_true(value: Any) -> Term:
    """Python's truth of a symbol."""
    return value.term != 0 if isinstance(value.term, z3.ArithRef) else value.term


class RowLoops:
    """Hooks for one scene."""

    def __init__(self, scene: RowScene) -> None:
        self._scene = scene
        self._loops: dict[str, Any] = {}

    def each(self, items: Any, field: str, value: Any) -> None:
        """Set the field of each item."""
        if not isinstance(items, Entries):
            for item in items:
                setattr(item, field, value)
            return
        if field != "state":
            raise refusal(f"`{field}`")
        if items.inverse is None:
            require_taken(self._scene, items, self._scene.to_take)
            row = self._scene.first.row
            items = Entries(self._scene.block, self._scene.to_take, row.block, row.place)
        self._scene.written.append((items.holds, value))

    def filtered(self, items: Any, condition: Callable[[Any], Any]) -> Any:
        """The items of which the condition is true."""
        scene, row = self._scene, self._scene.row
        if isinstance(items, Entries) and scene.filtering is not None:
            return scene.filtering(items, lambda x: term(condition(_AnyItem(x))))
        if items is row and not (row.front or row.back or row.left):
            now = scene.now()
            scene.swept = Swept(row, lambda p: _is_true(condition(_AnyBatch(now.left(p)))))
            return scene.swept
        raise refusal("what is left of a list")

    def same(self, one: Any, other: Any) -> Any:
        """`one is other`, in such a condition."""
        number = self._scene.place_of(other)
        if not isinstance(one, _State) or number is None:
            raise refusal("the identity")
        return SymbolicBool(self._scene.now().member(number, one.of))

    def enter(self, method: str, names: tuple[str, ...], stored: int, state: Mapping[str, Any]) -> tuple[Any, ...]:
        """A loop begins."""
        begun = (self._enter_row if state["self"] is self._scene.queue else self._enter_batch)(state)
        known = {name: state[name] for name in names[stored:]}
        loose = [name for name, value in known.items() if isinstance(value, list | Entries) and name not in begun]
        if loose or not begun.keys() <= set(names):
            raise refusal(f"a loop over {names}")
        after = dict.fromkeys(names[:stored], UNSET) | known | begun
        return tuple(after[name] for name in names)

    def again(self, method: str, state: Mapping[str, Any]) -> None:
        """A round ends."""
        owed = self._row_again(state) if state["self"] is self._scene.queue else self._batch_again(state)
        raise RoundDone(owed)

    # The loop of a batch, from which some blocks are taken.

    def _number(self, batch: Any) -> Term:
        found = [p for p, known in self._scene.known if known is batch]
        if not found:
            raise refusal("a batch that was put there now")
        return found[0]

    def _batch_state(self, state: Mapping[str, Any], at: Term, taken: Any) -> list[Term]:
        p, row, j = self._number(state["self"]), self._scene.any.row, ANY_PLACE
        items = as_entries(taken, self._scene.block)
        self._scene.any.meet_entry(p, at, anchor=True)
        self._scene.any.meet_place(row.before(p) + j)
        inside = z3.And(j >= 0, j < items.length)
        return [
            z3.And(at >= row.at(p), at <= row.size(p)),
            items.length == row.below(p, at),
            items.length <= term(state["n"]),
            z3.Implies(inside, items.item(j) == row.block(row.before(p) + j)),
        ]

    def _enter_batch(self, state: Mapping[str, Any]) -> dict[str, Any]:
        for claim in self._batch_state(state, term(state["at"]), state["taken"]):
            running().require(claim, "what is true where the loop of a batch begins")
        p, row = self._number(state["self"]), self._scene.any.row
        at = z3.Int(running().fresh_name("entry"))
        start = row.before(p)
        taken = Entries(self._scene.block, row.below(p, at), lambda j: row.block(start + j))
        # Where the loop begins there is such an entry.
        running().assume(z3.And(self._batch_state(state, at, taken)))
        self._loops["batch"] = at, self._snapshot()
        if state["blocks"] is not state["self"].blocks:
            raise refusal("a loop over another list")
        return {"at": SymbolicInt(at), "taken": taken, "blocks": state["blocks"]}

    def _batch_again(self, state: Mapping[str, Any]) -> list[Any]:
        before, snapshot = self._loops["batch"]
        at = term(state["at"])
        p = self._number(state["self"])
        less = z3.And(at > before, at <= self._scene.any.row.size(p))
        claims = [*self._batch_state(state, at, state["taken"]), less, z3.BoolVal(self._is_as(snapshot))]
        return [SymbolicBool(claim) for claim in claims]

    def _snapshot(self) -> list[Any]:
        queue, row = self._scene.queue, self._scene.row
        known = [(one.left, one.at, one.blocks, one.blocks.length, one.blocks.item) for _, one in self._scene.known]
        whole = [queue.num_free_blocks, queue._empty, queue.batches, row.low, row.high]
        return [*whole, *row.front, *row.back, *self._scene.written, *(part for parts in known for part in parts)]

    def _is_as(self, snapshot: list[Any]) -> bool:
        now = self._snapshot()
        return len(now) >= len(snapshot) and all(one is other for one, other in zip(snapshot, now, strict=False))

    # The loop of the queue, from whose front blocks are taken.

    def _enter_row(self, state: Mapping[str, Any]) -> dict[str, Any]:
        scene, total = self._scene, term(state["n"])
        first = scene.first.row
        if as_entries(state["taken"], scene.block).length.as_long() or state["batches"] is not scene.row:
            raise refusal("another loop over batches")
        for claim in self._row_state(total, state["taken"], z3.IntVal(0)):
            running().require(claim, "what is true where the loop of the queue begins")
        taken, rest = (z3.Int(running().fresh_name(stem)) for stem in ("taken", "rest"))
        # Where the loop begins there are such numbers, and there is such a row.
        running().assume(z3.And(taken >= 0, rest >= 0, taken + rest == total, total <= first.n))
        scene.begin_anew(
            AnyRow(
                "later",
                first.n - taken,
                lambda i: first.block(i + taken),
                lambda x: first.place(x) - taken,
                taken,
                self._of_later,
            )
        )
        scene.queue.num_free_blocks = SymbolicInt(first.n - taken - rest)
        scene.head_rest, scene.head_taken, scene.to_take = rest, taken, total
        return {"n": SymbolicInt(rest), "taken": Entries(scene.block, taken, first.block)}

    def _row_again(self, state: Mapping[str, Any]) -> list[Any]:
        scene, rest = self._scene, term(state["n"])
        before, now, front = scene.any.row, scene.now(), scene.row.first
        batches = now.end - now.first
        returns = z3.And(z3.Not(now.unmade(front)), now.left(front) > rest)
        less = z3.And(batches >= 0, z3.Or(returns, batches < before.end - before.first))
        # After a round that puts a batch to the front, the next one returns.
        returned = z3.And(z3.Not(before.unmade(before.first)), before.left(before.first) > scene.head_rest)
        claims = [*self._row_state(rest, state["taken"], scene.to_take - rest), less, z3.Not(returned)]
        return [SymbolicBool(claim) for claim in claims]

    def _row_state(self, rest: Term, taken: Any, count: Term) -> list[Term]:
        """What is true where a round begins: so many are taken, and so many are still to be."""
        require_taken(self._scene, taken, count)
        now = shortened(self._scene, count)
        return [
            rest >= 0,
            rest <= now.n,
            term(self._scene.queue.num_free_blocks) == now.n - rest,
            z3.BoolVal(self._scene.queue.batches is self._scene.row),
            *self._scene.is_in_order(now),
            *self._scene.kept(now, z3.BoolVal(False)),
        ]

    def _of_later(self, x: Term) -> Term:
        first, later = self._scene.first.row, self._scene.any.row
        stays = z3.And(first.kind(x) == NUMBER, z3.Not(first.promised(x)))
        return z3.Implies(stays, z3.And(later.kind(x) == NUMBER, later.count(x) == first.count(x)))
