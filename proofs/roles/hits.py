"""Prefix-cache hits: how long a search finds them, which blocks it needs, which are worth registering (T8-T13).

A search is asked about few blocks. `registered` says of each whether it is in the cache, and a hit comes back as a list
with an entry for each of its blocks: the index of the block that stands there, or None for the null block.
"""

from collections.abc import Callable, Sequence
from inspect import signature
from itertools import product
from typing import Any, NamedTuple, TypeAlias

from ...model import arith, lookup, tables
from ...model.attention import Full, Rule, Sliding
from ...model.ops import Shape
from ..bare import bare
from ..claims import some
from ..symbolic import is_plain
from ..symbolic_builtins import Counted
from ..theorem import UnavailableError
from .amounts import position
from .kinds import KINDS

Registered: TypeAlias = Sequence[Any]
Entries: TypeAlias = list[int | None]

_NUM_GROUPS = 2
"""Groups with equal specs are searched together: two show whether all of them get the same."""


class Ends(NamedTuple):
    """Where hits may end."""

    alignment: Any
    """Tokens: hits end at multiples of it."""
    retention: Any
    """Tokens: only at multiples of this, and where a replay of the prompt can end; None for all."""
    prompt: Any
    """Tokens of the prompt."""
    behind: Any
    """Tokens that must follow a hit, on account of any group."""


def _model_rule(kind: type[Rule], b: Any, eagle: Any, **fields: Any) -> Any:
    """A rule of the model; drafts read on behind its hits, if asked to."""
    return bare(kind, b=b, behind=b if eagle and kind.needs_behind else 0, **fields)


