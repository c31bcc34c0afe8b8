"""Runs cases of `fuzz.adapters.vllm.engine.cases` with our core instead of the release's (test_under_a_release.py)."""

import json
import sys
from importlib import import_module
from typing import Any

import blockproof.impl as impl
from blockproof.impl import compat

compat.install()

from blockproof.fuzz.adapters.vllm.engine import cases as scheduler  # noqa: E402  # what it imports of vLLM is ours by now

MADE: list[impl.KVCacheManager] = []
engine = import_module("vllm.v1.core.sched.scheduler")
assert engine.KVCacheManager is impl.KVCacheManager


def noted_manager(*given: Any, **settings: Any) -> impl.KVCacheManager:
    MADE.append(impl.KVCacheManager(*given, **settings))
    return MADE[-1]


vars(engine)["KVCacheManager"] = noted_manager
for case in sys.argv[1:]:
    MADE.clear()
    told = scheduler.report(case)
    for manager in MADE:
        manager.check()
    print(json.dumps({"case": case, "shown": told["shown"], "what": told["what"], "cores": len(MADE)}), flush=True)
