"""What the tests of the pytest plugin share in one process: options that were checked, and opened targets."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest

from ..opening.engines import is_engine
from ..opening.oracles import attention_named, oracles_named
from ..opening.targets import check_spec, open_target
from ..targets.base import Target, TargetUnavailableError, close_target
from ..traces.files import TraceError
from ..traces.known_file import read_known
from .pytest_options import SEARCHES, named_path, option

MARK = "blockproof"
"""The marker of all tests of the plugin."""
_NAME = "blockproof-shared"
T = TypeVar("T")


class BlockproofItem(pytest.Item):
    """A test of a target or an engine, which `spec` names."""

    spec: str
    label: str
    """What is written above a failure."""

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the test is, no line, and its label."""
        return self.path, None, self.label

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:  # type: ignore[override]  # of pytest
        """Of an exception that nobody expected, the places below this file only: no frames of pytest."""
        excinfo.traceback = excinfo.traceback.cut(path=sys.modules[type(self).__module__].__file__)
        return super().repr_failure(excinfo)

    def fail(self, lines: Iterable[str]) -> NoReturn:
        """Fail with this text and no traceback: it was not this code that is wrong."""
        pytest.fail("\n".join(lines), pytrace=False)


class Shared:
    """A plugin of its own, registered as soon as something of blockproof is to be tested (`shared`)."""

    def __init__(self, config: pytest.Config) -> None:
        """UsageError for an option that cannot be understood."""
        self._config = config
        self._opened: dict[str, Target] = {}
        self.target: str | None = option(config, "target") or None
        self.isolate = bool(option(config, "isolate"))
        self.out = shortest(named_path(config, "out") or config.rootpath / "findings")
        said = bool(option(config, "engine"))
        self.engine = self._checked("target", lambda: is_engine(self.target or "impl", said))
        """The target is an engine to be simulated."""
        self.seconds, self.steps = self._number("seconds"), int(self._number("steps"))
        self.oracle: str = option(config, "oracle") or "auto"
        self._checked("oracle", lambda: oracles_named(self.oracle, self.target or "impl"))
        attention = option(config, "attention")
        read = (lambda text: tuple(text.split(","))) if self.engine else attention_named  # an engine knows its own
        self.attention = self._checked("attention", lambda: read(attention) if attention else ())
        """Empty for what the target builds."""
        self._check_engine()
        for name in (name for name in SEARCHES if getattr(self, name) and self.target is None):
            raise pytest.UsageError(f"--blockproof-{name}: of what? Name it with --blockproof-target")
        self._checked("target", lambda: check_spec(self.target or "impl"))
        self.known_file = named_path(config, "known")
        self.known = self._checked("known", lambda: read_known(self.known_file) if self.known_file else ())

    def _check_engine(self) -> None:
        """UsageError for what goes with an engine only, or not with it."""
        if self.steps and not self.engine:
            raise pytest.UsageError(
                "--blockproof-steps: of an engine; add --blockproof-engine, or write --blockproof-seconds"
            )
        wrong = [name for name in ("oracle", "known") if self.engine and option(self._config, name)]
        if wrong:
            what = "an engine is judged by what its clients get; leave it out"
            raise pytest.UsageError(f"--blockproof-{wrong[0]}: not with --blockproof-engine: {what}")

    def _checked(self, name: str, read: Callable[[], T]) -> T:
        try:
            return read()
        except (ValueError, TraceError) as error:
            raise pytest.UsageError(f"--blockproof-{name}: {error}") from None

    def oracles_for(self, spec: str, target: Target | None = None) -> tuple[str, ...]:
        """What judges a target; what suits it is best known once it is open. Empty if nothing was said and it is not
        given.
        """
        return () if target is None and self.oracle == "auto" else oracles_named(self.oracle, spec, target)

    def _number(self, name: str) -> float:
        given = option(self._config, name) or 0
        try:
            number = float(given)
        except ValueError:
            number = -1.0
        if not 0 <= number < float("inf"):
            raise pytest.UsageError(f"--blockproof-{name}: {given!r} is no number of {name}")
        return number

    def opened(self, spec: str) -> Target:
        """The target of this name, opened once. TargetUnavailableError if it cannot be started."""
        if spec not in self._opened:
            try:
                self._opened[spec] = open_target(spec, isolate=self.isolate)
            except ValueError as error:
                raise TargetUnavailableError(str(error)) from None
        return self._opened[spec]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Opens the target if a test is left that needs it. If that fails, it is said once.

        UsageError; in a worker of pytest-xdist, from which none would arrive, an error of the collection, and the tests
        that need the target are taken out.
        """
        ours = [item for item in items if item.get_closest_marker(MARK)]
        if not ours or self.target is None or self.engine or self._config.getoption("collectonly"):
            return
        try:
            self.opened(self.target)
        except TargetUnavailableError as error:
            problem = f"--blockproof-target: {error}"
            if not hasattr(self._config, "workerinput"):
                raise pytest.UsageError(problem) from None
            self._config.hook.pytest_collectreport(report=pytest.CollectReport(MARK, "failed", problem, []))
            items[:] = [item for item in items if item not in ours]

    def pytest_sessionfinish(self) -> None:
        """Ends the targets."""
        for target in self._opened.values():
            close_target(target)
        self._opened.clear()


def shortest(path: Path) -> Path:
    """The path as seen from the current folder, if it lies in it: commands with it are easier to read."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def shared(config: pytest.Config) -> Shared:
    """What the tests of this process share. UsageError as from `Shared`."""
    plugin = config.pluginmanager.get_plugin(_NAME)
    if plugin is None:
        plugin = Shared(config)
        config.pluginmanager.register(plugin, _NAME)
    assert isinstance(plugin, Shared)
    return plugin