def _model_hit(kind: type[Rule], size: str = "") -> Callable[..., Entries]:
    """The longest hit of a rule; `size` is the letter of its window or chunk."""

    def search(registered: Registered, limit: Any, b: Any, drop: Any, alignment: Any, reach: Any = None) -> Entries:
        rule = _model_rule(kind, b, drop, **({size: reach} if size else {}))
        length = lookup.longest_hit([rule], alignment, limit + 1, lambda _, i: i < len(registered) and registered[i])
        return [i if i >= rule.first(length) else None for i in range(length // b)]

    return search


def _model_needed(kind: type[Rule], size: str = "") -> Callable[..., tuple[Any, Any]]:
    """The blocks that a hit of `edge` blocks needs: from the first up to the one before the second."""

    def needed(edge: Any, b: Any, eagle: Any, reach: Any = None) -> tuple[Any, Any]:
        rule = _model_rule(kind, b, eagle, **({size: reach} if size else {}))
        return rule.first(edge * b), rule.end(edge * b)

    return needed


def _model_keeps(kind: type[Rule], size: str = "") -> Callable[..., Any]:
    """Whether block `i` is worth registering."""

    def keeps(i: Any, b: Any, eagle: Any, ends: Ends, reach: Any = None) -> Any:
        rule = _model_rule(kind, b, eagle, **({size: reach} if size else {}))
        core = bare(
            _Record,
            rules=[rule, bare(Full, behind=ends.behind)],
            alignment=ends.alignment,
            shape=bare(Shape, retention_interval=ends.retention),
        )
        return tables.worth(core, 0, i, bare(_Record, submit=bare(_Record, prompt=Counted(ends.prompt))))

    return keeps


def _model_limit(num_tokens: Any) -> Any:
    """The longest hit that the model's lookup tries: the one it finds where nothing needs to be registered."""
    return lookup.longest_hit([_model_rule(Sliding, 1, False, w=1)], 1, num_tokens, lambda _, i: False)


def _model_registers(n: Any, b: Any, eagle: Any, alignment: Any) -> Any:
    """Tokens up to which one of several groups registers, with `n` computed."""
    return tables.reach(bare(_Record, rules=[_model_rule(Full, b, eagle)], alignment=alignment), 0, n)


_MODEL_KINDS: dict[str, tuple[type[Rule], str]] = {
    name: (kind.rule, kind.letter if kind.reads else "") for name, kind in KINDS.items()
}

MODEL: dict[str, Any] = {
    "need": lambda w, b, eagle: arith.window_blocks(w, b) + bool(eagle),
    **{f"needed_{name}": _model_needed(kind, size) for name, (kind, size) in _MODEL_KINDS.items()},
    **{f"kept_{name}": _model_keeps(kind, size) for name, (kind, size) in _MODEL_KINDS.items()},
    **{f"hit_{name}": _model_hit(kind, size) for name, (kind, size) in _MODEL_KINDS.items()},
    "limit": _model_limit,
    "registers": _model_registers,
}


def has_name(names: Any, name: str) -> bool:
    """True if the core has anything of this name."""
    try:
        names(name)
    except UnavailableError:
        return False
    return True


class _Record:
    """Whatever fields it is given."""


class _Found(tuple[int, int]):
    """A block that is registered: its group and its number. It belongs to no run."""

    run = None


class _Entries:
    """What is registered in one group."""

    def __init__(self, group: int, registered: Registered) -> None:
        self._group, self._registered = group, registered

    def get(self, number: Any) -> _Found | None:
        """The block with this content, or None."""
        return _Found((self._group, number)) if self._registered[number] else None

    def __contains__(self, number: Any) -> bool:
        return bool(self._registered[number])


class _Pool:
    """A cache in which the content with number `i` is registered or not; its blocks are pairs of group and number."""

    null_block = None

    def __init__(self, registered: Registered, map_class: type, hash_block_size: Any) -> None:
        self._registered, self.hash_block_size = registered, hash_block_size
        groups = {group: _Entries(group, registered) for group in range(_NUM_GROUPS)}
        self.cached_block_hash_to_block = bare(map_class, groups=groups, folds={})
        """The core's own map, over these; only of a core that looks into it by group and hash."""

    def get_cached_block(self, block_hash: Any, kv_cache_group_ids: Sequence[int]) -> list[_Found] | None:
        """One block for each group, or None."""
        return [_Found((group, block_hash)) for group in kv_cache_group_ids] if self._registered[block_hash] else None


def _api_hit(names: Any, manager: str, spec: str, size: str = "") -> Callable[..., Entries]:
    """The search of a manager; `size` is the attribute of its window or chunk."""
    manager_class, spec_class, map_class = names(manager), names(spec), names("BlockHashToBlockMap")

    def search(registered: Registered, limit: Any, b: Any, drop: Any, alignment: Any, reach: Any = None) -> Entries:
        fields = {size: reach} if size else {}
        groups = list(range(_NUM_GROUPS))
        hit = manager_class.find_longest_cache_hit(
            block_hashes=list(range(len(registered))),
            max_length=limit,
            kv_cache_group_ids=groups,
            block_pool=_Pool(registered, map_class, b),
            kv_cache_spec=bare(spec_class, block_size=b, **fields),
            drop_eagle_block=bool(drop),
            alignment_tokens=alignment,
        )
        if isinstance(hit[-1], list):
            return _entries(hit)
        blocks, length = hit  # a release of today says how long it is, too
        if length != len(blocks[0]) * b:
            raise ValueError(f"{length} tokens are said of a hit of {len(blocks[0])} blocks of {b}")
        return _entries(blocks)

    return search


def _entries(hit: Sequence[Sequence[tuple[int, int] | None]]) -> Entries:
    """The block numbers of a hit; ValueError unless every group has those of its own, and all have the same."""
    numbers = [[None if block is None else block[1] for block in blocks] for blocks in hit]
    own = all(block is None or block[0] == group for group, blocks in enumerate(hit) for block in blocks)
    if not own or numbers[1:] != numbers[:-1]:
        raise ValueError(f"the groups of one search got different hits: {hit}")
    return numbers[0]


_API_KINDS = {name: (kind.manager, kind.spec, kind.field if kind.reads else "") for name, kind in KINDS.items()}


def _api_needed(names: Any, kind: str) -> Callable[..., tuple[Any, Any]]:
    manager_name, spec_name, size = _API_KINDS[kind]
    manager, spec_class = names(manager_name), names(spec_name)
    if not hasattr(manager, "first_read") and kind != "sliding":
        raise UnavailableError(f"{manager_name} does not say which blocks a hit needs")

    def needed(edge: Any, b: Any, eagle: Any, reach: Any = None) -> tuple[Any, Any]:
        if not hasattr(manager, "first_read"):
            need, more = (manager._contiguous_blocks_for_hit(reach, b, eagle) for eagle in (False, bool(eagle)))
            return max(0, edge - need), edge + more - need
        spec = bare(spec_class, block_size=b, **({size: reach} if size else {}))
        terms = manager.hit_terms((0,), None, spec, bool(eagle), b)
        return manager.first_read(spec, edge, b), edge + terms.behind

    return needed


def _api_keeps(names: Any, kind: str) -> Callable[..., Any]:
    manager_name, spec_name, size = _API_KINDS[kind]
    manager, spec = names(manager_name), names(spec_name)
    if has_name(names, "replay_boundaries"):
        return _keeps_by_boundaries(names, kind)
    says_what_follows = "tokens_behind" in signature(manager.reachable_block_mask).parameters
    has_use = getattr(manager, "drafts_read_behind", True)

    def keeps(i: Any, b: Any, eagle: Any, ends: Ends, reach: Any = None) -> Any:
        first = position(i)
        mask = manager.reachable_block_mask(
            start_block=first,
            end_block=i + 1,
            alignment_tokens=ends.alignment,
            kv_cache_spec=bare(spec, block_size=b, **({size: reach} if size else {})),
            use_eagle=has_use and bool(eagle),
            retention_interval=ends.retention,
            num_prompt_tokens=ends.prompt,
            **({"tokens_behind": ends.behind} if says_what_follows else {}),
        )
        return True if mask is None else mask[0]

    return keeps


def _replays(prompt: Any, unit: Any, use_eagle: Any) -> list[Any]:
    """Where a replay of a prompt can end, as a release of today has it, with no set."""
    if not use_eagle:
        return [prompt - 1]
    return [max((last // unit) * unit - unit, 0) for last in (prompt - 1, prompt)]


def _keeps_by_boundaries(names: Any, kind: str) -> Callable[..., Any]:
    """The same of a release of today: its coordinator says where a replay can end.

    It knows whether drafts read on, and no draft of it needs more tokens behind a hit than the alignment has: those
    beyond count as if the prompt was shorter.
    """
    manager_name, spec_name, size = _API_KINDS[kind]
    manager, spec, own = names(manager_name), names(spec_name), names("replay_boundaries")
    differ = [
        (prompt, unit)
        for prompt, unit in product(range(1, 13), range(1, 5))
        if any(set(own(prompt, unit, eagle)) != set(_replays(prompt, unit, eagle)) for eagle in (False, True))
    ]
    if differ:
        raise UnavailableError(f"replay_boundaries is none that is known here: prompt and alignment {differ[0]}")

    def keeps(i: Any, b: Any, eagle: Any, ends: Ends, reach: Any = None) -> Any:
        first = position(i)
        # Its set of two symbols cannot be followed; a replay on plain numbers asks the release itself.
        beyond = max(0, ends.behind - ends.alignment)
        replays = own if is_plain(ends.prompt) and is_plain(ends.alignment) else _replays
        mask = manager.reachable_block_mask(
            start_block=first,
            end_block=i + 1,
            alignment_tokens=ends.alignment,
            kv_cache_spec=bare(spec, block_size=b, **({size: reach} if size else {})),
            use_eagle=bool(eagle),
            retention_interval=ends.retention,
            reachable_boundaries=replays(ends.prompt - beyond, ends.alignment, some(eagle, ends.behind > 1)),
        )
        return True if mask is None else mask[0]

    return keeps


def _api_limit(names: Any) -> Callable[..., Any]:
    manager = names("KVCacheManager")
    says_what_is_left_out = has_name(names, "replay_boundaries")

    def limit(num_tokens: Any) -> Any:
        """What limit a lookup hands to the search."""
        asked: list[Any] = []

        def find(block_hashes: Any, max_cache_hit_length: Any) -> tuple[Any, ...]:
            asked.append(max_cache_hit_length)
            return (([],), 0, 0) if says_what_is_left_out else (([],), 0)

        def find_with_its_boundary(block_hashes: Any, max_cache_hit_length: Any) -> Any:
            blocks, tokens, *_ = find(block_hashes, max_cache_hit_length)
            return bare(_Record, blocks=blocks, tokens=tokens, boundary=0)

        of_today = {"create_kv_cache_blocks": lambda blocks: blocks} if says_what_is_left_out else {}
        made = bare(
            manager,
            enable_caching=True,
            log_stats=False,
            prefix_cache_stats=None,
            coordinator=bare(
                _Record,
                find_longest_cache_hit=find,
                find_hit=find_with_its_boundary,
                finds_nothing=lambda hashes: False,
            ),
            block_pool=bare(_Record, enable_kv_cache_events=False),
            empty_kv_cache_blocks=None,
            **of_today,
        )
        request = bare(_Record, skip_reading_prefix_cache=False, num_tokens=num_tokens, block_hashes=())
        made.get_computed_blocks(request)
        return asked[0]

    return limit


def _api_registers(names: Any) -> Callable[..., Any]:
    coordinator = names("HybridKVCacheCoordinator")

    def registers(n: Any, b: Any, eagle: Any, alignment: Any) -> Any:
        """Tokens up to which one of several groups registers, with `n` computed."""
        asked: list[Any] = []

        def cache_blocks(request: Any, num_tokens: Any, retention_interval: Any = None, **ends: Any) -> None:
            asked.append(num_tokens)

        manager = bare(_Record, use_eagle=bool(eagle), block_size=b, cache_blocks=cache_blocks, enable_caching=True)
        made = bare(
            coordinator,
            scheduler_block_size=alignment,
            single_type_managers=(manager,),
            retention_interval=None,
            # What the core of today has found out when it was made: several groups, none of which names ends or states.
            _only=None,
            _every=False,
            _alignment=alignment,
            _naming=[(manager, False, False, None, b if eagle else 0)],
            _ends_within=2,
            _names_junctions_inside=False,
            block_pool=bare(_Record, hash_block_size=1),
            steps=None,
            cache_hit_alignment_tokens=alignment,
            num_reprefillable_tokens=0,
            drop_eagle_group_ids=set(),  # says where replays end, which is not asked here
        )
        made.cache_blocks(bare(_Record, request_id="r", block_hashes=Counted(n), num_prompt_tokens=n), n)
        return asked[0]

    return registers


def _map_with_runs(names: Any) -> Any:
    kind = names("BlockHashToBlockMap")
    if not hasattr(kind, "prefix"):
        raise UnavailableError("BlockHashToBlockMap looks blocks up one by one")
    return kind


API: dict[str, Any] = {
    "map_with_runs": _map_with_runs,
    "need": lambda names: names("SlidingWindowManager")._contiguous_blocks_for_hit,
    **{f"needed_{kind}": lambda names, kind=kind: _api_needed(names, kind) for kind in _API_KINDS},
    **{f"kept_{kind}": lambda names, kind=kind: _api_keeps(names, kind) for kind in _API_KINDS},
    **{f"hit_{kind}": lambda names, kind=kind: _api_hit(names, *_API_KINDS[kind]) for kind in _API_KINDS},
    "limit": _api_limit,
    "registers": _api_registers,
}
