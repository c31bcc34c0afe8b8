"""One page size for all layers, so that they can share buffers (specs-and-config.md §8)."""

from dataclasses import fields, replace
from typing import Any

from ..specs.interface import KVCacheSpec, MambaSpec
from .uniformity import Layers


def unify_kv_cache_spec_page_size(kv_cache_spec: Layers) -> Layers:
    """The layers with the largest page of them all: larger blocks where that suffices, else padding [C-04].

    The mapping itself if there is at most one page size. NotImplementedError, naming the layer, if its page does not
    fit into the largest a whole number of times.
    """
    pages = {layer: spec.page_size_bytes for layer, spec in kv_cache_spec.items()}
    if len(set(pages.values())) <= 1:
        return kv_cache_spec
    largest = max(pages.values())
    return {
        layer: spec if pages[layer] == largest else _grown(layer, spec, largest)
        for layer, spec in kv_cache_spec.items()
    }


def _grown(layer: str, spec: KVCacheSpec, page_size: int) -> KVCacheSpec:
    """The spec with a larger page of so many bytes."""
    if isinstance(spec, MambaSpec):
        return replace(spec, page_size_padded=page_size)  # a state does not grow with the block
    page = spec.page_size_bytes
    if page < 1 or page_size % page:
        raise NotImplementedError(
            f"layer {layer!r}: its page of {page} bytes does not fit a whole number of times into the largest of "
            f"{page_size}: give it a page_size_padded that does"
        )
    grown = _with_larger_blocks(spec, page_size // page)
    if grown.page_size_bytes < page_size and _has_padding(grown):
        grown = _padded(grown, page_size)
    if grown.page_size_bytes != page_size:
        raise NotImplementedError(
            f"layer {layer!r}: with blocks of {grown.block_size} tokens its page is {grown.page_size_bytes} bytes, "
            f"not {page_size}: {type(spec).__name__} needs pages in proportion to its blocks, or page_size_padded"
        )
    return grown


def _with_larger_blocks(spec: KVCacheSpec, times: int) -> KVCacheSpec:
    grown = spec.copy_with_new_block_size(spec.block_size * times)
    given = getattr(spec, "page_size_padded", None)
    if given is None or getattr(spec, "alignment", None) is not None:
        return grown
    return _padded(grown, given * times)


def _has_padding(spec: KVCacheSpec) -> bool:
    return any(field.name == "page_size_padded" for field in fields(spec))


def _padded(spec: Any, page_size: int) -> KVCacheSpec:
    padded: KVCacheSpec = replace(spec, page_size_padded=page_size)
    return padded
