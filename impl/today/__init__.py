"""Our core by the rule of vLLM 0.33, under its interface (docs/reference/today.md says the rule in words).

It is made of the classes of the older rule: each module here says what one of them does otherwise. Names that are not
here are those of the package above. What the older rule does costs nothing for it: there is no question in its code
which of the two is meant.
"""

from .block_pool import TodayPool as BlockPool
from .checkpoints import TodayMambaSpec as MambaSpec
from .hashing import LastHashes, get_request_block_hasher
from .kv_cache_manager import KVCacheBlockCopy
from .kv_cache_manager import TodayConfig as KVCacheConfig
from .kv_cache_manager import TodayManager as KVCacheManager
from .reference_window import RSWASpec
from .request import RequestStatus
from .request import TodayRequest as Request
from .rings import CircularBufferSpec
from .windows import TodayWindowMLASpec as SlidingWindowMLASpec
from .windows import TodayWindowSpec as SlidingWindowSpec

__all__ = [
    "BlockPool",
    "CircularBufferSpec",
    "KVCacheBlockCopy",
    "KVCacheConfig",
    "KVCacheManager",
    "LastHashes",
    "MambaSpec",
    "RSWASpec",
    "Request",
    "RequestStatus",
    "SlidingWindowMLASpec",
    "SlidingWindowSpec",
    "get_request_block_hasher",
]
