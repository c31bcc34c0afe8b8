"""Makes tests the same wherever and however often they run, and says at the end which were left out, and why.

A test is slow if it is marked so, or if it takes seconds and runs hardly a line that no shorter one runs
(`unmeasured.txt`): `make test` leaves both out. Where coverage is measured, it is that of the quick tests, whether slow
ones run beside them or not, but not of those that run nothing that no shorter one runs (`unmeasured_quick.txt`), and of
a test with parameters only of a few: a measured test takes two to five times as long.
"""

import gc
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

EXAMPLE = Path(__file__).parents[1] / "examples" / "my-engine"
ENGINES = ("my_engine", "my_target", "faulty_engines")
"""Modules of which tests have versions of their own, in folders of their own."""
CHROMIUM = os.environ.get("BLOCKPROOF_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
"""The browser in which pages are looked at, if there is one."""
UNMEASURED = Path(__file__).with_name("unmeasured.txt")
"""Tests that take seconds and run hardly a line that no shorter one runs, as `benchmarks/unmeasured.py` has found."""
UNMEASURED_QUICK = UNMEASURED.with_name("unmeasured_quick.txt")
"""The same of tests that do not take seconds: they are quick tests, but coverage does not count them."""
FEW = 10
"""Of a test with parameters so many are measured: the first, the last, and those between at equal distances.

All are where each parameter has code of its own, as theorems have: `each_is_measured`. And where all take long
together, the others are slow tests: `few_are_quick`."""
LEFT_OUT = "slow_tests_left_out"
COLLECTED = (5_000, 10, 20)
"""As for `gc.set_threshold`: a look through all that has come up since is due after a million new objects."""
LISTENS_S = 2.0
"""How long a child that is asked to end is waited for."""
left_out = pytest.StashKey[int]()
is_measured = pytest.StashKey[bool]()


def pytest_configure() -> None:
    """Let signals be heard, and Hypothesis draw the same every time and take its time.

    A shell starts background commands deaf to Ctrl-C, `nohup` others to SIGHUP, and what a test starts inherits that.
    """
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("steady")


@pytest.fixture(autouse=True)
def _engines_of_its_own() -> Iterator[None]:
    """No test sees the engine that another one has imported, nor where it found it."""
    path = [entry for entry in sys.path if entry != str(EXAMPLE)]
    sys.path[:] = path
    for name in ENGINES:
        sys.modules.pop(name, None)
    yield
    sys.path[:] = path


@pytest.fixture(autouse=True, scope="session")
def _releases_are_forked() -> Iterator[None]:
    """An engine is imported once by the tests of a process, not for each of them."""
    if not Path(__file__).with_name("forked.py").exists():  # this file is tried alone
        yield
        return
    from .forked import forking

    with forking():
        yield


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A headless Chromium, where there is one: one for all tests, since there can be one driver in a process."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt install chromium, or name one in BLOCKPROOF_CHROMIUM")
    playwright = pytest.importorskip("playwright.sync_api", reason="no driver of a browser: pip install playwright")
    with playwright.sync_playwright() as driver:
        # Tests may run as root, where Chromium has no sandbox; what it opens here are files of ours.
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(autouse=True, scope="session")
def _ended_children_are_measured() -> Iterator[None]:
    """Processes of targets and of provers are ended by a kill, which leaves no record. Where coverage is measured they
    are asked to end first, upon which they write what they have run; one that does not listen is killed as ever."""
    coverage = sys.modules.get("coverage")
    if coverage is None or coverage.Coverage.current() is None:
        yield
        return
    from blockproof.fuzz.opening.process import Process
    from blockproof.proofs.campaign import Worker

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Process, "end", _asked_first(Process.end, "_child"))
        patch.setattr(Worker, "close", _asked_first(Worker.close, "_process"))
        yield


