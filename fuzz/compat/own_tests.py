"""A release's own tests, once over its own core and once over ours, and what differs."""

import json
import os
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ..adapters import family_of
from ..opening import environments
from ..opening.child import PythonPlace
from ..opening.commands import run
from ..opening.environments import InstallError
from ..opening.targets import ReleasePython, interpreter_of, python_of
from ..targets.base import TargetUnavailableError
from ..targets.family import Family, OwnTests, unpatched

_PIP = ("-P", "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check", "--retries", "1")
_COMPLETE = "complete"


class Fetched(NamedTuple):
    """The tests of a release, ready to run."""

    tests: Path
    """Folder of the source distribution, of which the tests are unpacked."""
    tools: Path
    """Folder with the packages that they need."""


def fetch_tests(family: Family, release: str, place: PythonPlace, say: Callable[[str], None]) -> Fetched:
    """The tests of this release, fetched unless they are here already. InstallError, in one line, if that fails.

    `place` is the environment of the release; pip runs in its interpreter, since the build asks for torch.
    """
    own = own_tests_of(family, release)
    home = environments.home() / f"tests-{family.name}-{release}"
    fetched = Fetched(home / f"{family.distribution}-{release}", home / "tools")
    if (home / _COMPLETE).exists():
        return fetched
    home.mkdir(parents=True, exist_ok=True)
    say(f"installing what the tests of {family.spec(release)} need")
    _run([str(place.python), *_PIP, "install", "--target", str(fetched.tools), *own.test_needs], {})
    with TemporaryDirectory(prefix=".fetching-", dir=home) as scratch:
        build, archive = Path(scratch, "build"), Path(scratch, "archive")
        _run([str(place.python), *_PIP, "install", "--target", str(build), *own.build_needs], {})
        say(f"downloading the source distribution of {family.spec(release)}")
        options = ("--no-binary", family.distribution, "--no-deps", "--no-build-isolation", "--dest", str(archive))
        command = [str(place.python), *_PIP, "download", *options, f"{family.distribution}=={release}"]
        _run(command, {**own.build_environment, "PYTHONPATH": str(build)})
        say("unpacking its tests")
        (path,) = archive.iterdir()
        _unpack(path, home, [f"{fetched.tests.name}/{start}" for start in own.unpacked])
    (home / _COMPLETE).touch()
    return fetched


def own_tests_of(family: Family, version: str) -> OwnTests:
    """The tests of a release of a family. InstallError if there are none that can be run."""
    if family.own_tests is None:
        raise InstallError(f"{family.name} has no tests that can be run here")
    return family.own_tests(version)


def _unpack(archive: Path, into: Path, starts: Sequence[str]) -> None:
    with tarfile.open(archive) as opened:
        members = [member for member in opened.getmembers() if member.name.startswith(tuple(starts))]
        opened.extractall(into, members, filter="data")


def _run(command: Sequence[str], more: Mapping[str, str]) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ran = run(command, environment={**clean, **more})
    if ran.status:
        raise InstallError(f"{' '.join(command[3:6])} ... failed: {ran.error}")


PASSED = "passed"
OURS, COMPILED = "ours", "compiled"
"""Our core as it is, and compiled."""
PACKAGES = ("model", "fuzz", "impl")
"""Packages that our core needs in another interpreter."""
DEADLINE_S = 3600.0
"""For one suite over one core; the longest takes some minutes."""

Outcomes = Mapping[str, str]
"""Test to `passed`, `failed` or `skipped`; a test that could not be imported is missing."""


class SuiteReport(NamedTuple):
    """One suite over both cores. Tests that do not pass over the release's own core say nothing about ours."""

    name: str
    theirs: Outcomes
    ours: Outcomes
    declared: Mapping[str, str]
    """Test to the deviation or reason for which it need not pass over ours. One named without parameters stands for
    all of its own."""

    @property
    def passing(self) -> list[str]:
        """Tests that pass over the release's own core."""
        return sorted(test for test, outcome in self.theirs.items() if outcome == PASSED)

    @property
    def differing(self) -> list[str]:
        """Those of them that do not pass over ours."""
        return [test for test in self.passing if self.ours.get(test) != PASSED]

    @property
    def undeclared(self) -> list[str]:
        """Those of these for which no reason is declared."""
        return [test for test in self.differing if not self.reason(test)]

    @property
    def stale(self) -> list[str]:
        """Tests with a declared reason that pass over ours all the same."""
        needed = {name for test in self.differing for name in (test, test.partition("[")[0])}
        run = {name for test in self.passing for name in (test, test.partition("[")[0])}
        return sorted(test for test in self.declared if test in run - needed)

    def reason(self, test: str) -> str:
        """Why it need not pass over ours; empty if it has to."""
        return self.declared.get(test) or self.declared.get(test.partition("[")[0], "")

    def lines(self) -> list[str]:
        """The report for people."""
        counts = f"{len(self.passing)} pass on the release, {len(self.passing) - len(self.differing)} of them over ours"
        lines = [f"{self.name}: {counts}"]
        lines += [f"  {test}\n    {self.reason(test) or 'NOT DECLARED'}" for test in self.differing]
        lines += [f"  {test}\n    declared, but passes: take it out of the table" for test in self.stale]
        return lines

    def as_json(self) -> dict[str, object]:
        """The report for machines."""
        return {
            "suite": self.name,
            "theirs": len(self.passing),
            "ours": len(self.passing) - len(self.differing),
            "differing": {test: self.reason(test) or None for test in self.differing},
            "undeclared": self.undeclared,
            "stale": self.stale,
        }


