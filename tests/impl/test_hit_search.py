"""Hits, and what is registered for them, held against the definition on small caches that are filled at random.

The definition asks attention token by token and knows no search: a hit of `L` tokens needs all blocks that hold a token
which the query at `L` reads and, where drafts need it, the block behind.
"""

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from math import lcm
from typing import Any, NamedTuple

import blockproof.impl as impl
import pytest
from blockproof.impl.managers import coordinator as kv_cache_coordinator
from blockproof.impl.managers import hit_search, reachable

ROUNDS = 1500
TOKENS = 40
KINDS = ("full", "mla", "sink", "sliding", "sliding_mla", "chunked", "mamba")
REACH = {"full": (0,), "mla": (0,), "sink": (4, 8), "mamba": range(3)}


class Drawn(NamedTuple):
    """A group of a core."""

    kind: str
    block_size: int
    reach: int  # its window or chunk, in tokens; of sinks, how long they are; the mode of states


class Case(NamedTuple):
    """A core, and a prompt."""

    groups: tuple[Drawn, ...]
    flagged: frozenset[int]
    eagle: bool
    alignment: int
    prompt: int

    @property
    def drafts_need(self) -> list[bool]:
        """Per group, whether drafts need the block behind a hit."""
        specs = [self.groups[i] for i in self.flagged or (range(len(self.groups)) if self.eagle else ())]
        return [group in specs and group.kind != "mamba" for group in self.groups]

    @property
    def scheduler_block_size(self) -> int:
        """A single group goes by its own blocks, whatever the scheduler counts in."""
        return self.alignment * (2 if len(self.groups) == 1 else 1)


def draw(rng: random.Random) -> Case:
    kinds = [rng.choice(KINDS) for _ in range(rng.choice((1, 2, 3)))]
    groups = {Drawn(kind, rng.choice((1, 2, 4)), rng.choice(REACH.get(kind, range(1, 10)))) for kind in kinds}
    ordered = rng.sample(sorted(groups), len(groups))
    if len(ordered) > 1 and rng.random() < 0.3:
        ordered.append(ordered[0])  # two groups of one spec
    together = lcm(*(group.block_size for group in ordered))
    alignment = together * (rng.choice((1, 1, 2, 3)) if len(ordered) > 1 else 1)
    flagged = frozenset(i for i in range(len(ordered)) if rng.random() < 0.3)
    return Case(tuple(ordered), flagged, rng.random() < 0.5, alignment, rng.randint(1, TOKENS))


def spec_of(core: Any, group: Drawn) -> Any:
    kind, size, reach = group
    if kind == "mamba":
        return core.mamba(("none", "all", "align")[reach % 3], block_size=size)
    return getattr(core, kind)(*[reach] if reach else [], block_size=size)


def build(core: Any, case: Case, **options: Any) -> tuple[Any, Any]:
    """The core, and a request with the prompt."""
    hash_block_size = case.alignment if len(case.groups) == 1 else 1
    manager = core.manager(
        *[spec_of(core, group) for group in case.groups],
        num_blocks=1 + len(case.groups) * (TOKENS + 4),
        eagle=case.flagged,
        use_eagle=case.eagle,
        scheduler_block_size=case.scheduler_block_size,
        hash_block_size=hash_block_size,
        **options,
    )
    hasher = impl.get_request_block_hasher(hash_block_size, impl.sha256)
    return manager, core.request("a", case.prompt, block_hasher=hasher)


# The definition.


def reads(group: Drawn, query: int, token: int) -> bool:
    match group.kind:
        case "sliding" | "sliding_mla":
            return token > query - group.reach
        case "chunked":
            return token // group.reach == query // group.reach
        case "mamba":
            return token == query - 1
    return True


