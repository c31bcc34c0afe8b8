"""Slow tests are those that are marked, and those listed as unmeasured: coverage does not count them, whether they run
beside the others or not, and `make test` leaves them out. Nor does it count those of the other list, which are quick.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

TESTS = """
import subprocess
import sys

import pytest


def run(name):
    subprocess.run([sys.executable, f"{name}.py"], check=True)


def test_before():
    run("of_a_quick_one")


@pytest.mark.MARK
@pytest.mark.parametrize("case", [0, 1])
def test_left_out(case):
    run("of_one_left_out")
    measured = False


@pytest.mark.parametrize("case", range(28))
def test_many(case):
    if case % 3 == 0:
        measured = case
    else:
        measured = None


@pytest.mark.each_is_measured
@pytest.mark.parametrize("case", range(20))
def test_each(case):
    if case == 5:
        counted = case


def test_behind():
    measured = True
"""


def test_the_end_says_why_tests_were_skipped(tmp_path):
    """In a process of its own, and with several workers as `make test` has them."""
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    text = """
        import pytest
        @pytest.mark.parametrize("case", range(3))
        def test_a(case): pytest.skip("there is no engine")
        @pytest.mark.skipif(True, reason="there is no compiler")
        def test_b(): pass
        def test_c(): pass
    """
    (tmp_path / "test_it.py").write_text(textwrap.dedent(text))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST"))}
    for workers in ((), ("-n", "2")):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = done.stdout.splitlines()
        at = lines.index("4 tests were skipped:")
        assert lines[at + 1 : at + 3] == ["    3  there is no engine", "    1  there is no compiler"]


@pytest.mark.parametrize(("mark", "list_of"), [("slow", ""), ("quick", "unmeasured"), ("quick", "unmeasured_quick")])
def test_slow_and_listed_tests_and_their_children_are_not_measured_and_all_others_are(tmp_path, mark, list_of):
    """In a process of its own: what is measured here is not to be disturbed."""
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    tests = TESTS.replace("MARK", mark)
    (tmp_path / "test_it.py").write_text(tests)
    if list_of:
        (tmp_path / f"{list_of}.txt").write_text("test_it.py::test_left_out\n")
    for name in ("of_a_quick_one", "of_one_left_out"):
        (tmp_path / f"{name}.py").write_text("measured = True\n")
    (tmp_path / ".coveragerc").write_text("[run]\nsource_dirs = .\nparallel = true\npatch = subprocess\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST"))}
    words = [["run", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore"], ["combine"], ["json"]]
    for arguments in words:
        command = [sys.executable, "-m", "coverage", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
    files = json.loads((tmp_path / "coverage.json").read_text())["files"]
    lines = tests.splitlines()
    run = {lines[number - 1].strip() for number in files["test_it.py"]["executed_lines"]}
    assert 'run("of_a_quick_one")' in run
    assert {"measured = True", "measured = case", "counted = case"} <= run
    assert not run & {'run("of_one_left_out")', "measured = False", "measured = None"}
    assert files["of_a_quick_one.py"]["executed_lines"] == [1]
    assert files["of_one_left_out.py"]["executed_lines"] == []


@pytest.mark.parametrize(("mark", "listed"), [("slow", ""), ("quick", "test_it.py::test_left_out\n")])
def test_slow_and_listed_tests_are_left_out_and_counted(tmp_path, mark, listed):
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS.replace("MARK", mark))
    (tmp_path / "unmeasured.txt").write_text(listed)
    for name in ("of_a_quick_one", "of_one_left_out"):
        (tmp_path / f"{name}.py").write_text("measured = True\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "-m", "not slow"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert "50 passed, 2 deselected" in done.stdout
    assert "2 slow tests were left out; make test-all runs them too" in done.stdout


def test_of_many_parameters_that_take_long_together_a_few_are_quick(tmp_path):
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    marks = '@pytest.mark.few_are_quick\n@pytest.mark.parametrize("case", range(12))\n'
    (tmp_path / "test_it.py").write_text(f"import pytest\n\n{marks}def test_many(case):\n    pass\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "-m", "not slow"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert "10 passed, 2 deselected" in done.stdout
    every = subprocess.run(command[:-2], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert "12 passed" in every.stdout


def test_slow_tests_are_dealt_to_all_workers_and_come_first_at_each(tmp_path):
    """In the order of the file, one worker would have all of them, and run them last."""
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    case = "@pytest.mark.parametrize('case', range({}))\ndef test_{}(case):\n    pass\n"
    slow = "@pytest.mark.slow\n" + case.format(4, "slow")
    (tmp_path / "test_it.py").write_text(f"import pytest\n\n{case.format(4, 'quick')}{slow}")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST"))}
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "-W", "ignore"]
    for workers, order in ((1, "sssqqqq"), (2, "ssqqssqq")):
        environment["PYTEST_XDIST_WORKER_COUNT"] = str(workers)
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        kinds = "".join(re.findall(r"::test_(\w)", done.stdout))
        assert kinds.endswith(order), done.stdout
