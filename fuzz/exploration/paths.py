"""From canonical states back to operations that anybody can carry out: the renaming is undone along the way."""

from collections.abc import Sequence
from dataclasses import replace

from ...model.ops import Evict, OnRequest, Operation, Submit
from .expansion import BrokenError, Expansion
from .scope import NAMES


def operations(expansion: Expansion, steps: Sequence[tuple[bytes, int]]) -> tuple[Operation, ...]:
    """The operations of a path, given as states and the move that is made in each. Every submission has a new name."""
    slots, blocks = list(range(expansion.scope.requests)), list(range(expansion.scope.shape.num_blocks))
    names = dict.fromkeys(slots, "")
    submitted = 0
    path: list[Operation] = []
    for state, move in steps:
        look, focus, _ = expansion.packer.unpack(state, expansion.canonical)
        made = expansion.moves_of(look, focus)[move]
        op = made.operation
        if isinstance(op, Submit):
            names[NAMES.index(op.request)] = f"r{submitted}"
            submitted += 1
        path.append(_renamed(op, names, blocks))
        try:
            after, left, _ = expansion.make(look, focus, made)
        except BrokenError:
            break  # the move that is the finding
        packed = expansion.pack(after, left)
        names = {slot: names[old] for slot, old in enumerate(packed.order)}
        renamed = blocks[:]
        for old, new in enumerate(packed.names):
            renamed[new] = blocks[old]
        blocks = renamed
    return tuple(path)


def _renamed(op: Operation, names: dict[int, str], blocks: Sequence[int]) -> Operation:
    if isinstance(op, OnRequest):
        return replace(op, request=names[NAMES.index(op.request)])
    if isinstance(op, Evict):
        return replace(op, blocks=tuple(blocks[block] for block in op.blocks))
    return op
