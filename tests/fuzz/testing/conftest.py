"""What tests of the pytest plugin share: a project with an engine, in which pytest is run."""

import shutil
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "my-engine"
FORGETS = "        self.forget(block)\n        self.holders[block] = 1\n"
KEEPS = "        self.holders[block] = 1\n"
TRACE = "s10_allocate_10de5b91.json"
"""A trace of the example: it shows what happens if the pool no longer forgets what a block held."""


IMPORTED_ONCE = np.__version__
"""Pytester forgets what is imported within it, and numpy, which pages of findings take, can be imported only once."""
ALONE_AND_SHARED = [
    pytest.param((), id="alone"),
    pytest.param(("-n", "2"), id="xdist", marks=pytest.mark.slow),  # each worker imports all there is
]
"""Arguments: pytest in one process, and in several."""
Result: TypeAlias = pytest.RunResult


class Project:
    """A folder with the example's engine, its target and its trace."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester
        self.path = pytester.path
        for name in ("my_engine.py", "my_target.py"):
            shutil.copy(EXAMPLE / name, self.path)
        self.traces = self.path / "regressions"
        self.traces.mkdir()
        shutil.copy(EXAMPLE / "tests" / "regressions" / TRACE, self.traces)
        pytester.makepyfile(test_other="def test_other():\n    pass\n")

    def change(self, file: str, old: str, new: str) -> None:
        """Replace a text in a file, where it stands exactly once."""
        text = (self.path / file).read_text(encoding="utf-8")
        assert text.count(old) == 1
        (self.path / file).write_text(text.replace(old, new), encoding="utf-8")

    def break_engine(self) -> None:
        """Plant the mistake that the trace shows."""
        self.change("my_engine.py", FORGETS, KEEPS)

    def settings(self, **settings: str) -> None:
        """An ini file with these settings of the plugin."""
        lines = [f"blockproof_{name} = {value}" for name, value in settings.items()]
        self._pytester.makeini("\n".join(["[pytest]", "pythonpath = .", *lines]))

    def run(self, *arguments: str, target: str | None = "my_target:make_target", apart: bool = False) -> Result:
        """Run pytest; in a process of its own if `apart`, else in this one, which has imported all there is."""
        words = ["-p", "no:cacheprovider", *([] if target is None else ["--blockproof-target", target]), *arguments]
        if apart:
            return self._pytester.runpytest_subprocess(*words, timeout=120)
        return self._pytester.runpytest_inprocess(*words)


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    """A project of its own for each test."""
    import_module("blockproof.fuzz.testing.pytest_items")  # pytester forgets what is imported later
    made = Project(pytester)
    made.settings()
    return made
