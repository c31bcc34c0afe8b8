"""The searches that `hybrid_search` holds against the definition: the model's, ours, a release's, and altered ones.

All of them look a hit up in a cache that is set directly, one entry for each registered block, so that caches which no
history of requests leads to are tried as well.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from .. import impl
from ..model.attention import Chunked, Found, Hit, Rule, Sliding, rule_for
from ..model.identity import Identities, Identity
from ..model.lookup import Coordinator, Query, SpecGroup
from ..model.ops import Group, Shape
from ..model.state import Key
from .hybrid_scopes import Scope
from .hybrid_search import Answer, Ask, Registered, Search

Subject: TypeAlias = Callable[[Scope], Search]
Names: TypeAlias = Callable[[str], Any]
"""A core's class or function by its name in vLLM 0.23; AttributeError if it has none."""


class Watched(Coordinator):
    """The model's coordinator, and what its last search asked the types."""

    path: tuple[Ask, ...] = ()

    def __init__(self, shape: Shape, rules: list[Rule]) -> None:
        super().__init__(shape, rules)
        self._asked: list[Ask] = []

    def common_hit(self, query: Query) -> tuple[int, dict[SpecGroup, Hit]]:
        """As the model's."""
        self._asked.clear()
        found = self.descend(query)
        self.path = tuple(self._asked)
        return found

    def descend(self, query: Query) -> tuple[int, dict[SpecGroup, Hit]]:
        """The model's search itself."""
        return super().common_hit(query)

    def hit(self, spec_group: SpecGroup, query: Query, limit: int, drop: bool) -> Hit:
        """As the model's."""
        found = super().hit(spec_group, query, limit, drop)
        self._asked.append(Ask(spec_group.groups[0], limit, drop, found.stop * spec_group.rule.b))
        return found


