"""Which scopes are explored, from where to where, and whether what came of it is a success."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from . import checkpoint, reductions
from .faults import FAULTS
from .scope import Scope, ScopeError
from .scopes import SCOPES
from .search import EXHAUSTED, Exploration, Limits, Search
from .workers import Jobs

SAVE_EVERY_S = 10.0
"""A level is not saved sooner after the last one: small levels would otherwise cost more to save than to explore."""


def named(names: Sequence[str], fault: str | None) -> list[Scope]:
    """The scopes of these names; for none, that of the fault, or all. ScopeError for a name that there is none of."""
    if fault is not None and fault not in FAULTS:
        raise ScopeError(f"--fault: no fault is called {fault!r}; see blockproof explore --list")
    if unknown := [name for name in names if name not in SCOPES]:
        raise ScopeError(f"no scope is called {unknown[0]!r}; see blockproof explore --list")
    if fault is not None and not names:
        return [FAULTS[fault].scope]
    return [SCOPES[name] for name in names or SCOPES]


def explored(
    scope: Scope,
    fault: str | None,
    limits: Limits,
    jobs: Jobs,
    folder: Path | None,
    on_progress: Callable[[Search], None],
    write: checkpoint.Write,
) -> Exploration:
    """Explore a scope, with a planted fault if one is named; `on_progress` is told how far it is.

    With a folder the search goes on from the checkpoint that it finds there, saves itself with `write` now and then and
    at the end, and removes the file once there is nothing left to go on with. CheckpointError for a file that cannot be
    used.
    """
    if fault is not None and FAULTS[fault].found_by in reductions.CHECKS:
        return reductions.as_exploration(scope, fault)
    search = Search(scope, fault)
    path = folder / f"{scope.name}.states" if folder else None
    went_on = False
    if path is not None and path.exists():
        checkpoint.load(search, path)
        went_on = True
    saved = time.monotonic()

    def on_level(search: Search) -> None:
        nonlocal saved
        if path is not None and time.monotonic() - saved >= SAVE_EVERY_S:
            checkpoint.save(search, path, write)
            saved = time.monotonic()

    try:
        done = search.run(limits, jobs, on_progress, on_level)
    except Exception as error:
        if not went_on:
            raise
        problem = f"holds no states of this scope ({type(error).__name__}: {error}); delete it and start again"
        raise checkpoint.CheckpointError(f"{path}: {problem}") from error
    if path is not None and done.ended != EXHAUSTED and done.finding is None:
        checkpoint.save(search, path, write)
    elif path is not None:
        path.unlink(missing_ok=True)
    return done


def success(done: Sequence[Exploration], chosen: Sequence[object]) -> bool:
    """True if every chosen scope was explored and passed: all states visited, nothing found, all reached."""
    return len(done) == len(chosen) and all(each.passed for each in done)
