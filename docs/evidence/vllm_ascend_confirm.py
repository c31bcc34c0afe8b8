"""A defect of vllm-ascend 0.23.0.post1, shown with vLLM 0.23.0's own engine and scheduler, without blockproof.

    PYTHON docs/evidence/vllm_ascend_confirm.py SOURCES

PYTHON is an interpreter that imports vLLM 0.23.0, and SOURCES the folder that has the folder `vllm_ascend` of the
source archive in it. Serves the same request three times, each in a process of its own: vLLM alone, with
vllm-ascend's patches of the platform, and with these and a change of two lines. The exit status is 1 if the request
never ends with the patches and ends otherwise, 0 if it always ends, and 3 if it could not be tried.
"""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

ABSENT = ("torch_npu", "vllm_ascend._build_info", "ijson", "mistral_common", "uvicorn")
"""What the patches import and the defect does not need: the device's library, a file of the build, parsers."""
WAYS = {"alone": "vLLM alone", "patched": "with vllm-ascend", "changed": "with vllm-ascend and the change"}
STEPS = 200
ENDLESS = 2
"""Exit status of a process whose request does not end; 1 is that of any exception."""
os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")


class _Absent(ModuleType):
    """Stands in for a module: it has every attribute, can be called without effect, and is false."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent(name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class _Finder:
    """Finds what is absent, wherever it is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        absent = any(name == one or name.startswith(f"{one}.") for one in ABSENT)
        return ModuleSpec(name, self, is_package=True) if absent else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def apply(sources: str) -> None:
    """The patches that vllm-ascend applies to the platform, as they are."""
    import torch
    import torch.distributed

    torch.npu = _Absent("torch.npu")
    torch.npu.Stream = type("Stream", (), {})  # is part of a type
    torch.distributed.is_hccl_available = lambda: False
    sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]
    sys.path.insert(0, sources)
    importlib.import_module("vllm_ascend.patch.platform")


def change() -> None:
    """The extra block is for a state that comes from outside: only a request that holds nothing can get one."""
    from vllm.v1.core.single_type_kv_cache_manager import MambaManager as Patched

    count: Callable[..., int] = Patched.get_num_blocks_to_allocate
    release: Callable[..., int] = Patched.__mro__[1].get_num_blocks_to_allocate

    def changed(self: Any, request_id: str, *args: Any, **options: Any) -> int:
        return (release if self.req_to_blocks.get(request_id) else count)(self, request_id, *args, **options)

    Patched.get_num_blocks_to_allocate = changed


def serve() -> tuple[int, int, int, list[str]]:
    """A prompt of 100 tokens and an answer of 28, alone in a pool of 12 blocks of 16 tokens: the null block, 8 for
    full attention and one for each of three Mamba groups. Returns steps, preemptions, tokens answered, managers."""
    sys.path.insert(0, str(Path(__file__).parent / "findings"))
    from engine_without_device import layer, mamba, start, submit

    layers = {f"mamba {number}": mamba(block_size=128, mamba_cache_mode="none") for number in range(3)}
    off = {"enable_prefix_caching": False, "mamba_cache_mode": "none"}
    engine = start({"full": layer("FullAttentionSpec"), **layers}, blocks=12, length=128, batch=64, cache=off)
    submit(engine, "lone", range(1, 101), answer=28)
    request, steps = engine.scheduler.requests["lone"], 0
    while engine.scheduler.has_unfinished_requests() and steps < STEPS:
        _, executed = engine.step_fn()
        engine.post_step(executed)
        steps += 1
    managers = engine.scheduler.kv_cache_manager.coordinator.single_type_managers
    return steps, request.num_preemptions, request.num_output_tokens, [type(one).__name__ for one in managers]


def tell(sources: str, way: str) -> bool:
    """One way to serve the request. Prints what comes of it, and returns whether it has no end."""
    if way != "alone":
        apply(sources)
    if way == "changed":
        change()
    steps, preemptions, tokens, managers = serve()
    endless = tokens < 28
    print(f"{WAYS[way]}, managers {', '.join(dict.fromkeys(managers))}:")
    end = "has not ended" if endless else "has ended"
    print(f"    after {steps} steps it {end}: {tokens} of 28 tokens, preempted {preemptions} times", flush=True)
    return endless


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(ENDLESS if tell(sys.argv[1], sys.argv[2]) else 0)
    runs = [subprocess.run([sys.executable, __file__, sys.argv[1], way], check=False).returncode for way in WAYS]
    sys.exit({(0, 0, 0): 0, (0, ENDLESS, 0): 1}.get(tuple(runs), 3))
