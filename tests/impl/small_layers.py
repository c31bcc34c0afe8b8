"""Layers so small that every byte can be looked at, and configurations of them."""

import numpy as np
from blockproof import impl
from blockproof.impl import KVCacheConfig, KVCacheGroupSpec, KVCacheTensor

HALF, FLOAT, INT8 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.int8)


def full(block_size: int = 4, num_kv_heads: int = 2, head_size: int = 3, dtype=HALF, **fields):
    return impl.FullAttentionSpec(block_size, num_kv_heads=num_kv_heads, head_size=head_size, dtype=dtype, **fields)


def mla(block_size: int = 8, head_size: int = 6, dtype=HALF, **fields):
    return impl.MLAAttentionSpec(block_size, num_kv_heads=1, head_size=head_size, dtype=dtype, **fields)


def mamba(shapes=((3, 2), (5,)), dtypes=(FLOAT, HALF), block_size: int = 4, **fields):
    return impl.MambaSpec(block_size, shapes, dtypes, **fields)


def config(*groups: dict[str, impl.KVCacheSpec], num_blocks: int = 5) -> KVCacheConfig:
    """Layer name to spec for each group; the i-th layers of all groups share tensor i."""
    deepest = max(map(len, groups))
    tensors = []
    for i in range(deepest):
        shared = [list(group.items())[i] for group in groups if i < len(group)]
        tensors.append(KVCacheTensor(num_blocks * shared[0][1].page_size_bytes, [name for name, _ in shared]))
    records = []
    for group in groups:
        specs = list(group.values())
        if len({spec.page_size_bytes for spec in specs}) == 1 and len(set(specs)) == 1:
            records.append(KVCacheGroupSpec(list(group), specs[0]))
        else:
            uniform = impl.UniformTypeKVCacheSpecs(specs[0].block_size, group)
            records.append(KVCacheGroupSpec(list(group), uniform))
    return KVCacheConfig(num_blocks, tensors, records)
