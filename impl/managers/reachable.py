"""Which blocks a later hit can use, so that it pays to register them (core.md §8)."""

from typing import Any

from ..specs.interface import KVCacheSpec


class ReachableBlocks:
    """What a manager's type says of it: from which blocks the query at a boundary reads."""

    @classmethod
    def reachable_block_mask(
        cls,
        start_block: int,
        end_block: int,
        alignment_tokens: int | None,
        kv_cache_spec: KVCacheSpec,
        use_eagle: bool,
        retention_interval: int | None = None,
        num_prompt_tokens: int | None = None,
        tokens_behind: int = 1,
        block_size: int | None = None,
    ) -> list[bool] | None:
        """For each block `start_block .. end_block - 1` whether a hit can use it; None if all can (core.md §8).

        A hit ends at a boundary, never at token 0: a multiple of `alignment_tokens`, or, with a retention interval, a
        multiple of that and the replay boundary. It uses the blocks that the query at its end reads, and with
        `use_eagle` the block behind. `block_size` is that of a table's entries if the spec's is not.
        """
        if alignment_tokens is None:
            return None
        size = kv_cache_spec.block_size if block_size is None else block_size
        segment = alignment_tokens if retention_interval is None else retention_interval
        blocks = range(start_block, end_block)
        mask: list[bool] | None
        if segment:
            mask = cls.read_at_next_boundary(kv_cache_spec, blocks, size, segment)
            if mask is not None and use_eagle:
                per = segment // size
                mask = [read or (i > 0 and i % per == 0) for i, read in zip(blocks, mask, strict=True)]
        else:
            mask = [False for _ in blocks]
        if mask is None:
            return None
        if retention_interval is not None and num_prompt_tokens is not None:
            replay = replay_boundary(num_prompt_tokens, tokens_behind, alignment_tokens)
            if replay > 0:
                edge = replay // size
                first, end = cls.first_read(kv_cache_spec, edge, size), edge + 1 if use_eagle else edge
                for i in range(max(start_block, first), min(end_block, end)):
                    mask[i - start_block] = True
        return mask

    @classmethod
    def blocks_read_before(cls, kv_cache_spec: Any, block_size: int) -> int | None:
        """How many blocks before a boundary the query there reads; None if it reads all."""
        return None

    @classmethod
    def first_read(cls, kv_cache_spec: Any, num_blocks: int, block_size: int) -> int:
        """Index of the first block that the query behind so many blocks reads."""
        need = cls.blocks_read_before(kv_cache_spec, block_size)
        return 0 if need is None else max(0, num_blocks - need)

    @classmethod
    def read_at_next_boundary(cls, kv_cache_spec: Any, blocks: range, block_size: int, unit: int) -> list[bool] | None:
        """For each block whether the query at the first multiple of `unit` tokens at or after its end reads it.

        If a query at any multiple does, that one does: the later ones reach less far back. None if all blocks are read.
        """
        need, per = cls.blocks_read_before(kv_cache_spec, block_size), unit // block_size
        if need is None or need >= per:
            return None
        return [i % per >= per - need for i in blocks]


def replay_boundary(num_prompt_tokens: int, behind: int, alignment: int) -> int:
    """The longest hit of the same prompt again, `behind` tokens of which must follow it; 0 or less if it has none."""
    return (num_prompt_tokens - behind) // alignment * alignment
