"""The tricks of the core that `tricks.py` measures: what stands in for each, and the work that it is for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from sys import maxsize
from typing import Any

from blockproof.fuzz.bench.entries import default_entries
from blockproof.fuzz.bench.running import TOKEN, Decode
from blockproof.fuzz.bench.workload import BLOCK, BenchPiece, BenchWorkload, require, table_facts
from blockproof.impl.hashing import block_hashing
from blockproof.impl.managers import coordinator
from blockproof.impl.managers.coordinator import KVCacheCoordinator
from blockproof.impl.managers.kv_cache_manager import KVCacheManager
from blockproof.impl.managers.steps import OneGroupSteps, RunningSteps
from blockproof.impl.pool import block, block_pool, events, free_queue, hash_map
from blockproof.impl.pool.block_pool import BlockPool
from blockproof.impl.pool.free_queue import FreeKVCacheBlockQueue
from blockproof.impl.pool.hash_map import BlockHashToBlockMap
from blockproof.impl.today.block_pool import TodayPool
from blockproof.impl.today.coordinator import TodayCoordinator
from blockproof.impl.today.folded import FoldingMap
from blockproof.impl.today.steps import StepsBehindPrompts
from blockproof.proofs import linked_queue


@dataclass(frozen=True)
class Trick:
    """A trick, how to do without it, and the work that shows what it brings."""

    name: str
    without: str
    """What is done in its place, in words."""
    replaced: Sequence[tuple[Any, str, Any]]
    """Where in the core, which name, and what is put there."""
    witness: Callable[..., Any]
    """A function of the core that runs more often without the trick."""
    work: str
    per: str
    """The operation that the times are of."""
    kind: str
    params: Mapping[str, Any]
    packages: Sequence[str] = field(default=())
    """Optional packages that the work needs."""
    core: str = "impl"
    """Which of our cores has it."""


class SameStep(Decode):
    """The same decode step again and again: each request has room for its next token. One operation is one step of one
    request; parameters as for `Decode`."""

    def prepare(self) -> None:
        super().prepare()
        require(self.driver.decode(self._requests) is None, "a decode step was refused")

    def piece(self) -> BenchPiece:
        driver, requests, repeats = self.driver, self._requests, 16
        ns = sum(self.timed(lambda: driver.decode(requests)) for _ in range(repeats))
        return BenchPiece(ns, repeats * len(requests), *table_facts(driver, requests))


class BlockSteps(Decode):
    """Steps of a whole block: each takes a block and registers one. One operation is one step of one request."""

    def piece(self) -> BenchPiece:
        steps, ns = 8, 0
        if self._steps + steps * BLOCK > self._grown:
            self._restart()
        driver, requests = self.driver, self._requests
        for _ in range(steps):
            for _ in range(BLOCK):
                driver.append(requests, TOKEN)
            begin = driver.clock()
            granted = [driver.proceed(one, BLOCK) for one in requests]
            ns += driver.clock() - begin
            require(all(granted), "a step was refused")
            driver.ran(requests, BLOCK)
        self._steps += steps * BLOCK
        return BenchPiece(ns, steps * len(requests), *table_facts(driver, requests))


class Queues(BenchWorkload):
    """A free queue alone, of 32,768 blocks. One operation is one block.

    Parameters: `call`: `append_n` puts in 512 blocks at a time, as a release does, `popleft_n` takes as many, `remove`
    takes them out of the middle, as hits do.
    """

    BLOCKS, AT_A_TIME = 32_768, 512

    def prepare(self) -> None:
        queue_kind: Any = free_queue.FreeKVCacheBlockQueue
        kind: Any = block.KVCacheBlock
        self._queue = queue_kind([])
        blocks = [kind(number) for number in range(self.BLOCKS)]
        for first in range(0, self.BLOCKS, self.AT_A_TIME):
            self._queue.append_n(blocks[first : first + self.AT_A_TIME])

    def piece(self) -> BenchPiece:
        queue, clock, spent = self._queue, self.driver.clock, dict.fromkeys(("popleft_n", "remove", "append_n"), 0)
        for number in range(16):
            taken = queue.get_all_free_blocks()[4096 : 4096 + self.AT_A_TIME]
            begin = clock()
            if number % 2:
                taken = queue.popleft_n(self.AT_A_TIME)
                spent["popleft_n"] += clock() - begin
            else:
                for one in taken:
                    queue.remove(one)
                spent["remove"] += clock() - begin
            begin = clock()
            queue.append_n(taken)
            spent["append_n"] += clock() - begin
        call = self.params["call"]
        order = {str(at): one.block_id for at, one in enumerate(queue.get_all_free_blocks())}
        return BenchPiece(spent[call], (16 if call == "append_n" else 8) * self.AT_A_TIME, order, {})


OWN_KINDS: Mapping[str, type[BenchWorkload]] = {"same-step": SameStep, "block-steps": BlockSteps, "queues": Queues}

_ENTRIES = {entry.name: entry for entry in default_entries()}
_RUNNING = {"running": 256, "shortest": 500, "longest": 560, "grown": 480}
_STATES = {**_RUNNING, "groups": ("full", "mamba")}
_SLIDING = {**_RUNNING, "shortest": 1100, "longest": 1160, "groups": ("full", "sliding-1024")}


def _trick(
    name: str, without: str, replaced: Sequence[tuple[Any, str, Any]], witness: Any, entry: str, **more: Any
) -> Trick:
    """A trick that is for a workload of `blockproof bench`."""
    work = _ENTRIES[entry]
    given = {"work": work.title, "per": work.per, "kind": work.kind, "params": work.params}
    return Trick(name, without, replaced, witness, **{**given, **more})


class _AlwaysBehind(dict[str, int]):
    """Horizons before all tokens, whatever is found: every step ends behind its own."""

    def __setitem__(self, request_id: str, horizon: int) -> None:
        super().__setitem__(request_id, -1)


def _begin_behind(self: Any, *given: Any, begin: Any = RunningSteps.__init__) -> None:
    begin(self, *given)
    self.horizons = _AlwaysBehind()


def _register_loosely(
    self: Any, group: int, contents: Any, blocks: Any, row: Any, register: Any = BlockHashToBlockMap.register
) -> None:
    register(self, group, contents, blocks, None)


def _forget_each(self: Any, blocks: Any) -> None:
    for one in blocks:
        self.forget(one)


def _convert_each(hashes: Any) -> Any:
    return [block_hashing.maybe_convert_block_hash(content) for content in hashes]


def _allocate_each(self: Any, requests: Any, num_new_tokens: int = 1, num_lookahead_tokens: int = 0) -> Any:
    return [
        self.allocate_slots(request, num_new_tokens, num_lookahead_tokens=num_lookahead_tokens) for request in requests
    ]


_LONG_WAY = ((RunningSteps, "note", lambda self, *given: None), (RunningSteps, "look", lambda self, *given: 0))
_NO_FIRST_STEPS = ((RunningSteps, "begin", lambda self, *given: None),)
_NO_PROMPT_STEPS = ((StepsBehindPrompts, "begin", lambda self, *given: None),)
_LINKED = (
    (free_queue, "FreeKVCacheBlockQueue", linked_queue.FreeKVCacheBlockQueue),
    (block, "KVCacheBlock", linked_queue.KVCacheBlock),
)
_NO_CHAINS = ((block_hashing, "chain_of", lambda *given: None),)
_LINKED_WORK = {"per": "block", "kind": "queues"}
_ONE_BY_ONE = "each block hashed by the definition"

TRICKS: tuple[Trick, ...] = (
    Trick(
        "horizon",
        "every step asks all that a first one asks",
        _LONG_WAY,
        KVCacheCoordinator.allocate_new_blocks,
        "decode step that changes nothing, 256 requests",
        "request",
        "same-step",
        _RUNNING,
    ),
    Trick(
        "horizon-sliding",
        "the same",
        _LONG_WAY,
        KVCacheCoordinator.allocate_new_blocks,
        "the same, full + sliding 1024",
        "request",
        "same-step",
        _SLIDING,
    ),
    Trick(
        "horizon-alone",
        "every step asks each group what is due",
        ((RunningSteps, "__init__", _begin_behind),),
        OneGroupSteps.advance,
        "decode step that changes nothing, 256 requests",
        "request",
        "same-step",
        _RUNNING,
    ),
    Trick(
        "what-is-due",
        "every step asks all that a first one asks",
        _LONG_WAY,
        KVCacheCoordinator.allocate_new_blocks,
        "step that takes a block and registers one, 256 requests",
        "request",
        "block-steps",
        _RUNNING,
    ),
    Trick(
        "what-is-due-sliding",
        "the same",
        _LONG_WAY,
        KVCacheCoordinator.allocate_new_blocks,
        "the same, full + sliding 1024",
        "request",
        "block-steps",
        _SLIDING,
    ),
    Trick(
        "what-is-due-states",
        "the same",
        _LONG_WAY,
        KVCacheCoordinator.allocate_new_blocks,
        "the same, full + Mamba align",
        "request",
        "block-steps",
        _STATES,
    ),
    Trick(
        "one-group",
        "the loops for any number of groups",
        ((coordinator, "are_simple", lambda *given: False),),
        RunningSteps.advance,
        "step that takes a block and registers one, 256 requests",
        "request",
        "block-steps",
        _RUNNING,
    ),
    *[
        _trick(
            name,
            "every first step asks all that any step can ask",
            _NO_FIRST_STEPS,
            KVCacheManager._allocate_behind_horizon,
            entry,
            core="impl-today",
        )
        for name, entry in (("first-steps", "brief"), ("first-steps-sliding", "brief-sliding"))
    ],
    _trick(
        "prompt-steps",
        "every step of a prompt asks all that any step can ask",
        _NO_PROMPT_STEPS,
        TodayCoordinator.most_blocks_to_allocate,
        "today-inside",
        core="impl-today",
    ),
    _trick(
        "batch",
        "a loop over the requests",
        ((KVCacheManager, "allocate_slots_batch", _allocate_each),),
        KVCacheManager.allocate_slots,
        "decode-batch-256",
        work="decode step, 256 requests, in one call",
    ),
    _trick(
        "room-at-a-glance",
        "the exact need is always counted",
        ((KVCacheCoordinator, "most_blocks_to_allocate", lambda self, *given: maxsize),),
        KVCacheCoordinator.get_num_blocks_to_allocate,
        "hit-8k-sliding",
    ),
    Trick(
        "batches-append",
        "blocks linked to their neighbours",
        _LINKED,
        linked_queue.FreeKVCacheBlockQueue.append_n,
        "free queue: 512 blocks put to the back",
        params={"call": "append_n"},
        **_LINKED_WORK,
    ),
    Trick(
        "batches-take",
        "the same",
        _LINKED,
        linked_queue.FreeKVCacheBlockQueue.popleft_n,
        "free queue: 512 blocks taken from the front",
        params={"call": "popleft_n"},
        **_LINKED_WORK,
    ),
    Trick(
        "batches-remove",
        "the same",
        _LINKED,
        linked_queue.FreeKVCacheBlockQueue.remove,
        "free queue: blocks taken out of the middle, one by one",
        params={"call": "remove"},
        **_LINKED_WORK,
    ),
    _trick(
        "trusted-release",
        "each block is asked who holds it",
        ((BlockPool, "release", lambda self, blocks, prepend=False: self._give_back(blocks, prepend)),),
        BlockPool._give_back,
        "free-8k",
    ),
    _trick(
        "let-go",
        "each block is asked who holds it",
        ((BlockPool, "_let_go", lambda self, blocks, prepend: self._give_back(blocks, prepend)),),
        BlockPool._give_back,
        "held",
    ),
    _trick(
        "runs",
        "each block is looked up",
        ((BlockHashToBlockMap, "register", _register_loosely), (hash_map, "_WORTH_A_RUN", maxsize)),
        hash_map._place_in_run,
        "lookup-128k",
    ),
    _trick(
        "hit-at-once",
        "each block is asked who holds it",
        ((block_pool, "_BULK", maxsize),),
        FreeKVCacheBlockQueue.remove,
        "hit-128k",
    ),
    _trick(
        "forget-runs",
        "each block is forgotten alone",
        ((BlockHashToBlockMap, "forget_all", _forget_each),),
        BlockHashToBlockMap.forget,
        "evict-8k",
    ),
    *[
        _trick(
            name,
            "every hash stands in the map",
            ((TodayPool, "fold", lambda self, groups: None),),
            witness,
            work,
            core="impl-today",
        )
        for name, work, witness in (
            ("folded", "evict-8k", BlockHashToBlockMap._add_all),
            ("folded-small", "scattered", BlockHashToBlockMap.prefix),  # where nothing is folded
            ("folded-twins", "twins", BlockHashToBlockMap._add_all),
        )
    ],
    _trick(
        "folded-parted",
        "what both begin with is unfolded",
        ((FoldingMap, "_behind_others", lambda self, folds, run, at, head: None),),
        FoldingMap._unfold_run,
        "today-junctions",
        core="impl-today",
    ),
    _trick(
        "made-when-needed",
        "all blocks are made with the pool",
        ((FreeKVCacheBlockQueue, "reserve", lambda self, count, make: self.append_n(make(count))),),
        BlockPool._make,
        "pool-512k",
    ),
    _trick(
        "made-in-company",
        "one by one, where one is needed",
        ((free_queue, "_MAKE", 1),),
        BlockPool._make,
        "prefill-fresh-8k",
        work="prefill of 8k tokens in steps of 16, blocks never used before",
        params={**_ENTRIES["prefill-fresh-8k"].params, "chunk": 16},
    ),
    _trick("chains", _ONE_BY_ONE, _NO_CHAINS, block_hashing.hash_block_tokens, "request-sha256"),
    _trick(
        "chains-cbor",
        _ONE_BY_ONE,
        _NO_CHAINS,
        block_hashing.hash_block_tokens,
        "request-sha256_cbor",
        packages=("cbor2",),
    ),
    _trick(
        "chains-xxhash",
        _ONE_BY_ONE,
        _NO_CHAINS,
        block_hashing.hash_block_tokens,
        "request-xxhash",
        packages=("xxhash",),
    ),
    _trick(
        "events",
        "the environment is asked for every hash",
        tuple((module, "external_hashes", _convert_each) for module in (events, block_pool)),
        block_hashing.maybe_convert_block_hash,
        "events-8k",
    ),
)

NOT_SWITCHED = (
    "A map for each group: a map of keys that join hash and group would be another one in each of its methods,\n"
    "  and in every caller. Each key would be an object of its own, 69 bytes for a hash of 32.",
    "Compiled sources: they run in a package of their own, so that there is nothing to switch off;\n"
    "  `blockproof bench --target impl-compiled --against impl` compares the two ([how](../guide/fast.md)).",
)
