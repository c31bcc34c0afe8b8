"""A campaign with a store, as a command runs it, and how its status is printed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .options import guarded, teller
from .outputs import tagged

if TYPE_CHECKING:
    from ..campaign.executor import Executor
    from ..campaign.settings import Settings
    from ..campaign.status import Status
    from ..campaign.store import Ended


@dataclass(frozen=True)
class Going:
    """How a campaign is to go on."""

    store: Path
    settings: "Callable[[int], Settings] | None"
    """What was asked for, by seed; None to go on as the store says."""
    seed: int | None
    """The seed that was given, if any."""
    limits: tuple[int | None, float | None]
    """In operations and seconds: of this session if there are no settings, else of all."""
    jobs: int
    corpus: bool
    as_json: bool


def run_with_store(going: Going, new_executor: "Callable[[], Executor]") -> int:
    """Go on with the campaign of a store, or begin it. Prints how it ended, and returns the exit code."""
    from ..campaign.conduct import Session, conduct, exit_code, left, opened
    from ..campaign.executor import ExecutorLostError
    from ..campaign.status import progress_line, status_of
    from ..targets.base import TargetUnavailableError

    say = teller(True)
    store = guarded(lambda: opened(going.store, going.settings, going.seed))
    remedy = f"to go on: blockproof campaign --resume {going.store}"
    try:
        say(f"campaign {going.store}: {len(store.arms)} arms, seed {store.settings.seed}")
        limits = left(store, None if going.settings else going.limits)
        session = Session(
            limits,
            corpus=going.corpus,
            say=say,
            on_progress=lambda one: say(progress_line(status_of(store.database), len(one.under_way))),
        )

        def work() -> "Ended":
            executor = new_executor()
            try:
                return conduct(store, executor, session)
            except ExecutorLostError as error:
                raise TargetUnavailableError(f"{error}; {remedy}") from None
            finally:
                executor.close()

        ended = guarded(work)
        status = status_of(store.database)
    finally:
        store.close()
    show(status, going.as_json)
    say(f"ended {ended.value}; {remedy}")
    return exit_code(status, ended)


def show(status: "Status", as_json: bool) -> None:
    """Print the status of a campaign."""
    import msgspec

    from ..campaign.status import headline, tables, verdict
    from ..reports.formats import show_tables

    if as_json:
        print(tagged("campaign-status", msgspec.to_builtins(status)))
    else:
        show_tables(headline(status), tables(status), verdict(status), bad=bool(status.there))
