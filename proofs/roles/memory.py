"""Blocks for so much memory, memory for so long a request, use of the pool (T17, T18, T24).

A layer that needs `n` blocks of `page` bytes, whatever they hold, is a Mamba layer with `n - 1` speculative blocks or
a cross-attention layer with one-token blocks: what is said of pages and block counts does not depend on how they came
about.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ...model import arith
from ...model.config.capacity import Rules
from ...model.config.layers import uniform_of
from ...model.config_json import Config, Layer, LayerGroup, Spec
from .bare import bare
from .stand_ins import Sized, chosen, internal, key, lenient

_RULES = Rules()
LONGEST = 7
"""Most tokens for which the search for a length is followed."""


# The model. A group is a tuple of layers, each a page size with a number of blocks.


def _mamba(page: Any, n: Any) -> Layer:
    return Layer(Spec.MAMBA, 1, page_size_padded=key(page), num_speculative_blocks=n - 1)


def _uniform_group(names: str, layers: list[Layer]) -> LayerGroup:
    return LayerGroup(tuple(names), uniform_of(dict(zip(names, layers, strict=True))))


def _plain_groups(page: Any, n: Any, m: Any) -> list[LayerGroup]:
    """Two layers that share blocks, and one of another group."""
    return [LayerGroup(("a", "b"), _mamba(page, n)), LayerGroup(("c",), _mamba(page, m))]


def _one_type(p: Any, q: Any, n: Any) -> list[LayerGroup]:
    """One group of two pages."""
    return [_uniform_group("ab", [_mamba(p, n), _mamba(q, n)])]


def _several_types(p: Any, q: Any, n: Any, m: Any) -> list[LayerGroup]:
    """A group of two pages and one of two layers with the first of them."""
    return [_uniform_group("ab", [_mamba(p, n), _mamba(q, n)]), _uniform_group("cd", [_mamba(p, m), _mamba(p, m)])]


def _stage(p: Any, q: Any, n: Any, m: Any) -> list[LayerGroup]:
    """What a pipeline stage sees of such groups: of the first only a small page, of the second a large one."""
    return [_uniform_group("a", [_mamba(p, n)]), _uniform_group("c", [_mamba(q, m)])]


def _sizing(groups: Callable[..., list[LayerGroup]], *counts: int) -> Callable[..., Any]:
    """Blocks, and bytes of all tensors."""

    def sized(memory: Any, *pages: Any) -> Any:
        config = _RULES.worker_config(Config(), groups(*pages, *counts), memory)
        return config.num_blocks, sum(size for size, _ in config.tensors)

    return sized


def _checking(groups: Callable[..., list[LayerGroup]]) -> Callable[..., Any]:
    """Bytes needed by the check, and blocks that there are."""

    def checked(memory: Any, *rest: Any) -> Any:
        made = groups(*rest)
        return _RULES.needed(Config(), made), _RULES.worker_config(Config(), made, memory).num_blocks

    return checked


def _cross(page: Any) -> Layer:
    return Layer(Spec.CROSS, 1, page_size_padded=key(page))


def _concurrency(num_blocks: Any, page: Any, n: Any) -> Any:
    groups = [LayerGroup(("a", "b"), _cross(page))]
    return _RULES.concurrency(Config(max_num_encoder_input_tokens=n), groups, num_blocks)


def _need(length: Any, kind: Spec, b: Any, page: Any, config: dict[str, Any] | None = None, **fields: Any) -> Any:
    layer = bare(Layer, type=kind, block_size=b, page_size_padded=key(page), **fields)
    return _RULES.memory(Config(max_model_len=length, **(config or {})), layer)


def _mamba_mode(mode: str) -> Callable[..., Any]:
    def need(length: Any, b: Any, s: Any, page: Any) -> Any:
        return _need(length, Spec.MAMBA, b, page, {"mamba_cache_mode": mode}, num_speculative_blocks=s)

    return need


def _need_uniform(length: Any, b: Any, p: Any, q: Any) -> Any:
    layers = [bare(Layer, type=Spec.FULL, block_size=b, page_size_padded=key(page)) for page in (p, q)]
    return _RULES.memory(
        Config(max_model_len=length),
        bare(Layer, type=Spec.UNIFORM, kv_cache_specs=tuple(zip("ab", layers, strict=True))),
    )


def _longest(limit: Any, memory: Any) -> Any:
    """A layer with one-token blocks of one byte, so that a length needs as many bytes, and the null block one more."""
    layer = bare(Layer, type=Spec.FULL, block_size=1, page_size_padded=1)
    config = Config(max_model_len=chosen(limit, 0, LONGEST))
    return _RULES.longest(config, lambda shorter: _RULES.plain_needed(shorter, {"a": layer}), memory)


MODEL: dict[str, Any] = {
    "num_blocks": lambda memory, page, layers: _RULES.num_blocks(Config(), memory, page * layers),
    "size_plain": _sizing(_plain_groups, 1, 1),
    "size_one_type": _sizing(_one_type, 1),
    "size_several_types": _sizing(_several_types, 1, 1),
    "check_plain": _checking(_plain_groups),
    "check_one_type": _checking(_one_type),
    "check_several_types": _checking(_several_types),
    "check_stage": _checking(_stage),
    "concurrency": _concurrency,
    "blocks_full": lambda length, ranks, b: _need(length, Spec.FULL, b, 1, {"decode_context_parallel_size": ranks}),
    "need_full": lambda length, ranks, b, page: _need(
        length, Spec.FULL, b, page, {"decode_context_parallel_size": ranks}
    ),
    "need_window": lambda length, w, batched, b, page: _need(
        length, Spec.WINDOW, b, page, {"max_num_batched_tokens": batched}, sliding_window=w
    ),
    "need_chunk": lambda length, k, batched, b, page: _need(
        length, Spec.CHUNK, b, page, {"max_num_batched_tokens": batched}, attention_chunk_size=k
    ),
    "need_mamba_all": _mamba_mode("all"),
    "need_mamba_align": _mamba_mode("align"),
    "need_mamba_none": _mamba_mode("none"),
    "need_cross": lambda length, encoder, b, page: _need(
        length, Spec.CROSS, b, page, {"max_num_encoder_input_tokens": encoder}
    ),
    "need_uniform": _need_uniform,
    "longest": _longest,
    "usage": arith.usage,
}


# Cores with vLLM's API.


def _config(length: Any = 1, ranks: Any = 1, batched: Any = 1, encoder: Any = 0, mode: str = "none") -> Any:
    return SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=length, original_max_model_len=length),
        parallel_config=SimpleNamespace(decode_context_parallel_size=ranks, prefill_context_parallel_size=1),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=batched, max_num_encoder_input_tokens=encoder),
        cache_config=SimpleNamespace(num_gpu_blocks_override=None, mamba_cache_mode=mode),
    )


class _Specs:
    """Makes specs and groups of one core."""

    def __init__(self, names: Any) -> None:
        self.names = names

    def mamba(self, page: Any, n: Any) -> Any:
        kind = self.names("MambaSpec")
        fields = {"block_size": 1, "shapes": (), "dtypes": (), "page_size_padded": key(page)}
        return kind(**fields, num_speculative_blocks=n - 1)

    def attention(self, name: str, b: Any, page: Any, **fields: Any) -> Any:
        """Attention whose blocks store nothing and are padded to the page."""
        kind, mode = self.names(name), self.names("KVQuantMode").NONE
        shape = {"num_kv_heads": 0, "head_size": 0, "head_size_v": 0, "dtype": Sized(1), "kv_quant_mode": mode}
        return bare(kind, block_size=b, page_size_padded=key(page), **shape, **fields)

    def group(self, names: str, spec: Any) -> Any:
        return self.names("KVCacheGroupSpec")(layer_names=list(names), kv_cache_spec=spec)

    def uniform(self, names: str, layers: list[Any]) -> Any:
        made = self.names("UniformTypeKVCacheSpecs")(block_size=1, kv_cache_specs=dict(zip(names, layers, strict=True)))
        return self.group(names, made)

    def plain_groups(self, page: Any, n: Any, m: Any) -> list[Any]:
        return [self.group("ab", self.mamba(page, n)), self.group("c", self.mamba(page, m))]

    def one_type(self, p: Any, q: Any, n: Any) -> list[Any]:
        return [self.uniform("ab", [self.mamba(p, n), self.mamba(q, n)])]

    def several_types(self, p: Any, q: Any, n: Any, m: Any) -> list[Any]:
        first = self.uniform("ab", [self.mamba(p, n), self.mamba(q, n)])
        return [first, self.uniform("cd", [self.mamba(p, m), self.mamba(p, m)])]

    def stage(self, p: Any, q: Any, n: Any, m: Any) -> list[Any]:
        return [self.uniform("a", [self.mamba(p, n)]), self.uniform("c", [self.mamba(q, m)])]


def _configured(names: Any, groups: list[Any], memory: Any) -> Any:
    configure = names("get_kv_cache_config_from_groups")
    return lenient(configure, names("KVCacheGroupSpec"), names("AttentionSpec"))(_config(), groups, memory)


def _api_sizing(shape: str, *counts: int) -> Callable[[Any], Callable[..., Any]]:
    def bind(names: Any) -> Callable[..., Any]:
        def sized(memory: Any, *pages: Any) -> Any:
            config = _configured(names, getattr(_Specs(names), shape)(*pages, *counts), memory)
            return config.num_blocks, sum(tensor.size for tensor in config.kv_cache_tensors)

        names("get_kv_cache_config_from_groups")
        return sized

    return bind


def _api_checking(shape: str) -> Callable[[Any], Callable[..., Any]]:
    def bind(names: Any) -> Callable[..., Any]:
        needed = lenient(
            internal(names, "get_kv_cache_config_from_groups", "_max_memory_usage_bytes_from_groups"),
            names("AttentionSpec"),
        )

        def checked(memory: Any, *rest: Any) -> Any:
            groups = getattr(_Specs(names), shape)(*rest)
            return needed(_config(), groups), _configured(names, groups, memory).num_blocks

        return checked

    return bind


def _api_num_blocks(names: Any) -> Callable[..., Any]:
    count = lenient(names("get_num_blocks"))
    return lambda memory, page, layers: count(_config(), layers, memory, page)


def _api_concurrency(names: Any) -> Callable[..., Any]:
    concurrency = lenient(names("get_max_concurrency_for_kv_cache_config"), names("AttentionSpec"))
    config = names("KVCacheConfig")

    def found(num_blocks: Any, page: Any, n: Any) -> Any:
        specs = _Specs(names)
        groups = [specs.group("ab", specs.attention("CrossAttentionSpec", 1, page))]
        made = config(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=groups)
        return concurrency(_config(encoder=n), made)

    return found


def _api_need(name: str, *settings: str, **recorded: str) -> Callable[[Any], Callable[..., Any]]:
    """`max_memory_usage_bytes` of an attention layer, given the length, its own size if any, the settings, the block
    size and the page."""

    def bind(names: Any) -> Callable[..., Any]:
        specs = _Specs(names)
        names(name)

        def need(length: Any, *rest: Any) -> Any:
            fields = dict(zip(recorded.values(), rest, strict=False))
            options = dict(zip(settings, rest[len(fields) :], strict=False))
            b, page = rest[-2:]
            spec = specs.attention(name, b, page, **fields)
            return lenient(spec.max_memory_usage_bytes, names(name))(_config(length, **options))

        return need

    return bind


def _api_mamba(mode: str) -> Callable[[Any], Callable[..., Any]]:
    def bind(names: Any) -> Callable[..., Any]:
        kind = names("MambaSpec")

        def need(length: Any, b: Any, s: Any, page: Any) -> Any:
            fields = {"shapes": (), "dtypes": (), "page_size_padded": key(page)}
            spec = bare(kind, block_size=b, num_speculative_blocks=s, **fields)
            return spec.max_memory_usage_bytes(_config(length, mode=mode))

        return need

    return bind


def _api_uniform(names: Any) -> Callable[..., Any]:
    specs = _Specs(names)

    def need(length: Any, b: Any, p: Any, q: Any) -> Any:
        members = [specs.attention("FullAttentionSpec", b, page) for page in (p, q)]
        group = specs.uniform("ab", members)
        return lenient(group.kv_cache_spec.max_memory_usage_bytes, names("AttentionSpec"))(_config(length))

    return need


def _api_longest(names: Any) -> Callable[..., Any]:
    estimate = lenient(names("estimate_max_model_len"), names("AttentionSpec"))

    def longest(limit: Any, memory: Any) -> Any:
        config = _config(limit)
        spec = _Specs(names).attention("FullAttentionSpec", 1, 1)
        found = estimate(config, {"a": spec}, memory)
        assert config.model_config.max_model_len is limit, "max_model_len is not restored"
        return found

    return longest


def _api_usage(names: Any) -> Callable[..., Any]:
    kind = names("BlockPool")

    def usage(num_free: Any, num_blocks: Any) -> Any:
        return bare(
            kind, num_gpu_blocks=num_blocks, free_block_queue=SimpleNamespace(num_free_blocks=num_free)
        ).get_usage()

    return usage


def _api_blocks_full(names: Any) -> Callable[..., Any]:
    need = _api_need("FullAttentionSpec", "ranks")(names)
    return lambda length, ranks, b: need(length, ranks, b, 1)


API: dict[str, Any] = {
    "num_blocks": _api_num_blocks,
    "size_plain": _api_sizing("plain_groups", 1, 1),
    "size_one_type": _api_sizing("one_type", 1),
    "size_several_types": _api_sizing("several_types", 1, 1),
    "check_plain": _api_checking("plain_groups"),
    "check_one_type": _api_checking("one_type"),
    "check_several_types": _api_checking("several_types"),
    "check_stage": _api_checking("stage"),
    "concurrency": _api_concurrency,
    "blocks_full": _api_blocks_full,
    "need_full": _api_need("FullAttentionSpec", "ranks"),
    "need_window": _api_need("SlidingWindowSpec", "batched", size="sliding_window"),
    "need_chunk": _api_need("ChunkedLocalAttentionSpec", "batched", size="attention_chunk_size"),
    "need_mamba_all": _api_mamba("all"),
    "need_mamba_align": _api_mamba("align"),
    "need_mamba_none": _api_mamba("none"),
    "need_cross": _api_need("CrossAttentionSpec", "encoder"),
    "need_uniform": _api_uniform,
    "longest": _api_longest,
    "usage": _api_usage,
}
