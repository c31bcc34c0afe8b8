"""Builds the target from its sources, then runs it: for what tests each commit of a repository (bisect --git)."""

import shlex
import subprocess
from pathlib import Path

from blockproof.fuzz.opening.program import ProgramTarget


def make_target() -> ProgramTarget:
    """What `--target make_target.py:make_target` calls."""
    here = Path(__file__).resolve().parent
    subprocess.run(["cc", "-O1", "-o", here / "c_target", here / "target.c"], check=True)
    return ProgramTarget(f"program:{shlex.quote(str(here / 'c_target'))}")
