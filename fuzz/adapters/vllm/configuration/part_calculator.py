"""Answers questions about what a core hands to others or keeps behind its manager: blocks of a request, the map of
registered blocks, the lives of blocks, the manager of a group, what names the blocks of a request, and what may be left
out of a call. `piece_calculator` has the other pieces.

This module runs in the Python environment of the target, where only the standard library and the target itself are
installed.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from ....targets.small_blocks import BLOCK, BLOCKS, MASKED, UNIT, lookups, masks
from ..surroundings import SECOND, at_once, followed, lives
from .piece_calculator import give_hash
from .question_json import Inputs, Names, spec_from_json


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
                give_hash(made[number], names("make_block_hash_with_group_id")(bytes([number]), 0))
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


class _Registered:
    """A pool as a lookup sees it: some blocks are registered, under their numbers."""

    def __init__(self, block: Callable[[int], Any], there: Iterable[int]) -> None:
        self.null_block = block(0)
        self.null_block.is_null = True
        self._blocks = {bytes([number]): block(number + 1) for number in there}

    def get_cached_block(self, block_hash: bytes, kv_cache_group_ids: Sequence[int]) -> list[Any] | None:
        """The block under this hash in each of the groups; None if there is none."""
        found = self._blocks.get(block_hash)
        return None if found is None else [found for _ in kv_cache_group_ids]


def _found(names: Names, manager: Any, small: Any, length: int, ranks: Sequence[int]) -> list[Any]:
    """What each lookup finds: numbers of blocks, 0 where none is needed."""
    hashes = [bytes([number]) for number in range(BLOCKS)]

    def found(tokens: int, there: range, each: tuple[int, int]) -> list[int]:
        pool, unit = _Registered(names("KVCacheBlock"), there), BLOCK * each[0] * each[1]
        (row,) = manager.find_longest_cache_hit(hashes, tokens, [0], pool, small, False, unit, *each)
        return [block.block_id for block in row]

    return [_tried(found, *lookup) for lookup in lookups(length, ranks)]


def _masks(manager: Any, small: Any, length: int) -> list[Any]:
    """Of windows, which blocks are worth registering."""

    def mask(eagle: bool, interval: int | None, prompt: int) -> list[bool]:
        told = manager.reachable_block_mask(0, MASKED, UNIT, small, eagle, interval, prompt)
        return [True] * MASKED if told is None else told

    return [_tried(mask, *one) for one in masks(length)]


def _manager(names: Names, inputs: Inputs) -> Any:
    """One for a spec; what it says to a request that runs already and is given blocks of a hit once more, and to one
    that has blocks before it is given any; and its lookups and masks."""
    spec, (decode, prefill) = spec_from_json(names, inputs["spec"]), inputs["ranks"]
    size = spec.block_size * decode * prefill
    pool = names("BlockPool")(8, True, size)
    manager = names("get_manager_for_kv_cache_spec")(
        spec,
        max_num_batched_tokens=64,
        max_model_len=256,
        block_pool=pool,
        enable_caching=True,
        kv_cache_group_id=0,
        scheduler_block_size=size,
        dcp_world_size=decode,
        pcp_world_size=prefill,
    )
    manager.allocate_new_computed_blocks("r", [], 0, 0)
    manager.allocate_new_blocks("s", 1, 1)
    hit, length = pool.get_new_blocks(1), inputs["length"]
    again = [
        _tried(manager.get_num_blocks_to_allocate, "r", length, hit, length, length),
        _tried(manager.allocate_new_computed_blocks, "r", hit, length, 0),
        _tried(manager.allocate_new_computed_blocks, "s", [], 0, 0),
        _tried(
            manager.get_num_blocks_to_allocate, "s", length, [names("KVCacheBlock")(90 + i) for i in (0, 1)], 0, length
        ),
    ]
    small = spec.copy_with_new_block_size(BLOCK)
    return {
        "class": type(manager).__name__,
        "block_size": manager.block_size,
        "again": again,
        "found": _found(names, manager, small, length, inputs["ranks"]),
        "masks": _masks(manager, small, length) if inputs["spec"]["type"].startswith("SlidingWindow") else None,
    }


def _block_names(names: Names, inputs: Inputs) -> Any:
    """What the hash of each full block of a request is made of; its tokens come in parts. A hash is the block's number.
    It may cover some tokens behind the block, too (`ahead`), which are told last.

    Of an item what all cores name: who it is, and where it begins relative to the block.
    """
    told: list[Any] = []
    places = [SimpleNamespace(offset=offset, length=length) for _, offset, length in inputs["items"]]
    items = [
        SimpleNamespace(identifier=identifier, mm_position=place)
        for (identifier, *_), place in zip(inputs["items"], places, strict=True)
    ]
    request = SimpleNamespace(request_id="r", block_hashes=[], all_token_ids=[], num_tokens=0, mm_features=items)
    vars(request).update(lora_request=None, cache_salt=inputs["salt"], prompt_embeds=None, num_prompt_tokens=0)

    def tell(value: Any) -> bytes:
        told.append(value)
        return str(len(told)).encode()

    def key(value: Any) -> Any:
        if isinstance(value, str):
            return value
        kind, *rest = value
        return rest[0] if kind == "cache_salt" else rest[:2] if kind == "mm" else list(value)

    ahead = inputs.get("ahead", 0)
    more = {"num_hash_lookahead_tokens": ahead} if ahead else {}
    hasher = names("get_request_block_hasher")(inputs["block_size"], tell, **more)
    for count in inputs["parts"]:
        request.all_token_ids += range(request.num_tokens, request.num_tokens + count)
        request.num_tokens += count
        request.block_hashes += hasher(request)
    parents = [b"", *request.block_hashes]
    return [
        [
            parents.index(above) if number else 0,
            list(tokens),
            [key(value) for value in (keys[0] if ahead else keys) or ()],
            *([list(keys[1:])] if ahead else []),
        ]
        for number, (above, tokens, keys) in enumerate(told)
    ]


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
    "manager": _manager,
    "block_names": _block_names,
    "left_out": _left_out,
}
