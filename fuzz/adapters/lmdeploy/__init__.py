"""The adapter of LMDeploy's PyTorch engine: its scheduler, block managers and prefix trie."""

from importlib.resources import files

from ...targets.base import Target
from ...targets.family import Family


def _open_target() -> Target:
    from .engine import load
    from .target import LmdeployTarget

    engine = load()
    return LmdeployTarget(FAMILY.spec(engine.version), engine)


def _open_engine() -> object:
    from .simulated import LmdeploySimulated

    return LmdeploySimulated()


FAMILY = Family(
    name="lmdeploy",
    open_target=_open_target,
    open_engine=_open_engine,
    requirements=(files(__package__) / "requirements.txt").read_text(),
    releases=("0.18.0",),
    environment={"CUDA_VISIBLE_DEVICES": "", "LMDEPLOY_LOG_LEVEL": "CRITICAL"},
)
