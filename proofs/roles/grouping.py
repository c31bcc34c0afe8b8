"""Pages made equal, layers put into groups, block sizes that go together (T19, T20).

A role answers None where a core refuses.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from ...model.attention import CoreError
from ...model.config import arith
from ...model.config.capacity import Rules
from ...model.config_json import Config, Layer, Spec
from .bare import bare
from .stand_ins import Sized, chosen, internal, key, lenient

_RULES = Rules()
MOST_LAYERS = (5, 4)
"""Most layers of each type for which grouping is followed."""


def names_of(counts: Any) -> list[tuple[str, int]]:
    """Layers in the model's order, each with its type: the types take turns."""
    return [(f"{kind}.{i}", kind) for i in range(max(counts)) for kind, count in enumerate(counts) if i < count]


def _counts(counts: Any) -> list[int]:
    return [chosen(count, 1, most) for count, most in zip(counts, MOST_LAYERS, strict=True)]


# The model.


def _pages(layers: dict[str, Layer]) -> Any:
    """Page and block size of each layer after unification."""
    try:
        unified = _RULES.unify_page_size(layers)
    except CoreError as error:
        if str(error) != "NotImplementedError":
            raise
        return None
    return [(_RULES.page(layer), layer.block_size) for layer in unified.values()]


def _full(b: Any, width: Any) -> Layer:
    """Tokens of so many bytes each."""
    return Layer(Spec.FULL, b, num_kv_heads=1, head_size=width, head_size_v=0, dtype=1)


def _padded(b: Any, page: Any) -> Layer:
    return bare(Layer, type=Spec.FULL, block_size=b, page_size_padded=page, head_size_v=0)  # type: ignore[no-any-return]


def _state(size: Any) -> Layer:
    return Layer(Spec.MAMBA, 1, shapes=((size,),), dtypes=(1,))


def _grouped(*counts: Any) -> list[list[str]]:
    layers = {name: Layer(Spec.FULL, kind + 1) for name, kind in names_of(_counts(counts))}
    return [list(group.names) for group in _RULES.groups_of_one_page(layers)]


def _block_sizes(*sizes: Any, cache: Any = 1, requested: Any = None, caching: Any = True, mamba: bool = False) -> Any:
    kinds = [Spec.FULL] * len(sizes)
    kinds[-1:] = [Spec.MAMBA if mamba else Spec.FULL]
    config = Config(block_size=cache, hash_block_size=requested, enable_prefix_caching=caching)
    specs = [bare(Layer, type=kind, block_size=size) for kind, size in zip(kinds, sizes, strict=True)]
    try:
        return lenient(_RULES.block_sizes)(config, specs)
    except CoreError:
        return None


MODEL: dict[str, Any] = {
    "unify": lambda b, width, other: _pages({"a": _full(b, width), "b": _full(other, 1)}),
    "unify_padded": lambda b, page, other, times: _pages({"a": _padded(b, page), "b": _padded(other, page * times)}),
    "unify_state": lambda state, b, width: _pages({"a": _state(state), "b": _full(b, width)}),
    "grouped": _grouped,
    "group_size": arith.group_size,
    "padding": arith.padding,
    "approximate_gcd": lambda values, least: _RULES.depth(values, least),
    "block_sizes": _block_sizes,
}


# Cores with vLLM's API.


def _keyed(kind: Any) -> Any:
    """The class, whose pages can be collected in a set."""
    return type(
        kind.__name__, (kind,), {"page_size_bytes": property(lambda spec: key(kind.page_size_bytes.fget(spec)))}
    )


class _Specs:
    def __init__(self, names: Any) -> None:
        self.full, self.mamba = (_keyed(names(name)) for name in ("FullAttentionSpec", "MambaSpec"))
        self.names = names
        self.unify = lenient(names("unify_kv_cache_spec_page_size"), names("AttentionSpec"), names("MambaSpec"))

    def pages(self, *layers: Any) -> Any:
        read = lenient(lambda spec: (spec.page_size_bytes, spec.block_size), self.names("AttentionSpec"))
        try:
            unified = self.unify(dict(zip("abc", layers, strict=False)))
        except NotImplementedError:
            return None
        return [read(spec) for spec in unified.values()]

    def attention(self, b: Any, width: Any, padded: Any = None, heads: int = 1) -> Any:
        shape = {"num_kv_heads": heads, "head_size": width, "head_size_v": 0, "dtype": Sized(1)}
        return self.full(block_size=b, page_size_padded=padded, **shape)

    def state(self, size: Any) -> Any:
        return self.mamba(block_size=1, shapes=((size,),), dtypes=(Sized(1),))


def _api_unify(names: Any) -> Callable[..., Any]:
    specs = _Specs(names)
    return lambda b, width, other: specs.pages(specs.attention(b, width), specs.attention(other, 1))


def _api_unify_padded(names: Any) -> Callable[..., Any]:
    specs = _Specs(names)
    return lambda b, page, other, times: specs.pages(
        specs.attention(b, 0, page, heads=0), specs.attention(other, 0, page * times, heads=0)
    )


def _api_unify_state(names: Any) -> Callable[..., Any]:
    specs = _Specs(names)
    return lambda state, b, width: specs.pages(specs.state(state), specs.attention(b, width))


@contextmanager
def _quiet() -> Iterator[None]:
    """Cores warn of the slots that stay empty, which is what is proved here."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _api_grouped(names: Any) -> Callable[..., Any]:
    group = internal(names, "get_kv_cache_groups", "_get_kv_cache_groups_uniform_page_size")
    kind = names("FullAttentionSpec")
    one = Sized(1)

    def grouped(*counts: Any) -> list[list[str]]:
        layers = {
            name: kind(block_size=number + 1, num_kv_heads=1, head_size=1, dtype=one)
            for name, number in names_of(_counts(counts))
        }
        with _quiet():
            return [list(made.layer_names) for made in group(layers)]

    return grouped


def _api_approximate_gcd(names: Any) -> Callable[..., Any]:
    find = internal(names, "get_kv_cache_groups", "_approximate_gcd")
    return lambda values, least: find(values, lower_bound=least)


def _api_block_sizes(names: Any) -> Callable[..., Any]:
    resolve = lenient(names("resolve_kv_cache_block_sizes"))

    def sizes(*given: Any, cache: Any = 1, requested: Any = None, caching: Any = True, mamba: bool = False) -> Any:
        kinds = [names("FullAttentionSpec")] * len(given)
        kinds[-1:] = [names("MambaSpec") if mamba else kinds[-1]]
        specs = [bare(kind, block_size=size) for kind, size in zip(kinds, given, strict=True)]
        config = SimpleNamespace(
            parallel_config=SimpleNamespace(decode_context_parallel_size=1, prefill_context_parallel_size=1),
            cache_config=SimpleNamespace(block_size=cache, hash_block_size=requested, enable_prefix_caching=caching),
            kv_transfer_config=None,
        )
        groups = [SimpleNamespace(kv_cache_spec=spec) for spec in specs]
        try:
            return resolve(SimpleNamespace(kv_cache_groups=groups), config)
        except ValueError:
            return None

    return sizes


API: dict[str, Any] = {
    "unify": _api_unify,
    "unify_padded": _api_unify_padded,
    "unify_state": _api_unify_state,
    "grouped": _api_grouped,
    "approximate_gcd": _api_approximate_gcd,
    "block_sizes": _api_block_sizes,
}
