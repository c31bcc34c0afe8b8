"""The GitHub action and the GitLab job of the example, run as runners would run them: green, and red for its bug."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from xml.etree import ElementTree

import pytest

from .github import Runner, load, repository

ROOT = Path(__file__).parents[3]
ACTION = ROOT / "action.yml"
EXAMPLE = ROOT / "examples" / "my-engine"
SCRIPTS = sysconfig.get_path("scripts")
OUTSIDE = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "CI", "BLOCKPROOF_"))}
IMAGE = {**OUTSIDE, "PATH": f"{SCRIPTS}{os.pathsep}{OUTSIDE['PATH']}"}
"""What the image of a runner has: Python and this blockproof first."""
FORBIDDEN = set('\\/:*?"<>|\r\n')
"""What some file system, or the store of artifacts, does not take in a name."""


@pytest.fixture
def engine(tmp_path):
    """The example, as it is checked out in a job."""
    workspace = tmp_path / "workspace"
    leave_out = shutil.ignore_patterns("__pycache__", "findings", ".*_cache", ".hypothesis", "blockproof-report")
    shutil.copytree(EXAMPLE, workspace, ignore=leave_out)
    repository(workspace)
    return workspace


@pytest.fixture
def broken(engine):
    """The same with its bug."""
    subprocess.run(["git", "apply", "bug.patch"], cwd=engine, check=True)
    return engine


def job(workspace, tmp_path, **changed):
    """The job that the example's workflow describes, with some inputs changed."""
    (described,) = load(workspace / ".github" / "workflows" / "blockproof.yml")["jobs"].values()
    checkout, ours = described["steps"]
    assert checkout["uses"].startswith("actions/checkout@")
    assert re.fullmatch(r"[\w-]+/blockproof@v[\d.]+", ours["uses"])
    inputs = {
        **ours["with"],
        "version": "installed",
        **{name.replace("_", "-"): value for name, value in changed.items()},
    }
    return Runner(workspace, tmp_path / "runner", IMAGE).run(ACTION, inputs)


def cases(path):
    """Test cases of a JUnit file: name and, if it failed, the failure."""
    return {case.get("name"): case.find("failure") for case in ElementTree.parse(path).iter("testcase")}


def test_the_example_is_green(engine, tmp_path):
    done = job(engine, tmp_path, operations="4000", floors="")
    assert not done.failed, done.log
    assert done.annotations == []
    report = Path(done.outputs["blockproof"]["report"])
    assert cases(report / "corpus.xml") == {"s10_allocate_10de5b91": None}
    assert set(cases(report / "fuzz.xml").values()) == {None}
    assert "1 trace of the corpus replayed, nothing was found" in done.summary
    assert "no difference in" in done.summary
    assert done.call("actions/setup-python") == {"python-version": "3.12"}
    cached = done.call("actions/cache")
    assert cached["path"] == f"{tmp_path / 'runner'}/blockproof-pip"
    assert cached["key"] == "blockproof-Linux-3.12-installed-0123abcd"
    order = ["which must show nothing", "$ blockproof fuzz --target my_target:make_target"]
    assert [done.log.index(text) for text in order] == sorted(done.log.index(text) for text in order)


def test_its_bug_is_caught_and_reported(broken, tmp_path):
    done = job(broken, tmp_path, seed="1")  # every other finds it as well, but not always in the same way
    assert done.failed, done.log
    assert done.seconds < 60
    report = Path(done.outputs["blockproof"]["report"])
    failure = cases(report / "fuzz.xml")["full"]
    assert "S7" in failure.get("message")
    assert "as blocks with other content were" in failure.text
    assert "S7" in done.summary
    assert "as blocks with other content were" in done.summary
    (annotation,) = done.annotations
    assert annotation.startswith("::error file=my_target.py,title=blockproof%3A ")
    assert "as blocks with other content were" in annotation
    kept = done.call("actions/upload-artifact")
    assert kept["path"] == str(report)
    names = [kept["name"], *(str(path.relative_to(report)) for path in report.rglob("*"))]
    assert not any(FORBIDDEN & set(part) for name in names for part in name.split("/"))
    traces = [path for path in (report / "findings").glob("s7_*.json") if "whole" not in path.name]
    assert len(traces) == 1
    repeated = re.search(r"^repeat the finding: (blockproof replay .*)$", done.log, re.MULTILINE)[1]
    again = subprocess.run(shlex.split(repeated), cwd=broken, env=IMAGE, capture_output=True, text=True)
    assert again.returncode == 1, again.stderr


def test_a_trace_of_the_corpus_that_shows_its_bug_again_ends_the_job(engine, tmp_path):
    core = engine / "my_engine.py"
    forgets = "        self.forget(block)\n        self.holders[block] = 1\n"
    text = core.read_text(encoding="utf-8")
    assert forgets in text
    core.write_text(text.replace(forgets, forgets.splitlines(keepends=True)[1]), encoding="utf-8")
    done = job(engine, tmp_path)
    assert done.failed
    assert "blockproof fuzz" not in done.log
    (annotation,) = done.annotations
    assert annotation.startswith("::error file=tests/regressions/s10_allocate_10de5b91.json,title=blockproof%3A ")
    report = Path(done.outputs["blockproof"]["report"])
    assert "block 1 was handed out" in cases(report / "corpus.xml")["s10_allocate_10de5b91"].text
    assert "1 of them failed" in done.summary
    assert done.call("actions/upload-artifact") is not None


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"target": "my_target:nobody"}, "my_target.py has no function 'nobody'"),
        ({"target": "my_target:nobody", "corpus": ""}, "my_target.py has no function 'nobody'"),
        ({"target": "what is this"}, "unknown target 'what is this'"),
        ({"corpus": "nowhere"}, "nowhere: no such folder of traces"),
        ({"install": "echo installing && false"}, "installing"),
    ],
)
def test_what_cannot_be_run_is_red_and_said(engine, tmp_path, changed, told):
    done = job(engine, tmp_path, **changed)
    assert done.failed
    assert told in done.log
    assert "Traceback" not in done.log
    if "install" not in changed:
        (annotation,) = done.annotations
        assert told in annotation
        assert told in done.summary


