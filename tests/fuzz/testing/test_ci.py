"""What `blockproof ci` decides: seeds, names, the command, and what each runner is told."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.testing.ci import OPERATIONS, CiJob, artifact_name, run, seed_of_commit, source_of
from blockproof.fuzz.testing.runner import MAX_MESSAGE, Github, Runner, runner_here
from blockproof.fuzz.traces.trace_file import TraceFile, write_trace
from blockproof.model.ops import Allocate, Free, Group, Shape, Submit

from .conftest import EXAMPLE, TRACE

COMMIT = "2f9c01ab" + 32 * "f"


@pytest.mark.parametrize("name", ["GITHUB_SHA", "CI_COMMIT_SHA"])
def test_the_seed_is_the_number_that_the_commit_begins_with(name):
    assert seed_of_commit({name: COMMIT}) == 0x2F9C01AB


def test_the_seed_of_a_checkout_is_that_of_its_commit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(ValueError, match=r"no commit to take the seed from: .*say --seed N"):
        seed_of_commit({})
    words = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org"]
    for step in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "Nothing"]):
        subprocess.run([*words, *step], check=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert seed_of_commit({}) == int(commit[:8], 16)


def test_the_command_has_what_was_asked_for_and_nothing_else(tmp_path):
    words = CiJob("impl", report=tmp_path).command(7)
    assert words[:5] == ["fuzz", "--target", "impl", "--seed", "7"]
    assert words[words.index("--operations") + 1] == str(OPERATIONS)
    assert "--isolate" in words
    assert not {"--seconds", "--known", "--floors", "--attention", "--oracle", "None"} & set(words)
    timed = CiJob("impl", seconds=3.0, known=Path("known.toml"), isolate=False).command(7)
    assert timed[timed.index("--seconds") + 1] == "3.0"
    assert timed[timed.index("--known") + 1] == "known.toml"
    assert not {"--operations", "--isolate"} & set(timed)


@pytest.mark.parametrize(
    "target", ["my_target:make_target", "path/my target.py:make", "program:./core --x 'a|b'", "é" * 300]
)
def test_names_of_artifacts_suit_every_file_system(target):
    environ = {"GITHUB_JOB": "kv cache", "RUNNER_OS": "Linux", "GITHUB_RUN_ATTEMPT": "2"}
    name = artifact_name(CiJob(target), 5, environ)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,100}", name)
    assert name != artifact_name(CiJob(target), 5, {**environ, "GITHUB_RUN_ATTEMPT": "3"})
    assert name != artifact_name(CiJob(target), 6, environ)


def test_the_file_of_a_target_is_found_where_projects_have_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("here.py", "src/engine/target.py", "pkg/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [source_of(target) for target in ("here:make", "here.py:make", "engine.target:make", "pkg:make")]
    assert found == ["here.py", "here.py", "src/engine/target.py", "pkg/__init__.py"]
    assert [source_of(target) for target in ("impl", "fault:x", "nowhere:make")] == [None] * 3


def test_what_github_is_told(tmp_path):
    said: list[str] = []
    output, summary = tmp_path / "output", tmp_path / "summary"
    environ = {"GITHUB_ACTIONS": "true", "GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary)}
    environ["GITHUB_WORKSPACE"] = os.getcwd()
    runner = runner_here(environ, said.append)
    runner.group("100% of\nit")
    runner.end_group()
    runner.error("a: b, c", "two\nlines, 5%" + MAX_MESSAGE * ".", "x,y.py")
    runner.error("no file", "text")
    assert said[:2] == ["::group::100%25 of%0Ait", "::endgroup::"]
    assert said[2].startswith("::error file=x%2Cy.py,title=blockproof%3A a%3A b%2C c::two%0Alines, 5%25...")
    assert len(said[2]) < MAX_MESSAGE + 200
    assert said[3] == "::error title=blockproof%3A no file::text"
    runner.output("seed", "5")
    runner.output("report", "there")
    runner.summarize("# One")
    runner.summarize("# Two")
    assert output.read_text() == "seed=5\nreport=there\n"
    assert summary.read_text() == "# One\n# Two\n"


def test_other_runners_get_a_readable_log_only(tmp_path):
    said: list[str] = []
    runner = runner_here({}, said.append)
    assert isinstance(runner, Runner)
    assert not isinstance(runner, Github)
    runner.group("title")
    runner.error("title", "text", "file")
    runner.output("name", "value")
    runner.summarize("text")
    assert said == ["== title"]


@pytest.fixture
def engine(tmp_path, monkeypatch):
    for name in ("my_engine.py", "my_target.py"):
        shutil.copy(EXAMPLE / name, tmp_path)
    (tmp_path / "corpus").mkdir()
    shutil.copy(EXAMPLE / "tests" / "regressions" / TRACE, tmp_path / "corpus")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_broken_trace_in_the_corpus_is_bad_input(engine, capsys):
    (engine / "corpus" / "broken.json").write_text("{", encoding="utf-8")
    words = ["ci", "--target", "my_target.py:make_target", "--corpus", "corpus", "--seed", "1"]
    assert main(words) == 2
    assert "corpus/broken.json: Input data was truncated" in capsys.readouterr().err


def test_a_report_of_an_earlier_job_is_not_taken_for_this_one(engine, capsys):
    report = engine / "report"
    report.mkdir()
    for name in ("fuzz.xml", "fuzz.md", "corpus.xml"):
        (report / name).write_text("<of-old/>", encoding="utf-8")
    job = CiJob("nobody_has_this:make", report=report, operations=1, seed=1)
    assert run(job, {}, lambda line: None) == 3
    assert [path.name for path in report.iterdir()] == []
    assert "nobody_has_this" in capsys.readouterr().err


def test_variables_stand_for_options(engine, monkeypatch, capsys):
    for name, value in {"TARGET": "no such form", "SEED": "3", "OPERATIONS": "", "CORPUS": ""}.items():
        monkeypatch.setenv(f"BLOCKPROOF_{name}", value)
    assert main(["ci"]) == 2
    out = capsys.readouterr()
    assert f"--seed 3 --operations {OPERATIONS} " in out.out
    assert "unknown target" in out.err


def test_a_trace_of_the_corpus_that_shows_its_bug_leaves_a_page_in_the_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    operations = (Submit("a", (0, 0, 0, 0)), Allocate("a", 4), Free("a"))
    shape = Shape((Group("full", 2),), 6, 8, 2, 2, 8)
    (tmp_path / "corpus").mkdir()
    write_trace(TraceFile(Trace(shape, operations), "impl"), tmp_path / "corpus" / "order.json")
    job = CiJob("fault:free-order-reversed", corpus=Path("corpus"), seed=1, isolate=False)
    assert run(job, {}, lambda line: None) == 1
    assert "The model would reuse block" in (tmp_path / "blockproof-report" / "corpus" / "order.html").read_text()
