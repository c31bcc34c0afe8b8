"""The options of the pytest plugin. Imports nothing of blockproof, as every pytest run loads it."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Option(NamedTuple):
    """A command-line option `--blockproof-NAME`, which is also a setting `blockproof_NAME` of the ini file."""

    name: str
    metavar: str | None
    """None for a switch."""
    help: str


OPTIONS = (
    Option("target", "TARGET", "What is tested, as `blockproof fuzz --target` takes it."),
    Option("seconds", "S", "Fuzz the target: one test for each attention type, each of so many seconds."),
    Option("engine", None, "The target is an engine to be simulated, as `blockproof simulate` takes it."),
    Option("steps", "N", "Simulate the engine for so many steps, the same on every machine."),
    Option("traces", "DIR", "Collect the trace files (*.json) in this folder, or real-bugs. May be repeated."),
    Option("oracle", "NAMES", "What judges, as `blockproof fuzz --oracle` takes it; by default what suits the target."),
    Option("attention", "NAMES", "Attention types to fuzz, such as full,full+sliding; by default all that are built."),
    Option("seed", "N", "Same seed, same runs; drawn and shown in the header by default."),
    Option("known", "FILE", "Known findings, as `blockproof fuzz --known` takes them: fuzzing goes on after these."),
    Option("out", "DIR", "Folder for what is found; by default `findings` in pytest's root folder."),
    Option("isolate", None, "Run the target in a process of its own: a crash or a hang is a failure."),
)
REAL_BUGS = "real-bugs"
"""In place of a folder, unless there is one of this name: the traces of real bugs that come with blockproof."""
SEARCHES = ("seconds", "steps")
"""Each asks for tests that look for something new."""
_SEED = pytest.StashKey[int]()


def add_options(parser: pytest.Parser) -> None:
    """Declare the options, and the settings of the same names."""
    group = parser.getgroup("blockproof", "blockproof: KV-cache cores")
    for name, metavar, what in OPTIONS:
        if metavar is None:
            group.addoption(f"--blockproof-{name}", action="store_true", default=None, help=what)
            parser.addini(f"blockproof_{name}", what, type="bool", default=False)
        elif name == "traces":
            group.addoption(f"--blockproof-{name}", metavar=metavar, action="append", help=what)
            parser.addini(f"blockproof_{name}", what, type="paths")
        else:
            group.addoption(f"--blockproof-{name}", metavar=metavar, help=what)
            parser.addini(f"blockproof_{name}", what)


def option(config: pytest.Config, name: str) -> Any:
    """The value of an option, else of the setting of that name; None or empty if neither is given."""
    given = config.getoption(f"blockproof_{name}")
    return config.getini(f"blockproof_{name}") if given is None else given


def is_search_asked(config: pytest.Config) -> bool:
    """True if there are tests that look for something new."""
    return any(option(config, name) for name in SEARCHES)


def trace_folders(config: pytest.Config) -> list[Path]:
    """The folders whose JSON files are traces, as absolute paths."""
    given = config.getoption("blockproof_traces")
    if given is None:
        return [_folder(folder, config) for folder in config.getini("blockproof_traces")]
    return [_folder(config.invocation_params.dir / folder, config) for folder in given]


def _folder(named: Path, config: pytest.Config) -> Path:
    """The absolute path of this folder, or of the real bugs if it is called so and is not there. UsageError if these
    are not installed, or there is nobody to have them."""
    if named.name != REAL_BUGS or named.exists():
        return named.resolve()
    if not option(config, "target"):
        raise pytest.UsageError(f"--blockproof-traces {REAL_BUGS}: of which core? Name it with --blockproof-target")
    from ..planning.shipped import installed_regressions

    try:
        return installed_regressions().resolve()
    except FileNotFoundError as error:
        raise pytest.UsageError(f"--blockproof-traces {REAL_BUGS}: {error}") from None


def named_path(config: pytest.Config, name: str) -> Path | None:
    """The path in an option, from the current folder; or in the setting, from pytest's root folder. None if neither."""
    if (given := config.getoption(f"blockproof_{name}")) is not None:
        return Path(config.invocation_params.dir, given)
    setting = config.getini(f"blockproof_{name}")
    return config.rootpath / setting if setting else None


def choose_seed(config: pytest.Config, drawn: int) -> None:
    """Take the seed that was given, else `drawn`. UsageError if it is no number."""
    given = option(config, "seed")
    try:
        config.stash[_SEED] = int(given) if given else drawn
    except ValueError:
        raise pytest.UsageError(f"--blockproof-seed: {given!r} is no whole number") from None


def chosen_seed(config: pytest.Config) -> int:
    """The seed of this test run, the same in every worker of pytest-xdist."""
    return config.stash[_SEED]
