"""The adapter of transformers' continuous batching: its scheduler, paged cache and batch processor, simulated whole.

The environment variable BLOCKPROOF_TRANSFORMERS may say `mended`, for the engine without the defects that are written
up, `worker`, for one whose own worker runs a tiny random model, or both with a comma between them.
"""

import os
from importlib.resources import files

from ...targets.family import Family

VARIABLE = "BLOCKPROOF_TRANSFORMERS"


def _open_engine() -> object:
    from .engine import TransformersEngine
    from .remedies import fixes

    wanted = set(filter(None, os.environ.get(VARIABLE, "").split(",")))
    if unknown := wanted - {"mended", "worker"}:
        raise ValueError(f"{VARIABLE} has {min(unknown)!r}; write mended, worker, or mended,worker")
    return TransformersEngine("worker" in wanted, tuple(fixes()) if "mended" in wanted else ())


FAMILY = Family(
    name="transformers",
    open_engine=_open_engine,
    requirements=(files(__package__) / "requirements.txt").read_text(),
    releases=("5.24.0",),
    environment={"CUDA_VISIBLE_DEVICES": "", "TRANSFORMERS_VERBOSITY": "critical", "HF_HUB_OFFLINE": "1"},
)
