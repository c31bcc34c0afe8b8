"""Managers that somebody else has written: what they replace of the base class, and what of it they can be told.

They are written for vLLM 0.23.0, whose coordinator calls `find_longest_cache_hit`, `allocate_new_computed_blocks` and
the other public methods of every manager, without the arguments that came later.
"""

from collections.abc import Callable, Sequence
from inspect import getattr_static, signature
from typing import Any, ClassVar, TypeVar

from ..hashing.block_hash import BlockHash
from ..hashing.block_hashing import BlockHashList, make_block_hash_with_group_id
from ..pool.block import KVCacheBlock
from ..pool.block_pool import BlockPool
from ..pool.hash_map import BlockHashToBlockMap
from .hit_search import HitBlocks, HitSearch, HitTerms

_OURS = f"{(__package__ or '').rpartition('.')[0]}."
"""What the names of our own modules begin with."""
_LATER = (("get_num_blocks_to_allocate", "num_settled_tokens", 6), ("allocate_new_blocks", "total_computed_tokens", 3))
"""Methods that every step calls, the first of the arguments that came later, and how many come before it."""


class Overridable:
    """A base class that knows of each class below it what that replaces. Its only direct subclass is the base."""

    finds_hits: ClassVar[bool] = False
    """Whether `find_longest_cache_hit` is somebody else's: no other search answers for it."""
    begins_tables: ClassVar[bool] = False
    """Whether `allocate_new_computed_blocks` is."""
    may_skip: ClassVar[bool] = False
    """Whether blocks are given back before the request ends. Full attention skips nothing, ever, and need
    not be asked."""
    mask_knows_tables: ClassVar[bool] = True
    """Whether `reachable_block_mask` can be told of the tokens behind a hit, and of the entries of a table."""
    is_ours: ClassVar[bool] = False
    """Whether the class is one of these modules, so that nothing happens in a step but what its horizon says."""
    takes_less: ClassVar[Sequence[tuple[str, int]]] = ()
    """Methods that do not take the arguments that came later, and how many they take."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        base = cls.__mro__[cls.__mro__.index(Overridable) - 1]

        def replaces(method: str) -> bool:
            return getattr_static(cls, method) is not getattr_static(base, method)

        cls.is_ours = cls.__module__.startswith(_OURS)
        cls.finds_hits = replaces("find_longest_cache_hit")
        cls.begins_tables = replaces("allocate_new_computed_blocks")
        cls.may_skip = replaces("get_num_skipped_tokens") or replaces("remove_skipped_blocks")
        cls.mask_knows_tables = takes(cls, "reachable_block_mask", "tokens_behind")
        cls.takes_less = [(method, before) for method, argument, before in _LATER if not takes(cls, method, argument)]


Manager = TypeVar("Manager", bound=Overridable)


def takes(kind: type, method: str, argument: str) -> bool:
    """True if a method can be given this argument."""
    parameters = signature(getattr(kind, method)).parameters
    return argument in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def told_what_it_takes(manager: Manager) -> Manager:
    """The manager. Methods that do not take later arguments are called without them from now on.

    Once and for all, as every step makes these calls.
    """
    for method, before in manager.takes_less:
        call = getattr(manager, method)
        setattr(manager, method, lambda *given, call=call, before=before: call(*given[:before]))
    return manager


class AskedSearch(HitSearch):
    """A lookup by somebody else's `find_longest_cache_hit`, which is asked anew about every bound."""

    def __init__(self, terms: HitTerms, hashes: BlockHashList, find: Callable[..., HitBlocks]) -> None:
        super().__init__(terms, hashes)
        self._find = find
        self._found: HitBlocks = ()

    def longest(self, bound: int) -> int:
        """What it finds. AssertionError if that is longer than the bound."""
        terms = self._terms
        # In vLLM 0.23.0 the bound has room for the block behind, too; in ours it has not, so ours may find too much.
        hashed = len(self._hashes) * terms.block_size
        length = self._ask(max(bound, min(bound + terms.behind * terms.block_size, hashed)))
        if length > bound:
            length = self._ask(bound)
        if length > bound:
            raise AssertionError(f"{self._find.__qualname__} found {length} tokens, more than the {bound} asked for")
        return length

    def _ask(self, bound: int) -> int:
        terms = self._terms
        ranks = {"dcp_world_size": terms.ranks} if terms.ranks > 1 else {}
        self._found = self._find(
            block_hashes=self._hashes,
            max_length=bound,
            kv_cache_group_ids=list(terms.group_ids),
            block_pool=terms.pool,
            kv_cache_spec=terms.spec,
            drop_eagle_block=terms.behind > 0,
            alignment_tokens=terms.per * terms.block_size,
            **ranks,
        )
        return len(self._found[0]) * terms.block_size

    def blocks(self, length: int) -> HitBlocks:
        """What was found last."""
        return tuple([list(row) for row in self._found])


