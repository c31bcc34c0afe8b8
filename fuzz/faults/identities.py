"""Planted faults of identities: what decides a block's content, and does not name it.

The faulty core names all blocks of a request anew whenever it is called for it, with keys from which something is left
out. Its events show the right keys, so only the names can give it away.
"""

import hashlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

from .registry import fault, wrap

Key: TypeAlias = tuple[Any, ...]
Keys: TypeAlias = list[Key]


Left: TypeAlias = Callable[[Keys, Any, int, int], list[Any]]
"""What is left of the keys of a request's block, which begins and ends at these tokens."""


def named_by(
    manager: Any, left: Callable[[Keys], list[Any]], size: int | None = None, digest_bytes: int | None = None
) -> None:
    """Blocks are named after what is left of their keys; further as `named_from` says."""
    named_from(manager, lambda keys, request, start, end: left(keys), size, digest_bytes)


def named_from(manager: Any, left: Left, size: int | None = None, digest_bytes: int | None = None) -> None:
    """Blocks are named after what is left of their keys, and after `size` tokens each, by default as many as they have.

    Names are `digest_bytes` long, by default long enough that no two are equal by accident.
    """
    package = ".".join(type(manager).__module__.split(".")[:2])  # of the pure core, or of the compiled one
    core = import_module(f"{package}.kv_cache_utils")
    size = size or manager.block_pool.hash_block_size

    def named(request: Any) -> list[bytes]:
        hashes: list[bytes] = [b""]
        for start in range(0, len(request.block_hashes) * size, size):
            keys, _ = core.generate_block_hash_extra_keys(request, start, start + size, 0)
            kept = left(list(keys or ()), request, start, start + size)
            content = hashes[-1], list(request.all_token_ids[start : start + size]), kept
            hashes.append(hashlib.sha256(repr(content).encode()).digest()[:digest_bytes])
        return hashes[1:]

    def call(original: Callable[..., Any], request: Any, *arguments: Any, **named_arguments: Any) -> Any:
        request.block_hashes[:] = named(request)
        return original(request, *arguments, **named_arguments)

    def call_all(original: Callable[..., Any], requests: Any, *arguments: Any, **named_arguments: Any) -> Any:
        for request in requests:
            request.block_hashes[:] = named(request)
        return original(requests, *arguments, **named_arguments)

    for method in ("get_computed_blocks", "allocate_slots", "cache_blocks", "free"):
        wrap(manager, method, call)
    wrap(manager, "allocate_slots_batch", call_all)


@fault("only the first item in a block names it", "labels", "outcome")
def _first_item_only(manager: Any) -> None:
    def left(keys: Keys) -> Keys:
        items = [key for key in keys if key[0] == "mm"]
        return [key for key in keys if key[0] != "mm"] + items[:1]

    named_by(manager, left)


@fault("the length of an item does not count in the name of a block", "labels", "outcome")
def _item_lengths_lost(manager: Any) -> None:
    named_by(manager, lambda keys: [key[:3] if key[0] == "mm" else key for key in keys])


@fault("an adapter names blocks by its name alone", "labels", "outcome")
def _adapter_by_name(manager: Any) -> None:
    named_by(manager, lambda keys: [key[:2] if key[0] == "lora" else key for key in keys])


@fault("an adapter and a salt of one name are not told apart", "labels", "outcome")
def _kinds_of_keys_lost(manager: Any) -> None:
    named_by(manager, lambda keys: [key[1] for key in keys if key[0] in ("lora", "cache_salt")])


@fault("embeddings do not name the blocks that they fill", "labels", "outcome")
def _embeddings_lost(manager: Any) -> None:
    named_by(manager, lambda keys: [key for key in keys if key[0] != "prompt_embeds"])


@fault("of items on the same tokens, those behind one that goes on do not name a block", "labels", "outcome", "events")
def _overlapping_items_lost(manager: Any) -> None:
    size = manager.block_pool.hash_block_size

    def left(keys: Keys) -> Keys:
        items = [key for key in keys if key[0] == "mm"]
        going_on = next((i for i, (_, _, offset, length) in enumerate(items) if offset + length > size), len(items))
        return [key for key in keys if key not in items[going_on + 1 :]]

    named_by(manager, left)
