"""A plugin for pytest with which the tests of vLLM's source distribution run here, without a GPU and without network.

Loaded with `-p` in the interpreter of a release. What each test came to is written as JSON to the file that the
environment variable in `OUTCOMES` names. With `OVER_OURS` set, to `compiled` for that form, our core takes the place of
the release's before anything imports it.

The tests ask for configurations of public models: those in `own_tests.py` lie where they look. Two of the models are
multimodal, and a scheduler asks their processors, which need further packages and files, how many tokens an image may
take; here it is told.
"""

import json
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..impl_package import install_impl

OUTCOMES = "BLOCKPROOF_TEST_OUTCOMES"
OVER_OURS = "BLOCKPROOF_OVER_OURS"

TOKENS_PER_IMAGE: Mapping[str, int] = {"llava-hf/llava-1.5-7b-hf": 576, "Qwen/Qwen2.5-VL-3B-Instruct": 16384}
"""The most tokens that an image takes in the multimodal models, by name."""

_outcomes: dict[str, str] = {}


def _budget(vllm_config: Any, mm_registry: object) -> Any:
    """What a scheduler asks of a model's processor."""
    most = {"image": TOKENS_PER_IMAGE[vllm_config.model_config.model]}
    compute = import_module("vllm.v1.core.encoder_cache_manager").compute_mm_encoder_budget
    computed, cached = compute(vllm_config.scheduler_config, most)
    return SimpleNamespace(encoder_compute_budget=computed, encoder_cache_size=cached, mm_max_toks_per_item=most)


def pytest_configure(config: object) -> None:
    """Before any test file is imported: the core, the platform, the multimodal models."""
    if core := os.environ.get(OVER_OURS):
        install_impl(core == "compiled")
    platform = import_module("vllm.platforms.cpu").CpuPlatform()
    vars(import_module("vllm.platforms")).update(current_platform=platform, _current_platform=platform)
    registry = import_module("vllm.multimodal.registry").MultiModalRegistry
    registry.supports_multimodal_inputs = lambda self, model_config: model_config.model in TOKENS_PER_IMAGE
    vars(import_module("vllm.v1.core.sched.scheduler")).update(MultiModalBudget=_budget)


def pytest_runtest_logreport(report: Any) -> None:
    """Note what a test came to: passed, failed or skipped; failing to be set up or torn down counts as failed."""
    if report.when == "call" or report.outcome != "passed":
        _outcomes[report.nodeid] = report.outcome if _outcomes.get(report.nodeid) != "failed" else "failed"


def pytest_sessionfinish() -> None:
    """Write them down."""
    Path(os.environ[OUTCOMES]).write_text(json.dumps(_outcomes))
