"""What the tests of the pytest plugin share in one process: options that were checked, and opened targets."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from ..opening.oracles import attention_named, oracles_named
from ..opening.targets import check_spec, open_target
from ..targets.base import Target, TargetUnavailableError, close_target
from ..traces.files import TraceError
from ..traces.known_file import read_known
from .pytest_options import named_path, option

MARK = "blockproof"
"""The marker of all tests of the plugin."""
_NAME = "blockproof-shared"
T = TypeVar("T")


class Shared:
    """A plugin of its own, registered as soon as something of blockproof is to be tested (`shared`)."""

    def __init__(self, config: pytest.Config) -> None:
        """UsageError for an option that cannot be understood."""
        self._config = config
        self._opened: dict[str, Target] = {}
        self.target: str | None = option(config, "target") or None
        self.isolate = bool(option(config, "isolate"))
        self.out = shortest(named_path(config, "out") or config.rootpath / "findings")
        self.seconds = self._seconds()
        self.oracle: str = option(config, "oracle") or "auto"
        self._checked("oracle", lambda: oracles_named(self.oracle, self.target or "impl"))
        attention = option(config, "attention")
        self.attention = self._checked("attention", lambda: attention_named(attention) if attention else ())
        """Empty for what the target builds."""
        if self.seconds and self.target is None:
            raise pytest.UsageError("--blockproof-seconds: of what? Name it with --blockproof-target")
        self._checked("target", lambda: check_spec(self.target or "impl"))
        self.known_file = named_path(config, "known")
        self.known = self._checked("known", lambda: read_known(self.known_file) if self.known_file else ())

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

    def _seconds(self) -> float:
        given = option(self._config, "seconds") or 0
        try:
            seconds = float(given)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < float("inf"):
            raise pytest.UsageError(f"--blockproof-seconds: {given!r} is no number of seconds")
        return seconds

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
        if not ours or self.target is None or self._config.getoption("collectonly"):
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
