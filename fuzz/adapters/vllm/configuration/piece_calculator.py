"""Answers questions about the pieces that a core is made of: its classes, its registry, hashes, the free queue,
statistics. Each is the core's own, called by itself; `calculator` answers the questions about layers.

This module runs in the Python environment of the target, where only the standard library and the target itself are
installed.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import combinations
from typing import Any

from ..binding import environment
from .question_json import Inputs, Json, Names, SpecTable, layers_from_json, spec_from_json, spec_to_json
from .question_json import vllm_config_from_json as config_from_json

INT_HASHES_VARIABLE = "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"
SEED_VARIABLE = "PYTHONHASHSEED"


def _tried(work: Callable[..., Any], *given: Any) -> Any:
    """What the call returns, or the name of the exception's class."""
    try:
        return work(*given)
    except Exception as error:
        return {"raises": type(error).__name__}


def _specs(names: Names, inputs: Inputs) -> list[Any]:
    return [spec_from_json(names, raw) for raw in inputs["specs"]]


# Classes of specs.


def _class_fields(names: Names, inputs: Inputs) -> Any:
    def describe(field: dataclasses.Field[Any]) -> Json:
        described: Json = {"name": field.name, "kw_only": field.kw_only}
        if field.default is not dataclasses.MISSING:
            described["default"] = getattr(field.default, "name", field.default)
        return described

    return {name: [describe(field) for field in dataclasses.fields(names(name))] for name in inputs["classes"]}


def _quant_modes(names: Names, inputs: Inputs) -> Any:
    def row(dtype: str | None) -> list[Any]:
        mode = names("get_kv_quant_mode")(dtype)
        per_token_head = names("kv_cache_uses_per_token_head_scales")(dtype)
        return [mode.name, mode.value, names("is_quantized_kv_cache")(dtype), per_token_head]

    return [row(dtype) for dtype in inputs["kv_cache_dtypes"]]


def _quant_flags(names: Names, inputs: Inputs) -> Any:
    modes = [names("KVQuantMode")[name] for name in inputs["modes"]]
    return [[mode.value, mode.is_per_token_head, mode.is_nvfp4] for mode in modes]


def _kinds(names: Names, inputs: Inputs) -> Any:
    kind, window = names("get_kv_cache_spec_kind"), names("get_kv_cache_spec_sliding_window")
    return [[kind(spec).value, window(spec)] for spec in _specs(names, inputs)]


def _compare(names: Names, inputs: Inputs) -> Any:
    specs = _specs(names, inputs)
    hashable = [not isinstance(_tried(hash, spec), dict) for spec in specs]
    equal = [[i, j] for i, j in combinations(range(len(specs)), 2) if specs[i] == specs[j]]
    both = [pair for pair in equal if hashable[pair[0]] and hashable[pair[1]]]

    def frozen(spec: Any) -> Any:
        told = _tried(setattr, spec, "block_size", spec.block_size)
        return told["raises"] if told else None

    return {
        "equal": equal,
        "same_hash": [[i, j] for i, j in both if hash(specs[i]) == hash(specs[j])],
        "hashable": hashable,
        "frozen": [frozen(spec) for spec in specs],
    }


def _copy(names: Names, inputs: Inputs) -> Any:
    before = spec_from_json(names, inputs["spec"])
    spec = before.copy_with_new_block_size(inputs["block_size"])
    shown = spec_to_json(spec)
    return {"spec": shown, "storage_block_size": spec.storage_block_size, "before": spec_to_json(before)}


def _uniform_pages(names: Names, inputs: Inputs) -> Any:
    spec = spec_from_json(names, inputs["spec"])
    sizes = sorted(spec.get_page_sizes())
    pages = spec.max_memory_usage_pages(config_from_json(inputs.get("vllm_config")))
    return {"page_sizes": sizes, "tuples": spec.get_num_layer_tuples(), "pages": pages}


def _window_sizes(names: Names, inputs: Inputs) -> Any:
    merge = names("FullAttentionSpec").merge_window_sizes
    return [_tried(merge, set(sizes)) for sizes in inputs["sets"]]


def _helpers(names: Names, inputs: Inputs) -> Any:
    layers = layers_from_json(names, inputs, inputs["layers"])
    config = config_from_json(inputs.get("vllm_config"))
    for spec in layers.values():
        spec.page_size_bytes  # noqa: B018  # a page that cannot be is no answer to whether there is one
    return {
        "attention_free": names("is_kv_cache_type_attention_free")(layers),
        "page": _tried(names("get_uniform_page_size"), list(layers.values())),
        "blocks": names("may_override_num_blocks")(config, inputs["num_blocks"]),
    }


