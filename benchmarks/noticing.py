"""Which tests of this checkout notice a mutant: those that run its lines are run in a child of this process, quick ones
first, up to the first that fails.

The child reads everything of ours again that may hold something of the changed module, so a mutant is seen by whoever
has imported a name from it. Tests that start processes of their own see it only in this one.
"""

import hashlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies  # noqa: F401  # children share it
import pytest
from blockproof.fuzz.findings.writing import write_file
from blockproof.fuzz.mutation.drawing import Mutant
from blockproof.fuzz.mutation.forked import in_child
from blockproof.fuzz.mutation.hunting import Hunted
from blockproof.fuzz.mutation.planting import path_of, read_again
from blockproof.fuzz.mutation.reached import Line
from coverage import Coverage

ROOT = Path(__file__).resolve().parent.parent
LEARN_S = 3600
"""Processor time for running all tests once."""
LEAST_S, FACTOR = 30, 5
"""A mutant counts as one without end after so many seconds and so many times what its tests take."""
_IMPORTED = "imported"
_WITHOUT = [word for plugin in ("cacheprovider", "xdist") for word in ("-p", f"no:{plugin}")]
OPTIONS = ("-q", "-x", "-m", "not slow", "--assert=plain", "-W", "ignore", *_WITHOUT)
"""Asserts as they are: to explain them costs more than most tests do."""
FAILED, NONE = (1, 2, 3, 4), 5
"""Exit codes of pytest: where a mutant cannot be imported it is no failed test that says so."""


@dataclass(frozen=True)
class Known:
    """What was learned of a test."""

    name: str
    """Its node id."""
    seconds: float
    """Processor time, measured by coverage."""
    lines: frozenset[Line]


class Noticing:
    """The tests of some folders, and which lines of some modules each of them runs."""

    def __init__(
        self, modules: Sequence[str], tests: Sequence[str], kept: Sequence[str], learned: Path | None = None
    ) -> None:
        """Run all tests once. `kept`: packages that have nothing of these modules, and are not read again. `learned`: a
        file that keeps what was learned; tests in files that have not changed since are not run for it again.

        RuntimeError if nothing passes.
        """
        self._modules = {path_of(module): module for module in modules}
        self._tests, self._kept = _files(tests), tuple(kept)
        for module in modules:
            import_module(module)
        known = self._read(learned)
        self.seconds = 0.0
        """Processor time that learning has taken."""
        first = modules[0]
        source = Path(path_of(first)).read_text(encoding="utf-8")
        for path, digest in self._tests.items():
            if known["files"].get(path, {}).get("of") == digest:
                continue
            ended = in_child(lambda path=path: self._learned(first, source, [path]), LEARN_S)  # type: ignore[misc]
            if ended.said is None:
                raise RuntimeError(f"{path} was not learned: {ended.how}")
            self.seconds += ended.seconds
            known["imported"] = ended.said.pop("imported")
            known["files"][path] = {"of": digest, **ended.said}
            if learned:
                write_file(learned, json.dumps(known))
        self._use([known["files"][path] for path in self._tests], known["imported"])

    def _use(self, files: Sequence[dict[str, Any]], imported: Sequence[Sequence[Any]]) -> None:
        self.failed: list[str] = [name for file in files for name in file["failed"]]
        """Tests that do not pass as it stands; they are left out."""
        self._imported = _lines(imported)
        tests = [Known(name, seconds, _lines(lines)) for file in files for name, seconds, lines in file["tests"]]
        if not tests:
            raise RuntimeError("no test passes")
        self.known = sorted(tests, key=lambda test: (test.seconds, test.name))

    def _read(self, learned: Path | None) -> dict[str, Any]:
        """What is known from an earlier time; nothing if a module has changed since."""
        now = {module: _digest(Path(path)) for path, module in self._modules.items()}
        if learned is not None and learned.exists():
            known: dict[str, Any] = json.loads(learned.read_text(encoding="utf-8"))
            if known["modules"] == now:
                return known
        return {"modules": now, "imported": [], "files": {}}

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

    def _learned(self, module: str, source: str, tests: Sequence[str]) -> dict[str, Any]:
        with _silence():
            coverage = Coverage(data_file=None, config_file=False, include=list(self._modules), messages=False)
            coverage.start()
            coverage.switch_context(_IMPORTED)
            self._again(module, source)
            watch = _Watch(coverage)
            _pytest(tests, watch)
            coverage.stop()
        ran: dict[str, list[Line]] = {}
        for path, name in self._modules.items():
            for line, contexts in coverage.get_data().contexts_by_lineno(path).items():
                for told in contexts:
                    ran.setdefault(told, []).append((name, line))
        return {"imported": ran.get(_IMPORTED, []), "tests": watch.tests(ran), "failed": sorted(watch.failed)}


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
    """Plugin: tells coverage which test runs, and notes how long each takes and which fail."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._seconds: dict[str, float] = {}
        self._wanted: dict[str, tuple[str, ...]] = {}
        """Per test, the names of its fixtures."""
        self._shared: list[tuple[str, str, str]] = []
        """Where a fixture holds that several tests share, its name, and what coverage is told while it is made."""
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """See pytest."""
        self._wanted[item.nodeid] = tuple(getattr(item, "fixturenames", ()))
        begin, self._now = time.process_time(), item.nodeid
        self._coverage.switch_context(item.nodeid)
        result = yield
        self._seconds[item.nodeid] = time.process_time() - begin
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """See pytest."""
        if fixturedef.scope == "function":
            return (yield)
        name = f"{fixturedef.baseid} {fixturedef.argname}"
        self._shared.append((fixturedef.baseid, fixturedef.argname, name))
        self._coverage.switch_context(name)
        try:
            return (yield)
        finally:
            self._coverage.switch_context(self._now)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """See pytest."""
        if not report.passed:
            self.failed.add(report.nodeid)

    def tests(self, ran: Mapping[str, list[Line]]) -> list[tuple[str, float, list[Line]]]:
        """What was learned of each test that has passed. `ran`: by what coverage was told, the lines that have run."""
        return [
            (name, seconds, sorted({line for told in (name, *self._fixtures(name)) for line in ran.get(told, ())}))
            for name, seconds in self._seconds.items()
            if name not in self.failed
        ]

    def _fixtures(self, test: str) -> Iterator[str]:
        for base, fixture, told in self._shared:
            if test.startswith(base) and fixture in self._wanted[test]:
                yield told


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


def _files(tests: Sequence[str]) -> dict[str, str]:
    """The files with tests of these files and folders, each with its digest; helpers are not counted."""
    paths = [path for name in tests for path in ([ROOT / name] if name.endswith(".py") else (ROOT / name).glob("*.py"))]
    found = sorted(path for path in paths if path.name.startswith("test_"))
    return {str(path.relative_to(ROOT)): _digest(path) for path in found}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _lines(listed: Sequence[Sequence[Any]]) -> frozenset[Line]:
    return frozenset((str(module), int(line)) for module, line in listed)


def told(noticing: Noticing, say: Callable[[str], None]) -> None:
    """What was learned, for a person."""
    say(f"{len(noticing.known)} tests, learned in {noticing.seconds:.0f} s of processor time")
    for path, times in Counter(name.partition("::")[0] for name in noticing.failed).items():
        say(f"left out, as they do not pass here: {times} of {path}")
