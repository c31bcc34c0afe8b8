"""What holds of the command modules: none borrows from another, and what they need is imported when they run."""

import subprocess
import sys
from pathlib import Path

from ...import_graph import import_graph

ROOT = Path(__file__).parents[3]
SHARED = {"options", "outputs", "sizes", "renamed", "completion"}
SHARED |= {"patches", "stored", "random_mutants", "detection", "engines"}
"""What several commands use, and parts of one."""


def test_no_command_imports_another():
    graph = import_graph(ROOT / "fuzz")
    commands = {name: names for name, names in graph.items() if name.startswith("blockproof.fuzz.cli.")}
    borrowed = {
        (name, other)
        for name, names in commands.items()
        for other in names & set(commands)
        if name.rpartition(".")[2] not in ("main", "__main__") and other.rpartition(".")[2] not in SHARED
    }
    assert commands
    assert borrowed == set()


def test_help_imports_no_engine_no_solver_and_no_numbers():
    """So that `blockproof -h`, and every Tab in a shell that completes, is answered at once."""
    heavy = ("hypothesis", "numpy", "torch", "z3", "blockproof.fuzz.engines", "blockproof.proofs")
    code = f"import sys, blockproof.fuzz.cli.main; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
