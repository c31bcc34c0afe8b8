"""Bisecting a repository: which commit is named, and that nothing of the user's is touched."""

import json
import signal
import subprocess
import sys
import time
from importlib.machinery import ModuleSpec

import pytest
from blockproof.fuzz.cli import main as cli
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.releases.commit_target import CommitPlace, origins
from blockproof.fuzz.traces.trace_file import FoundWhat, TraceFile, write_trace
from blockproof.model.ops import Allocate, Free, Group, Shape, Submit

from .toy_git import git

SHAPE = Shape((Group("full", 1),), 3, 2, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=1)
FACTORY = """\
import sys
import time
assert sys.dont_write_bytecode, "a commit could be taken for the one before, of the same size and second"
from blockproof.fuzz.opening.targets import open_here
from engine.rule import NUMBER

NAMES = ("impl", "fault:free-order-reversed", "nonsense")

def make():
    time.sleep(3600 * (NUMBER == 3))
    return open_here(NAMES[NUMBER])
"""
GOOD, BAD, BROKEN, ENDLESS = 0, 1, 2, 3


@pytest.fixture
def history(tmp_path, monkeypatch):
    """Makes a repository with one commit for each number, in which a commit's target depends on its number."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)

    def make(*numbers):
        repo = tmp_path / "repo"
        package = repo / "src" / "engine"
        package.mkdir(parents=True)
        git(repo, "init", "--quiet", "--initial-branch=trunk")
        (package / "__init__.py").write_text("")
        (package / "target.py").write_text(FACTORY)
        hashes = []
        for index, number in enumerate(numbers):
            (package / "rule.py").write_text(f"NUMBER = {number}  # {index}\n")
            git(repo, "add", ".")
            git(repo, "commit", "--quiet", "-m", f"change {index}")
            hashes.append(git(repo, "rev-parse", "HEAD"))
        return repo, hashes

    return make


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.json"
    operations = (Submit("a", (0,)), Allocate("a", 2), Free("a"))
    write_trace(TraceFile(Trace(SHAPE, operations), "engine.target:make", FoundWhat("free", "Free", "")), path)
    return path


def arguments_for(trace, repo, span, *more, path="src"):
    words = ["bisect", trace, "--git", span, "--repo", repo, "--target", "engine.target:make", "--path", path, *more]
    return [str(word) for word in words]


def everything(repo):
    """All that a bisection could have changed."""
    commands = [
        ("rev-parse", "HEAD"),
        ("symbolic-ref", "HEAD"),
        ("status", "--porcelain", "--ignored"),
        ("stash", "list"),
        ("for-each-ref",),
        ("worktree", "list", "--porcelain"),
        ("reflog",),
        ("config", "--list", "--local"),
    ]
    # Read first: git status may refresh the index by itself.
    files = [path for path in sorted(repo.rglob("*")) if path.is_file() and "objects" not in path.parts]
    files = [path for path in files if path.name != "packed-refs"]  # git makes an empty one when it starts to bisect
    contents = {path: path.read_bytes() for path in files}
    return contents, [git(repo, "--no-optional-locks", *command) for command in commands]


@pytest.mark.slow
def test_names_the_first_bad_commit_and_leaves_the_checkout_alone(history, trace, tmp_path, capsys):
    repo, hashes = history(GOOD, GOOD, BROKEN, GOOD, BAD, BAD, BAD)
    (repo / "src" / "engine" / "rule.py").write_text("NUMBER = 1  # somebody's work\n")
    git(repo, "stash")
    (repo / "src" / "engine" / "target.py").write_text("nothing of this may be imported!")
    (repo / "new").write_text("not yet in git")
    (repo / ".git" / "hooks" / "post-checkout").write_text("#!/bin/sh\ntouch ran; exit 1\n")
    (repo / ".git" / "hooks" / "post-checkout").chmod(0o755)
    before = everything(repo)
    assert cli.main(arguments_for(trace, repo, f"{hashes[0]}..HEAD")) == 0
    assert everything(repo) == before
    assert not list((tmp_path / "scratch").iterdir())
    lines = capsys.readouterr().out.splitlines()
    named = lines[-1].split()
    assert named[:4] == ["first", "bad", "commit:", hashes[4]]
    assert lines[-1].endswith("  change 4")
    assert named[4] == git(repo, "show", "-s", "--format=%aI", hashes[4])
    states = {line.split()[0]: line.split("  ")[1] for line in lines[1:-1]}
    assert states[hashes[0][:12]] == "does not fail"
    assert states[hashes[4][:12]] == "fails"


@pytest.mark.parametrize("span", ["HEAD~4..HEAD", "HEAD..HEAD~4"])
@pytest.mark.slow
def test_names_the_first_commit_that_fixes_it_whichever_end_is_named_first(history, trace, capsys, span):
    repo, hashes = history(BAD, BAD, BAD, GOOD, GOOD)
    assert cli.main(arguments_for(trace, repo, span)) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1].startswith(f"first commit that fixes it: {hashes[3]}  ")
    assert cli.main([*arguments_for(trace, repo, span), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["begins"] is False


ADAPTER = """\
from blockproof.fuzz.opening.targets import open_here
from engine.rule import NUMBER
{neighbour}