class ModelSearch:
    """The model's lookup, or that of an altered coordinator, over a dictionary of what is registered."""

    def __init__(self, scope: Scope, coordinator: type[Watched], rule: Callable[[Group, Shape], Rule]) -> None:
        shape = scope.shape
        self._coordinator = coordinator(shape, [rule(group, shape) for group in scope.groups])
        self._earliest: dict[Key, int] = {}
        identities, parent = Identities(), None  # type: Identities, Identity | None
        self._chain: list[Identity] = []
        for i in range((scope.tokens + 1) // scope.hash_block_size):
            parent = identities(parent, (i,), ())
            self._chain.append(parent)
        self._cache = _Cache(scope, self._insert, self._remove)

    def __call__(self, limit: int, registered: Registered) -> Answer:
        """The model's answer."""
        self._cache.become(registered)
        chain = self._chain[: (limit + 1) // self._coordinator.shape.hash_block_size]
        length, rows = self._coordinator.longest_hit(Query(chain, limit, self._earliest), Counter())
        return Answer(length, tuple(map(tuple, rows)), self._coordinator.path)

    def _insert(self, group: int, i: int, block: int) -> None:
        self._earliest[self._key(group, i)] = block

    def _remove(self, group: int, i: int, block: int) -> None:
        del self._earliest[self._key(group, i)]

    def _key(self, group: int, i: int) -> Key:
        return group, self._coordinator.identity(self._chain, self._coordinator.rules[group], i)


class CoreSearch:
    """The lookup of a core with the API of vLLM 0.23."""

    def __init__(self, scope: Scope, names: Names, dtype: object) -> None:
        shape = scope.shape
        groups = [
            names("KVCacheGroupSpec")([f"layer.{i}"], _spec(group, names, dtype), is_eagle_group=group.eagle)
            for i, group in enumerate(scope.groups)
        ]
        manager = names("KVCacheManager")(
            names("KVCacheConfig")(num_blocks=shape.num_blocks, kv_cache_tensors=[], kv_cache_groups=groups),
            max_model_len=shape.max_model_len,
            scheduler_block_size=shape.scheduler_block_size,
            hash_block_size=shape.hash_block_size,
            enable_caching=True,
            use_eagle=scope.eagle,
        )
        self._hash_block_size = shape.hash_block_size
        self._coordinator, self._pool = manager.coordinator, manager.block_pool
        self._chain = [i.to_bytes(32, "big") for i in range((scope.tokens + 1) // shape.hash_block_size)]
        key = names("make_block_hash_with_group_id")
        self._keys = [
            [key(block_hash, i) for block_hash in self._hashes(names, group)] for i, group in enumerate(scope.groups)
        ]
        self._asked: list[Ask] = []
        self._coordinator.attention_groups = [
            group._replace(manager_cls=self._watched(group.manager_cls)) for group in self._coordinator.attention_groups
        ]
        self._cache = _Cache(scope, self._insert, self._remove)

    def __call__(self, limit: int, registered: Registered) -> Answer:
        """The core's answer."""
        self._cache.become(registered)
        self._asked.clear()
        chain = self._chain[: (limit + 1) // self._hash_block_size]
        rows, length = self._coordinator.find_longest_cache_hit(chain, limit)
        return Answer(length, tuple([tuple([block.block_id for block in row]) for row in rows]), tuple(self._asked))

    def _hashes(self, names: Names, group: Group) -> Any:
        if group.block_size == self._hash_block_size:
            return self._chain
        hashes = names("BlockHashListWithBlockSize")(self._chain, self._hash_block_size, group.block_size)
        return [hashes[i] for i in range(len(hashes))]

    def _insert(self, group: int, i: int, block: int) -> None:
        self._pool.cached_block_hash_to_block.insert(self._keys[group][i], self._pool.blocks[block])

    def _remove(self, group: int, i: int, block: int) -> None:
        self._pool.cached_block_hash_to_block.pop(self._keys[group][i], block)

    def _watched(self, manager: Any) -> Any:
        """The manager class, unchanged but for a note of each search."""
        search, asked = manager.find_longest_cache_hit, self._asked

        def find_longest_cache_hit(_: Any, *args: Any, **kwargs: Any) -> Any:
            found = search(*args, **kwargs)
            given = dict(zip(_PARAMETERS, args, strict=False)) | kwargs
            length = len(found[0]) * given["kv_cache_spec"].block_size
            asked.append(Ask(given["kv_cache_group_ids"][0], given["max_length"], given["drop_eagle_block"], length))
            return found

        return type(manager.__name__, (manager,), {"find_longest_cache_hit": classmethod(find_longest_cache_hit)})


_PARAMETERS = (
    "block_hashes",
    "max_length",
    "kv_cache_group_ids",
    "block_pool",
    "kv_cache_spec",
    "drop_eagle_block",
    "alignment_tokens",
)


class _Cache:
    """What is registered now; changes one set of blocks into the next."""

    def __init__(
        self, scope: Scope, insert: Callable[[int, int, int], None], remove: Callable[[int, int, int], None]
    ) -> None:
        self._scope, self._insert, self._remove = scope, insert, remove
        self._now = [0] * len(scope.groups)

    def become(self, registered: Registered) -> None:
        """Insert and remove what differs."""
        for group, (old, new) in enumerate(zip(self._now, registered, strict=True)):
            change = old ^ new
            while change:
                i = change.bit_length() - 1
                act = self._insert if new >> i & 1 else self._remove
                act(group, i, self._scope.block_id(group, i))
                change ^= 1 << i
            self._now[group] = new


def _spec(group: Group, names: Names, dtype: object) -> Any:
    sizes = {"block_size": group.block_size, "num_kv_heads": group.num_heads, "head_size": 1, "dtype": dtype}
    match group.kind:
        case "full":
            return names("FullAttentionSpec")(**sizes)
        case "mla":
            return names("MLAAttentionSpec")(**sizes)
        case "sliding":
            return names("SlidingWindowSpec")(**sizes, sliding_window=group.window)
        case "chunked":
            return names("ChunkedLocalAttentionSpec")(**sizes, attention_chunk_size=group.chunk)
        case "mamba":
            return names("MambaSpec")(
                block_size=group.block_size,
                shapes=((group.num_heads,),),
                dtypes=(dtype,),
                mamba_cache_mode=group.mamba_mode,
                num_speculative_blocks=group.speculative_blocks,
            )
    raise ValueError(f"no scope has a group of kind {group.kind!r}: use full, mla, sliding, chunked or mamba")


class AnyElement:
    """An element type of one byte; no rule of the lookup reads it."""

    itemsize = 1


def model_search(scope: Scope) -> Search:
    """The model's lookup (model/lookup.py)."""
    return ModelSearch(scope, Watched, rule_for)


def impl_search(scope: Scope) -> Search:
    """Our core's lookup (impl/kv_cache_coordinator.py)."""
    return CoreSearch(scope, lambda name: getattr(impl, name), AnyElement())


def named_search(names: Names, dtype: object) -> Subject:
    """The lookup of the core with these names, a release for instance; `dtype` is an element type of its specs."""
    return lambda scope: CoreSearch(scope, names, dtype)


class ExactSliding(Sliding):
    """A window whose answer is its greatest valid length: an edge near the start is not cut a second time."""

    def hit(self, found: Found, limit: int, drop: bool, alignment: int) -> Hit:
        """The last aligned edge before which all that is demanded is registered."""
        need = max(1, self.need(drop))
        for end in range(limit // self.b, 0, -1):
            first = max(0, end - need)
            if (end - drop) * self.b % alignment == 0 and all(found(i) for i in range(first, end)):
                return range(first, end - drop)
        return range(0)


class ExactChunked(Chunked):
    """Chunks whose answer is their greatest valid length: what is out of sight is so for the hit found."""

    def hit(self, found: Found, limit: int, drop: bool, alignment: int) -> Hit:
        """The last edge before which all blocks of its chunk are registered."""
        for end in range(limit // self.b, 0, -1):
            first = self.skipped(end * self.b) // self.b
            if end * self.b % alignment == 0 and all(found(i) for i in range(first, end)):
                return range(first, end)
        return range(0)


def exact_rule(group: Group, shape: Shape) -> Rule:
    """The model's rule, with the two types replaced whose answers are not exact."""
    exact = {"sliding": ExactSliding, "chunked": ExactChunked}.get(group.kind)
    return exact(group, shape) if exact else rule_for(group, shape)


class Descent(Watched):
    """A search without memory: an eagle type is asked one block beyond each candidate, always.

    It accepts a length that it has accepted before, so nothing has to be remembered about who has given a block up.
    """

    def descend(self, query: Query) -> tuple[int, dict[SpecGroup, Hit]]:
        """Every type is asked again until a whole round leaves the candidate alone."""
        length, hits = query.limit, {}  # type: int, dict[SpecGroup, Hit]
        while True:
            before = length
            for spec_group in self.spec_groups:
                drop = spec_group.eagle and spec_group.rule.drops
                hits[spec_group] = hit = self.hit(spec_group, query, self.reach(spec_group, query, length), drop)
                length = hit.stop * spec_group.rule.b
            if self.ends(before, length):
                return length, hits

    def reach(self, spec_group: SpecGroup, query: Query, length: int) -> int:
        """How far a type may look for a candidate length, in tokens."""
        drop = spec_group.eagle and spec_group.rule.drops
        return min(length + drop * spec_group.rule.b, query.limit)

    def ends(self, before: int, length: int) -> bool:
        """True if the search ends after a round that led from one candidate to another."""
        return length >= before


def descent_search(scope: Scope) -> Search:
    """The model's types under the search without memory: what the loop alone puts right."""
    return ModelSearch(scope, Descent, rule_for)


def exact_search(scope: Scope) -> Search:
    """A search that is right in every scope: what the defects of the others cost is the difference."""
    return ModelSearch(scope, Descent, exact_rule)


class _OneRound(Descent):
    def ends(self, before: int, length: int) -> bool:
        return True


class _DropsAgain(Descent):
    def reach(self, spec_group: SpecGroup, query: Query, length: int) -> int:
        return length


class _StaleEagle(Descent):
    """Gives a block up in the first round only."""

    def descend(self, query: Query) -> tuple[int, dict[SpecGroup, Hit]]:
        self.first = True
        return super().descend(query)

    def hit(self, spec_group: SpecGroup, query: Query, limit: int, drop: bool) -> Hit:
        return super().hit(spec_group, query, limit, drop and self.first)

    def reach(self, spec_group: SpecGroup, query: Query, length: int) -> int:
        return super().reach(spec_group, query, length) if self.first else length

    def ends(self, before: int, length: int) -> bool:
        self.first = False
        return super().ends(before, length)


class _NotCut(Watched):
    def end(self, spec_group: SpecGroup, hit: Hit, length: int) -> int:
        return hit.stop


class _StatesBeyond(Descent):
    """Looks for the state of an eagle Mamba group one block beyond the candidate."""

    def reach(self, spec_group: SpecGroup, query: Query, length: int) -> int:
        return min(length + spec_group.eagle * spec_group.rule.b, query.limit)


class _NothingGivenUp(Descent):
    def hit(self, spec_group: SpecGroup, query: Query, limit: int, drop: bool) -> Hit:
        return super().hit(spec_group, query, limit, False)

    def reach(self, spec_group: SpecGroup, query: Query, length: int) -> int:
        return length


class _NothingLeft(Descent):
    """Leaves no token to compute."""

    def longest_hit(self, query: Query, reached: Counter[str]) -> tuple[int, list[list[int]]]:
        return super().longest_hit(query._replace(limit=query.limit + 1), reached)


WRONG: dict[str, Subject] = {
    name: partial(ModelSearch, coordinator=coordinator, rule=exact_rule)
    for name, coordinator in {
        "ends after one round": _OneRound,
        "gives up a block in every round": _DropsAgain,
        "gives up a block in the first round only": _StaleEagle,
        "does not cut to the common length": _NotCut,
        "looks for states beyond the candidate": _StatesBeyond,
        "gives up no block": _NothingGivenUp,
        "leaves no token to compute": _NothingLeft,
    }.items()
}
"""Searches with one fault each, which `exhaust` must refute."""
