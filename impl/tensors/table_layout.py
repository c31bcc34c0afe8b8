"""How the block tables of all groups lie in one array, on the host and on a device (core.md §11).

On the host an entry is a block. On a device it is what an attention kernel reads: where that takes blocks of fewer
tokens, a block has `split` entries there. The tables of all groups lie one behind the other, so one index names an
entry of any of them; what changes is told by the index on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..specs.base import MambaSpec, cdiv
from ..specs.interface import KVCacheConfig, UniformTypeKVCacheSpecs

HEADER = 8
"""Numbers at the beginning of what is staged: changed entries, requests, tokens, where the new entries begin, how often
the buffer of the step before was filled, which one it is, and how many halvings find the request of a token: none if
token i is that of request i."""
FIELDS = (
    "host_base", "host_row", "device_base", "stride", "split", "size", "width", "parallel", "rank", "entries", "state"
)  # fmt: skip
"""What the kernels are told of a group, in this order; `stride` and `entries` are counted on the device."""
POSITIONS = 2**31
"""Positions are less than that."""
LINE = 16
"""Entries in a line of the host's cache. A row has an odd number of lines: were rows a power of two apart, those that
many requests write at once would have to share a few places of the cache. Measured: 768 rows in 1.6 us, not in 6.2."""


@dataclass(frozen=True)
class GroupTable:
    """The table of one group.

    Tokens are those of one rank: with context parallelism, `parallel` ranks share the tokens of a request, `interleave`
    of them in turn, and a block of this rank is one of `block_size * parallel` tokens of the request.
    """

    block_size: int
    max_blocks: int
    """Entries of a row."""
    kernel_block_size: int | None = None
    """Tokens of a block as the attention kernel takes it, which divide a block; the same unless given."""
    parallel: int = 1
    ring: bool = False
    """Entries are used in turn, over and over: block i of a request is in entry `i % max_blocks`."""
    state: bool = False
    """A block holds one state and no tokens: the place of a token is the block of its state."""

    @property
    def tokens(self) -> int:
        """Tokens of a request that one entry is for."""
        return self.block_size * self.parallel


class TableLayout:
    """Where the tables of these groups are, and what is staged where. Sizes are in numbers of 32 bits."""

    def __init__(self, groups: Sequence[GroupTable], max_requests: int, rank: int = 0, interleave: int = 1) -> None:
        """ValueError, naming the group, for sizes that make no table."""
        self.groups = tuple(groups)
        self.max_requests = max_requests
        self.interleave = interleave
        if max_requests < 1:
            raise ValueError(f"max_requests is {max_requests}: give at least 1")
        for index, group in enumerate(groups):
            _check(index, group, rank, interleave)
        self.numbers: list[tuple[int, ...]] = []
        """For each group, its `FIELDS`."""
        self.entries = self.device_entries = 0
        """Of all tables together."""
        for group in groups:
            width = group.kernel_block_size or group.block_size
            split = group.block_size // width
            row = group.max_blocks * split
            host_row = LINE * (cdiv(group.max_blocks, LINE) | 1)
            sizes = (self.entries, host_row, self.device_entries, row, split, group.block_size, width)
            own_rank = rank if group.parallel > 1 else 0
            self.numbers.append((*sizes, group.parallel, own_rank, row, int(group.state)))
            self.entries += max_requests * host_row
            self.device_entries += max_requests * row
        if (most := max(self.entries, self.device_entries)) >= 2**31:
            raise ValueError(f"{most} entries cannot be named by 32 bits: use fewer or shorter rows")
        self.split = max((numbers[4] for numbers in self.numbers), default=1)
        self.changes_at = cdiv(HEADER + 3 * max_requests, 4) * 4

    def of_group(self, group: int) -> tuple[int, ...]:
        """Its `FIELDS`. ValueError for a group that does not exist."""
        if not 0 <= group < len(self.groups):
            raise ValueError(f"there is no group {group}: groups are 0 to {len(self.groups) - 1}")
        return self.numbers[group]

    def staged(self, changes: int) -> int:
        """Numbers that a step of so many changed entries takes."""
        return self.changes_at + 2 * changes


def _check(index: int, group: GroupTable, rank: int, interleave: int) -> None:
    for what in ("block_size", "max_blocks", "parallel"):
        if getattr(group, what) < 1:
            raise ValueError(f"group {index}: {what} is {getattr(group, what)}: give at least 1")
    if group.tokens >= POSITIONS or (not group.ring and group.max_blocks * group.tokens > POSITIONS):
        raise ValueError(f"group {index}: {group.max_blocks} blocks of {group.tokens} tokens: positions have 31 bits")
    width = group.kernel_block_size
    if width is not None and (width < 1 or group.block_size % width):
        raise ValueError(
            f"group {index}: kernel_block_size is {width}: give a size that divides the {group.block_size} of a block"
        )
    if group.parallel > 1 and not 0 <= rank < group.parallel:
        raise ValueError(f"group {index}: there is no rank {rank}: ranks are 0 to {group.parallel - 1}")
    if interleave < 1 or (group.parallel > 1 and group.block_size % interleave):
        raise ValueError(
            f"group {index}: interleave is {interleave}: give a number that divides the {group.block_size} of a block"
        )
    if group.state and (group.parallel > 1 or width not in (None, group.block_size)):
        raise ValueError(f"group {index}: a state is neither split nor shared by ranks")


def tables_of(config: KVCacheConfig, max_tokens: int, parallel: int = 1) -> list[GroupTable]:
    """One for each group of a configuration, with entries for requests of `max_tokens` tokens.

    Speculative Mamba states have entries behind those. States are on every rank, tokens are shared by `parallel`.
    """
    tables = []
    for group in config.kv_cache_groups:
        spec = group.kv_cache_spec
        members = spec.kv_cache_specs.values() if isinstance(spec, UniformTypeKVCacheSpecs) else [spec]
        states = [each for each in members if isinstance(each, MambaSpec)]
        spare = max((each.num_speculative_blocks for each in states), default=0)
        ranks = 1 if states else parallel
        entries = cdiv(max_tokens, spec.block_size * ranks) + spare
        tables.append(GroupTable(spec.block_size, entries, parallel=ranks, state=bool(states)))
    return tables
