"""A manager with one request in one group: its real methods, over a pool that only counts.

Objects have no constructor, tables have symbolic length, and the pool notes what leaves the free queue and what comes
back. One thing is replaced while methods run on symbols: the count of eviction candidates in a hit, which goes through
the hit block by block, is taken from the table (T7.candidates shows on real blocks that this is what it counts). On
plain numbers nothing is replaced. `model_request` does the same for the model.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from types import SimpleNamespace
from typing import Any, NamedTuple

import z3

from ...model.attention import Mamba, Rule
from ...model.ops import NULL
from ..bare import bare
from ..claims import implies, some, use
from ..symbolic import SymbolicInt
from ..symbolic_table import Codec, SymbolicTable, pick
from . import kinds
from .kinds import ALIGN, kind_of

REQUEST = "request"
KINDS = (*kinds.KINDS, ALIGN)
"""Names of kinds; `align` stands for the third mode of states."""


class Step(NamedTuple):
    """One allocation of one request in one group, in tokens (`b` to `p`), table entries and tokens (the others)."""

    b: Any
    size: Any = 0
    """The window, the chunk, or the speculative blocks."""
    held: Any = 0
    """Entries of its table."""
    known: bool = False
    """True if the core counts it as running: from its first hit, external token or registered block on."""
    hit: Any = 0
    """Blocks of its hit."""
    first: Any = 0
    end: Any = 0
    """Those from `first` to `end - 1` are eviction candidates; what holds of all such ranges holds of all sets of
    blocks, since every count of them is a sum over blocks."""
    local: Any = 0
    external: Any = 0
    slots: Any = 0
    """Tokens that need a slot, lookahead included."""
    main: Any = 0
    """The same without lookahead."""
    batched: Any = 1
    max_len: Any = 1
    """What the admission cap is made of."""
    registered: Any = 1
    """0 if no block of the table carries an identity."""
    lookahead: Any = 0
    """Of the tokens that need a slot, those for drafts, where the gate is asked."""

    @property
    def total(self) -> Any:
        """Computed tokens, external ones included."""
        return self.local + self.external

    @property
    def symbolic(self) -> bool:
        """True if it stands for many."""
        return any(isinstance(value, SymbolicInt) for value in self)


@dataclass
class Block:
    """What managers see of a block."""

    block_id: Any
    ref_cnt: int = 1
    is_null: bool = False
    block_hash: bytes | None = b"content"

    @property
    def state(self) -> int:
        """As our core keeps it: how many hold it, or -1 for the null block."""
        return -1 if self.is_null else self.ref_cnt

    @property
    def content(self) -> bytes | None:
        """As our core keeps it: the hash without the group."""
        return self.block_hash


NULL_BLOCK = Block(NULL, is_null=True, block_hash=None)
BLOCKS = Codec(lambda number: NULL_BLOCK if number == 0 else Block(number), lambda block: block.block_id)


class Pool:
    """Counts what leaves the free queue (`taken`), and keeps what comes back (`returned`)."""

    null_block = NULL_BLOCK
    num_gpu_blocks = 1_000_000
    enable_kv_cache_events = False
    num_hash_lookahead_tokens = 0

    def __init__(self, symbolic: bool) -> None:
        self.symbolic = symbolic
        self.free: Any = SymbolicInt(z3.Int("free_at_start")) if symbolic else self.num_gpu_blocks
        """Free blocks at the start: any number, so that both ways are gone where a core asks."""
        self.taken: Any = 0
        self.returned: list[Any] = []

    def get_num_free_blocks(self) -> Any:
        """Blocks still in the queue."""
        return self.free - self.taken

    @property
    def free_block_queue(self) -> "Pool":
        """What is asked how many blocks are free."""
        return self

    @property
    def num_free_blocks(self) -> Any:
        """The same, of the queue."""
        return self.get_num_free_blocks()

    def get_new_block(self) -> Any:
        """One block."""
        self.taken = self.taken + 1
        return Block(1_000 + len(self.returned))

    def get_new_blocks(self, num_blocks: Any) -> Any:
        """So many blocks; ValueError for a negative number, which corrupts a queue."""
        if num_blocks < 0:
            raise ValueError("a negative number of blocks is asked for")
        self.taken = self.taken + num_blocks
        if self.symbolic:
            return SymbolicTable(num_blocks, lambda i: 1, lambda i: i, BLOCKS)
        return [Block(1_000 + len(self.returned) + i) for i in range(num_blocks)]

    def touch(self, blocks: Any) -> None:
        """Those that nobody held leave the queue."""
        self.taken = self.taken + _unheld(blocks)

    def free_blocks(self, ordered_blocks: Any, prepend: bool = False) -> None:
        """Remember them."""
        self.returned.extend(ordered_blocks)

    def release(self, blocks: Any, prepend: bool = False) -> None:
        """The same for the blocks of a table."""
        self.free_blocks(blocks, prepend)

    def release_by_names(self, blocks: Any) -> None:
        """The same, where the pool itself looks which of them have names."""
        named, others = with_and_without_names(blocks)
        self.free_blocks(named)
        self.free_blocks(others)

    def release_one(self, block: Any) -> None:
        """The same for one block."""
        self.free_blocks([block])


def with_and_without_names(blocks: Any) -> tuple[list[Any], list[Any]]:
    """These blocks in their order, in two lists."""
    return [one for one in blocks if one.content is not None], [one for one in blocks if one.content is None]


def _unheld(blocks: Any) -> Any:
    if isinstance(blocks, SymbolicTable):
        return blocks.marked()
    return sum(not block.is_null and block.ref_cnt == 0 for block in blocks)


def candidates_below(step: Step) -> Callable[[Any], Any]:
    """How many eviction candidates are among the first `i` blocks of the hit."""
    return lambda i: pick(i <= step.first, 0, pick(i <= step.end, i - step.first, step.end - step.first))


def hit_entry(kind: str, step: Step) -> Callable[[Any], Any]:
    """Ids of a hit; that of a state has one real block, its last."""
    if kind_of(kind).rule is Mamba:
        return lambda i: pick(i == step.hit - 1, i + 1, 0)
    return lambda i: i + 1


def made(symbolic: bool, length: Any, entry: Any, below: Any, codec: Codec, block: Callable[[int], Any]) -> Any:
    """A table, symbolic or a list: `entry` gives the ids, `below` counts marked ones, `block` makes blocks of ids."""
    if symbolic:
        return SymbolicTable(length, entry, below, codec)
    return [block(entry(i)) for i in range(length)]


# Cores with vLLM's API.


def _counting(kind: Any) -> Any:
    """The manager, with eviction candidates of symbolic tables counted by the tables."""
    real = kind._get_num_evictable_blocks

    def counted(cls: Any, blocks: Any) -> Any:
        return _unheld(blocks) if isinstance(blocks, SymbolicTable) else real(blocks)

    # Of the module of the core, which tells its own classes from those of others by it.
    own = {"__module__": kind.__module__, "_get_num_evictable_blocks": classmethod(counted)}
    return type(kind)(kind.__name__, (kind,), own)


def _whole_blocks(x: Any, b: Any) -> Any:
    """Law: so many blocks leave no rest."""
    return implies(b > 0, x * b % b == 0)


class Managed:
    """A manager with one request."""

    codec = BLOCKS

    @staticmethod
    def block(number: Any, content: bytes | None = b"content") -> Block:
        """The block with this id and content; the null block for 0."""
        return Block(number, block_hash=content) if isinstance(number, SymbolicInt) or number else NULL_BLOCK

    def __init__(self, names: Any, kind: str, step: Step, table: Any = None) -> None:
        of = kind_of(kind)
        self.step, self.kind = step, kind
        self.pool = Pool(step.symbolic)
        self.returned = self.pool.returned
        held = made(step.symbolic, step.held, lambda i: 1, lambda i: i, BLOCKS, Block)
        self.table = held if table is None else table
        sized = {of.field: step.size} if of.field else {}
        fields = {
            **sized,
            "block_size": step.b,
            "block_pool": self.pool,
            "enable_caching": True,
            "req_to_blocks": defaultdict(list, {REQUEST: self.table}),
            "num_cached_block": {REQUEST: 0} if step.known else {},
            "kv_cache_spec": SimpleNamespace(block_size=step.b),
            "new_block_ids": [],
            "_null_block": NULL_BLOCK,
            "_collects_new_block_ids": False,
            "collects_new_block_ids": False,
            "registers_every_block": True,
            "use_eagle": False,
            "kv_cache_group_id": 0,
            "_max_admission_blocks_per_request": None,
            "max_admission_blocks_per_request": None,
            "tails": {},
            "unit": step.b,
            "unzeroed": False,
            "extra_retained_tokens": 0,
            "cache_hit_alignment_tokens": step.b,
            "_partial_hit_reqs": {},
            "_record_new_block_ids": False,
        }
        if of.rule is Mamba:
            fields["kv_cache_spec"] = bare(names(of.spec), block_size=step.b)
            fields["cached_blocks_this_step"] = set()
            fields["mamba_cache_mode"] = "align" if kind == ALIGN else "none"
            fields["last_state_block_idx"] = {}
            fields["num_leading_nulls"] = {}
            fields["moves_blocks"] = kind == ALIGN
            fields["_allocated_block_reqs"] = {REQUEST} if step.known else set()
            fields["has_prefill_checkpoint_blocks"] = False
            fields["drop_eagle_checkpoint_block"] = False
            fields["_num_retired_blocks"] = {}
            fields["_checkpoints"] = {}
        if of.rule.cap is not Rule.cap:
            sized_spec = bare(names(of.spec), block_size=step.b, **sized)
            fields["_max_admission_blocks_per_request"] = sized_spec.max_admission_blocks_per_request
            fields["kv_cache_spec"] = sized_spec
        self.manager = bare(_counting(names(of.manager)), **fields)

    def has_no_table(self) -> None:
        """The request is not known yet: a table is there from when it is first asked for."""

        def empty() -> Any:
            return made(self.step.symbolic, 0, lambda i: 0, lambda i: 0, BLOCKS, Block)

        self.manager.req_to_blocks = defaultdict(empty)

    def cap(self) -> None:
        """From now on the gate counts no more than what a request can hold."""
        step, manager = self.step, self.manager
        if manager._max_admission_blocks_per_request is not None:
            cap = manager._max_admission_blocks_per_request(step.batched, step.max_len)
            manager._max_admission_blocks_per_request = manager.max_admission_blocks_per_request = cap
            manager.admission_limits = step.batched, step.max_len

    def hit(self) -> Any:
        """The blocks of the hit."""
        step = self.step

        def block(number: int) -> Block:
            held = not step.first < number <= step.end
            return Block(number, ref_cnt=int(held)) if number else NULL_BLOCK

        return made(step.symbolic, step.hit, hit_entry(self.kind, step), candidates_below(step), BLOCKS, block)

    def predicted(self, gate: bool = False) -> Any:
        """What the manager predicts."""
        step, manager = self.step, self.manager
        if gate:
            self.cap()
        told = "num_lookahead_tokens" in signature(manager.get_num_blocks_to_allocate).parameters
        lookahead = {"num_lookahead_tokens": step.lookahead} if told else {}
        return self._predicted(step.slots, self.hit(), step.total, step.local, step.main, gate, **lookahead)

    def _predicted(self, slots: Any, hit: Any, total: Any, local: Any, main: Any, gate: bool, **named: Any) -> Any:
        """A release of today asks where the hit of this core ends, too, and whether inside a block."""
        predict = self.manager.get_num_blocks_to_allocate
        told = (local,) if "num_local_computed_tokens" in signature(predict).parameters else ()
        if told and self.step.symbolic:
            use(_whole_blocks, self.step.hit, self.step.b)
        return predict(REQUEST, slots, hit, total, *told, main, gate, **named)

    def taken(self) -> Any:
        """What the allocation takes; begun tables are attached to only if there is a hit or external tokens."""
        step, manager = self.step, self.manager
        if some(step.hit > 0, step.external > 0):
            if hasattr(manager, "allocate_new_computed_blocks"):
                manager.allocate_new_computed_blocks(REQUEST, self.hit(), step.local, step.external)
            elif not step.known:
                if step.symbolic:
                    use(_whole_blocks, step.hit, step.b)
                # A release of today asks its managers one after the other, and twice.
                manager.add_local_computed_blocks(REQUEST, self.hit(), step.local, step.external)
                manager.allocate_external_computed_blocks(REQUEST, step.local, step.external)
        self._allocate(step.slots, step.main, step.total)
        return self.pool.taken

    def after(self) -> Any:
        """The table."""
        return self.manager.req_to_blocks[REQUEST]

    def note_nulls(self, nulls: Any) -> None:
        """The core knows that so many entries at the front of the table are null."""
        self.manager.num_leading_nulls[REQUEST] = nulls

    def null(self, computed: Any) -> None:
        """Entries out of sight become null."""
        self.manager.remove_skipped_blocks(REQUEST, computed)

    def grow(self, main: Any, computed: Any, settled: Any) -> None:
        """Room for so many tokens, without lookahead."""
        self._allocate(main, main, computed)

    def foreseen(self, main: Any, computed: Any, settled: Any) -> Any:
        """What the manager predicts that this takes."""
        return self._predicted(main, [], computed, computed, main, False)

    def _allocate(self, slots: Any, main: Any, computed: Any) -> None:
        """Our core is told where the step begins."""
        allocate = self.manager.allocate_new_blocks
        told = "total_computed_tokens" in signature(allocate).parameters
        allocate(REQUEST, slots, main, **({"total_computed_tokens": computed} if told else {}))

    def taken_so_far(self) -> Any:
        """Blocks that were new."""
        return self.pool.taken
