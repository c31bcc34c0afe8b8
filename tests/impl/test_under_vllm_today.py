"""What the scheduler of vLLM 0.33 sees of our core of today after `compat.install()`."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from blockproof import impl
from blockproof.impl import today
from blockproof.impl.kv_cache_utils import init_none_hash
from blockproof.impl.today import RSWASpec
from blockproof.impl.today.under_vllm import ManagerForVllm, spec_of

from .cores_of_today import FLOAT
from .test_compat import in_a_toy

ENUMS = "from enum import IntEnum\nclass RequestStatus(IntEnum):\n    WAITING, RUNNING, PREEMPTED = 1, 5, 6"
KINDS = ("FullAttention", "SinkFullAttention", "CrossAttention", "SlidingWindow", "ChunkedLocalAttention")
TOY = {
    "torch": "class float32: itemsize = 4",
    "vllm.logger": "from logging import getLogger as init_logger",
    "vllm.distributed.kv_events": "from blockproof.impl.pool import events as _events\n"
    + "".join(
        f"class {name}(_events.{name}): pass\n"
        for name in ("KVCacheEvent", "BlockStored", "BlockRemoved", "AllBlocksCleared")
    ),
    "vllm.v1.metrics.stats": "from blockproof.impl.managers import stats as _stats\n"
    "class PrefixCacheStats(_stats.PrefixCacheStats): pass\nclass KVCacheEvictionEvent: pass",
    "vllm.v1.request": ENUMS,
    "vllm.v1.core.kv_cache_utils": "from typing import NamedTuple\n"
    "class KVCacheBlockCopy(NamedTuple):\n    src_block_id: int\n    dst_block_id: int",
    "vllm.v1.core.single_type_kv_cache_manager": "from abc import ABC\n"
    + "".join(f"class {name}Manager(ABC): pass\n" for name in (*KINDS, "Mamba", "RSWA", "CircularBuffer")),
    "vllm.v1.core.kv_cache_coordinator": "from abc import ABC\n"
    + "".join(
        f"class {name}(ABC): pass\n"
        for name in ("KVCacheCoordinatorNoPrefixCache", "UnitaryKVCacheCoordinator", "HybridKVCacheCoordinator")
    ),
    "vllm.v1.core.kv_cache_manager": "class KVCacheManager: pass\nclass KVCacheBlocks: pass\nleft = 'as it was'",
}
"""By its name, what each module of an engine of that series has to have."""
SCRIPT = """
import json
from dataclasses import replace
from types import SimpleNamespace as Fields
from blockproof.impl import compat, today
compat.install()
compat.install()
from vllm.v1.core import kv_cache_manager as seen
from vllm.v1.core.kv_cache_coordinator import UnitaryKVCacheCoordinator
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
from vllm.v1.request import RequestStatus
class FullAttentionSpec:
    block_size, num_kv_heads, head_size, dtype, sliding_window, attention_chunk_size = 4, 1, 1, float, None, None
class Own(FullAttentionSpec): pass
group = Fields(layer_names=["layer"], kv_cache_spec=Own(), is_eagle_group=False)
config = Fields(num_blocks=10, kv_cache_groups=[group], prefix_cache_retention_interval=0)
core = seen.KVCacheManager(kv_cache_config=config, max_model_len=64, scheduler_block_size=4, hash_block_size=4,
                           log_stats=True, enable_kv_cache_events=True, watermark=0.45)
from blockproof.impl import sha256
from blockproof.impl.kv_cache_utils import init_none_hash
init_none_hash(sha256)
request = today.Request("r", list(range(12)), block_hasher=today.get_request_block_hasher(4, sha256))
def gets(status):
    request.status = status
    got = core.allocate_slots(request, 4)
    return got and got.get_block_ids(group_ids=[0])
first = gets(RequestStatus.WAITING)
core.allocate_slots(request, 20)
request.num_computed_tokens = 20
print(json.dumps({
    "left": seen.left,
    "spec": core.coordinator.single_type_managers[0].kv_cache_spec is group.kv_cache_spec,
    "kinds": [isinstance(core.coordinator, UnitaryKVCacheCoordinator),
              isinstance(core.coordinator.single_type_managers[0], FullAttentionManager)],
    "events": type(core.take_events()[0]).__module__,
    "stats": type(core.prefix_cache_stats).__module__,
    "answers": [first, gets(RequestStatus.WAITING), gets(RequestStatus.RUNNING)],
    "answer": type(core.empty_kv_cache_blocks) is seen.KVCacheBlocks,
}))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("modules")
    script = folder / "script.py"
    script.write_text(SCRIPT)
    done = in_a_toy(folder, script, TOY, "0.33.0")
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_what_is_not_ours_is_left(seen: Any) -> None:
    assert seen["left"] == "as it was"
    assert seen["spec"], "a scheduler asks vLLM's specs of what kind they are"


