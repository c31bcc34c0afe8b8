"""Which tests of this checkout notice a mutant: those that run its lines are run in a child of this process, quick ones
first, up to the first that fails.

The child reads everything of ours again that may hold something of the changed module, so a mutant is seen by whoever
has imported a name from it. Tests that start processes of their own see it only in this one.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from blockproof.fuzz.mutation.drawing import Mutant
from blockproof.fuzz.mutation.forked import in_child
from blockproof.fuzz.mutation.hunting import Hunted
from blockproof.fuzz.mutation.planting import path_of, read_again
from blockproof.fuzz.mutation.reached import Line, Reached

ROOT = Path(__file__).resolve().parent.parent
LEARN_S = 3600
"""Processor time for running all tests once."""
LEAST_S, FACTOR = 30, 5
"""A mutant counts as one without end after so many seconds and so many times what its tests take."""
OPTIONS = ("-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:timeout", "-W", "ignore")
FAILED, NONE = (1, 2, 3, 4), 5
"""Exit codes of pytest: where a mutant cannot be imported it is no failed test that says so."""


@dataclass(frozen=True)
class Known:
    """What was learned of a test."""

    name: str
    """Its node id."""
    seconds: float
    """Processor time, watched."""
    lines: frozenset[Line]


class Noticing:
    """The tests of some folders, and which lines of some modules each of them runs."""

    def __init__(self, modules: Sequence[str], tests: Sequence[str], kept: Sequence[str]) -> None:
        """Run all tests once. `kept`: packages that have nothing of these modules, and are not read again.

        RuntimeError if nothing passes.
        """
        self._modules = {path_of(module): module for module in modules}
        self._tests, self._kept = list(tests), tuple(kept)
        for module in modules:
            import_module(module)
        first = modules[0]
        said = in_child(lambda: self._learned(first, Path(path_of(first)).read_text(encoding="utf-8")), LEARN_S)
        if said.said is None or not said.said["tests"]:
            raise RuntimeError(f"no test passes: {said.how or said.said}")
        self.failed: list[str] = said.said["failed"]
        """Tests that do not pass as it stands; they are left out."""
        self.seconds = said.seconds
        self._imported = _lines(said.said["imported"])
        self.known = sorted(
            (Known(name, seconds, _lines(lines)) for name, seconds, lines in said.said["tests"]),
            key=lambda test: (test.seconds, test.name),
        )

    def chosen(self, mutant: Mutant) -> list[Known]:
        """The tests that may notice, quick ones first.

        Of lines that run when a module is imported, these are all that run the module; if none does, all.
        """
        changed = {(mutant.module, line) for line in range(mutant.lines[0], mutant.lines[1] + 1)}
        running = [test for test in self.known if test.lines & changed]
        if not changed & self._imported:
            return running
        near = [test for test in self.known if any(module == mutant.module for module, _ in test.lines)]
        return near or self.known

    def hunt(self, mutant: Mutant) -> Hunted:
        """What becomes of a mutant."""
        tests = self.chosen(mutant)
        if not tests:
            return Hunted(mutant, "survived", "", "no test runs it", 0, 0, 0.0)
        most = LEAST_S + FACTOR * int(sum(test.seconds for test in tests))
        ended = in_child(lambda: self._fate(mutant, [test.name for test in tests]), most)
        said = ended.said or {"status": "killed", "by": "its end", "finding": ended.how}
        return Hunted(mutant, said["status"], said["by"], said["finding"], 0, 0, ended.seconds)

    # In a child.

    def _again(self, module: str, source: str) -> None:
        """Read all that is not kept again, with this source of a module."""
        ours = [name for name in sys.modules if name.startswith("blockproof.") and not self._is_kept(name)]
        read_again(ours, module, source)

    def _is_kept(self, name: str) -> bool:
        return any(f"{name}.".startswith(f"{package}.") for package in self._kept)

    def _fate(self, mutant: Mutant, names: Sequence[str]) -> dict[str, Any]:
        with _silence():
            try:
                self._again(mutant.module, mutant.source)
            except Exception as error:
                return {"status": "import", "by": "import", "finding": f"{type(error).__name__}: {str(error)[:200]}"}
            run = _Run(names)
            code = _pytest(sorted({name.partition("::")[0] for name in names}), run)
        if code == NONE:
            raise RuntimeError("the tests that were chosen are not there")
        return {"status": "killed" if code in FAILED else "survived", "by": run.by, "finding": run.finding}

    def _learned(self, module: str, source: str) -> dict[str, Any]:
        with _silence():
            imported = Reached(self._modules)
            with imported:
                self._again(module, source)
            watch = _Watch(self._modules)
            _pytest(self._tests, watch)
        return {"imported": sorted(imported.lines), "tests": watch.tests(), "failed": sorted(watch.failed)}


class _Run:
    """Plugin: runs these tests alone, in this order, and remembers the first that fails."""

    def __init__(self, names: Sequence[str]) -> None:
        self._order = {name: index for index, name in enumerate(names)}
        self.by, self.finding = "", ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """See pytest."""
        mine = [item for item in items if item.nodeid in self._order]
        items[:] = sorted(mine, key=lambda item: self._order[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """See pytest."""
        if report.failed and not self.by:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.by, self.finding = report.nodeid, str(getattr(crash, "message", "")).partition("\n")[0][:200]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """See pytest."""
        if report.failed and not self.by:
            self.by, self.finding = report.nodeid, str(report.longrepr).strip().rpartition("\n")[2][:200]


class _Watch:
    """Plugin: which lines each test runs, what others have run for it in a fixture among them."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules
        self._ran: dict[str, tuple[float, set[Line]]] = {}
        self._wanted: dict[str, tuple[str, ...]] = {}
        """Per test, the names of its fixtures."""
        self._shared: list[tuple[str, str, set[Line]]] = []
        """Where a fixture holds, its name, and the lines that it has run."""
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """See pytest."""
        self._wanted[item.nodeid] = tuple(getattr(item, "fixturenames", ()))
        begin, reached = time.process_time(), Reached(self._modules)
        with reached:
            result = yield
        self._ran[item.nodeid] = (time.process_time() - begin, reached.lines)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """See pytest."""
        if fixturedef.scope == "function":
            return (yield)
        reached = Reached(self._modules)
        with reached:
            result = yield
        self._shared.append((fixturedef.baseid, fixturedef.argname, reached.lines))
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """See pytest."""
        if not report.passed:
            self.failed.add(report.nodeid)

    def tests(self) -> list[tuple[str, float, list[Line]]]:
        """What was learned of each test that has passed."""
        return [
            (name, seconds, sorted(lines.union(*self._of_fixtures(name))))
            for name, (seconds, lines) in self._ran.items()
            if name not in self.failed
        ]

    def _of_fixtures(self, name: str) -> Iterator[set[Line]]:
        for base, fixture, lines in self._shared:
            if name.startswith(base) and fixture in self._wanted[name]:
                yield lines


def _pytest(paths: Sequence[str], plugin: object) -> int:
    """The exit code of pytest on these paths."""
    os.chdir(ROOT)
    options = OPTIONS if isinstance(plugin, _Run) else tuple(option for option in OPTIONS if option != "-x")
    with TemporaryDirectory(prefix="blockproof-noticing-") as folder:
        return int(pytest.main([*options, f"--basetemp={folder}/tests", *paths], plugins=[plugin]))


@contextmanager
def _silence() -> Iterator[None]:
    """What tests print goes nowhere, in this process and its children."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    yield


def _lines(listed: Sequence[Sequence[Any]]) -> frozenset[Line]:
    return frozenset((str(module), int(line)) for module, line in listed)


def told(noticing: Noticing, say: Callable[[str], None]) -> None:
    """What was learned, for a person."""
    say(f"{len(noticing.known)} tests learned in {noticing.seconds:.0f} s of processor time")
    for name in noticing.failed:
        say(f"left out, as it does not pass here: {name}")