def _asked_first(kill: Callable[[Any], None], attribute: str) -> Callable[[Any], None]:
    """The method, which ends the process of this attribute, after a request to end."""

    def end(self: Any) -> None:
        child = getattr(self, attribute, None)
        if child is not None and child.poll() is None:
            child.terminate()
            with suppress(subprocess.TimeoutExpired):
                child.wait(LISTENS_S)
        kill(self)

    return end


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    of_one: dict[str, list[pytest.Item]] = {}
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name in _listed(UNMEASURED):
            item.add_marker("slow")
        of_one.setdefault(name, []).append(item)
    for name, alike in of_one.items():
        last = len(alike) - 1
        few = {last * place // (FEW - 1) for place in range(FEW)}
        for number, item in enumerate(alike):
            if number not in few and item.get_closest_marker("few_are_quick") is not None:
                item.add_marker("slow")
            enough = number in few or item.get_closest_marker("each_is_measured") is not None
            counts = item.get_closest_marker("slow") is None and name not in _listed(UNMEASURED_QUICK)
            item.stash[is_measured] = enough and counts
    items[:] = slow_first(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    if config.getoption("markexpr") == "not slow":
        config.stash[left_out] = sum(item.get_closest_marker("slow") is not None for item in items)


def slow_first(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """As many pieces as there are workers, which pytest-xdist deals out so: in each the slow tests come first.

    A worker that has nothing left takes what another one would have run last; so nobody waits for a slow one.
    """
    slow = [item for item in items if item.get_closest_marker("slow") is not None]
    quick = [item for item in items if item.get_closest_marker("slow") is None]
    pieces = [
        one[len(one) * piece // workers : len(one) * (piece + 1) // workers]
        for piece in range(workers)
        for one in (slow, quick)
    ]
    return [item for piece in pieces for item in piece]


@cache
def _listed(path: Path) -> frozenset[str]:
    return frozenset(path.read_text(encoding="utf-8").split() if path.exists() else ())


def pytest_collection_finish() -> None:
    """The million objects that are there now live to the end: to look through them for garbage, again and again, would
    be a tenth of what the tests take. What tests leave is looked through seldom."""
    _import_what_is_measured()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED)


def _import_what_is_measured() -> None:
    """Where coverage is measured, all our modules are imported first: else the lines that an import runs would count or
    not, as the test counts that happens to be the first to import them."""
    coverage = sys.modules.get("coverage")
    if coverage is None or coverage.Coverage.current() is None:
        return
    for top in ("model", "impl", "fuzz", "proofs"):
        with suppress(ImportError):  # this file may be tried alone
            package = import_module(f"blockproof.{top}")
            for module in walk_packages(package.__path__, f"{package.__name__}."):
                if not module.name.endswith(".__main__"):
                    import_module(module.name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measure no slow and no listed tests, a few of those with parameters, and only the child processes of these."""
    coverage = sys.modules.get("coverage")
    measuring = None if coverage is None or item.stash.get(is_measured, False) else coverage.Coverage.current()
    if measuring is None:
        return (yield)
    children = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("COVERAGE_PROCESS_")}
    measuring.stop()
    measuring._warn_preimported_source = False  # what it would say of modules is not true of a second start
    try:
        return (yield)
    finally:
        measuring.start()
        os.environ.update(children)


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """One more than there are cores: a test that waits for a child or a time leaves its core to another."""
    cores = yield
    return cores if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else cores + 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands the number on to the process that prints. What was measured is written before
    the worker says that it is done: after that it is killed unless it ends within seconds."""
    gc.unfreeze()  # else bindings in C++ take what is never collected for leaks, and say so at the end
    answer = getattr(session.config, "workeroutput", None)
    if answer is None:
        return
    answer[LEFT_OUT] = session.config.stash.get(left_out, 0)
    coverage = sys.modules.get("coverage")
    if coverage is not None and (measuring := coverage.Coverage.current()) is not None:
        measuring.stop()
        measuring.save()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker collects all tests, so the number of any of them is the number."""
    node.config.stash[left_out] = getattr(node, "workeroutput", {}).get(LEFT_OUT, 0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for line in reasons_of([report.longrepr for report in terminalreporter.stats.get("skipped", ())]):
        terminalreporter.write_line(line)
    number = config.stash.get(left_out, 0)
    if number:
        terminalreporter.write_line(f"{number} slow tests were left out; make test-all runs them too")


def reasons_of(skipped: Sequence[Any]) -> list[str]:
    """Why tests were skipped: a line for each reason, the most frequent first. Of pytest's (file, line, reason)."""
    said = (one[2] if isinstance(one, tuple) else str(one) for one in skipped)
    reasons = Counter(text.removeprefix("Skipped: ").partition("\n")[0] for text in said)
    lines = [f"{number:5}  {reason}" for reason, number in reasons.most_common()]
    return [f"{len(skipped)} tests were skipped:", *lines] if skipped else []
