"""The tensors of a configuration, allocated by our core on a device that has shapes and strides but no memory."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

from ..adapters.impl import bind_impl, spec_from_json
from ..targets.base import TargetUnavailableError


@dataclass(frozen=True)
class Allocated:
    """What was allocated, over all workers."""

    workers: int
    tensors: int
    layers: int
    views: int
    """Typed views: keys, values, scales or states of each layer."""
    bytes: int
    seconds: float

    def as_json(self) -> dict[str, object]:
        """All fields."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"dry run: {self.layers} layers with {self.views} views over {self.tensors} tensors, {self.bytes:,} bytes "
            f"in all, on {self.workers} worker{'s' if self.workers > 1 else ''}, in {self.seconds:.3f} s"
        )


def allocate_on_meta(configs: Mapping[str, Any]) -> Allocated:
    """Allocate the tensors of every worker of an answer to `configs` (its `same_as` resolved).

    The time is that of the allocation, without the import of torch. TargetUnavailableError without torch; ValueError,
    naming the layer, where pages cannot be laid out.
    """
    ours = bind_impl().names
    try:
        torch = import_module("torch")
    except ImportError:
        raise TargetUnavailableError(
            "--dry-run needs torch, which the extra `tensors` brings: pip install '/path/to/blockproof[tensors]'"
        ) from None

    def names(name: str) -> Any:
        """Our core's names, and torch, of which the specs then take their dtypes."""
        return torch if name == "torch" else ours(name)

    planned = [_config(names, worker, configs["specs"]) for worker in configs["workers"]]
    begin = time.perf_counter()
    made = [names("allocate_kv_cache")(config, "meta") for config in planned]
    seconds = time.perf_counter() - begin
    layers = [layer for tensors in made for layer in tensors.layers.values()]
    return Allocated(
        workers=len(made),
        tensors=sum(len(tensors.buffers) for tensors in made),
        layers=len(layers),
        views=sum(len(layer.parts) for layer in layers),
        bytes=sum(buffer.numel() for tensors in made for buffer in tensors.buffers),
        seconds=seconds,
    )


def _config(names: Any, worker: Mapping[str, Any], specs: Sequence[Mapping[str, Any]]) -> Any:
    """The KVCacheConfig of one worker."""
    made = [spec_from_json(names, spec) for spec in specs]
    groups = []
    for group in worker["groups"]:
        if "spec" in group:
            spec = made[group["spec"]]
        else:
            members = zip(group.get("member_names", group["layers"]), group["members"], strict=True)
            members_of = {name: made[index] for name, index in members}
            spec = names("UniformTypeKVCacheSpecs")(block_size=group["block_size"], kv_cache_specs=members_of)
        groups.append(names("KVCacheGroupSpec")(group["layers"], spec))
    tensors = [names("KVCacheTensor")(size, shared_by) for size, shared_by in worker["tensors"]]
    return names("KVCacheConfig")(worker["num_blocks"], tensors, groups)
