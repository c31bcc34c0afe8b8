"""What the model answers to questions about classes, the registry, hashes, the free queue, statistics, and about what
cannot be built. `configuration_answers` answers those about layers."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations
from typing import Any

from ...model.attention import demand
from ...model.config.capacity import Rules
from ...model.config.layers import recorded
from ...model.config_json import Json, LayerGroup, Spec, SpecTable, show_spec
from ...model.pieces.classes import QUANT_MODES, Registry, fields_of, is_per_token_head, kind_of, quant_mode, window_of
from ...model.pieces.parts import BlockIdentity, FreeQueue, RecentRate, external, key_of, split_key
from ..findings.ops_json import shape_from_json
from .configuration_question import ConstructedQuestion, attempt


def quant_modes(rules: Rules, q: ConstructedQuestion) -> Json:
    """Mode and its number of each cache dtype, whether it is one of quantisation, whether tokens have scales."""
    modes = [quant_mode(name) for name in q.given.kv_cache_dtypes]
    return [[mode, QUANT_MODES.index(mode), mode != "NONE", is_per_token_head(mode)] for mode in modes]


def quant_flags(rules: Rules, q: ConstructedQuestion) -> Json:
    """Number and properties of each mode."""
    return [[QUANT_MODES.index(mode), is_per_token_head(mode), mode == "NVFP4"] for mode in q.given.modes]


def compare(rules: Rules, q: ConstructedQuestion) -> Json:
    """Which specs are equal, which of these have equal hashes, which have one, and that none can be changed."""
    specs = [q.read(raw) for raw in q.given.specs]
    hashable = [x.type != Spec.UNIFORM for x in specs]
    equal = [[i, j] for i, j in combinations(range(len(specs)), 2) if specs[i] == specs[j]]
    same = [pair for pair in equal if hashable[pair[0]]]
    return {"equal": equal, "same_hash": same, "hashable": hashable, "frozen": ["FrozenInstanceError"] * len(specs)}


def copied(rules: Rules, q: ConstructedQuestion) -> Json:
    """A spec with another block size, and the one that it was made of."""
    x, before = rules.resize(q.spec, q.given.block_size), q.spec
    return {"spec": show_spec(x), "storage_block_size": x.block_size // x.compress_ratio, "before": show_spec(before)}


def uniform_pages(rules: Rules, q: ConstructedQuestion) -> Json:
    """Page sizes of a uniform type, whatever its members are, its tuples, and the blocks that a request needs."""
    x = q.spec
    sizes = sorted(set(map(rules.page, x.members)))
    return {"page_sizes": sizes, "tuples": rules.num_layer_tuples(x), "pages": rules.blocks(q.config, x)}


def window_sizes(rules: Rules, q: ConstructedQuestion) -> Json:
    """The one window of each set, or the error."""
    return [attempt(partial(recorded, sizes)) for sizes in q.given.sets]


def helpers(rules: Rules, q: ConstructedQuestion) -> Json:
    """Whether there is no attention, the one page size or the error, blocks after the override."""
    pages = {rules.page(x) for x in q.layers.values()}
    blocks, override = q.given.num_blocks, q.config.num_gpu_blocks_override

    def one_page() -> Json:
        demand(len(pages) == 1)
        return next(iter(pages))

    return {
        "attention_free": not q.layers,
        "page": attempt(one_page),
        "blocks": blocks if override is None else override,
    }


def group_specs(rules: Rules, q: ConstructedQuestion) -> Json:
    """Groups of these layers, each with the merged spec."""
    layers, table = q.layers, SpecTable()
    groups = [LayerGroup(tuple(names), rules.merge([layers[name] for name in names])) for names in q.given.names]
    return {"groups": table.groups(groups), "specs": table.specs}


def registry(rules: Rules, q: ConstructedQuestion) -> Json:
    """Manager and base of the class of each spec."""
    known = Registry()
    return [[*known.find(q.read(raw).type.value)] for raw in q.given.specs]


def register(rules: Rules, q: ConstructedQuestion) -> Json:
    """What becomes of each step of registering classes of one's own."""
    known = Registry()
    for name, parent in q.given.classes:
        known.derive(name, parent)
    todo: Mapping[str, Callable[..., Any]] = {
        "register": lambda name, manager, base, form: known.register(name, manager, base),
        "find": lambda name: [*known.find(name)],
        "check": known.check,
    }
    return [attempt(partial(todo[step], *given)) for step, *given in q.given.steps]


