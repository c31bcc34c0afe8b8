"""Two defects of kvcached 0.1.6, shown with vLLM 0.23.0's own engine and scheduler, without blockproof.

    PYTHON docs/evidence/kvcached_confirm.py SOURCES

PYTHON is an interpreter that imports vLLM 0.23.0, and SOURCES the folder that has the folder `kvcached` in it. Its
block pool runs over a page allocator that only counts. Each case runs in a process of its own. The exit status is 1 if
one of the defects shows, 0 if none does, and 3 if a case could not be tried.
"""

import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
os.environ.setdefault("KVCACHED_LOG_LEVEL", "CRITICAL")
OPERATIONS = ("PageAllocator", "InternalPage", "init_kvcached", "shutdown_kvcached", "create_kv_tensors")
OPERATIONS += ("kv_tensors_created", "map_to_kv_tensors", "unmap_from_kv_tensors")
SHOWS = 2
"""Exit status of a process whose case shows the defect; 1 is that of any exception."""


class Slots:
    """Stands in for kvcached's `KVCacheManager`: which slots are free, block 0 reserved. While `taken` is set, another
    engine on the device has the pages."""

    page_allocator = None
    taken = False

    def __init__(self, blocks: int) -> None:
        self.free_slots = list(range(1, blocks))

    def available_size(self) -> int:
        """Slots that are free when it is asked."""
        return len(self.free_slots)

    def alloc(self, count: int) -> list[int] | None:
        """So many slots, or None."""
        if Slots.taken or count > len(self.free_slots):
            return None
        slots, self.free_slots = self.free_slots[:count], self.free_slots[count:]
        return slots

    def free(self, slots: Sequence[int]) -> None:
        """They can be had again."""
        self.free_slots += slots


def apply(sources: str) -> None:
    """The patches of kvcached that concern the pool, the coordinator and `allocate_slots`, as they are."""
    os.environ["ENABLE_KVCACHED"] = "true"
    device = ModuleType("kvcached.vmm_ops")
    for name in OPERATIONS:
        setattr(device, name, lambda *args, **options: None)
    sys.modules["kvcached.vmm_ops"] = device
    sys.path.insert(0, sources)
    warnings.simplefilter("ignore")  # about a file of its installation
    import vllm.v1.core.block_pool as pools
    import vllm.v1.core.kv_cache_coordinator as coordinators
    import vllm.v1.core.kv_cache_manager as managers
    from kvcached.integration.vllm import interfaces, patches

    interfaces.get_kv_cache_manager = lambda blocks, *args, **options: Slots(blocks)
    interfaces.init_kvcached = lambda *args, **options: None
    interfaces.get_world_size = lambda: 1
    assert patches.ElasticBlockPoolPatch().apply(pools)
    assert patches.KVCacheCoordinatorPatch().apply(coordinators)
    assert patches.KVCacheManagerAllocateSlotsPatch().apply(managers)


def begin() -> Any:
    """The helpers of the findings, and an engine with full attention and a pool of 64 blocks of 16 tokens."""
    sys.path.insert(0, str(Path(__file__).parent / "findings"))
    import engine_without_device as helpers

    return helpers, helpers.start({"full": helpers.layer("FullAttentionSpec")}, blocks=64, length=256, batch=64)


def reset() -> tuple[str, bool]:
    """The cache is reset between the two halves of a prompt of 128 tokens, as after a change of the weights; later
    prompts may get no block of that request, as its second half was computed behind keys of the old weights."""
    helpers, engine = begin()
    helpers.submit(engine, "first", range(1, 129), answer=8)
    helpers.run(engine, 1)
    answer = engine.scheduler.reset_prefix_cache()
    for name in ("first", "second", "third"):
        if name != "first":
            helpers.submit(engine, name, range(1, 129))
        helpers.run(engine)
    old, (third,) = helpers.tables(engine, "first")[0][:8], helpers.tables(engine, "third")
    hit = [block for block in third[: helpers.served(engine, "third") // 16] if block in old]
    return (
        f"reset_prefix_cache while a request runs: {answer}; later a prompt is served its blocks {hit}",
        bool(answer and hit),
    )


def miss() -> tuple[str, bool]:
    """A prompt that hits is refused, as another engine has the pages for a moment, and is tried again a step later."""
    helpers, engine = begin()
    helpers.submit(engine, "first", range(1, 33))
    helpers.run(engine)
    helpers.submit(engine, "second", [*range(1, 33), *range(100, 120)])
    Slots.taken = True
    try:
        helpers.run(engine, 1)
        Slots.taken = False
        helpers.run(engine)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"a miss, and the retry: {type(error).__name__} at {place.name}, {place.line}", True
    return "a miss, and the retry: the request has ended", False


if __name__ == "__main__":
    if len(sys.argv) > 2:
        if sys.argv[3] == "kvcached":
            apply(sys.argv[1])
        said, shows = {"reset": reset, "miss": miss}[sys.argv[2]]()
        print(f"{sys.argv[3]}: {said}", flush=True)
        sys.exit(SHOWS if shows else 0)
    tried = [("reset", "vLLM"), ("reset", "kvcached"), ("miss", "kvcached")]  # vLLM has no pages to miss
    runs = [subprocess.run([sys.executable, __file__, sys.argv[1], *one], check=False).returncode for one in tried]
    sys.exit(int(SHOWS in runs) if set(runs) <= {0, SHOWS} else 3)