def test_its_parts_are_of_the_engines_kinds(seen: Any) -> None:
    assert seen["kinds"] == [True, True]
    assert seen["answer"]
    assert seen["events"] == "vllm.distributed.kv_events"
    assert seen["stats"] == "vllm.v1.metrics.stats"


def test_the_engines_status_says_who_runs(seen: Any) -> None:
    # Three of ten blocks are free: fewer than the watermark leaves to one who waits.
    assert seen["answers"] == [[[1]], None, [[6]]]


def window(**fields: object) -> Any:
    sizes = {"block_size": 4, "num_kv_heads": 1, "head_size": 1, "dtype": float, "sliding_window": 8}
    return type("SlidingWindowSpec", (), {**sizes, **fields})()


def test_a_window_that_our_core_does_not_know_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="no such window"):
        spec_of(window(bounded_replay=True))


def test_what_a_chain_of_draft_models_prefills_again_is_told() -> None:
    kept: Any = spec_of(window(extra_retained_tokens=3))
    assert kept == replace(kept, extra_retained_tokens=3) != spec_of(window())


def test_a_spec_without_a_manager_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="HiSparseHotSpec: our core has no manager"):
        spec_of(type("HiSparseHotSpec", (), {"block_size": 4})())


def test_of_layers_that_share_a_table_the_first_one_tells() -> None:
    layout = {"block_size": 4, "num_kv_heads": 1, "head_size": 1, "dtype": float, "rswa_window": 8}
    member = type("RSWASpec", (), layout)()
    spec = spec_of(SimpleNamespace(kv_cache_specs={"layer": member}))
    assert isinstance(spec, RSWASpec)
    assert (spec.block_size, spec.rswa_window) == (4, 8)


def test_the_scheduler_may_say_more_than_the_core_asks() -> None:
    layout = {"block_size": 4, "num_kv_heads": 1, "head_size": 1, "dtype": float}
    group = SimpleNamespace(
        layer_names=["layer"], kv_cache_spec=type("FullAttentionSpec", (), layout)(), is_eagle_group=False
    )
    config = SimpleNamespace(num_blocks=8, kv_cache_groups=[group], prefix_cache_retention_interval=None)
    core = ManagerForVllm(config, 64, 4, 4)
    asked = {"num_encoder_tokens": 0, "total_computed_tokens": 0, "num_tokens_main_model": 9}
    more = {"num_local_computed_tokens": 0, "apply_admission_cap": True, "prefill_end": 9}
    need = core.coordinator.get_num_blocks_to_allocate("r", num_tokens=9, new_computed_blocks=((),), **asked, **more)
    assert need == 3


def test_what_was_generated_is_found_again_at_the_interval_of_0() -> None:
    init_none_hash(impl.sha256)
    config = today.KVCacheConfig(10, [], [impl.KVCacheGroupSpec(["layer"], FULL)], 0)
    core = today.KVCacheManager(config, 64, 4, 4)
    hasher = today.get_request_block_hasher(4, impl.sha256)
    first = today.Request("first", list(range(4)), block_hasher=hasher)
    core.allocate_slots(first, 4)
    first.append_output_token_ids(list(range(4, 12)))
    first.num_computed_tokens = 4
    core.allocate_slots(first, 8)
    core.free(first)
    again = today.Request("again", list(range(13)), block_hasher=hasher)
    assert core.get_computed_blocks(again)[1] == 12


FULL = impl.FullAttentionSpec(4, num_kv_heads=1, head_size=1, dtype=FLOAT)


def test_groups_that_differ_for_the_engine_alone_are_looked_up_apart() -> None:
    """A window of a draft model needs what is behind a hit; that of the model, equal in all that a core asks, not."""
    layout = {"block_size": 4, "num_kv_heads": 1, "head_size": 1, "dtype": float}
    full, sliding = (type(f"{kind}Spec", (SimpleNamespace,), {}) for kind in ("FullAttention", "SlidingWindow"))
    for of_model, expected in ((False, [False, False, True]), (True, [False, True])):
        specs = [full(**layout), *[sliding(**layout, sliding_window=8, is_draft=mark) for mark in (of_model, True)]]
        groups = [
            SimpleNamespace(layer_names=[str(i)], kv_cache_spec=spec, is_eagle_group=i == 2)
            for i, spec in enumerate(specs)
        ]
        config = SimpleNamespace(num_blocks=40, kv_cache_groups=groups, prefix_cache_retention_interval=None)
        coordinator: Any = ManagerForVllm(config, 128, 4, 4).coordinator
        assert [alike.use_eagle for alike in coordinator.attention_groups] == expected
