"""The pool by the rule of today: what is given back stands in the queue by whether it has a name, a block may have
several names, and who reads on in blocks that he holds no more is told when they are handed out."""

from collections.abc import Callable, Iterable, Sequence
from sys import maxsize
from typing import Any

from ..hashing.block_hash import BlockHash
from ..hashing.block_hashing import BlockHashList, external_hashes
from ..hashing.extra_keys import CacheableRequest
from ..pool import free_queue
from ..pool.block import Hit, KVCacheBlock, loose_run, with_and_without_identity
from ..pool.block_pool import BlockPool
from ..pool.events import MEDIUM_GPU, BlockRemoved
from .asleep import SleepyQueue
from .events import Places, blocks_stored
from .folded import FoldedRun
from .hashing import LastHashes
from .names import Name, SeveralNames

FEW = 3
"""So few blocks are told one by one when they are handed out."""


class TodayPool(BlockPool):
    """As before, with names of which a block may have several (`SeveralNames`)."""

    cached_block_hash_to_block: SeveralNames

    def __init__(self, *given: Any, num_hash_lookahead_tokens: int = 0, **named: Any) -> None:
        self._folding: Sequence[int] = ()
        super().__init__(*given, **named)
        self.num_hash_lookahead_tokens = num_hash_lookahead_tokens
        self._know(self.cached_block_hash_to_block)
        self._slept = False
        """Whether blocks have been forgotten, some of which may not exist again."""
        self.copying: list[tuple[KVCacheBlock, KVCacheBlock]] = []
        """Sources and targets of copies that nobody has asked for yet; each is held for it."""
        self._lent: dict[int, int] = {}
        """By block, how many references others have been told to give back when they have done with it."""
        self._watchers: dict[int, Callable[[KVCacheBlock], None]] = {}
        """Who is to be told when a block is handed out that he reads on."""

    def _new_queue(self) -> SleepyQueue:
        self._queue = SleepyQueue(())
        return self._queue

    def _new_names(self) -> SeveralNames:
        return SeveralNames(self._folding)

    def fold(self, groups: Sequence[int]) -> None:
        """Fold the runs of these groups, whose blocks are looked up from the left alone. Nothing is registered yet."""
        self._folding = groups
        self._know(self._new_names())

    # Names.

    def _know(self, names: SeveralNames) -> None:
        self.cached_block_hash_to_block = names
        self.further, self.partial = names.further, names.partial

    def hashes_at(self, request: CacheableRequest, block_size: int) -> BlockHashList:
        """Hashes of so many tokens each: of each block that of its last hash block."""
        if block_size == self.hash_block_size:
            return request.block_hashes
        return LastHashes(request.block_hashes, self.hash_block_size, block_size)

    def cache_full_blocks(
        self,
        request: CacheableRequest,
        blocks: Sequence[KVCacheBlock],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        kv_cache_group_id: int,
        block_mask: Sequence[bool] | None = None,
    ) -> None:
        """As before; names of a part of a block are no use any more once the whole has one."""
        chosen = blocks[num_cached_blocks:num_full_blocks]
        if self.partial and [block for block in chosen if block.content is not None]:
            for i, block in enumerate(chosen, num_cached_blocks):
                inside = self.partial.get(block.block_id, maxsize) < (i + 1) * block_size
                if inside and (block_mask is None or block_mask[i - num_cached_blocks]):
                    self.unname(block)
        BlockPool.cache_full_blocks(
            self, request, blocks, num_cached_blocks, num_full_blocks, block_size, kv_cache_group_id, block_mask
        )

    def cache_row(
        self, request: CacheableRequest, table: list[KVCacheBlock], first: int, end: int, size: int, group_id: int
    ) -> None:
        """As before."""
        blocks, per = table[first:end], size // self.hash_block_size
        contents = request.block_hashes[first * per + per - 1 : end * per : per]
        known, row = self.cached_block_hash_to_block, (first, table[first - 1] if first else None)
        if len(contents) < end - first or not known.register_new(group_id, contents, blocks, row):
            self.cache_full_blocks(request, table, first, end, size, group_id)
            return
        if self.enable_kv_cache_events:
            hashes = self.hashes_at(request, size)
            self._announce(request, hashes, range(first, end), (first, end, size, group_id))

    def cache_full_block(
        self, request: CacheableRequest, table: Sequence[KVCacheBlock], i: int, block_size: int, group_id: int
    ) -> None:
        """As before; behind a folded run the block goes on with it."""
        unit, hashes, block = self.hash_block_size, request.block_hashes, table[i]
        at = i if block_size == unit else (i + 1) * block_size // unit - 1
        if self.enable_kv_cache_events or len(hashes) <= at or block.content is not None:
            self.cache_full_blocks(request, table, i, i + 1, block_size, group_id)  # says what is wrong, if anything is
            return
        known, content = self.cached_block_hash_to_block, hashes[at]
        if group_id not in self._folding:
            block.content, block.run = content, loose_run(group_id)
            if known.groups[group_id].setdefault(content, block) is not block:
                self.cached_block_hash_to_block.add(group_id, content, block)
            return
        if not i:
            if not known.register_first(group_id, content, block):
                known.register(group_id, [content], [block], (i, None))
            return
        before = table[i - 1]
        run = before.run
        if isinstance(run, FoldedRun) and run.folded and run.blocks[-1] is before and run.again is None:
            folds = known.folds[group_id]
            alone = folds.heads[run.contents[0]] is run
            if alone and content not in folds.heads and content not in folds.index:
                run.contents.append(content)
                run.blocks.append(block)
                block.content, block.run = content, run
                return
        known.register(group_id, [content], [block], (i, before))

    def get_cached_block(self, block_hash: BlockHash, kv_cache_group_ids: Sequence[int]) -> list[KVCacheBlock] | None:
        """As before."""
        for group in kv_cache_group_ids:
            self.cached_block_hash_to_block.unfold(group)
        return super().get_cached_block(block_hash, kv_cache_group_ids)

    def is_named(self, block: KVCacheBlock, name: Name) -> bool:
        """Whether the block has this name."""
        if block.content is None or block.run is None:
            return False
        return (block.run.group, block.content) == name or name in self.further.get(block.block_id, ())

    def covers(self, block: KVCacheBlock, whole: int) -> int:
        """Tokens up to the end of what the first name of a block says, `whole` for all of it; 0 if it has none."""
        return 0 if block.content is None else self.partial.get(block.block_id, whole)

    def add_name(self, block: KVCacheBlock, group: int, content: BlockHash, covers: int | None) -> None:
        """Give the block one more name, of so many tokens; None for all that it has room for."""
        known = self.cached_block_hash_to_block
        if block.content is None:
            block.content = content
            if covers is None:
                block.run = loose_run(group)
            else:
                self.partial[block.block_id] = covers
                block.run = known.marked[group]
        elif block.run is not None:
            self.further.setdefault(block.block_id, []).append((group, content))
            known.mark(block, block.run.group)
        if known.groups[group].setdefault(content, block) is not block:
            known.add(group, content, block)

    def unname(self, block: KVCacheBlock) -> None:
        """Take all names from the block, and tell of it."""
        self._tell_gone(self._unnamed(block))

    def move_names(self, source: KVCacheBlock, target: KVCacheBlock) -> None:
        """The target gets the names of the source; nobody is told."""
        covers = self.partial.get(source.block_id)
        for group, content in self._unnamed(source):
            self.add_name(target, group, content, covers)

    def _unnamed(self, block: KVCacheBlock) -> list[Name]:
        content, run, known = block.content, block.run, self.cached_block_hash_to_block
        if content is None or run is None:
            return []
        names = [(run.group, content), *self.further.get(block.block_id, ())]
        return names if known.forget(block) else []

    def _tell_gone(self, names: Sequence[Name]) -> None:
        if self.enable_kv_cache_events and names:
            shown = external_hashes([content for _, content in names])
            groups = [group for group, _ in names]
            self.kv_event_queue += [
                BlockRemoved([content], MEDIUM_GPU, group) for content, group in zip(shown, groups, strict=True)
            ]

    def _forget_identity(self, block: KVCacheBlock) -> None:
        if self.enable_kv_cache_events or self.metrics_collector is not None:
            self._forget_loudly((block,))
        else:
            self.cached_block_hash_to_block.forget(block)

    def _forget_loudly(self, blocks: Sequence[KVCacheBlock]) -> None:
        names: list[Name] = []
        if self.metrics_collector is None and not self.further:
            named = [block for block in blocks if block.content is not None and block.run is not None]
            names = [(block.run.group, block.content) for block in named]  # type: ignore[union-attr,misc]
            self.cached_block_hash_to_block.forget_all(named)
            if [block for block in named if block.content is not None]:
                names = [name for name, block in zip(names, named, strict=True) if block.content is None]
            self._tell_gone(names)
            return
        for block in blocks:
            if self.metrics_collector is not None:
                self.metrics_collector.on_block_evicted(block)
            names += self._unnamed(block)
        self._tell_gone(names)

    # Holders.

    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        """As before; who reads one of them is told."""
        queue = self.free_block_queue
        plain = not self.enable_kv_cache_events and self.metrics_collector is None
        if not plain or not 0 < num_blocks <= queue.num_free_blocks:
            blocks = BlockPool.get_new_blocks(self, num_blocks)
        elif num_blocks == 1:
            blocks = [BlockPool.get_new_block(self)]
        else:
            blocks = queue.take(num_blocks)
            known = self.cached_block_hash_to_block
            if num_blocks <= FEW:
                for block in blocks:
                    if block.run is not None:
                        known.forget(block)
                    block.state = 1
            elif blocks[0].run is None or not known.take_end(blocks):
                known.forget_all(blocks)
                for block in blocks:
                    block.state = 1
        if self._watchers:
            self._tell_watchers(blocks)
        return blocks

    def get_new_block(self) -> KVCacheBlock:
        """The same for one, where one is free."""
        block = BlockPool.get_new_block(self)
        if self._watchers:
            self._tell_watchers([block])
        return block

    def _touch_many(self, blocks: Sequence[KVCacheBlock]) -> bool:
        """As before. The blocks of a hit mostly have the same holders, or were given back together, table's end first:
        then one comparison with the end of their batch, of which none is missing, tells that they stand in it."""
        state: Any = blocks[0].state
        queue, n = self.free_block_queue, len(blocks)
        first, made = blocks[0].block_id, self._made
        own = isinstance(blocks, Hit) and 0 <= first < len(made) and made[first] is blocks[0]
        if isinstance(state, int):
            if not own or state <= 0:
                return BlockPool._touch_many(self, blocks)
            more = state + 1
            for block in blocks:
                if block.state is not state:
                    break
                block.state = more
            else:
                self._num_shared += n if state == 1 else 0
                return True
            alike = blocks.index(block)
            self._num_shared += alike if state == 1 else 0
            self._touch_each(blocks[alike:])
            return True
        whole = state.queue is queue and n <= state.left == len(state.blocks) - state.at
        if whole and state.blocks[: -n - 1 : -1] == blocks:
            for block in blocks:
                block.state = 1
            queue.lose(state, n)
            return True
        if not own:
            return BlockPool._touch_many(self, blocks)
        self._touch_each(blocks)
        return True

    def _touch_each(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Hold blocks of a hit once more, whoever holds each and wherever it waits."""
        queue, n = self.free_block_queue, 0
        batch: Any = None
        for block in blocks:
            state: Any = block.state
            if state is batch:
                n += 1
            elif state.__class__ is int:
                if state == 1:
                    self._num_shared += 1
                block.state = state + 1
                continue
            else:
                if n:
                    queue.lose(batch, n)
                batch, n = state, 1
            block.state = 1
        if n:
            queue.lose(batch, n)

    def hold(self, block: KVCacheBlock) -> None:
        """One more reference to a block that is held: of a copy, which counts as no access."""
        if not isinstance(block.state, int) or block.state <= 0:
            raise AssertionError(f"block {block.block_id} is held by nobody: a copy needs what a table holds")
        self._num_shared += block.state == 1
        block.state += 1

    def lend(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Note that a reference to each of these is for somebody else to give back, by `free_blocks`: who does so
        gives back nothing that a table counts on."""
        for block in blocks:
            self._lent[block.block_id] = self._lent.get(block.block_id, 0) + 1

    def _were_lent(self, blocks: Sequence[KVCacheBlock]) -> bool:
        """Whether these are such references, which are given back now."""
        for block in blocks:
            left = self._lent.pop(block.block_id, 0) - 1
            if left < 0:
                return False
            if left:
                self._lent[block.block_id] = left
        return True

    def release_by_names(self, blocks: list[KVCacheBlock]) -> None:
        """As `free_blocks`, for the blocks of a table, nulls left out, none of which stands in it twice: one look at
        who holds them, and one at the names of those that nobody else holds."""
        if self._num_shared or not self._trusting:
            for block in blocks:
                if block.state != 1:
                    if self._trusting:
                        blocks = self._let_go_shared(blocks, blocks.index(block))
                        break
                    known, unknown = with_and_without_identity(blocks)
                    self._give_back(known, False)
                    self._give_back(unknown, True)
                    return
        queue, own, n = self.free_block_queue, 0, len(blocks)
        if n > free_queue.SMALL:
            while own < n and blocks[own].content is None:  # mostly the end of a table, which stands first
                own += 1
            if queue.append_named(blocks[own:] if own else blocks):
                if own:
                    queue.prepend_n(blocks[:own])
                return
        named: list[KVCacheBlock] = []
        others: list[KVCacheBlock] = []
        for block in blocks:
            if block.content is None:
                others.append(block)
            else:
                named.append(block)
        if others:
            queue.prepend_n(others)
        if named:
            queue.append_n(named)

    def _let_go_shared(self, blocks: list[KVCacheBlock], own: int) -> list[KVCacheBlock]:
        """One reference less to those of the blocks that others hold, too, of which the first one stands behind `own`
        others; the rest. Mostly they are a prefix, which stands behind the rest, and has the same holders."""
        freed, shared = blocks[:own], blocks[own:]
        holders: Any = shared[0].state
        less = holders - 1
        for block in shared:
            if block.state is not holders:
                break
            block.state = less
        else:
            self._num_shared -= len(shared) if holders == 2 else 0
            return freed
        alike = shared.index(block)
        self._num_shared -= alike if holders == 2 else 0
        for block in shared[alike:]:
            state: Any = block.state
            if state == 1:
                freed.append(block)
            else:
                block.state = state - 1
                self._num_shared -= state == 2
        return freed

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock], prepend: bool = False) -> None:
        """As before, but named blocks go to the back and the others to the front, whatever `prepend` says."""
        blocks = [block for block in ordered_blocks if block is not self.null_block]
        named, others = with_and_without_identity(blocks)
        if self._trusting:
            self._trusting = self._were_lent(blocks)
        if not named or not others or not self._are_held(blocks):
            self._give_back(blocks, not named)
        else:
            self._give_back(named, False)
            self._give_back(others, True)

    def _are_held(self, blocks: Sequence[KVCacheBlock]) -> bool:
        """Whether each has at least as many references as it stands here."""
        counts: dict[int, int] = {}
        for block in blocks:
            counts[block.block_id] = counts.get(block.block_id, 0) + 1
            known = 0 <= block.block_id < len(self._made) and self._made[block.block_id] is block
            if not known or counts[block.block_id] > block.ref_cnt:
                return False
        return True

    def unpin_blocks(self, blocks: Iterable[KVCacheBlock], on_reuse: Callable[[KVCacheBlock], None]) -> None:
        """Give back one reference each to blocks that are read on: they are reused last, whatever they are named, and
        `on_reuse` is called when one is handed out, or all names are forgotten. Errors as of `free_blocks`."""
        read = [block for block in blocks if block is not self.null_block]
        if self._trusting:
            self._trusting = self._were_lent(read)
        self._give_back(read, False)
        self._watchers.update((block.block_id, on_reuse) for block in read)

    def _tell_watchers(self, blocks: Sequence[KVCacheBlock]) -> None:
        for block in blocks:
            watcher = self._watchers.pop(block.block_id, None)
            if watcher is not None:
                watcher(block)

    def reset_prefix_cache(self) -> bool:
        """As before; whoever reads on is told."""
        before = self.cached_block_hash_to_block
        if not super().reset_prefix_cache():
            return False
        before.dissolve()
        self._know(self.cached_block_hash_to_block)
        self._tell_watchers([self._made[block_id] for block_id in self._watchers])
        self._slept |= self._queue.put_to_sleep(self._made)
        return True

    @property
    def blocks(self) -> list[KVCacheBlock]:
        """As before."""
        if self._slept:
            self._slept = False
            self.free_block_queue.make_all()
        return super().blocks

    def free_ids(self) -> list[int]:
        """As before; who only looks at places makes no block."""
        return self._queue.ids(len(self._made))

    def ref_counts(self) -> list[int]:
        """As before."""
        states = [0 if block is None else block.ref_cnt for block in self._made]
        return states + [0] * (self.num_gpu_blocks - len(states))

    def identities(self) -> list[Name | None]:
        """As before."""
        names: list[Any] = [one and one.run and (one.run.group, one.content) for one in self._made]
        return names + [None] * (self.num_gpu_blocks - len(names))

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """As before."""
        ids, made = list(block_ids), self._made
        super().evict_blocks([i for i in ids if not self._slept or not 0 <= i < len(made) or made[i] is not None])

    # Events.

    def tell_stored(
        self,
        request: CacheableRequest,
        group_id: int,
        places: Places,
        hashes: Sequence[BlockHash],
        parent: BlockHash | None,
    ) -> None:
        """Tell that these blocks of a request are there, if anybody listens."""
        if self.enable_kv_cache_events:
            self.kv_event_queue.append(blocks_stored(request, hashes, parent, places, group_id))

    def _announce(
        self, request: CacheableRequest, hashes: BlockHashList, chosen: Sequence[int], part: tuple[int, int, int, int]
    ) -> None:
        first, end, size, group_id = part
        ahead = self.num_hash_lookahead_tokens
        whole = isinstance(chosen, range)
        starts = range(first * size, end * size, size) if whole else [i * size for i in chosen]
        told = hashes[first:end] if whole else [hashes[i] for i in chosen]
        parent = hashes[first - 1] if first else None
        self.tell_stored(request, group_id, Places(starts, (first * size, end * size), size, ahead), told, parent)

    def _check_names(self) -> None:
        """As before, but that a block may be found under several names."""
        self.cached_block_hash_to_block.check(self.blocks, self.further)
        for block_id, names in self.further.items():
            for group, content in names:
                if self._made[block_id] not in self.cached_block_hash_to_block.blocks_in(group, content):
                    raise AssertionError(f"further names are found: block {block_id} in group {group}")
        carried = {block.block_id for block in self._made if block.content is not None}
        if strange := {*self.further, *self.partial} - carried:
            raise AssertionError(f"only named blocks have further names: {sorted(strange)}")
        marked = {block.block_id for block in self.blocks if self.cached_block_hash_to_block.is_marked(block)}
        if marked != self.further.keys() | self.partial.keys():
            raise AssertionError(f"marked are blocks of which more is kept: {marked}, {self.further}, {self.partial}")
