"""The pool under the name that vLLM gives its module."""

from .pool.block_pool import BlockPool
from .pool.hash_map import BlockHashToBlockMap

__all__ = [
    "BlockHashToBlockMap",
    "BlockPool",
]