def suites_of(release: str) -> tuple[str, ...]:
    """Names of the suites that there are for a release. TargetUnavailableError if it has none."""
    return tuple(_tests_of(release)[1].suites)


def run_own_tests(
    release: str, suites: Sequence[str], say: Callable[[str], None], compiled: bool = False
) -> list[SuiteReport]:
    """Run these suites of a release over both cores, ours as it is or compiled. What is missing is fetched.

    TargetUnavailableError if the release is not installed, has no tests or cannot be fetched, or if nothing ran.
    """
    version, own = _tests_of(release)
    family = family_of(release)
    _, place = interpreter_of(release)
    assert family is not None
    if place is None:
        raise TargetUnavailableError(f"{release} has to be in an environment of its own: blockproof targets install")
    fetched = fetch_tests(family, version, place, say)
    reports = []
    for name in suites:
        outcomes: dict[bool, Outcomes] = {}
        for over_ours in (False, True):
            say(f"{name}: over {'our core' if over_ours else 'the core of ' + release}")
            with TemporaryDirectory(prefix="blockproof-tests-") as scratch, python_of(release, PACKAGES) as python:
                test_run = _Run(own, fetched, Path(scratch), over_ours and (COMPILED if compiled else OURS))
                outcomes[over_ours] = test_run.outcomes(python, name)
        reports.append(SuiteReport(name, outcomes[False], outcomes[True], own.declared))
    return reports


def _tests_of(release: str) -> tuple[str, OwnTests]:
    """Version and tests of a release. TargetUnavailableError if it has none, ValueError for no name of a release."""
    family = family_of(release)
    if family is None:
        raise ValueError(f"{release!r} names no release")
    version = family.version_in(unpatched(release))
    if version not in family.replaced:
        raise TargetUnavailableError(f"{release}: our core stands in for {' and '.join(family.replaced)} only")
    return version, own_tests_of(family, version)


def _folder(scratch: str, name: str) -> Path:
    path = Path(scratch, name)
    path.mkdir()
    return path


@dataclass(frozen=True)
class _Run:
    """One run of pytest in the interpreter of a release, in a folder of its own."""

    own: OwnTests
    fetched: Fetched
    scratch: Path
    ours: str | bool
    """The form of our core, False for the release's."""

    def outcomes(self, python: ReleasePython, suite: str) -> Outcomes:
        """What each test came to. TargetUnavailableError, with the last lines of the output, if nothing ran."""
        folder, told = _folder(str(self.scratch), "work"), self.scratch / "outcomes.json"
        for name, text in self.own.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        tests = self.fetched.tests
        path = ":".join([python.environment["PYTHONPATH"], str(self.fetched.tools), str(tests)])
        more = {"PYTHONPATH": path, self.own.outcomes_variable: str(told), "HF_HUB_OFFLINE": "1"}
        if self.ours:
            more[self.own.over_ours_variable] = str(self.ours)
        options = ("-q", "-p", self.own.plugin, "-p", "no:cacheprovider", "-W", "ignore", "--tb=no")
        places = (f"--rootdir={tests}", f"--confcutdir={tests / self.own.roots}", "--continue-on-collection-errors")
        files = [str(tests / file) for file in self.own.suites[suite]]
        command = python.words("pytest", *options, *places, *files)
        ran = run(command, seconds=DEADLINE_S, folder=folder, environment={**python.environment, **more}, together=True)
        if ran.status is None:
            raise TargetUnavailableError(f"{suite}: the tests did not end within {DEADLINE_S:g} s")
        if not told.exists():
            last = " | ".join(ran.output.strip().splitlines()[-3:])
            raise TargetUnavailableError(f"{suite}: no test ran: {last}")
        outcomes: Outcomes = json.loads(told.read_text())
        return outcomes
