"""Says at the end of a run how many slow tests it left out: nobody looks for what is not there."""

from typing import Any

import pytest

LEFT_OUT = "slow_tests_left_out"
left_out = pytest.StashKey[int]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("markexpr") == "not slow":
        config.stash[left_out] = sum(item.get_closest_marker("slow") is not None for item in items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands the number on to the process that prints."""
    answer = getattr(session.config, "workeroutput", None)
    if answer is not None:
        answer[LEFT_OUT] = session.config.stash.get(left_out, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker collects all tests, so the number of any of them is the number."""
    node.config.stash[left_out] = getattr(node, "workeroutput", {}).get(LEFT_OUT, 0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    number = config.stash.get(left_out, 0)
    if number:
        terminalreporter.write_line(f"{number} slow tests were left out; make test-all runs them too")
