"""What the model answers to questions about what a core hands to others or keeps behind its manager, about a core that
nobody has used, and about what may be left out of a call. `piece_answers` answers those about the other pieces."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ...model.arith import cdiv, down, usage
from ...model.attention import Rule, demand, rule_for
from ...model.config.capacity import Rules
from ...model.config_json import WINDOWS, Json, Layer
from ...model.core import Model
from ...model.identity import extra_keys
from ...model.lookup import replay_boundary, served, worth_registering
from ...model.metrics import Metrics
from ...model.ops import NULL, Item, Lookup, Shape, Submit
from ...model.pieces.classes import Registry
from ..findings.ops_json import shape_from_json
from .configuration_question import ConstructedQuestion, attempt, outcome_as_json
from .small_blocks import BLOCK, MASKED, UNIT, lookups, masks
from .unsaid import UNSAID


def blocks(rules: Rules, q: ConstructedQuestion) -> Json:
    """core.md §10: the blocks of a request in each form in which they are asked for. A connector fills those without
    identity; null blocks are left out where all groups are asked for."""
    groups, others, hashed = q.given.groups, q.given.others, q.given.hashed
    unhashed = [[block for block in row if block not in hashed] for row in groups]

    def of_one_group() -> Json:
        demand(len(groups) == 1)
        return unhashed[0]

    return {
        "or_none": groups if any(groups) else None,
        "unhashed": attempt(of_one_group),
        "unhashed_all": [[block for block in row if block != NULL] for row in unhashed],
        "both": [[*row, *more] for row, more in zip(groups, others, strict=True)],
        "empty": [[] for _ in groups],
        "after": [groups, others],
    }


def block_map(rules: Rules, q: ConstructedQuestion) -> Json:
    """core.md §4: under each key the blocks in the order in which they were registered; a lookup yields the first one
    that is still there. What each step gives, and the number of keys behind it."""
    known: dict[tuple[str, int], list[int]] = {}

    def insert(key: tuple[str, int], block: int) -> None:
        row = known.setdefault(key, [])
        row += [block] if block not in row else []

    def pop(key: tuple[str, int], block: int) -> int | None:
        if block not in known.get(key, ()):
            return None
        known[key].remove(block)
        if not known[key]:
            del known[key]
        return block

    todo: Mapping[str, Callable[..., Json]] = {
        "insert": insert,
        "get": lambda key: known[key][0] if key in known else None,
        "pop": pop,
    }
    return [[todo[name](tuple(key), *given), len(known)] for name, key, *given in q.given.steps]


def block_lives(rules: Rules, q: ConstructedQuestion) -> Json:
    """core.md §5: the blocks that are followed after each step, and what has become of others, where it is drained. A
    block is followed if chance is below the share, which is more than none and at most all."""
    share = UNSAID["KVCacheMetricsCollector"]["sample_rate"] if q.given.rate is None else q.given.rate
    demand(0 < share <= 1)
    metrics = Metrics(1, caching=False)

    def step(name: str, second: int, chance: float, *blocks: int) -> Json:
        metrics.now = second
        todo: Mapping[str, Callable[[], Any]] = {
            "allocated": lambda: metrics.taken(blocks) if chance < share else None,
            "accessed": lambda: metrics.touched(blocks),
            "evicted": lambda: metrics.evicted(*blocks),
            "reset": metrics.reset,
            "drain": metrics.drain,
        }
        return [todo[name](), metrics.followed()]

    return [step(*given) for given in q.given.steps]


def cold(rules: Rules, q: ConstructedQuestion) -> Json:
    """core.md §§2, 7: free blocks and usage of a core that nobody has used, and what a lookup of a prompt comes to."""
    shape = shape_from_json(q.given.shape)
    rules.build(shape)
    free, model = shape.num_blocks - 1, Model(shape)
    model.apply(Submit("r", tuple(q.given.prompt)))
    found = outcome_as_json(model.apply(Lookup("r")))
    return {"free": free, "usage": usage(free, shape.num_blocks), "found": found}


def manager(rules: Rules, q: ConstructedQuestion) -> Json:
    """§6, core.md §6: who serves a spec, the tokens of a block over all ranks, and that a request that runs already is
    given no blocks of a hit, nor one that has blocks: two blocks of a hit leave the free queue, and what more it needs.
    core.md §8: what is found in small blocks, and of windows what is worth registering."""
    x, (decode, prefill), length = q.spec, q.given.ranks, q.given.length
    by, _ = Registry().find(x.type.value)
    demand(by is not None)
    refused, size = {"raises": "AssertionError"}, x.block_size * decode * prefill
    return {
        "class": by,
        "block_size": size,
        "again": [refused, refused, refused, max(0, cdiv(length, size) - 3) + 2],
        "found": [attempt(partial(_found, x, *lookup)) for lookup in lookups(length, q.given.ranks)],
        "masks": [_mask(x, *mask) for mask in masks(length)] if x.type in WINDOWS else None,
    }


def _small(x: Layer, ranks: tuple[int, int] = (1, 1), eagle: bool = False) -> Rule:
    """The rule of a group of this spec, in small blocks."""
    group = x.group(BLOCK)
    unit = BLOCK * ranks[0] * ranks[1]
    return rule_for(
        group, Shape((group,), 2, 1, unit, unit, 1, decode_parallel=ranks[0], prefill_parallel=ranks[1]), eagle
    )


def _found(x: Layer, tokens: int, there: range, ranks: tuple[int, int]) -> Json:
    rule = _small(x, ranks)
    demand(rule.is_full or ranks == (1, 1))
    length = down(tokens, rule.b)
    while not served([rule], length, lambda group, i: i in there):
        length -= rule.b
    return [i + 1 if i >= rule.first(length) else 0 for i in range(length // rule.b)]


def _mask(x: Layer, eagle: bool, interval: int | None, prompt: int) -> Json:
    rule = _small(x, eagle=eagle)
    every, replay = (UNIT, 0) if interval is None else (interval, replay_boundary([rule], UNIT, prompt))
    return [worth_registering(rule, i, every, replay) for i in range(MASKED)]


def block_names(rules: Rules, q: ConstructedQuestion) -> Json:
    """core.md §3: of each full block the one before, its tokens and what else it contains, in whatever parts they come;
    of an item who it is and where it begins."""
    size, length = q.given.block_size, sum(q.given.parts)
    submit = Submit("r", (), salt=q.given.salt, items=tuple(Item(*item) for item in q.given.items))

    def shown(tag: str, value: Any) -> Any:
        return value[:2] if tag == "item" else value

    blocks = [(end - size, end) for end in range(size, length + 1, size)]
    return [
        [start // size, list(range(start, end)), [shown(*key) for key in extra_keys(submit, start, end)]]
        for start, end in blocks
    ]


def left_out(rules: Rules, q: ConstructedQuestion) -> Json:
    """What each of these arguments of a call is where it is not named."""
    return [[name, UNSAID[q.given.call][name]] for name in q.given.arguments]


PARTS: Mapping[str, Callable[[Rules, ConstructedQuestion], Json]] = {
    "blocks": blocks,
    "block_map": block_map,
    "block_lives": block_lives,
    "cold": cold,
    "manager": manager,
    "block_names": block_names,
    "left_out": left_out,
}
