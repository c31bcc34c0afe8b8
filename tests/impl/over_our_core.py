"""Runs cases of `fuzz.adapters.vllm.scheduler` with our core in place of the release's; see test_under_a_release.py."""

import dataclasses
import json
import sys
from importlib import import_module
from typing import Any

import blockproof.impl as impl
from blockproof.fuzz.adapters.vllm import scheduler

MADE: list[impl.KVCacheManager] = []


def our_spec(spec: Any) -> impl.KVCacheSpec:
    ours = getattr(impl, type(spec).__name__)
    fields = {field.name for field in dataclasses.fields(ours) if field.init}
    return ours(**{name: getattr(spec, name) for name in fields if hasattr(spec, name)})  # type: ignore[no-any-return]


def our_manager(kv_cache_config: Any, **settings: Any) -> impl.KVCacheManager:
    groups = [
        impl.KVCacheGroupSpec(list(group.layer_names), our_spec(group.kv_cache_spec), group.is_eagle_group)
        for group in kv_cache_config.kv_cache_groups
    ]
    MADE.append(impl.KVCacheManager(impl.KVCacheConfig(kv_cache_config.num_blocks, [], groups), **settings))
    return MADE[-1]


setattr(import_module("vllm.v1.core.sched.scheduler"), "KVCacheManager", our_manager)  # noqa: B010
for case in sys.argv[1:]:
    MADE.clear()
    told = scheduler.report(case)
    for manager in MADE:
        manager.check()
    print(json.dumps({"case": case, "shown": told["shown"], "what": told["what"], "cores": len(MADE)}), flush=True)