def test_a_run_that_tests_nothing_is_red(engine, tmp_path):
    """The target builds no core."""
    file = engine / "my_target.py"
    text = file.read_text(encoding="utf-8")
    assert text.count('!= ["full"]:') == 1
    file.write_text(text.replace('!= ["full"]:', "!= []:"), encoding="utf-8")
    done = job(engine, tmp_path, corpus="", floors="", operations="300")
    assert done.failed
    (annotation,) = done.annotations
    assert "no core was built" in annotation
    assert "no core was built" in done.summary


@pytest.mark.slow
def test_a_project_in_a_folder_of_the_repository_is_found(engine, tmp_path):
    inner = engine / "engines" / "mine"
    inner.mkdir(parents=True)
    for name in ("my_engine.py", "my_target.py", "bug.patch"):
        (engine / name).rename(inner / name)
    subprocess.run(["git", "apply", "--directory", "engines/mine", "engines/mine/bug.patch"], cwd=engine, check=True)
    given = {"working_directory": "engines/mine", "install": "", "corpus": "", "known": "", "floors": ""}
    done = job(engine, tmp_path, **given)
    (annotation,) = done.annotations
    assert annotation.startswith("::error file=engines/mine/my_target.py,")
    assert done.call("actions/upload-artifact")["path"] == str(inner / "blockproof-report")


def test_the_example_is_tested_by_pytest_as_well(engine):
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--blockproof-seconds", "0.5"]
    done = subprocess.run(words, cwd=engine, env=IMAGE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1].startswith("2 passed in ")


@pytest.mark.parametrize("name", [".github/workflows/blockproof.yml", ".gitlab-ci.yml"])
def test_the_guide_shows_the_files_of_the_example(name):
    page = (ROOT / "docs" / "guide" / "ci.md").read_text(encoding="utf-8")
    assert f"```yaml\n{(EXAMPLE / name).read_text(encoding='utf-8')}```" in page


def test_inputs_reach_the_shell_as_variables_only():
    """What somebody writes into a pull request must not become a part of a command."""
    for step in load(ACTION)["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


def test_every_input_has_its_variable_and_stands_in_the_guide():
    described = load(ACTION)
    text = ACTION.read_text(encoding="utf-8")
    page = (ROOT / "docs" / "guide" / "ci.md").read_text(encoding="utf-8")
    for name in described["inputs"]:
        assert f"inputs.{name} " in text, name
        assert f"`{name}`" in page, name


def script(workspace):
    """The job of the example for GitLab: its variables, and the lines of its script."""
    ((_, described),) = load(workspace / ".gitlab-ci.yml").items()
    assert described["artifacts"]["reports"]["junit"] == "blockproof-report/*.xml"
    return described["variables"], described["script"]


@pytest.mark.slow
@pytest.mark.parametrize(("fixture", "code"), [("engine", 0), ("broken", 1)])
def test_the_job_for_gitlab_does_the_same(fixture, code, request, tmp_path):
    workspace = request.getfixturevalue(fixture)
    variables, lines = script(workspace)
    assert lines == ['pip install -r requirements.txt "$BLOCKPROOF"', "blockproof ci"]
    variables = {name: value.replace("$CI_PROJECT_DIR", str(workspace)) for name, value in variables.items()}
    environ = {**IMAGE, **variables, "CI_COMMIT_SHA": "0000000b" + "0" * 32, "BLOCKPROOF_OPERATIONS": "4000"}
    environ["BLOCKPROOF_FLOORS"] = ""  # these are for the operations of the whole job
    done = subprocess.run(["bash", "-e", "-c", lines[1]], cwd=workspace, env=environ, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    assert "--seed 11 " in done.stdout
    assert "::" not in done.stdout
    assert (workspace / "blockproof-report" / "fuzz.xml").is_file()


@pytest.mark.slow
def test_the_action_installs_the_blockproof_that_it_belongs_to(engine, tmp_path):
    """In an empty environment; where there is no package index, there is nothing to install from."""
    machine = tmp_path / "python"
    subprocess.run([sys.executable, "-m", "venv", str(machine)], check=True)
    probe = [str(machine / "bin" / "python"), "-m", "pip", "download", "--no-deps", "-q", "-d", str(tmp_path), "typer"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("no package index")
    source = tmp_path / "action"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    packed = subprocess.run(["tar", "--null", "-cT", "-"], cwd=ROOT, input=listed, check=True, capture_output=True)
    source.mkdir()
    subprocess.run(["tar", "-x"], cwd=source, input=packed.stdout, check=True)
    environ = {**OUTSIDE, "PATH": f"{machine / 'bin'}{os.pathsep}{OUTSIDE['PATH']}"}
    environ.pop("PYTHONPATH", None)
    given = {"target": "my_target:make_target", "install": "pip install -r requirements.txt", "operations": "1000"}
    done = Runner(engine, tmp_path / "runner", environ).run(source / "action.yml", given)
    assert not done.failed, done.log
    assert "blockproof 0." in done.log
