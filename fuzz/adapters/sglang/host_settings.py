"""What a server of SGLang says of its memory on the host."""

from collections.abc import Mapping
from dataclasses import dataclass

DEVICE = 100
"""Per cent: as large as the pool on the device. What is on the device, too, is not evicted from a smaller one."""
POLICIES = ("write_through", "write_through_selective", "write_back")


@dataclass(frozen=True)
class HostSettings:
    """What a server says of its memory on the host."""

    policy: str
    """When what is computed is copied there: at once, when it is found again, or when it leaves the device."""
    percent: int = 200
    """Its size, of that of the pool on the device."""
    least: int = 10
    """The fewest tokens that are loaded; the release has no other figure."""

    enough: bool = False
    """Nothing is evicted where that would not be enough, which is not so in the release."""
    waits: bool = False
    """Who decodes waits for copies that hold the room that he lacks, which is not so in the release."""

    @property
    def arguments(self) -> Mapping[str, object]:
        """Those of the server."""
        return {
            "enable_hierarchical_cache": True,
            "hicache_write_policy": self.policy,
            "hicache_ratio": self.percent / 100,
            "hicache_size": 0,
            "hicache_mem_layout": "layer_first",
            "hicache_io_backend": "direct",
            "hicache_host_memory_mode": "cache",
        }
