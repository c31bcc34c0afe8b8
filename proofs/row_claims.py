"""What T25 claims of a free queue that is a row of batches, of any length: by the end of a theorem's id.

Each claim runs the queue's own method on a row of which nothing but the invariant is known (`row_scene`), and says that
the order is then what a list would have, and that the invariant holds again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import z3

from . import row_changes
from .claims import refuses
from .row_code import RoundDone
from .row_facts import ANY_BLOCK, NUMBER, Row
from .row_loops import running_code
from .row_scene import RowScene
from .symbolic import SymbolicBool, running, term

Claims = list[Any]


@dataclass(frozen=True)
class RowClaim:
    """A claim about one method."""

    variables: dict[str, str]
    assume: Callable[[Any], Iterable[Any]]
    claim: Callable[[RowScene, Any], Claims]

    def of(self, f: Any, v: Any) -> Claims:
        """What is claimed of the queue whose roles these are."""
        scene = RowScene(f.queue_kind, f.block_kind, v.n)
        try:
            with running_code(scene):
                return [SymbolicBool(one) if isinstance(one, z3.ExprRef) else one for one in self.claim(scene, v)]
        except RoundDone as done:
            return done.owed


def _in_order(scene: RowScene, now: Row, but: Any = None) -> Claims:
    count = term(scene.queue.num_free_blocks) == now.n
    return [count, *scene.is_in_order(now), *scene.kept(now, z3.BoolVal(False) if but is None else but)]


def _unchanged(scene: RowScene) -> Claims:
    return _in_order(scene, row_changes.shortened(scene, z3.IntVal(0), final=True))


def _freed(scene: RowScene, now: Row, x: Any, which: Any) -> Any:
    """Such a block has no holder."""
    return z3.Implies(which, z3.And(now.kind(x) == NUMBER, now.count(x) == 0))


def _taken(scene: RowScene, taken: Any, k: Any) -> Claims:
    row_changes.require_taken(scene, taken, k)
    now, first, x = row_changes.shortened(scene, k, final=True), scene.first.row, ANY_BLOCK
    was_there = z3.And(first.listed(x), first.place(x) < k)
    return [*_in_order(scene, now), _freed(scene, now, x, was_there)]


def _popleft_n(scene: RowScene, v: Any) -> Claims:
    scene.to_take = term(v.k)
    return _taken(scene, scene.queue.popleft_n(v.k), term(v.k))


def _popleft(scene: RowScene, v: Any) -> Claims:
    scene.to_take = z3.IntVal(1)
    return _taken(scene, [scene.queue.popleft()], z3.IntVal(1))


def _popleft_empty(scene: RowScene, v: Any) -> Claims:
    return [refuses(ValueError, scene.queue.popleft), *_unchanged(scene)]


def _popleft_n_refused(scene: RowScene, v: Any) -> Claims:
    return [refuses(AssertionError, lambda: scene.queue.popleft_n(v.k)), *_unchanged(scene)]


def _joined(scene: RowScene, front: bool, m: Any) -> Claims:
    given = scene.given
    assert given is not None
    return _in_order(scene, row_changes.extended(scene, given, front), given.holds(ANY_BLOCK))


def _append(scene: RowScene, v: Any) -> Claims:
    scene.queue.append(scene.outsider())
    return _joined(scene, False, 1)


def _append_n(scene: RowScene, v: Any) -> Claims:
    scene.queue.append_n(scene.outside(term(v.m)))
    return _joined(scene, False, v.m)


def _prepend_n(scene: RowScene, v: Any) -> Claims:
    scene.queue.prepend_n(scene.outside(term(v.m)))
    return _joined(scene, True, v.m)


def _remove(scene: RowScene, v: Any) -> Claims:
    scene.first.meet_place(term(v.p))
    x = scene.first.row.block(term(v.p))
    running().assume(z3.Not(scene.first.row.promised(x)))
    removal = row_changes.Removal(scene, x)
    scene.filtering = removal.filtered
    scene.queue.remove(scene.block(x))
    now = removal.now()
    return [*_in_order(scene, now), z3.And(now.kind(x) == NUMBER, now.count(x) == 0)]


def _remove_refused(scene: RowScene, v: Any) -> Claims:
    if running().decide(z3.Bool("elsewhere")):
        block = scene.stranger()
        state = block.state
        refused = refuses(RuntimeError, lambda: scene.queue.remove(block))
        return [refused, block.state is state, *_unchanged(scene)]
    block = scene.outsider()
    refused = refuses(RuntimeError, lambda: scene.queue.remove(block))
    return [refused, *_unchanged(scene)]


_N = {"n": "blocks in the queue"}
_K = {**_N, "k": "blocks asked for"}
_M = {**_N, "m": "blocks in the batch"}

CLAIMS = {
    "popleft": RowClaim(_N, lambda v: [v.n >= 1], _popleft),
    "popleft.empty": RowClaim(_N, lambda v: [v.n == 0], _popleft_empty),
    "popleft_n.any": RowClaim(_K, lambda v: [v.k >= 0, v.k <= v.n], _popleft_n),
    "popleft_n.refused": RowClaim(_K, lambda v: [v.n >= 0, (v.k > v.n) | (v.k < 0)], _popleft_n_refused),
    "append": RowClaim(_N, lambda v: [v.n >= 0], _append),
    "append_n.any": RowClaim(_M, lambda v: [v.n >= 0, v.m >= 0], _append_n),
    "prepend_n.any": RowClaim(_M, lambda v: [v.n >= 0, v.m >= 0], _prepend_n),
    "remove": RowClaim({**_N, "p": "place of the block"}, lambda v: [v.p >= 0, v.p < v.n], _remove),
    "remove.refused": RowClaim(_N, lambda v: [v.n >= 0], _remove_refused),
}
"""By the end of the theorem's id."""
