"""Puts our core in place of vLLM's and prints, as one line of JSON, what the engine then sees; see test_compat.py."""

import json
import os
from importlib import import_module, reload
from types import SimpleNamespace

from blockproof import impl
from blockproof.impl import compat

compat.install()
compat.install()

shown = {name: import_module(name) for name in compat.REPLACED}
utils = import_module("vllm.v1.core.kv_cache_utils")
interface = import_module("vllm.v1.kv_cache_interface")
pools = import_module("vllm.v1.core.block_pool")
managers = import_module("vllm.v1.core.kv_cache_manager")
registry = import_module("vllm.v1.kv_cache_spec_registry")
events, stats = import_module("vllm.distributed.kv_events"), import_module("vllm.v1.metrics.stats")
torch = import_module("torch")


def manager(**settings):
    spec = interface.SlidingWindowSpec(16, num_kv_heads=1, head_size=1, dtype=torch.float32, sliding_window=20)
    config = interface.KVCacheConfig(8, [], [interface.KVCacheGroupSpec(["layer"], spec)])
    return managers.KVCacheManager(config, 64, 16, 16, **settings)


def told_events():
    """The classes of the events of one request, and whether a publisher can encode them."""
    core = manager(enable_kv_cache_events=True)
    request = impl.Request("r", list(range(40)), block_hasher=utils.get_request_block_hasher(16, impl.sha256))
    core.allocate_slots(request, 40)
    core.free(request)
    core.reset_prefix_cache()
    taken = core.take_events()
    batch = events.KVEventBatch(ts=0.0, events=taken)
    encoded = import_module("msgspec").msgpack.Encoder().encode(batch)
    return [type(event).__module__ + "." + type(event).__name__ for event in taken], len(encoded) > 20


def retention_of_environment():
    os.environ[compat.RETENTION] = "32"
    told = manager().coordinator.retention_interval
    del os.environ[compat.RETENTION]
    return [told, manager().coordinator.retention_interval]


def live_globals():
    """What is set in a module that the engine sees, and what this package then uses."""
    utils.init_none_hash(impl.sha256)
    first = utils.NONE_HASH
    setattr(utils, "NONE_HASH", b"own")  # noqa: B010
    own = impl.hash_block_tokens(impl.sha256, None, [1]) == impl.sha256((b"own", (1,), None))
    utils.init_none_hash(impl.sha256)
    again = reload(utils)
    lines: list[str] = []
    old, told = getattr(pools, "logger"), SimpleNamespace(warning=lambda text, *given: lines.append(text))  # noqa: B009
    setattr(pools, "logger", told)  # noqa: B010
    core = manager()
    core.block_pool.get_new_blocks(1)
    core.reset_prefix_cache()
    setattr(pools, "logger", old)  # noqa: B010
    return [len(first), own, len(utils.NONE_HASH), again is utils, len(lines)]


collector = impl.KVCacheMetricsCollector(1.0)
block = impl.KVCacheBlock(1)
collector.on_block_allocated(block)
collector.on_block_evicted(block)
utils.init_none_hash(impl.sha256)
print(
    json.dumps(
        {
            "missing": [
                f"{name}.{key}"
                for name, module in shown.items()
                for key in compat.REPLACED[name].__all__
                if getattr(module, key, None) is not getattr(compat.REPLACED[name], key)
                and key != "register_all_kvcache_specs"
            ],
            "passed_on": [managers.Request.__module__, utils.tensor_data.__module__],
            "registry": registry._REGISTRY_KVCACHESPEC_LIST[interface.FullAttentionSpec].manager_class.__name__,
            "events": told_events(),
            "retention": retention_of_environment(),
            "live": live_globals(),
            "statistics": type(manager(log_stats=True).prefix_cache_stats) is stats.PrefixCacheStats,
            "samples": type(collector.drain_events()[0]) is stats.KVCacheEvictionEvent,
            "mamba": type(interface.MambaSpec(16, ((1,),), (torch.float32,)).mamba_type).__module__,
        }
    )
)
