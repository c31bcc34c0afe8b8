"""While generation is paused for new weights, a server with memory on the host never hears of the end of its copies.

SGLang with `enable_hierarchical_cache` (write_through). A prompt is computed, and its pages are copied to the host.
Then `pause_generation` comes with mode "retract", the copy ends, and the cache is to be flushed before the weights
change, as `update_weights_from_disk` does it.
"""

import atexit
from types import SimpleNamespace
from typing import Any

from fix import fix
from sglang_without_device import PAGE, TOKENS, main, request, scheduler, srt

PASSES = 1000


def with_host() -> tuple[Any, list[SimpleNamespace]]:
    """A scheduler whose tree has memory on the host, and the ends of its copies."""
    engine, ends = scheduler(), list[SimpleNamespace]()
    torch, common = srt("managers.scheduler").torch, srt("mem_cache.pool_host.common")
    common.ALLOC_MEMORY_FUNCS["cpu"] = lambda dims, *, dtype, device, **rest: torch.empty(dims, dtype=dtype)
    tree = engine.tree_cache
    kept = srt("mem_cache.memory_pool").MHATokenToKVPool(TOKENS, PAGE, torch.float16, 1, 1, 1, "cpu", False)
    tree.token_to_kv_pool_allocator._kvcache = kept
    given = srt("mem_cache.cache_init_params").CacheInitParams(
        disable=False,
        req_to_token_pool=engine.req_to_token_pool,
        token_to_kv_pool_allocator=tree.token_to_kv_pool_allocator,
        page_size=PAGE,
    )
    fields = {"hicache_write_policy": "write_through", "hicache_ratio": 2.0, "hicache_size": 0}
    context = srt("runtime_context").get_context()
    context.override("scenario", enable_hierarchical_cache=True, hicache_io_backend="direct", **fields)
    context.override("scenario", hicache_mem_layout="layer_first", hicache_host_memory_mode="cache")
    tree.init_hicache(srt("runtime_context").get_server_args(), given)
    atexit.unregister(tree.shutdown)
    engine.enable_hierarchical_cache = True

    def copied(transfers: object) -> SimpleNamespace:
        end = SimpleNamespace(is_there=False, synchronize=lambda: None)
        end.query = lambda: end.is_there
        ends.append(end)
        return SimpleNamespace(start_event=None, finish_event=end, timing_enabled=False)

    tree.cache_controller.l2_transfer_engine = SimpleNamespace(submit_device_to_host=copied)
    return engine, ends


def passes(engine: Any, messages: list[Any], many: int) -> None:
    """Its own loop, which gets these messages in its first pass."""
    left = [messages, *([] for _ in range(many))]

    def receive(*given: object, **named: object) -> list[Any]:
        engine.gracefully_exit = len(left) == 1
        return left.pop(0)

    engine.request_receiver = SimpleNamespace(recv_requests=receive)
    engine.gracefully_exit = False
    engine.event_loop_normal()


def case() -> tuple[str, str, bool]:
    """A prompt of 8 tokens, and a flush behind the end of its copy."""
    engine, ends = with_host()
    inputs = srt("managers.io_struct")
    engine.process_input_requests([request("a", range(1, 9), 20)])
    for _ in range(3):
        engine.step()
    passes(engine, [inputs.PauseGenerationReqInput(mode="retract")], 1)
    for end in ends:
        end.is_there = True
    passes(engine, [], PASSES)
    engine.told.clear()
    passes(engine, [inputs.FlushCacheReqInput()], 1)
    done = [told.success for told in engine.told if hasattr(told, "success")]
    said = f"{len(ends)} copy has ended, and {PASSES} passes later a flush is {'done' if all(done) else 'refused'}"
    return "a flush behind the end of the copy is done", said, bool(ends) and not all(done)


main(case, fix)
