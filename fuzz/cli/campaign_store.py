"""`blockproof campaign status`, `minimise` and `export`: the commands that look at the store of a campaign."""

import time
from pathlib import Path
from typing import Annotated

import typer

from .options import JsonOption, guarded, teller
from .outputs import tagged, to_folder
from .stored import show

StoreArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The store of a campaign.")]
WATCH_S = 2.0


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
        show(told, as_json)
        guarded(lambda: time.sleep(WATCH_S))
        told = guarded(lambda: read_status(store))
    show(told, as_json)
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
        print(tagged("corpus", {"before": asdict(before), "after": asdict(after)}))
        return
    for when, size in (("before", before), ("after", after)):
        kept = f"{plural(size.seeds, 'run')}, {plural(size.operations, 'operation')}, {size.bytes:,} bytes"
        print(f"{when}: {kept}, {plural(size.keys, 'key')} reached")


def export(
    store: StoreArgument,
    out: Annotated[Path, to_folder("Folder for what was found, one below it for each target.")] = Path("findings"),
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
        print(tagged("export", {"findings": found, "folder": str(out)}))
    else:
        print(f"{found:,} findings in {out}; to look at them: blockproof report {out} --open")
    raise typer.Exit(1 if found else 0)
