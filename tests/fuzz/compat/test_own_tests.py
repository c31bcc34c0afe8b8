"""The release's own tests over both cores: what is a difference, what explains it, and which table has gone stale."""

import tarfile
from pathlib import Path

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.compat import own_tests
from blockproof.fuzz.compat.own_tests import SuiteReport, run_own_tests, suites_of
from blockproof.fuzz.opening import environments
from blockproof.fuzz.opening.child import PythonPlace
from blockproof.fuzz.targets.base import TargetUnavailableError

RELEASE = "vllm==0.23.0"
VLLM = families()["vllm"]
STRUCTURE = {"no-links"}
"""Reasons that are no deviation: the test depends on how the release's core is built."""


def report(theirs: dict[str, str], ours: dict[str, str], **declared: str) -> SuiteReport:
    return SuiteReport("core", theirs, ours, declared)


def test_only_what_passes_on_the_release_says_something_about_ours() -> None:
    same = report({"a": "passed", "b": "failed", "c": "skipped"}, {"a": "passed", "b": "passed", "c": "failed"})
    assert same.passing == ["a"]
    assert same.differing == same.undeclared == same.stale == []
    assert same.lines() == ["core: 1 pass on the release, 1 of them over ours"]


@pytest.mark.parametrize("ours", [{"a": "failed"}, {"a": "skipped"}, {}])
def test_a_test_that_does_not_pass_over_ours_needs_a_reason(ours: dict[str, str]) -> None:
    assert report({"a": "passed"}, ours).undeclared == ["a"]
    declared = report({"a": "passed"}, ours, a="C-17: why")
    assert (declared.differing, declared.undeclared, declared.stale) == (["a"], [], [])
    assert declared.lines()[1:] == ["  a\n    C-17: why"]


def test_a_reason_whose_test_passes_is_stale() -> None:
    stale = report({"a": "passed"}, {"a": "passed"}, a="C-17: why", elsewhere="S-16: of another suite")
    assert stale.stale == ["a"]
    assert "declared, but passes" in stale.lines()[-1]


def test_a_reason_without_parameters_stands_for_all_of_them() -> None:
    theirs = {"a[1]": "passed", "a[2]": "passed", "b[1]": "passed"}
    told = report(theirs, {"a[1]": "failed", "a[2]": "passed", "b[1]": "passed"}, a="ranks: why", b="ranks: why")
    assert told.undeclared == []
    assert told.stale == ["b"]


def test_every_declared_reason_is_a_known_deviation() -> None:
    own = own_tests.own_tests_of(VLLM, "0.23.0")
    known = VLLM.exact[VLLM.reference]()
    ids = {deviation.id for deviation in (*known.deviations, *known.configuration_deviations)}
    assert len(own.declared) == 20
    assert {reason.partition(":")[0] for reason in own.declared.values()} <= ids | STRUCTURE
    files = {test.partition("::")[0] for test in own.declared}
    assert files <= set(own.suites["core"])


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        (("passed", "passed"), 0),
        (("passed", "failed"), 1),
        (("failed", "passed"), 3),
    ],
)
def test_the_command_ends_with_what_was_found(
    outcomes: tuple[str, str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, ours = outcomes
    monkeypatch.setattr(own_tests, "run_own_tests", lambda *given: [report({"a": theirs}, {"a": ours})])
    assert main(["compat", "test", "--suite", "core", "--json"]) == code


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--suite", "nonsense"], 2), (["--release", "0.19.1"], 3), (["--release", "new"], 2)],
)
def test_wrong_usage_is_refused_in_one_line(
    arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compat", "test", *arguments]) == code
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_fetch_that_fails_leaves_nothing_that_seems_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOCKPROOF_HOME", str(tmp_path))
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'ERROR: no such thing' >&2\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(TargetUnavailableError, match="failed: no such thing"):
        own_tests.fetch_tests(VLLM, "0.23.0", PythonPlace(python), lambda line: None)
    assert list(tmp_path.rglob("complete")) == []


def test_only_the_tests_are_unpacked_and_kept_beside_the_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLOCKPROOF_HOME", str(tmp_path))
    inside = tmp_path / "vllm-0.23.0"
    for name in ("tests/v1/test_one.py", "vllm/core.py"):
        (inside / name).parent.mkdir(parents=True)
        (inside / name).write_text("")
    archive = tmp_path / "vllm-0.23.0.tar.gz"
    with tarfile.open(archive, "w:gz") as made:
        made.add(inside, "vllm-0.23.0")
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = --dest ] && mkdir -p "$2" && cp {archive} "$2"; shift; done\n'
    )
    python.chmod(0o755)
    fetched = own_tests.fetch_tests(VLLM, "0.23.0", PythonPlace(python), lambda line: None)
    assert fetched.tests.is_relative_to(environments.home())
    assert [path.name for path in fetched.tests.rglob("*.py")] == ["test_one.py"]
    python.unlink()
    assert own_tests.fetch_tests(VLLM, "0.23.0", PythonPlace(python), lambda line: None) == fetched


def test_suites_are_those_of_the_reference_release() -> None:
    assert suites_of(RELEASE) == ("core", "connectors", "priorities")
    assert suites_of("vllm==0.33.0") == suites_of(RELEASE)
    with pytest.raises(TargetUnavailableError, match=r"stands in for 0\.23\.0 and 0\.33\.0 only"):
        suites_of("vllm==0.31.0")


@pytest.mark.slow
@pytest.mark.skipif(
    not (environments.home() / "tests-vllm-0.23.0" / "complete").exists(), reason="blockproof compat test"
)
def test_the_core_suite_passes_over_our_core_but_for_what_is_declared() -> None:
    (core,) = run_own_tests(RELEASE, ["core"], lambda line: None)
    assert len(core.passing) == 325
    assert core.undeclared == core.stale == []
    assert len(core.differing) == 20