def make():
    return open_here(("impl", "fault:free-order-reversed", "nonsense")[NUMBER])
"""


@pytest.mark.parametrize(
    "kind", ["file outside", "file inside", "named file", "named file inside", "folder", "package"]
)
@pytest.mark.slow
def test_every_commit_uses_the_adapter_that_is_named(history, trace, tmp_path, monkeypatch, capsys, kind):
    repo, hashes = history(GOOD, GOOD, BAD, BAD)
    (repo / "src" / "engine" / "target.py").write_text("nothing of this may be imported!")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "beside.py").write_text("")
    base, more, name = outside, [], "mine"
    if kind in ("file inside", "named file inside"):
        base = repo / "tools"
        base.mkdir()
    if kind in ("folder", "package"):
        base = repo / "mine"
        base.mkdir()
        more, name = ["--adapter", str(base)], "mine.target" if kind == "package" else "target"
        (base / ("__init__.py" if kind == "package" else "other.py")).write_text("")
    neighbour = "import beside" if "outside" in kind else ""
    (base / f"{name.split('.')[-1]}.py").write_text(ADAPTER.format(neighbour=neighbour))
    if kind.startswith("file") or kind == "named file inside":
        more = ["--adapter", str(base / "mine.py")]
    target = f"{base / 'mine.py'}:make" if kind.startswith("named") else f"{name}:make"
    monkeypatch.chdir(repo)  # where its own modules lie about, of no commit
    words = ["bisect", str(trace), "--git", f"{hashes[0]}..HEAD", "--target", target, "--path", "src", *more]
    before = everything(repo)
    assert cli.main(words) == 0, capsys.readouterr().err
    assert f"first bad commit: {hashes[2]}" in capsys.readouterr().out
    assert everything(repo) == before


def test_a_file_of_the_repository_is_each_commits_own(history, trace, capsys, monkeypatch):
    repo, hashes = history(GOOD, BAD)
    (repo / "src" / "engine" / "target.py").write_text("nothing of this may be imported!")
    words = ["bisect", str(trace), "--git", "HEAD~1..HEAD", "--path", "src", "--target", "src/engine/target.py:make"]
    assert cli.main([*words, "--repo", str(repo)]) == 0, capsys.readouterr().err
    assert f"first bad commit: {hashes[1]}" in capsys.readouterr().out
    monkeypatch.chdir(repo)
    assert cli.main(words) == 0
    assert f"first bad commit: {hashes[1]}" in capsys.readouterr().out


def test_a_target_that_no_commit_has_is_told_what_to_do(history, trace, capsys, monkeypatch):
    repo, _ = history(GOOD, BAD)
    (repo / "mine.py").write_text(ADAPTER.format(neighbour=""))
    monkeypatch.chdir(repo)
    for target, missing in (("mine:make", "cannot import mine"), ("mine.py:make", "there is no file mine.py")):
        words = ["bisect", str(trace), "--git", "HEAD~1..HEAD", "--target", target, "--path", "src"]
        assert cli.main(words) == 3
        said = capsys.readouterr().err
        assert missing in said
        assert "name it with --adapter" in said
    assert cli.main([*words, "--adapter", "elsewhere.py"]) == 2
    assert "there is no elsewhere.py" in capsys.readouterr().err


def test_commits_that_cannot_be_judged_are_all_named(history, trace, capsys):
    repo, hashes = history(GOOD, BROKEN, BAD)
    assert cli.main(arguments_for(trace, repo, "HEAD~2..trunk", "--json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert [commit["hash"] for commit in document["suspects"]] == hashes[1:]
    assert document["exact"] is False
    states = {commit["hash"]: (commit["state"], commit["why"]) for commit in document["commits"]}
    assert states[hashes[1]][0] == "not observed"
    assert "unknown target 'nonsense'" in states[hashes[1]][1]


@pytest.mark.parametrize(
    ("numbers", "more", "code", "says"),
    [
        ((BAD, BAD), (), 1, "it fails at "),
        ((GOOD, GOOD), (), 1, "it does not fail at "),
        ((GOOD, BROKEN), (), 3, "unknown target 'nonsense'"),
        ((GOOD, BAD), ("--path", "elsewhere"), 3, "cannot import engine.target"),
    ],
)
def test_ends_that_do_not_differ_as_they_should_are_one_line(history, trace, capsys, numbers, more, code, says):
    repo, _ = history(*numbers)
    before = everything(repo)
    assert cli.main([*arguments_for(trace, repo, "HEAD~1..HEAD"), *more]) == code
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line.startswith("blockproof: ") and says in line]
    assert everything(repo) == before


@pytest.mark.parametrize(
    ("span", "says"),
    [
        ("HEAD", "is no range; write GOOD..BAD"),
        ("HEAD~1...HEAD", "is no range; write GOOD..BAD"),
        ("HEAD~1..", "is no range; write GOOD..BAD"),
        ("v9..HEAD", "'v9' is no commit"),
        ("--all..HEAD", "'--all' is no commit"),
        ("HEAD~0..HEAD", "are the same commit"),
        ("HEAD..side", "neither of HEAD and side is an ancestor of the other"),
    ],
)
def test_wrong_ranges_are_one_line_with_a_remedy(history, trace, capsys, span, says):
    repo, _ = history(GOOD, BAD)
    git(repo, "branch", "side", git(repo, "commit-tree", "-m", "another beginning", "HEAD^{tree}"))
    assert cli.main(["bisect", str(trace), f"--git={span}", "--repo", str(repo), "--target", "engine.target:make"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert says in said


def test_wrong_folders_and_targets_are_one_line(trace, tmp_path, capsys, monkeypatch):
    (tmp_path / "plain").mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    for repo, path, target, says in (
        (tmp_path / "plain", "src", "engine.target:make", "holds no git repository"),
        (tmp_path / "missing", "src", "engine.target:make", "is no folder"),
        (tmp_path / "plain", "../src", "engine.target:make", "is not below the repository"),
        (tmp_path / "plain", "src", "impl", "--target with one of package.module:factory"),
    ):
        arguments = ["--git", "a..b", "--repo", str(repo), "--target", target, "--path", path]
        assert cli.main(["bisect", str(trace), *arguments]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert says in said


def test_a_target_that_is_not_of_the_commit_is_no_verdict(history, trace, tmp_path, capsys, monkeypatch):
    repo, _ = history(GOOD, BAD)
    outside = tmp_path / "outside" / "engine"
    outside.mkdir(parents=True)
    for name, text in (("__init__", ""), ("rule", "NUMBER = 0\n"), ("target", FACTORY)):
        (outside / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(outside.parent))
    assert cli.main(arguments_for(trace, repo, "HEAD~1..HEAD", path=".")) == 3
    assert "engine.target:make imported nothing from the commit" in capsys.readouterr().err


def test_modules_of_the_checkout_are_told_from_those_of_the_commit(tmp_path, monkeypatch):
    def module(name, folder):
        made = type(sys)(name)
        made.__file__ = str(tmp_path / folder / "module.py")
        return made

    place = CommitPlace("a:b", "", str(tmp_path / "scratch" / "tree"), ".", str(tmp_path / "repo"), ())
    modules = [module("own", "scratch/tree/src"), module("other", "repository"), module("stray", "repo/src")]
    modules += [module("blockproof.model.ops", "repo"), run := module("__main__", "repo")]
    run.__spec__ = ModuleSpec("blockproof.fuzz.opening.serve", None)
    (tmp_path / "repo").mkdir()
    monkeypatch.chdir(tmp_path / "repo")  # a module without a file lies nowhere, not here
    assert origins([*modules, json, sys], place) == (1, ["stray"])


def test_ctrl_c_leaves_no_worktree_behind(history, trace, tmp_path):
    repo, _ = history(GOOD, ENDLESS, BAD)
    before = everything(repo)
    command = [sys.executable, "-m", "blockproof.fuzz.cli", *arguments_for(trace, repo, "HEAD~2..HEAD")]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert run.stderr is not None
        assert "fails" in run.stderr.readline()
        assert "does not fail" in run.stderr.readline()
        assert await_file(repo / ".git" / "worktrees", "*/BISECT_START")
        run.send_signal(signal.SIGINT)
        said = run.stderr.read()
        run.wait(60)
    finally:
        run.kill()
    assert run.returncode == 130, said
    assert said.splitlines()[-1] == "blockproof: interrupted"
    assert everything(repo) == before
    assert not list((tmp_path / "scratch").iterdir())


def await_file(folder, pattern):
    end = time.monotonic() + 60
    while not (found := list(folder.glob(pattern))) and time.monotonic() < end:
        time.sleep(0.05)
    return found
