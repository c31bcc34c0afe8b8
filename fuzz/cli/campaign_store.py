"""`blockproof campaign` with a store: the campaign of hours or days, and the commands that look at its file."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption, guarded, seed_or_drawn, teller

if TYPE_CHECKING:
    from ..campaign.conduct import Conductor, Ended
    from ..campaign.executor import Executor
    from ..campaign.settings import Limits, Settings
    from ..campaign.status import Status
    from ..campaign.store import Store

StoreArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The store of a campaign.")]
WATCH_S = 2.0


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
    from ..campaign.conduct import Session, conduct
    from ..campaign.executor import ExecutorLostError
    from ..campaign.status import status_of
    from ..campaign.telling import progress_line
    from ..targets.base import TargetUnavailableError

    say = teller(True)
    store = guarded(lambda: _opened(going))
    try:
        say(f"campaign {going.store}: {len(store.arms)} arms, seed {store.settings.seed}")

        def progress(conductor: "Conductor") -> None:
            say(progress_line(status_of(store.database), len(conductor.under_way)))

        session = Session(_left(store, going), corpus=going.corpus, say=say, on_progress=progress)

        def work() -> "Ended":
            executor = new_executor()
            try:
                return conduct(store, executor, session)
            except ExecutorLostError as error:
                raise TargetUnavailableError(f"{error}; to go on: blockproof campaign --resume {going.store}") from None
            finally:
                executor.close()

        ended = guarded(work)
        status = status_of(store.database)
    finally:
        store.close()
    _show(status, going.as_json)
    say(f"ended {ended.value}; to go on: blockproof campaign --resume {going.store}")
    return _exit_code(status, ended)


def _opened(going: Going) -> "Store":
    """The store, with the settings that were asked for. ValueError if it is that of another campaign."""
    from ..campaign.checking import problems
    from ..campaign.database import StoreError
    from ..campaign.settings import joined
    from ..campaign.store import Store

    store = Store(going.store, None if going.settings is None else going.settings(seed_or_drawn(going.seed)))
    try:
        if wrong := problems(store.database):
            raise StoreError(f"{going.store}: is not whole: {wrong[0]}; take a copy that is")
        if going.settings is not None:
            asked = going.settings(store.settings.seed if going.seed is None else going.seed)
            try:
                store.change(joined(store.settings, asked))
            except StoreError:
                raise
            except ValueError as error:
                raise StoreError(f"{going.store}: {error}; leave that as it was, or name another file") from None
    except BaseException:
        store.close()
        raise
    return store


def _left(store: "Store", going: Going) -> "Limits":
    """The limits of this session: what is left of those of the campaign, or those that were given for it alone."""
    from ..campaign.settings import Limits
    from ..campaign.status import status_of

    (operations, seconds), whole = going.limits, store.settings.limits
    if going.settings is None and (operations, seconds) != (None, None):
        return Limits(seconds, None if operations is None else operations + store.asked_operations())
    seconds = None if whole.seconds is None else max(0.0, whole.seconds - status_of(store.database).seconds)
    return Limits(seconds, whole.operations)


def _exit_code(status: "Status", ended: "Ended") -> int:
    from ..campaign.conduct import Ended

    if status.there:
        return 1
    if ended is Ended.INTERRUPTED:
        return 130
    return 0 if status.operations and ended is not Ended.GIVEN_UP else 3


def _show(status: "Status", as_json: bool) -> None:
    import msgspec

    from ..campaign import telling
    from ..reports.tables import show_sections

    if as_json:
        print(json.dumps(msgspec.to_builtins(status), indent=2))
    else:
        show_sections(telling.headline(status), telling.tables(status), telling.verdict(status), bad=bool(status.there))


def status(
    store: StoreArgument,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every two seconds, until it ends.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show how far a campaign is: time, tasks, operations a second, the last new finding, each arm's share and yield.

    The campaign may run meanwhile. Exits with 1 if something was found, 3 if nothing was tested.
    """
    from rich.console import Console

    from ..campaign.status import read_status

    told = guarded(lambda: read_status(store))
    while watch and told.running:
        if not as_json:
            Console().clear()
        _show(told, as_json)
        guarded(lambda: time.sleep(WATCH_S))
        told = guarded(lambda: read_status(store))
    _show(told, as_json)
    raise typer.Exit(1 if told.there else 0 if told.operations else 3)


def minimise(store: StoreArgument, as_json: JsonOption = False) -> None:
    """Make the corpus of a campaign small: keep the fewest runs that reach all that the whole corpus reaches."""
    from dataclasses import asdict

    from ..campaign.minimise import minimise as made_small
    from ..campaign.store import Store
    from ..findings.words import plural

    opened = guarded(lambda: Store(store))
    try:
        before, after = guarded(lambda: made_small(opened.database))
    finally:
        opened.close()
    if as_json:
        print(json.dumps({"before": asdict(before), "after": asdict(after)}, indent=2))
        return
    for when, size in (("before", before), ("after", after)):
        kept = f"{plural(size.seeds, 'run')}, {plural(size.operations, 'operation')}, {size.bytes:,} bytes"
        print(f"{when}: {kept}, {plural(size.keys, 'key')} reached")


def export(
    store: StoreArgument,
    out: Annotated[Path, typer.Option(help="Folder for what was found, one below it for each target.")] = Path(
        "findings"
    ),
    pages: Annotated[bool, typer.Option(help="Write the page of each as well, for which it is replayed.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Write what a campaign has found: traces, tests, pages, and the JSON that `blockproof report` makes a page of.

    Exits with 1 if there is something.
    """
    from ..campaign.database import Database
    from ..campaign.exporting import export as written

    say = teller(True)

    def work() -> int:
        database = Database(store, write=False)
        try:
            return written(database, out, pages, say)
        finally:
            database.close()

    found = guarded(work)
    if as_json:
        print(json.dumps({"findings": found, "folder": str(out)}, indent=2))
    else:
        print(f"{found:,} findings in {out}; to look at them: blockproof report {out} --open")
    raise typer.Exit(1 if found else 0)
