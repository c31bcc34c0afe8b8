"""Questions about pieces of a core that have no spec: hashes, the free queue, the map of registered blocks, blocks as
connectors see them, their lives, statistics; what may be left out of a call; and whole cores, of shapes of which none
may be built, or that nobody has used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from ...model.attention import RULES
from ...model.config_json import Json
from ...model.ops import Kind, Shape
from ..findings.ops_json import to_json
from ..targets.unsaid import UNSAID
from ..workload.draw import Draw
from ..workload.shapes import ATTENTION, draw_shape
from .draw import Configuration

Asked: TypeAlias = tuple[str, Mapping[str, object]]
"""An op and its inputs."""

KINDS = tuple(kinds for kinds in ATTENTION.values() if "sink" not in kinds)
"""Groups of shapes: all but sinks, of which vLLM 0.23.0 cannot build a core (S-18)."""
LOOKED_UP = tuple(kinds for kinds in KINDS if "chunked" not in kinds)
"""Those of which a lookup ends in the same error everywhere, if it does: vLLM 0.23.0 refuses more with chunks."""


def _hashes(draw: Draw, most: int) -> list[str]:
    return [f"{draw.integer(0, (1 << 96) - 1):024x}" for _ in range(draw.integer(0, most))]


def _hash_list(draw: Draw, configuration: Configuration) -> Asked:
    """A view, slices of it, and one index last, which may lead out of it."""
    size = draw.choose((4, 1, 16))
    target = size * draw.choose((2, 3, 1, 4)) + (draw.integer(0, 29) == 29)
    hashes = [f"{index:02x}" for index in range(draw.integer(0, 9))]
    places = (None, 0, 1, -1, 2, -2, 9)
    indices: list[Json] = []
    for _ in range(draw.integer(0, 3)):
        step = draw.choose((None, 1, 2, -1, -2, None if draw.integer(0, 9) else 0))
        indices.append([draw.choose(places), draw.choose(places), step])
    length = len(hashes) * size // target
    if draw.integer(0, 2):
        inside = draw.integer(0, max(0, length - 1))
        outside: tuple[Json, ...] = (-1, -length, length, -length - 1, length + 2, {"index": inside}, "1", 1.5)
        indices.append(inside if length and draw.integer(0, 1) else draw.choose(outside))
    grown = [f"{index:02x}" for index in range(100, 100 + draw.integer(0, 5))]
    about = {"hashes": hashes, "hash_block_size": size, "target_block_size": target, "indices": indices}
    return "hash_list", {**about, "grown": grown}


def _hash_keys(draw: Draw, configuration: Configuration) -> Asked:
    if draw.integer(0, 1):
        return "external_hashes", {"hashes": _hashes(draw, 3), "as_int": draw.choose((None, 1, 0))}
    groups = (0, 1, 255, 256, 65_536, (1 << 32) - 1, draw.integer(0, (1 << 32) - 1))
    odd = (-1, 1 << 32)
    return "hash_keys", {"draws": [[one, draw.choose((*groups, *odd))] for one in ["", *_hashes(draw, 3)]]}


def _none_hash(draw: Draw, configuration: Configuration) -> Asked:
    parents = [draw.choose((None, "", "above")) for _ in range(2)]
    tokens = [draw.integer(0, 99) for _ in range(draw.integer(1, 4))]
    return "none_hash", {"seed": draw.choose((None, "0", "7", "")), "tokens": tokens, "parents": parents}


def _block(draw: Draw, configuration: Configuration) -> Asked:
    steps = [["set", [hashed, draw.integer(0, 3)]] if draw.integer(0, 1) else ["reset"] for hashed in _hashes(draw, 5)]
    return "block", {"steps": steps}


def _free_queue(draw: Draw, configuration: Configuration) -> Asked:
    """Blocks that are taken and given back in all ways; only what is not there is given back."""
    blocks = draw.choose((4, 1, 8, 12))
    free = _some_of(draw, list(range(blocks))) if draw.integer(0, 3) else []
    queue, steps = list(free), list[Json]()
    for _ in range(draw.integer(1, 10)):
        held = [block for block in range(blocks) if block not in queue]
        way = draw.choose(("popleft", "popleft_n", "remove", "append", "append_n", "prepend_n"))
        if way == "popleft":
            queue = queue[1:]
            steps.append([way])
        elif way == "popleft_n":
            count = draw.integer(0, len(queue) + (draw.integer(0, 4) == 4))
            queue = queue[count:] if count <= len(queue) else queue
            steps.append([way, count])
        elif way == "remove":
            block = draw.choose(queue) if queue and draw.integer(0, 4) else draw.integer(0, blocks - 1)
            queue = [one for one in queue if one != block]
            steps.append([way, block])
        elif way != "append" or held:
            given = [draw.choose(held)] if way == "append" else _some_of(draw, held)
            queue = [*given, *queue] if way == "prepend_n" else [*queue, *given]
            steps.append([way, given[0] if way == "append" else list[Json](given)])
    return "free_queue", {"blocks": blocks, "free": free, "steps": steps}


def _some_of(draw: Draw, numbers: Sequence[int]) -> list[int]:
    """Some of them, in any order."""
    left, some = list(numbers), []
    for _ in range(draw.integer(0, len(left))):
        some.append(left.pop(draw.integer(0, len(left) - 1)))
    return some


def _caching_metrics(draw: Draw, configuration: Configuration) -> Asked:
    """Updates around the limit; some without requests, some larger than it, some that begin anew."""
    if draw.integer(0, 4) == 4:
        records = [
            [draw.integer(0, 99), draw.integer(0, 9), bool(draw.integer(0, 1))] for _ in range(draw.integer(0, 4))
        ]
        return "cache_stats", {"records": records}
    most = draw.choose((5, 1, 10, None))
    updates = []
    for _ in range(draw.integer(1, 8)):
        requests = draw.choose((1, 2, 0, 3, most or 400, (most or 400) + 1, draw.integer(0, 1500)))
        queries = draw.choose((0, 10, draw.integer(0, 1 << 40)))
        update: dict[str, object] = {"requests": requests, "queries": queries, "hits": draw.integer(0, queries)}
        updates.append(update | ({"reset": True} if draw.integer(0, 7) == 7 else {}))
    return "caching_metrics", {"max_recent_requests": most, "updates": updates}


def _build(draw: Draw, configuration: Configuration) -> Asked:
    """A shape of which a core can be built; most often with one or two things in it that do not go together."""
    shape = draw_shape(draw, draw.choose(KINDS))
    for _ in range(draw.choose((1, 2, 0))):
        shape = spoiled(draw, shape)
    return "build", {"shape": to_json(shape)}


def spoiled(draw: Draw, shape: Shape) -> Shape:
    """The shape with another value in something that has to fit the rest; it may still fit."""
    unit, groups = shape.scheduler_block_size, shape.groups
    match draw.integer(0, 7):
        case 0 | 1:
            intervals = (0, unit, 2 * unit, unit - 1, unit + 1, 1, -unit, -1)
            return replace(shape, retention_interval=draw.choose(intervals))
        case 2:
            size = shape.hash_block_size
            return replace(shape, hash_block_size=draw.choose((size * 2, 1, size + 1, max(1, size // 2), unit)))
        case 3:
            return replace(
                shape, scheduler_block_size=draw.choose((unit + 1, unit * 2, max(1, unit // 2), unit * 3, 1))
            )
        case 4:
            decode, prefill = draw.choose(((2, 1), (1, 2), (3, 1)))
            return replace(shape, decode_parallel=decode, prefill_parallel=prefill)
        case 5:
            return replace(shape, num_blocks=draw.choose((0, 1, 2, -1)))
        case 6:
            return replace(shape, caching=not shape.caching)
    repeated = draw.choose(groups)
    way = draw.integer(0, 2)
    if way == 0:
        return replace(shape, groups=(*groups, repeated))
    return replace(shape, groups=(repeated, repeated) if way == 1 else (repeated,))


def _blocks(draw: Draw, configuration: Configuration) -> Asked:
    """Blocks of one group or of some, also of none; the null block among them."""

    def rows() -> list[list[int]]:
        return [[draw.integer(0, 9) for _ in range(draw.choose((2, 0, 1, 4)))] for _ in range(groups)]

    groups = draw.choose((1, 2, 1, 3))
    hashed = [block for block in range(1, 10) if draw.integer(0, 1)]
    return "blocks", {"groups": rows(), "others": rows(), "hashed": hashed}


def _block_map(draw: Draw, configuration: Configuration) -> Asked:
    """Few keys, so that blocks share them; blocks that are taken out twice, or were never there."""
    keys: list[Json] = [[block_hash, draw.integer(0, 1)] for block_hash in ("aa", "aa", "bb")[: draw.integer(1, 3)]]
    steps: list[Json] = []
    for _ in range(draw.integer(1, 10)):
        key, block = draw.choose(keys), draw.integer(0, 3)
        way = draw.choose(("insert", "pop", "insert", "get"))
        steps.append([way, key] if way == "get" else [way, key, block])
        if draw.integer(0, 1):
            steps.append(["get", key])
    return "block_map", {"blocks": 4, "steps": steps}


def _block_lives(draw: Draw, configuration: Configuration) -> Asked:
    """Two blocks, used often, and given up at last; shares that are none, and chances at both sides of the share."""
    rate = draw.choose((1.0, None, 0.5, 1.0, 0.25, 1.0, draw.choose((0, -0.5, 1.5, 0.0, 2))))
    ways = ("accessed", "accessed", "accessed", "allocated", "evicted", "drain", "accessed", "reset")
    steps: list[Json] = []
    second = 0
    for index in range(draw.choose((4, 8, 12, 20))):
        second += draw.choose((1, 0, 2, 5))
        way = draw.choose(ways) if index > 1 else "allocated"
        chance = draw.choose((0.0, 0.005, 0.01, 0.25, 0.3, 0.5, 0.99))
        steps.append([way, second, chance, *([draw.choose((1, 1, 2))] if way.endswith("ed") else [])])
    steps += [["evicted", second, 0.0, 1], ["evicted", second, 0.0, 2], ["drain", second + 1, 0.0]]
    return "block_lives", {"rate": rate, "steps": steps}


def _cold(draw: Draw, configuration: Configuration) -> Asked:
    """A core that nobody has used: of the null block alone, with caching that some layers do not have, or over ranks;
    and a prompt that is looked up in it."""
    shape = draw_shape(draw, draw.choose(LOOKED_UP if draw.integer(0, 2) else _UNCACHED))
    # Nothing is read behind a window of one token, so all is a hit. vLLM 0.23.0 finds none, which lockstep declares.
    shape = replace(
        shape, groups=tuple(replace(one, window=max(2, one.window)) if one.window else one for one in shape.groups)
    )
    if draw.integer(0, 3) == 3:
        shape = replace(shape, num_blocks=draw.choose((1, 2)))
    if not shape.caching and draw.integer(0, 2):
        shape = replace(shape, caching=True)
    if len(shape.groups) == 1 and draw.integer(0, 3) == 3:
        shape = _over_ranks(shape, draw.choose((2, 3)))
    return "cold", {"shape": to_json(shape), "prompt": [draw.integer(1, 9) for _ in range(draw.choose((1, 2, 5)))]}


_UNCACHED: tuple[tuple[Kind, ...], ...] = tuple(
    kinds for kinds in KINDS if not all(RULES[kind].cacheable for kind in kinds)
)


def _over_ranks(shape: Shape, ranks: int) -> Shape:
    """The shape on so many ranks of decode parallelism; what is counted in blocks stays as many."""
    unit, interval = shape.least_scheduler_block_size // shape.parallel * ranks, shape.retention_interval
    times = shape.scheduler_block_size // shape.least_scheduler_block_size
    kept = None if interval is None else interval // shape.scheduler_block_size * times * unit
    changed = replace(shape, decode_parallel=ranks, prefill_parallel=1, hash_block_size=unit)
    return replace(changed, scheduler_block_size=times * unit, retention_interval=kept)


def _block_names(draw: Draw, configuration: Configuration) -> Asked:
    """A prompt, and tokens behind it one after the other, so that blocks fill up late. No two items have tokens in one
    block: vLLM 0.23.0 forgets one of them where it fills up late (items-lost-on-restart)."""
    size = draw.choose((2, 3, 4, 5))
    items: list[Json] = []
    end = 0
    for index in range(draw.choose((1, 2, 0, 3))):
        offset = end + draw.choose((0, 1, 2, size))
        length = draw.choose((1, 2, size, 2 * size + 1))
        if items and offset // size == (end - 1) // size:
            offset += size
        items.append([f"item {index % 2}", offset, length])
        end = offset + length
    prompt = max(1, end + draw.choose((0, 1, 2, size)))
    parts: list[Json] = [prompt, *[draw.choose((1, 1, size)) for _ in range(draw.choose((0, 2, 6)))]]
    about = {"block_size": size, "items": items, "salt": draw.choose((None, "salt")), "parts": parts}
    return "block_names", about


def _left_out(draw: Draw, configuration: Configuration) -> Asked:
    """Arguments of a call that may be left out, in any number."""
    call = draw.choose(tuple(UNSAID))
    names = tuple(UNSAID[call])
    return "left_out", {"call": call, "arguments": [name for name in names if draw.integer(0, 3)] or [*names[:1]]}


PARTS = (
    _hash_list,
    _hash_keys,
    _none_hash,
    _block,
    _free_queue,
    _caching_metrics,
    _build,
    _blocks,
    _block_map,
    _block_lives,
    _cold,
    _block_names,
    _left_out,
)
"""One question each."""
