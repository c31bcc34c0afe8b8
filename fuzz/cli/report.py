"""`blockproof report`: a page to look at, of a trace, a run or a campaign."""

import json
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from .completion import target_names
from .options import (
    PATIENCE_S,
    FloorsOption,
    IsolateOption,
    JsonOption,
    OracleOption,
    PatienceOption,
    guarded,
    is_auto,
    teller,
)
from .outputs import to_file


def report(
    what: Annotated[
        Path,
        typer.Argument(help="A trace; the JSON of a command, as fuzz --json prints it; a campaign; a folder."),
    ],
    out: Annotated[Path | None, to_file("The page; beside WHAT by default.", "--out", "-o")] = None,
    beside: Annotated[
        list[Path] | None, typer.Option("--with", help="Another report, shown in the same page; may be repeated.")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="Which target; the one in the trace by default. Twice: both side by side, without the model.",
            autocompletion=target_names,
        ),
    ] = None,
    oracle: OracleOption = None,
    model_alone: Annotated[bool, typer.Option("--model", help="Start no target: the model alone is shown.")] = False,
    floors: FloorsOption = None,
    before: Annotated[
        Path | None, typer.Option(help="An older campaign, its folder or JSON: what is otherwise since then.")
    ] = None,
    isolate: IsolateOption = None,
    seconds: PatienceOption = PATIENCE_S,
    open_it: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write one HTML file that shows a trace step by step, a run or a campaign. It opens without a network.

    Traces are applied again to the target that they name; where that cannot be started, the model alone is shown. Exits
    with 0, whatever was found.
    """
    from ..engines.story_pages import document_of_story
    from ..page.files import TraceSettings, document_of, encoded, is_page, joined
    from ..page.html import write_page
    from ..reports.floors import read_floors

    if len(target or ()) > 2:
        raise typer.BadParameter("--target: name one target, or two to be shown side by side")
    named: list[str | None] = [None, None, *(target or [])]
    first, second = named[-2:]
    tell = teller(as_json)
    if open_it and what.is_file() and is_page(what.read_bytes()[:200]):
        print(json.dumps({"page": str(what)}) if as_json else f"page: {what}, which is one already")
        webbrowser.open(what.resolve().as_uri())
        return
    names = None if is_auto(oracle) else oracle
    wanted_floors = read_floors(floors) if floors else None
    with TraceSettings(second, first, names, isolate, model_alone, tell, seconds, document_of_story) as wanted:
        document = guarded(
            lambda: joined(
                document_of(what, wanted, wanted_floors, before), [document_of(one, wanted) for one in beside or ()]
            )
        )
    if as_json and out is None:
        print(encoded(document).decode())
        return
    path = out or what.with_name(f"{what.stem or what.resolve().name}.html")
    guarded(lambda: write_page(document, path))
    print(json.dumps({"page": str(path)}) if as_json else f"page: {path}")
    if open_it:
        webbrowser.open(path.resolve().as_uri())
