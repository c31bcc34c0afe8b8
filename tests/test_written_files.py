"""Every result goes through `write_file`: nothing writes into a file in place, so none is ever half-written.

What is left are files that nobody reads once the command is over, or that stand in a folder renamed when it is whole.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("model", "impl", "proofs", "fuzz")
WRITES = frozenset({"write_text", "write_bytes"})
MODES = frozenset("wax+")
NO_RESULTS = {
    "fuzz/findings/writing.py": 3,  # the writer itself: a device or a pipe, the file that takes the place, and a try
    "fuzz/reports/screen.py": 1,  # the terminal, opened again where a target has closed it
    "fuzz/releases/bisect_commit.py": 1,  # a log in the scratch folder of one bisection
    "fuzz/releases/bisect_git.py": 1,  # the job in it
    "fuzz/releases/finding_scripts.py": 1,  # the one file that a script is, in the folder of one run of it
    "fuzz/releases/commit_target.py": 2,  # what the children of one run are told, in its scratch folder
    "fuzz/opening/environments.py": 3,  # in an environment that is renamed when it is whole
    "fuzz/opening/packages.py": 1,  # in the folder of a package that is renamed when it is whole
    "impl/compiled/building.py": 1,  # in a build that is renamed when it is whole
    "fuzz/compat/own_tests.py": 1,  # files of one run of pytest, in its scratch folder
    "fuzz/adapters/vllm/own_tests_plugin.py": 1,  # what that run answers, in the same folder
    "fuzz/testing/runner.py": 1,  # lines added to the files of a CI job, as it wants them
}
"""By file, how often it writes in place."""


def written_in_place(source: str) -> Iterator[int]:
    """The lines in which files are opened for writing, or written by the methods of a path."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        modes = [node.args[1:2] if isinstance(node.func, ast.Name) else node.args[:1]]
        modes += [[keyword.value] for keyword in node.keywords if keyword.arg == "mode"]
        texts = [mode.value for some in modes for mode in some if isinstance(mode, ast.Constant)]
        opens = name == "open" and any(isinstance(text, str) and MODES & set(text) for text in texts)
        if name in WRITES or opens:
            yield node.lineno


def test_results_are_written_in_one_piece():
    found = Counter[str]()
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            times = len(list(written_in_place(path.read_text(encoding="utf-8"))))
            found[str(path.relative_to(ROOT))] += times
    assert +found == NO_RESULTS


@pytest.mark.parametrize(
    ("source", "times"),
    [
        ("path.write_text('x')", 1),
        ("(a / 'b').write_bytes(b'')", 1),
        ("open('f', 'w')", 1),
        ("with path.open('ab') as f: pass", 1),
        ("io.open(mode='x', file='f')", 1),
        ("open('f')", 0),
        ("path.open('rb')", 0),
        ("write_file(path, 'x')", 0),
        ("target.open(shape)", 0),
    ],
)
def test_the_check_knows_what_writes(source, times):
    assert len(list(written_in_place(source))) == times
