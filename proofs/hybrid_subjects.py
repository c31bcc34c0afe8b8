"""The searches that `hybrid_search` holds against the definition: the model's, ours, a release's, and altered ones.

All of them look a hit up in a cache that is set directly, one entry for each registered block, so that caches which no
history of requests leads to are tried as well.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from .. import impl
from ..model import lookup
from ..model.attention import Mamba, Rule, rules_for
from ..model.ops import NULL, Group
from .hybrid_scopes import Scope
from .hybrid_search import Answer, Registered, Search

Subject: TypeAlias = Callable[[Scope], Search]
Names: TypeAlias = Callable[[str], Any]
"""A core's class or function by its name in vLLM 0.23; AttributeError if it has none."""


Found: TypeAlias = Callable[[int, int], bool]
"""True if this block is registered in this group."""


class ModelSearch:
    """A search over what is registered, by the model's rules; `longest` is the model's own or an altered one."""

    def __init__(self, scope: Scope, longest: Callable[[Scope, list[Rule], int, Found], int]) -> None:
        self._scope, self._longest, self._rules = scope, longest, rules_for(scope.shape)

    def __call__(self, limit: int, registered: Registered) -> Answer:
        """The hit of a request of one token more than the limit."""
        known = [(limit + 1) // rule.b for rule in self._rules]
        asked: list[tuple[int, int]] = []

        def found(group: int, i: int) -> bool:
            asked.append((group, i))
            return i < known[group] and bool(registered[group] >> i & 1)

        length = self._longest(self._scope, self._rules, limit + 1, found)
        rows = []
        for group, rule in enumerate(self._rules):
            first, entries = rule.first(length), range(length // rule.b)
            rows.append(tuple([self._scope.block_id(group, i) if i >= first else NULL for i in entries]))
        return Answer(length, tuple(rows), tuple(asked))


class CoreSearch:
    """The lookup of a core with the API of vLLM 0.23."""

    def __init__(self, scope: Scope, names: Names, dtype: object) -> None:
        shape = scope.shape
        groups = [
            names("KVCacheGroupSpec")([f"layer.{i}"], spec_of(group, names, dtype), is_eagle_group=group.eagle)
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
        hashes = [self._hashes(names, group) for group in scope.groups]
        self._keys = [[key(block_hash, i) for block_hash in row] for i, row in enumerate(hashes)]
        self._cache = _Cache(scope, self._insert, self._remove)
        self._registered = type(self._pool.cached_block_hash_to_block)()
        seen = _SeenByGroup if hasattr(self._registered, "groups") else _Seen
        self._seen = seen(self._registered, hashes if seen is _SeenByGroup else self._keys)
        self._pool.cached_block_hash_to_block = self._seen

    def __call__(self, limit: int, registered: Registered) -> Answer:
        """The core's answer."""
        self._cache.become(registered)
        self._seen.asked.clear()
        chain = self._chain[: (limit + 1) // self._hash_block_size]
        rows, length, *_ = self._coordinator.find_longest_cache_hit(chain, limit)
        answer = tuple([tuple([block.block_id for block in row]) for row in rows])
        return Answer(length, answer, tuple(self._seen.asked))

    def _hashes(self, names: Names, group: Group) -> Any:
        if group.block_size == self._hash_block_size:
            return self._chain
        hashes = names("BlockHashListWithBlockSize")(self._chain, self._hash_block_size, group.block_size)
        return [hashes[i] for i in range(len(hashes))]

    def _insert(self, group: int, i: int, block: int) -> None:
        self._registered.insert(self._keys[group][i], self._pool.blocks[block])

    def _remove(self, group: int, i: int, block: int) -> None:
        self._registered.pop(self._keys[group][i], block)


class _Seen:
    """All that a core can see of what is registered: the block of a key. Notes what it looks at.

    It has nothing else, so that a core that looks in another way raises, and whoever kept what it replaces finds
    nothing there.
    """

    def __init__(self, registered: Any, keys: Sequence[Sequence[Any]]) -> None:
        self._registered = registered
        self._places = {key: (group, i) for group, row in enumerate(keys) for i, key in enumerate(row)}
        self.asked: list[tuple[int, int]] = []

    def get_one_block(self, key: Any) -> Any:
        """The core's own answer for this key."""
        if key in self._places:
            self.asked.append(self._places[key])
        return self._registered.get_one_block(key)


class _SeenByGroup:
    """The same of a core that looks by group and hash, block by block or along a row of hashes."""

    def __init__(self, registered: Any, hashes: Sequence[Sequence[Any]]) -> None:
        self.asked: list[tuple[int, int]] = []
        for group, row in enumerate(hashes):
            registered.groups[group] = _Noting(self.asked, {one: (group, i) for i, one in enumerate(row)})
        self.groups = registered.groups
        self.find, self.prefix, self.suffix = registered.find, registered.prefix, registered.suffix


class _Noting(dict[Any, Any]):
    """The entries of a group; notes which are looked at."""

    def __init__(self, asked: list[tuple[int, int]], places: dict[Any, tuple[int, int]]) -> None:
        super().__init__()
        self._asked, self._places = asked, places

    def get(self, block_hash: Any, default: Any = None) -> Any:
        """What stands under a hash."""
        self._note(block_hash)
        return super().get(block_hash, default)

    def __contains__(self, block_hash: Any) -> bool:
        self._note(block_hash)
        return super().__contains__(block_hash)

    def __getitem__(self, block_hash: Any) -> Any:
        self._note(block_hash)
        return super().__getitem__(block_hash)

    def _note(self, block_hash: Any) -> None:
        if block_hash in self._places:
            self._asked.append(self._places[block_hash])


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


def spec_of(group: Group, names: Names, dtype: object) -> Any:
    """The spec of such a group in the core with these names. ValueError for a kind that no scope has."""
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
            # Releases of today find states in one mode only; which states a hit needs is the same in all.
            align_alone = hasattr(names("MambaManager"), "supports_fine_grained_hash_lookup")
            return names("MambaSpec")(
                block_size=group.block_size,
                shapes=((group.num_heads,),),
                dtypes=(dtype,),
                mamba_cache_mode="align" if align_alone else group.mamba_mode,
                num_speculative_blocks=group.speculative_blocks,
            )
    raise ValueError(f"no scope has a group of kind {group.kind!r}: use full, mla, sliding, chunked or mamba")


class AnyElement:
    """An element type of one byte; no rule of the lookup reads it."""

    itemsize = 1


def _longest(scope: Scope, rules: list[Rule], num_tokens: int, found: Found) -> int:
    return lookup.longest_hit(rules, scope.alignment, num_tokens, found)


def model_search(scope: Scope) -> Search:
    """The model's lookup (model/lookup.py)."""
    return ModelSearch(scope, _longest)


def impl_search(scope: Scope) -> Search:
    """Our core's lookup (impl/managers/coordinator.py)."""
    return CoreSearch(scope, lambda name: getattr(impl, name), AnyElement())


def named_search(names: Names, dtype: object) -> Subject:
    """The lookup of the core with these names, a release for instance; `dtype` is an element type of its specs."""
    return lambda scope: CoreSearch(scope, names, dtype)


class _Altered:
    """A lookup by rounds, each group in turn, with one fault."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def __call__(self, scope: Scope, rules: list[Rule], num_tokens: int, found: Found) -> int:
        """Tokens of the hit that it finds."""
        more = self.fault == "leaves no token to compute"
        length, given_up = num_tokens - 1 + more, set[int]()
        while True:
            before = length
            for group, rule in enumerate(rules):
                behind = self._behind(group, rule, given_up)
                length = self._best(scope, rule, length + self._beyond(rule), behind, partial(found, group))
                given_up.add(group)
            if self.fault == "ends after one round" or length >= before:
                return length

    def _behind(self, group: int, rule: Rule, given_up: set[int]) -> int:
        once = self.fault == "gives up a block in the first round only" and group in given_up
        return 0 if once or self.fault == "gives up no block" else rule.behind

    def _beyond(self, rule: Rule) -> int:
        states = isinstance(rule, Mamba) and rule.eagle and self.fault == "looks for states beyond the candidate"
        return rule.b if states else 0

    def _best(self, scope: Scope, rule: Rule, limit: int, behind: int, found: Callable[[int], bool]) -> int:
        """The longest hit of one group."""
        for length in range(limit // scope.alignment * scope.alignment, 0, -scope.alignment):
            end = (length + behind) // rule.b
            first = rule.first(length) + (self.fault == "forgets the first block that is read")
            if all(found(i) for i in range(first, end)):
                return length
        return 0


def _not_cut(scope: Scope) -> Search:
    """Hands out more blocks than the hit has."""
    right = model_search(scope)

    def search(limit: int, registered: Registered) -> Answer:
        answer = right(limit, registered)
        return answer._replace(rows=(*answer.rows[:-1], (*answer.rows[-1], NULL)))

    return search


_FAULTS = (
    "ends after one round",
    "gives up no block",
    "gives up a block in the first round only",
    "leaves no token to compute",
    "looks for states beyond the candidate",
    "forgets the first block that is read",
)
WRONG: dict[str, Subject] = {
    **{fault: partial(ModelSearch, longest=_Altered(fault)) for fault in _FAULTS},
    "does not cut to the common length": _not_cut,
}
"""Searches with one fault each, which `exhaust` must refute."""


def repaired_search(scope: Scope) -> Search:
    """The search by rounds without a fault: it is right, so what is refuted of `WRONG` is the fault."""
    return ModelSearch(scope, _Altered(""))
