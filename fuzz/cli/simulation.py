"""`blockproof simulate`: an engine's whole control plane under drawn traffic, each step judged."""

from pathlib import Path
from typing import Annotated

import typer

from .options import (
    AttentionOption,
    JsonOption,
    LiveOption,
    OutOption,
    SecondsOption,
    ShrinkOption,
    guarded,
    page_of,
    seconds_or_default,
    seed_or_drawn,
    teller,
    timed_teller,
)
from .outputs import JunitOption, MarkdownOption, folder_or_usage, written


def simulate(
    target: Annotated[
        str | None, typer.Option(help="FILE.py:make_engine, package.module:make_engine, program:COMMAND or a release.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many steps of the engine.")] = None,
    seconds: SecondsOption = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same engines and traffic; drawn by default.")] = None,
    first: Annotated[int, typer.Option(min=0, help="Number of the first engine.")] = 0,
    attention: AttentionOption = "",
    option: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE: all engines have this option of theirs; repeat for more.")
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Go on behind a finding: of each kind one, until the end.")
    ] = False,
    fault: Annotated[str, typer.Option(help="Plant this mistake into the engine, to see that it is noticed.")] = "",
    shrink_seconds: ShrinkOption = 30.0,
    out: OutOption = Path("findings"),
    junit: JunitOption = None,
    write: MarkdownOption = None,
    live: LiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate an engine: its own scheduler runs; clients, device and clock are ours. Each step is judged.

    Exits with 0 if nothing was found, 1 on a finding or if too little was reached, 3 if no step ran.
    """
    from ..engines.stories import StoryTask
    from ..engines.story_fuzzing import simulate as run
    from ..engines.story_pages import with_pages
    from ..reports.formats import reports

    if target is None:
        raise typer.BadParameter("name an engine with --target, as in --target my_engine.py:make_engine")
    folder_or_usage(out)
    limit = seconds_or_default(seconds, steps)
    kinds = tuple(kind for kind in attention.split(",") if kind)
    task = StoryTask(
        seed=seed_or_drawn(seed),
        first=first,
        goes_on=keep_going,
        steps=steps,
        seconds=limit,
        options=tuple(option or ()),
        attention=kinds,
        fault=fault,
        shrink_seconds=shrink_seconds,
    )
    name = target
    with page_of(live, teller(True)) as page:
        outcome = guarded(lambda: run(name, task, out, timed_teller(), page))
    guarded(lambda: with_pages(outcome, timed_teller()))
    document = outcome.document()

    def report() -> None:
        print(document.text() if as_json else "\n".join(outcome.lines()))

    raise typer.Exit(written(outcome.exit_code, (report, *reports(document, junit, write))))
