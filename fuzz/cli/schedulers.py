"""`blockproof fuzz-scheduler`: random engines through a release's own scheduler, each step judged."""

from pathlib import Path
from typing import Annotated, Literal

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
from .outputs import folder_or_usage


def fuzz_scheduler(
    target: Annotated[str | None, typer.Option(help="An installed release, NAME==VERSION.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many steps of the scheduler.")] = None,
    seconds: SecondsOption = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same engines; drawn by default.")] = None,
    first: Annotated[int, typer.Option(min=0, help="Number of the first engine.")] = 0,
    connector: Annotated[
        Literal["minimal", "none"] | None, typer.Option(help="All engines have this connector; drawn by default.")
    ] = None,
    attention: AttentionOption = "",
    fault: Annotated[str, typer.Option(help="Plant this fault in each engine, to see that it is noticed.")] = "",
    shrink_seconds: ShrinkOption = 30.0,
    out: OutOption = Path("findings"),
    live: LiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Drive a release's own scheduler with random requests on a pretended device, and judge every step.

    Exits with 0 if nothing was found, 1 on a finding, known ones too, or if too little was reached, 3 if no step ran.
    """
    from ..engines.stories import StoryTask
    from ..engines.story_fuzzing import fuzz_scheduler as run

    if target is None:
        raise typer.BadParameter("name a release with --target")
    folder_or_usage(out)
    only = "" if connector == "none" else connector
    limit = seconds_or_default(seconds, steps)
    kinds = tuple(kind for kind in attention.split(",") if kind)
    task = StoryTask(seed_or_drawn(seed), first, steps, limit, only, kinds, fault, shrink_seconds)
    name = target
    with page_of(live, teller(True)) as page:
        outcome = guarded(lambda: run(name, task, out, timed_teller(), page))
    print(outcome.document().text() if as_json else "\n".join(outcome.lines()))
    raise typer.Exit(outcome.exit_code)
