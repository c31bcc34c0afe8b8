"""A campaign that is begun or resumed: its store, what is left of its limits, and how it counts as ended."""

import secrets
from collections.abc import Callable
from pathlib import Path

from ..engines.choice import ENGINES
from .checking import problems
from .conduct import Ended
from .database import StoreError
from .settings import Limits, Settings, joined
from .status import Status, status_of
from .store import Store


def opened(path: Path, settings: Callable[[int], Settings] | None, seed: int | None) -> Store:
    """The store of a campaign. With `settings`, by seed, a new one is begun, or one that is there goes on with them.

    A seed is drawn if none is given. StoreError if the file cannot be used, is not whole or is of another campaign.
    """
    store = Store(path, None if settings is None else settings(secrets.randbelow(2**32) if seed is None else seed))
    try:
        if wrong := problems(store.database):
            raise StoreError(f"{path}: is not whole: {wrong[0]}; take a copy that is")
        if gone := [name for name in store.settings.engines if name not in ENGINES]:
            what = "`blockproof campaign export` writes what it has found"
            raise StoreError(f"{path}: is of the engine {gone[0]}, which has gone; {what}; begin another one")
        if settings is not None:
            _go_on_with(store, settings(store.settings.seed if seed is None else seed))
    except BaseException:
        store.close()
        raise
    return store


def _go_on_with(store: Store, asked: Settings) -> None:
    try:
        wanted = joined(store.settings, asked)
    except ValueError as error:
        raise StoreError(f"{store.database.path}: {error}; leave that as it was, or name another file") from None
    store.change(wanted)


def left(store: Store, given: tuple[int | None, float | None] | None) -> Limits:
    """The limits of a session: those in operations and seconds that are `given` for it alone, if any; else what is left
    of those of the campaign."""
    operations, seconds = given or (None, None)
    if (operations, seconds) != (None, None):
        return Limits(seconds, None if operations is None else operations + store.asked_operations())
    whole = store.settings.limits
    rest = None if whole.seconds is None else max(0.0, whole.seconds - status_of(store.database).seconds)
    return Limits(rest, whole.operations)


def exit_code(status: Status, ended: Ended) -> int:
    """1 if there is a finding, 130 if Ctrl-C ended it before, 3 if nothing was or can be tested, else 0."""
    if status.there:
        return 1
    if ended is Ended.INTERRUPTED:
        return 130
    return 0 if status.operations and ended is not Ended.GIVEN_UP else 3