def _group_specs(names: Names, inputs: Inputs) -> Any:
    table, layers = SpecTable(), layers_from_json(names, inputs, inputs["layers"])
    groups = names("create_kv_cache_group_specs")(layers, inputs["names"])
    return {"groups": table.groups(groups), "specs": table.specs}


# The registry.


def _name(found: Any) -> Any:
    return getattr(found, "__name__", None)


@contextmanager
def _nothing_registered(registry: Any) -> Iterator[None]:
    """Context manager: nobody has asked the registry for anything yet. What it has afterwards is what it had before."""
    entries = getattr(sys.modules[registry.__module__], "_REGISTRY_KVCACHESPEC_LIST", {})
    before = dict(entries)
    entries.clear()
    try:
        yield
    finally:
        entries.clear()
        entries.update(before)


def _registry(names: Names, inputs: Inputs) -> Any:
    registry, specs = names("KVCacheSpecRegistry"), _specs(names, inputs)
    found = []
    for ask in (registry.get_manager_class, registry.get_uniform_type_base_spec):
        with _nothing_registered(registry) if inputs.get("first") else nullcontext():
            found.append([_name(ask(spec)) for spec in specs])
    return [list(pair) for pair in zip(*found, strict=True)]


def _register(names: Names, inputs: Inputs) -> Any:
    """Every question has classes of its own, so that no question can disturb another one."""
    registry = names("KVCacheSpecRegistry")
    decorated = getattr(sys.modules[registry.__module__], "register_kv_cache_spec")  # noqa: B009  # found by name
    fields = {"block_size": 16, "num_kv_heads": 1, "head_size": 8, "dtype": {"itemsize": 2}}
    registry.get_manager_class(spec_from_json(names, {"type": "FullAttentionSpec", **fields}))  # see S-17
    own: dict[str, Any] = {}

    def named(name: str | None) -> Any:
        return None if name is None else own.get(name) or names(name)

    for name, parent in inputs["classes"]:
        own[name] = type(name, (named(parent),), {})
    own["OwnManager"] = type("OwnManager", (names("FullAttentionManager"),), {})

    def instance(name: str) -> Any:
        spec = object.__new__(named(name))  # lookups go by the class alone
        object.__setattr__(spec, "block_size", 16)
        return spec

    def register(name: str, manager: str | None, base: str | None, form: str) -> None:
        if form == "call":
            registry.register(named(name), named(manager), named(base))
        elif decorated(manager_class=named(manager), uniform_type_base_spec=named(base))(own[name]) is not own[name]:
            raise LookupError("the decorator returns another class")

    def find(name: str) -> Any:
        spec = instance(name)
        return [_name(registry.get_manager_class(spec)), _name(registry.get_uniform_type_base_spec(spec))]

    def check(listed: Sequence[str]) -> None:
        registry.check_kv_cache_spec_registry({f"l{i}": instance(name) for i, name in enumerate(listed)})

    todo: Mapping[str, Callable[..., Any]] = {"register": register, "find": find, "check": check}
    return [_tried(todo[step], *given) for step, *given in inputs["steps"]]


# Hashes.