class AskedPool:
    """A pool of somebody else's, which only says by `get_cached_block` whether a block is registered in a group.

    Connectors have such: they ask managers what of a store outside is a hit. What it says of the hashes of a lookup is
    registered here, with a block of our own for each that is there.
    """

    def __init__(self, pool: Any, hashes: BlockHashList, group_ids: Sequence[int]) -> None:
        self.null_block: KVCacheBlock = pool.null_block
        self.get_cached_block: Callable[[BlockHash, Sequence[int]], list[KVCacheBlock] | None] = pool.get_cached_block
        self.cached_block_hash_to_block = BlockHashToBlockMap()
        self._theirs: list[KVCacheBlock] = []
        for content in hashes:
            for group in group_ids:
                if found := pool.get_cached_block(content, [group]):
                    self._register(group, content, found[0])

    def _register(self, group: int, content: BlockHash, theirs: KVCacheBlock) -> None:
        own = KVCacheBlock(len(self._theirs))
        self._theirs.append(theirs)
        own.block_hash = make_block_hash_with_group_id(content, group)
        self.cached_block_hash_to_block.add(group, content, own)

    def theirs(self, hit: HitBlocks) -> HitBlocks:
        """The hit with that pool's blocks in place of ours."""
        null = self.null_block
        return tuple([null if block is null else self._theirs[block.block_id] for block in row] for row in hit)


def begin_tables(
    managers: Sequence[Any],
    hits: Sequence[Sequence[KVCacheBlock]],
    pool: BlockPool,
    request_id: str,
    computed: tuple[int, int],
    num_settled_tokens: int | None,
) -> None:
    """Begin the tables of a request where some managers do so in their own way, as
    `KVCacheCoordinator.allocate_new_computed_blocks`. `computed` are its local and its external tokens.

    Theirs take blocks for external tokens at once, so the hits of all of them are held meanwhile: such a block could be
    one of a hit. What none of them keeps goes to the back of the free queue.
    """
    theirs = [hit for manager, hit in zip(managers, hits, strict=True) if manager.begins_tables]
    held = [block for hit in theirs for block in hit] if len(theirs) > 1 and computed[1] else []
    pool.touch(held)
    missing = [
        0 if manager.begins_tables else manager.attach_computed_blocks(request_id, hit, *computed, num_settled_tokens)
        for manager, hit in zip(managers, hits, strict=True)
    ]
    for manager, hit, count in zip(managers, hits, missing, strict=True):
        if not manager.begins_tables:
            manager.allocate_external_blocks(request_id, count)
        elif takes(type(manager), "allocate_new_computed_blocks", "num_settled_tokens"):
            manager.allocate_new_computed_blocks(request_id, hit, *computed, num_settled_tokens)
        else:
            manager.allocate_new_computed_blocks(request_id, hit, *computed)
    pool.free_blocks(reversed(held))
