"""Answers questions about what a core hands to others or keeps behind its manager: blocks of a request, the map of
registered blocks, the lives of blocks, and what may be left out of a call. `piece_calculator` has the other pieces.

This module runs in the Python environment of the target, where only the standard library and the target itself are
installed.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .question_json import Inputs, Names
from .surroundings import SECOND, at_once, followed, lives


def _tried(work: Callable[..., Any], *given: Any) -> Any:
    """What the call returns, or the name of the exception's class."""
    try:
        return work(*given)
    except Exception as error:
        return {"raises": type(error).__name__}


def _rows(ids: Iterable[Iterable[int]]) -> list[list[int]]:
    return [list(row) for row in ids]


def _as_lists(value: Any) -> Any:
    """The value with every tuple as a list."""
    return [_as_lists(part) for part in value] if isinstance(value, list | tuple) else value


def _blocks(names: Names, inputs: Inputs) -> Any:
    """Block 0 is the null block. Connectors and schedulers ask for nothing else of the blocks of a request."""
    made: dict[int, Any] = {}

    def block(number: int) -> Any:
        if number not in made:
            made[number] = names("KVCacheBlock")(number)
            if number == 0:
                made[number].is_null = True
            elif number in inputs["hashed"]:
                made[number].block_hash = names("make_block_hash_with_group_id")(bytes([number]), 0)
        return made[number]

    def blocks(rows: Sequence[Sequence[int]]) -> Any:
        return names("KVCacheBlocks")(tuple([[block(number) for number in row] for row in rows]))

    first, others = blocks(inputs["groups"]), blocks(inputs["others"])
    or_none, both, empty = first.get_block_ids(allow_none=True), first + others, first.new_empty()
    return {
        "or_none": None if or_none is None else _rows(or_none),
        "unhashed": _tried(lambda: list(first.get_unhashed_block_ids())),
        "unhashed_all": _rows(first.get_unhashed_block_ids_all_groups()),
        "both": _rows(both.get_block_ids()),
        "empty": _rows(empty.get_block_ids()),
        "after": [_rows(one.get_block_ids()) for one in (first, others)],
    }


def _block_map(names: Names, inputs: Inputs) -> Any:
    """Blocks that carry no key themselves: the map is asked for nothing but what it was told."""
    index, pack = names("BlockHashToBlockMap")(), names("make_block_hash_with_group_id")
    blocks = [names("KVCacheBlock")(number) for number in range(inputs["blocks"])]

    def key(draw: Sequence[Any]) -> Any:
        return pack(bytes.fromhex(draw[0]), draw[1])

    def number(found: Any) -> int | None:
        return None if found is None else found.block_id

    todo: Mapping[str, Callable[..., Any]] = {
        "insert": lambda draw, block: index.insert(key(draw), blocks[block]),
        "get": lambda draw: number(index.get_one_block(key(draw))),
        "pop": lambda draw, block: number(index.pop(key(draw), block)),
    }
    return [[_tried(todo[name], *given), len(index)] for name, *given in inputs["steps"]]


def _block_lives(names: Names, inputs: Inputs) -> Any:
    """Clock and chance are the question's own."""
    rate, block = inputs["rate"], names("KVCacheBlock")
    collector = names("KVCacheMetricsCollector")(*([] if rate is None else [rate]))
    todo: Mapping[str, Callable[..., Any]] = {
        "allocated": lambda number: collector.on_block_allocated(block(number)),
        "accessed": lambda number: collector.on_block_accessed(block(number)),
        "evicted": lambda number: collector.on_block_evicted(block(number)),
        "reset": collector.reset,
        "drain": lambda: lives(collector.drain_events()),
    }

    def step(name: str, second: int, chance: float, *given: int) -> Any:
        with at_once(second * SECOND, chance):
            got = _tried(todo[name], *given)
        return _as_lists([got, followed(collector)])

    return [step(*one) for one in inputs["steps"]]


def _left_out(names: Names, inputs: Inputs) -> Any:
    """What each of these arguments is if a call does not name it."""
    owner, _, method = inputs["call"].partition(".")
    called = getattr(names(owner), method) if method else names(owner)
    known = inspect.signature(called).parameters
    return [[name, known[name].default] for name in inputs["arguments"]]


PARTS: Mapping[str, Callable[[Names, Inputs], Any]] = {
    "blocks": _blocks,
    "block_map": _block_map,
    "block_lives": _block_lives,
    "left_out": _left_out,
}