class _Index:
    """An integer of a type of its own."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


def _hash_list(names: Names, inputs: Inputs) -> Any:
    hashes = [text.encode() for text in inputs["hashes"]]
    view = names("BlockHashListWithBlockSize")(hashes, inputs["hash_block_size"], inputs["target_block_size"])

    def item(index: Any) -> Any:
        found = view[_index(index)]
        return [part.decode() for part in found] if isinstance(found, list) else found.decode()

    shown = {
        "len": len(view),
        "all": [part.decode() for part in view],
        "items": [item(index) for index in inputs["indices"]],
    }
    if more := inputs.get("grown"):
        hashes += [text.encode() for text in more]
        shown["grown"] = [len(view), *[part.decode() for part in view][-1:]]
    return shown


def _index(index: Any) -> Any:
    if isinstance(index, list):
        return slice(*index)
    return _Index(index["index"]) if isinstance(index, dict) else index


def _hash_keys(names: Names, inputs: Inputs) -> Any:
    pack, block_hash, group = (
        names(name) for name in ("make_block_hash_with_group_id", "get_block_hash", "get_group_id")
    )

    def one(text: str, number: int) -> Any:
        key = pack(bytes.fromhex(text), number)
        return [key.hex(), block_hash(key).hex(), group(key)]

    return [_tried(one, *draw) for draw in inputs["draws"]]


def _external_hashes(names: Names, inputs: Inputs) -> Any:
    convert = names("maybe_convert_block_hash")
    with environment(INT_HASHES_VARIABLE, inputs["as_int"]):
        shown = [convert(bytes.fromhex(text)) for text in inputs["hashes"]]
    return [one.hex() if isinstance(one, bytes) else one for one in shown]


def _none_hash(names: Names, inputs: Inputs) -> Any:
    """With a hash function that only tells what it is given. The module keeps the hash that it had."""
    seed, init, told = inputs["seed"], names("init_none_hash"), list[Any]()
    module: Any = sys.modules[init.__module__]

    def tell(value: Any) -> bytes:
        told.append(value)
        return str(value).encode()

    def made() -> Any:
        init(tell)
        return module.NONE_HASH

    def hashed(parent: str | None) -> Any:
        given = None if parent is None else parent.encode()
        names("hash_block_tokens")(tell, given, inputs["tokens"])
        above, tokens, keys = told[-1]
        return ["none hash" if above == module.NONE_HASH else above.decode(), list(tokens), keys]

    before = module.NONE_HASH
    try:
        with environment(SEED_VARIABLE, seed):
            first = made()
            shown = {"bytes": len(first), "again": made() == first} if seed is None else {"of": first.decode()}
        return {"none_hash": shown, "hashed": [hashed(parent) for parent in inputs["parents"]]}
    finally:
        module.NONE_HASH = before


# The free queue and its blocks.


def _free_queue(names: Names, inputs: Inputs) -> Any:
    blocks = [names("KVCacheBlock")(number) for number in range(inputs["blocks"])]
    queue = names("FreeKVCacheBlockQueue")([blocks[number] for number in inputs["free"]])

    def given(value: Any, name: str) -> Any:
        if name == "popleft_n":
            return value
        return [blocks[number] for number in value] if isinstance(value, list) else blocks[value]

    def got(name: str, *values: Any) -> Any:
        taken = getattr(queue, name)(*[given(value, name) for value in values])
        taken = taken if isinstance(taken, list | None) else [taken]
        loose = all(block.prev_free_block is block.next_free_block is None for block in taken or ())
        numbers = None if taken is None else [block.block_id for block in taken]
        return numbers if loose else {"linked": numbers}

    def backward() -> Iterator[int]:
        """From the last one, as far as there are as many as the queue has blocks at most."""
        block = queue.fake_free_list_tail.prev_free_block
        for _ in range(len(blocks) + 1):
            if block is None or block.block_id < 0:
                return
            yield block.block_id
            block = block.prev_free_block

    def step(name: str, *values: Any) -> Json:
        outcome = _tried(got, name, *values)
        order = [block.block_id for block in queue.get_all_free_blocks()]
        return {"got": outcome, "free": queue.num_free_blocks, "order": order, "backward": list(backward())}

    return [step(*one) for one in inputs["steps"]]


def give_hash(block: Any, key: Any) -> None:
    """Registered under this key: what a block is told by a call where it has one, else by its field."""
    if hasattr(block, "set_block_hash"):
        block.set_block_hash(key)
    else:
        block.block_hash = key


def _block(names: Names, inputs: Inputs) -> Any:
    block, pack = names("KVCacheBlock")(3), names("make_block_hash_with_group_id")

    def put(draw: Sequence[Any]) -> None:
        give_hash(block, pack(bytes.fromhex(draw[0]), draw[1]))

    todo: Mapping[str, Callable[..., Any]] = {"set": put, "reset": lambda: block.reset_hash()}

    def step(name: str, *given: Any) -> Any:
        outcome = _tried(todo[name], *given)
        return [outcome, None if block.block_hash is None else block.block_hash.hex()]

    return [step(*one) for one in inputs["steps"]]


# Statistics.


def _caching_metrics(names: Names, inputs: Inputs) -> Any:
    most = inputs["max_recent_requests"]
    metrics = names("CachingMetrics")() if most is None else names("CachingMetrics")(most)
    shown = []
    for update in inputs["updates"]:
        metrics.observe(names("PrefixCacheStats")(**update))
        shown.append({"hit_rate": metrics.hit_rate, "requests": metrics.aggregated_requests, "empty": metrics.empty})
    return shown


def _cache_stats(names: Names, inputs: Inputs) -> Any:
    stats = names("PrefixCacheStats")()
    for record in inputs["records"]:
        stats.record(*record)
    return dataclasses.asdict(stats)


PIECES: Mapping[str, Callable[[Names, Inputs], Any]] = {
    "class_fields": _class_fields,
    "quant_modes": _quant_modes,
    "quant_flags": _quant_flags,
    "kinds": _kinds,
    "compare": _compare,
    "copy": _copy,
    "uniform_pages": _uniform_pages,
    "window_sizes": _window_sizes,
    "helpers": _helpers,
    "group_specs": _group_specs,
    "registry": _registry,
    "register": _register,
    "hash_list": _hash_list,
    "hash_keys": _hash_keys,
    "external_hashes": _external_hashes,
    "none_hash": _none_hash,
    "free_queue": _free_queue,
    "block": _block,
    "caching_metrics": _caching_metrics,
    "cache_stats": _cache_stats,
}
