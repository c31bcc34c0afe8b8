"""A target in a file, named by the path of the file."""

import os
import sys
import textwrap
from typing import Any

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.opening.child import ChildTarget
from blockproof.fuzz.opening.targets import check_spec, open_target
from blockproof.fuzz.targets.base import TargetUnavailableError
from blockproof.model.ops import Done, Group, Shape

SHAPE = Shape((Group("full", 4),), 8, 64, hash_block_size=4, scheduler_block_size=4, max_num_batched_tokens=64)
TARGET = """
from engine import LEVEL
from blockproof.fuzz.adapters.impl import open_impl

def make_target():
    target = open_impl()
    target.level = LEVEL
    target.later = lambda: __import__("late_part").LEVEL
    return target
"""


@pytest.fixture(autouse=True)
def clean_imports(monkeypatch):
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name in ("engine", "late_part") or name.startswith("my_target_"):
            del sys.modules[name]


@pytest.fixture
def folder(tmp_path):
    """Two folders with a file of one name, each beside an engine of one name."""
    for name in ("old one", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "engine.py").write_text(f"LEVEL = {name!r}")
        (tmp_path / name / "late_part.py").write_text(f"LEVEL = {name!r}")
        (tmp_path / name / "my_target.py").write_text(TARGET)
    return tmp_path


def opened(spec: str) -> Any:
    return open_target(spec)


def test_two_files_of_one_name_are_two_targets_and_each_imports_its_own_neighbours(folder):
    old, new = (opened(f"{folder / name}/my_target.py:make_target") for name in ("old one", "new"))
    assert (old.level, new.level) == ("old one", "new")
    assert old.later() == "old one"  # what a target imports when it runs is found as well
    again = opened(f"{folder}/old one/my_target.py:make_target")
    assert again.level == "old one"


def test_a_relative_path_counts_from_the_current_folder(folder, monkeypatch):
    monkeypatch.chdir(folder / "new")
    assert opened("my_target.py:make_target").level == "new"
    assert opened("../old one/my_target.py:make_target").level == "old one"


def test_a_file_is_found_by_a_child_process_too(folder, monkeypatch):
    monkeypatch.chdir(folder)
    target = open_target("new/my_target.py:make_target", isolate=True)
    assert isinstance(target, ChildTarget)
    try:
        assert target.start(SHAPE)[0] == Done()
    finally:
        target.close()


def test_neighbours_do_not_hide_other_modules_for_good(folder):
    (folder / "new" / "json.py").write_text("raise SystemExit('not the json that was meant')")
    opened(f"{folder}/new/my_target.py:make_target")
    assert sys.path[-1] == str(folder / "new")
    assert str(folder / "new") not in sys.path[:-1]


@pytest.mark.parametrize(
    ("spec", "text", "says"),
    [
        ("nowhere.py:make", "", "there is no file nowhere.py in"),
        ("bad.py:make", "1 /", "cannot import bad.py: SyntaxError"),
        ("bad.py:make", "import nothing_of_that_name", "cannot import bad.py: ModuleNotFoundError"),
        ("bad.py:make", "def other(): pass", "has no function 'make'; write def make(): return YourTarget()"),
        ("bad.py:make", "def make(): return 1", "returned a int without 'name'"),
        ("bad.py:make", "def make(): 1 / 0", "the factory failed: ZeroDivisionError"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, monkeypatch, spec, text, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises(TargetUnavailableError) as caught:
        open_target(spec)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_without_a_factory_is_told_how():
    with pytest.raises(ValueError, match=r"as in my/target.py:make_target"):
        check_spec("my/target.py")


def test_a_module_that_is_not_found_is_told_the_other_form():
    with pytest.raises(TargetUnavailableError, match=r"A file is named by its path: path/no_such_module.py:make"):
        open_target("no_such_module:make")


def test_a_finding_in_a_file_is_replayed_by_the_command_that_is_printed(tmp_path, monkeypatch, capsys):
    """The path has a blank, so the command must quote it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my engine").mkdir()
    (tmp_path / "my engine" / "it.py").write_text(
        textwrap.dedent("""
        from blockproof.fuzz.opening.targets import open_here
        def make():
            return open_here("fault:free-order-reversed")
        """)
    )
    spec = "my engine/it.py:make"
    assert main(["fuzz", "--target", spec, "--oracle", "lockstep", "--seed", "1", "--operations", "3000"]) == 1
    told = capsys.readouterr().out
    assert f"--target '{spec}'" in told
    trace = next(name for name in os.listdir("findings") if name.endswith(".json"))
    assert main(["replay", f"findings/{trace}", "--target", spec]) == 1
