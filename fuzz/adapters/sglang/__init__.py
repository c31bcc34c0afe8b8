"""The adapter of SGLang: its radix cache over paged allocators, for full attention alone or with a sliding window."""

from importlib.resources import files

from ...targets.base import Target
from ...targets.family import Family


def _open_target() -> Target:
    from .engine import load
    from .target import SglangTarget

    engine = load()
    return SglangTarget(FAMILY.spec(engine.version), engine)


def _open_engine() -> object:
    from .simulated import SglangSimulated

    return SglangSimulated()


def _open_pair() -> object:
    from .disaggregation import SglangPair

    return SglangPair()


FAMILY = Family(
    name="sglang",
    open_target=_open_target,
    open_engine=_open_engine,
    pairs={"disaggregation": _open_pair},
    keeps=("*.py", "sglang/kernels/jit/*", "sglang/srt/mem_cache/rust_tree_core/*"),
    requirements=(files(__package__) / "requirements.txt").read_text(),
    releases=("0.5.20", "0.5.21", "0.5.22", "0.5.23"),
    environment={"CUDA_VISIBLE_DEVICES": "", "SGLANG_LOG_LEVEL": "ERROR"},
)