def hash_list(rules: Rules, q: ConstructedQuestion) -> Json:
    """Length, items and some of the items of a view on hashes, before and after the list has grown."""
    hashes, size, target = list(q.given.hashes), q.given.hash_block_size, q.given.target_block_size
    demand(target % size == 0)
    times = target // size

    def at(index: int) -> str:
        return rules.hash_at(hashes, times, index, True)

    def item(index: Any) -> Json:
        match index:
            case list():
                demand(index[2] != 0, "ValueError")
                return [at(i) for i in range(*slice(*index).indices(len(hashes) // times))]
            case {"index": int(i)}:
                return rules.hash_at(hashes, times, i, False)
        demand(isinstance(index, int), "TypeError")
        return at(index)

    shown: dict[str, Json] = {
        "len": len(hashes) // times,
        "all": [at(i) for i in range(len(hashes) // times)],
        "items": [item(index) for index in q.given.indices],
    }
    if more := getattr(q.given, "grown", None):
        hashes += more
        shown["grown"] = [len(hashes) // times, *[at(i) for i in range(len(hashes) // times)][-1:]]
    return shown


def hash_keys(rules: Rules, q: ConstructedQuestion) -> Json:
    """The key of each hash in a group, and what it is taken apart into."""

    def one(block_hash: str, group: int) -> Json:
        key = key_of(block_hash, group)
        return [key, *split_key(key)]

    return [attempt(partial(one, *draw)) for draw in q.given.draws]


def external_hashes(rules: Rules, q: ConstructedQuestion) -> Json:
    """Hashes as events show them; as integers unless the environment says otherwise."""
    return [external(block_hash, q.given.as_int != 0) for block_hash in q.given.hashes]


def none_hash(rules: Rules, q: ConstructedQuestion) -> Json:
    """What stands for the parent of a first block, and what a block's hash is made of for each of these parents."""
    seed, tokens = q.given.seed, list(q.given.tokens)
    told: Json = {"bytes": 32, "again": False} if seed is None else {"of": seed}
    return {"none_hash": told, "hashed": [[parent or "none hash", tokens, None] for parent in q.given.parents]}


def free_queue(rules: Rules, q: ConstructedQuestion) -> Json:
    """What each step gives, and the queue behind it."""
    queue = FreeQueue(q.given.free)

    def step(name: str, *given: Any) -> Json:
        got = attempt(partial(getattr(queue, name), *given))
        return {"got": got, "free": len(queue.blocks), "order": list(queue.blocks), "backward": queue.blocks[::-1]}

    return [step(*given) for given in q.given.steps]


def block(rules: Rules, q: ConstructedQuestion) -> Json:
    """The key of a block after each step."""
    identity = BlockIdentity()
    todo: Mapping[str, Callable[..., Any]] = {
        "set": lambda draw: identity.set(key_of(*draw)),
        "reset": lambda: identity.reset(),
    }
    return [[attempt(partial(todo[name], *given)), identity.key] for name, *given in q.given.steps]


def caching_metrics(rules: Rules, q: ConstructedQuestion) -> Json:
    """The rate after each update."""
    most = q.given.max_recent_requests
    recent = RecentRate() if most is None else RecentRate(most)
    shown: list[Json] = []
    for update in q.given.updates:
        requests, queries, hits = (update.get(name, 0) for name in ("requests", "queries", "hits"))
        recent.observe(requests, queries, hits, update.get("reset", False))
        shown.append({"hit_rate": recent.rate, "requests": recent.requests, "empty": not recent.requests})
    return shown


def cache_stats(rules: Rules, q: ConstructedQuestion) -> Json:
    """The counts of these lookups: tokens asked for, tokens found, whether the request had been preempted."""
    shown: dict[str, Json] = {"reset": False}
    for prefix, preempted in (("", False), ("preempted_", True)):
        found = [(asked, hits) for asked, hits, before in q.given.records if before == preempted]
        sums = {"requests": len(found), "queries": sum(x for x, _ in found), "hits": sum(x for _, x in found)}
        shown |= {prefix + name: number for name, number in sums.items()}
    return shown


def _kinds(rules: Rules, q: ConstructedQuestion) -> Json:
    return [[kind_of(x), window_of(x)] for x in map(q.read, q.given.specs)]


PIECES: Mapping[str, Callable[[Rules, ConstructedQuestion], Json]] = {
    "class_fields": lambda rules, q: {name: fields_of(name) for name in q.given.classes},
    "quant_modes": quant_modes,
    "quant_flags": quant_flags,
    "kinds": _kinds,
    "compare": compare,
    "copy": copied,
    "uniform_pages": uniform_pages,
    "window_sizes": window_sizes,
    "helpers": helpers,
    "group_specs": group_specs,
    "registry": registry,
    "register": register,
    "hash_list": hash_list,
    "hash_keys": hash_keys,
    "external_hashes": external_hashes,
    "none_hash": none_hash,
    "free_queue": free_queue,
    "block": block,
    "caching_metrics": caching_metrics,
    "cache_stats": cache_stats,
    "build": lambda rules, q: rules.build(shape_from_json(q.given.shape)),
}
