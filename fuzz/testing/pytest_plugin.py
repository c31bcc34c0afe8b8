"""The pytest plugin: trace files are collected as tests, and a target is fuzzed among the other tests.

Every pytest loads it where blockproof is installed, so it imports nothing else of blockproof until one of its options
is used.
"""

import secrets
import sys
from pathlib import Path
from typing import Any

import pytest

from .pytest_options import add_options, choose_seed, chosen_seed, is_search_asked, option, trace_folders

_WORKER_SEED = "blockproof_seed"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, and the settings of the same names."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Checks what was given: a mistake ends the test run before it has begun."""
    config.addinivalue_line("markers", "blockproof: a trace that is replayed, or a target that is fuzzed")
    worker = getattr(config, "workerinput", {})
    choose_seed(config, worker[_WORKER_SEED] if _WORKER_SEED in worker else secrets.randbelow(2**32))
    if is_search_asked(config):
        from .pytest_shared import shared

        shared(config)
    if config.getoption("blockproof_traces") is not None:
        for folder in trace_folders(config):
            _look_into(folder, config)


def _look_into(folder: Path, config: pytest.Config) -> None:
    """Collect what is in this folder, whatever else is collected."""
    if not folder.exists():
        raise pytest.UsageError(f"--blockproof-traces: {folder}: no such folder; make it, or correct the path")
    roots = [Path(config.invocation_params.dir, argument.split("::")[0]).resolve() for argument in config.args]
    if not any(folder.is_relative_to(root) for root in roots):
        config.args.append(str(folder))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """The workers of pytest-xdist use the seed that the header shows."""
    node.workerinput[_WORKER_SEED] = chosen_seed(node.config)


def pytest_report_header(config: pytest.Config) -> str | None:
    """What is fuzzed, with the seed."""
    if not is_search_asked(config):
        return None
    done = "simulating" if option(config, "engine") else "fuzzing"
    return f"blockproof: {done} {option(config, 'target')}, seed {chosen_seed(config)}"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A trace: a JSON file in one of the folders, or one that was named itself while there is a target."""
    if file_path.suffix != ".json":
        return None
    config = parent.config
    named = bool(option(config, "target")) and parent.session.isinitpath(file_path)
    if not named and not any(file_path.resolve().is_relative_to(folder) for folder in trace_folders(config)):
        return None
    from .pytest_items import TraceModule

    return TraceModule.from_parent(parent, path=file_path)


@pytest.hookimpl(tryfirst=True)
def pytest_make_collect_report(collector: pytest.Collector) -> None:
    """Lets tests of findings stand in several folders: the same finding has the same name everywhere, and pytest would
    take the second file for the first one, which it has imported under this name."""
    path = collector.path
    loaded = sys.modules.get(path.stem) if isinstance(collector, pytest.Module) else None
    if loaded is None or str(getattr(loaded, "__file__", path)) == str(path):
        return
    if _is_of_a_finding(path) and _is_of_a_finding(Path(str(loaded.__file__))):
        del sys.modules[path.stem]


def _is_of_a_finding(path: Path) -> bool:
    """True for a file that `write_reproduction` has written."""
    try:
        with path.open("rb") as file:
            return b"\nFound by blockproof" in file.read(1_000)
    except OSError:
        return False


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Adds the tests that fuzz, or simulate, before any are filtered: -k and -m hold for them as well."""
    if is_search_asked(config):
        from .pytest_items import search_items

        items += search_items(session)