def needed(group: Drawn, length: int, behind: bool = False) -> set[int]:
    """Blocks that a hit needs."""
    read = {token // group.block_size for token in range(length) if reads(group, length, token)}
    return read | ({length // group.block_size} if behind else set())


def longest(case: Case, registered: Sequence[dict[int, int]]) -> int:
    for length in range((case.prompt - 1) // case.alignment * case.alignment, 0, -case.alignment):
        groups = zip(case.groups, case.drafts_need, registered, strict=True)
        if all(needed(group, length, behind) <= set(blocks) for group, behind, blocks in groups):
            return length
    return 0


def boundaries(case: Case, retention: int | None) -> set[int]:
    """Where hits can end, within twice the prompt."""
    segment = case.alignment if retention is None else retention
    ends = set(range(segment, 2 * TOKENS + segment, segment)) if segment else set()
    if retention is None:
        return ends
    behind = [group.block_size for group, need in zip(case.groups, case.drafts_need, strict=True) if need]
    replays = range(case.alignment, case.prompt - max([1, *behind]) + 1, case.alignment)
    return ends.union(replays[-1:])


# Against the core.


def fill(rng: random.Random, manager: Any, case: Case, request: Any) -> list[dict[int, int]]:
    """Register blocks at random; which, by their index, and what stands there."""
    pool = manager.block_pool
    free = iter(pool.free_block_queue.get_all_free_blocks())
    registered: list[dict[int, int]] = []
    for i, group in enumerate(case.groups):
        hashes = impl.BlockHashListWithBlockSize(request.block_hashes, pool.hash_block_size, group.block_size)
        density = rng.choice((0.5, 0.8, 0.95, 1.0))
        there = {index: next(free) for index in range(len(hashes)) if rng.random() < density}
        for index, block in there.items():
            pool.cached_block_hash_to_block.insert(impl.make_block_hash_with_group_id(hashes[index], i), block)
        registered.append({index: block.block_id for index, block in there.items()})
    return registered


def wrong_hits(core: Any) -> Iterator[str]:
    """Lookups that yield another hit than the definition."""
    rng = random.Random(1)
    for _ in range(ROUNDS):
        case = draw(rng)
        manager, request = build(core, case)
        registered = fill(rng, manager, case, request)
        hit, length = manager.get_computed_blocks(request)
        best = longest(case, registered)
        rows = [
            [blocks[i] if i in needed(group, best) else 0 for i in range(best // group.block_size)]
            for group, blocks in zip(case.groups, registered, strict=True)
        ]
        found = [list(row) for row in hit.get_block_ids()]
        if (length, found) != (best, rows):
            yield f"{case}, registered {registered}: {length} tokens {found}, not {best} {rows}"


def wrong_registering(core: Any) -> Iterator[str]:
    """Prompts of which other blocks are registered than hits can need."""
    rng = random.Random(2)
    for _ in range(ROUNDS):
        case = draw(rng)
        unit = case.scheduler_block_size
        windows = any(group.kind.startswith("sliding") for group in case.groups)
        retention = rng.choice((None, 0, unit, 2 * unit)) if windows else None
        manager, request = build(core, case, retention_interval=retention)
        manager.allocate_slots(request, case.prompt, delay_cache_blocks=True)
        computed = 0
        while computed < case.prompt:
            computed = min(case.prompt, computed + rng.randint(1, 12))
            manager.cache_blocks(request, computed)
        ends, reached = boundaries(case, retention), case.prompt // case.alignment * case.alignment
        tables = manager.get_blocks("a").blocks
        for table, group, behind in zip(tables, case.groups, case.drafts_need, strict=True):
            end = min(case.prompt, reached + group.block_size) if behind and reached else reached
            useful = set().union(*(needed(group, length, behind) for length in ends))
            found = [i for i, block in enumerate(table) if block.block_hash is not None]
            right = [i for i in range(end // group.block_size) if i in useful and not table[i].is_null]
            if found != right:
                yield f"{case}, retention {retention}, {group}: registered {found}, not {right}"


@pytest.mark.parametrize("wrong", [wrong_hits, wrong_registering])
def test_hits_and_what_is_registered_for_them_are_those_of_the_definition(
    core: Any, wrong: Callable[[Any], Iterator[str]]
) -> None:
    assert list(islice(wrong(core), 3)) == []


def one_round(searches: Sequence[Any], bound: int) -> int:
    """A descent that stops early."""
    for search in searches:
        bound = search.longest(bound)
    return bound


def unaligned(search: Any, bound: int) -> int:
    """What a prefix can serve, not cut to the alignment."""
    search._terms.per = 1
    return PREFIX(search, bound)


PREFIX = hit_search.PrefixSearch.longest
CHUNKED = impl.ChunkedLocalAttentionManager.read_at_next_boundary
FAULTS: dict[str, tuple[Callable[[Any], Iterator[str]], Any, str, Any]] = {
    "one round over the groups": (wrong_hits, kv_cache_coordinator, "longest_common_hit", one_round),
    "a hit is not aligned": (wrong_hits, hit_search.PrefixSearch, "longest", unaligned),
    "windows are a block shorter": (
        wrong_hits,
        impl.SlidingWindowManager,
        "blocks_read_before",
        lambda spec, size: max(0, (spec.sliding_window - 1) // size),
    ),
    "chunks begin at the query": (wrong_hits, hit_search, "before_chunk", lambda query, chunk: query),
    "drafts need nothing of windows": (wrong_hits, impl.SlidingWindowManager, "drafts_read_behind", False),
    "drafts need a state behind": (wrong_hits, impl.MambaManager, "drafts_read_behind", True),
    "every block before a boundary is read": (
        wrong_registering,
        impl.SlidingWindowManager,
        "blocks_read_before",
        lambda spec, size: None,
    ),
    "a chunk is one token longer": (
        wrong_registering,
        impl.ChunkedLocalAttentionManager,
        "read_at_next_boundary",
        lambda spec, blocks, size, unit: CHUNKED(
            dataclasses.replace(spec, attention_chunk_size=spec.attention_chunk_size + 1), blocks, size, unit
        ),
    ),
    "nothing behind a boundary is kept for drafts": (
        wrong_registering,
        impl.SlidingWindowManager,
        "drafts_read_behind",
        False,
    ),
    "a replay leaves one token behind": (
        wrong_registering,
        reachable,
        "replay_boundary",
        lambda p, behind, unit: (p - 1) // unit * unit,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_mistake_is_found(core: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, where, attribute, mistaken = FAULTS[name]
    monkeypatch.setattr(where, attribute, mistaken)
    assert next(wrong(core), None) is not None
