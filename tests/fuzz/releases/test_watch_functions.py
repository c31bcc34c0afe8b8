"""With what somebody begins who brings the model to a new release: functions, deviations that went, differences."""

import json
from pathlib import Path

import pytest
from blockproof.fuzz.opening import environments
from blockproof.fuzz.releases.watch import DIFFERENCE, PartDone, WatchedRelease, beginning, page
from blockproof.fuzz.releases.watch_functions import (
    FILES_SHOWN,
    changed_functions,
    compared,
    functions_in,
    modules_of,
    read_functions,
)
from blockproof.fuzz.releases.watch_parts import PartNews, Sides, WatchPart

SIDES = Sides.of("vllm==0.33.0", "vllm==0.32.0", Path("out"), 5.0)
OLD = """
class Pool:
    def take(self, count: int) -> int:
        '''Blocks.'''
        return count  # of them

    def gone(self):
        pass

def same(a, b=1):
    return a + b
"""
NEW = """
class Pool:
    def take(self, count):
        return count

    def fresh(self):
        pass

def same(a, b=2):
    return a + b
"""


def tree(folder, text):
    for name in ("a/core/one.py", "a/core/two.py", "a/core/three.py", "a/core/beside.py", "a/lone.py", "a/other.py"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if name.endswith("beside.py") else "def f():\n    return 1\n")
    return modules_of(folder, ("a.core.one", "a.core.two", "a.core.three", "a.lone", "a.absent"))


def test_words_and_types_make_no_difference_and_defaults_do(tmp_path):
    assert [*functions_in(OLD)] == ["Pool.take", "Pool.gone", "same"]
    assert compared(tree(tmp_path / "old", OLD), tree(tmp_path / "new", NEW)) == {
        "changed": ["a/core/beside.py:same"],
        "new": ["a/core/beside.py:Pool.fresh"],
        "gone": ["a/core/beside.py:Pool.gone"],
    }


def test_modules_beside_more_than_two_are_read_too(tmp_path):
    found = tree(tmp_path, OLD)
    assert sorted(found) == ["a/core/beside.py", "a/core/one.py", "a/core/three.py", "a/core/two.py", "a/lone.py"]


def test_the_page_begins_with_the_list():
    names = [f"core/pool.py:f{i}" for i in range(FILES_SHOWN + 3)]
    watched = WatchedRelease(SIDES)
    for name, told in (
        ("functions", read_functions({"changed": names, "new": ["core/x.py:g"], "gone": []}, SIDES)),
        ("deviations", PartNews(fixed=["deviation first", "another"])),
        (DIFFERENCE, PartNews(changed=[f"situation {i}" for i in range(20)])),
    ):
        watched.done.append(PartDone(WatchPart(name, (), read_functions), told))
    lines = beginning(watched)
    assert lines[0].startswith("15 functions changed in core/pool.py: f0, f1")
    assert lines[0].endswith("f11, and 3 more")
    assert lines[1:4] == ["1 function new in core/x.py: g", "went: deviation first", "differs: situation 0"]
    assert len(lines) == 3 + 12
    text = page(watched, "watch")
    assert text.index("## To begin with") < text.index("## New")


def test_what_cannot_be_compared_is_said():
    assert changed_functions("lmdeploy==0.18.0", "lmdeploy==0.18.0") == (
        "it is not known which modules of lmdeploy==0.18.0 are its core"
    )
    assert changed_functions("vllm==0.1.0", "vllm==0.1.0") == "vllm==0.1.0 is not installed"
    assert read_functions("why", SIDES).open == ["functions: why"]


@pytest.mark.skipif(environments.find("vllm==0.33.0") is None, reason="blockproof targets install vllm==0.33.0")
def test_a_release_does_not_differ_from_itself():
    said = changed_functions("vllm==0.33.0", "vllm==0.33.0")
    assert json.loads(json.dumps(said)) == {"changed": [], "new": [], "gone": []}
