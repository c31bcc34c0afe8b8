"""`blockproof diff`: what changes for those who move from one target to another."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from .completion import target_names
from .engines import EngineOption, EnginesAsked, are_engines, diff_engines
from .options import (
    AttentionOption,
    JsonOption,
    SecondsOption,
    SeedOption,
    attention_names,
    open_or_usage,
    seconds_or_default,
    seed_or_drawn,
)
from .outputs import folder_or_usage, to_folder


def diff(
    target: Annotated[
        list[str], typer.Option(help="Two targets, the one that is in use first.", autocompletion=target_names)
    ],
    seconds: SecondsOption = None,
    operations: Annotated[int | None, typer.Option(min=1, help="Stop after so many; of engines, steps.")] = None,
    seed: SeedOption = None,
    attention: AttentionOption = "all",
    out: Annotated[Path, to_folder("Folder for the smallest trace of each situation.")] = Path("differences"),
    as_json: JsonOption = False,
    engine: EngineOption = False,
) -> None:
    """Run two targets against each other, without the model, and tell in which situations they behave differently.

    Half of the time each block id counts; in the other half blocks are told apart from null only, so that another order
    of eviction does not hide the rest. Exits with 0 if they behave alike, 1 if not.
    """
    from ..engines.plan import Plan
    from ..releases.diff import compare_targets
    from ..reports.formats import show
    from ..runs.pair import Pair

    if are_engines(target, engine):
        limit = seconds_or_default(seconds, operations)
        diff_engines(EnginesAsked(target, seed, limit, operations, attention, out, as_json))
    if len(target) != 2:
        raise typer.BadParameter(f"--target: name two targets to compare, not {len(target)}")
    names = attention_names(attention)
    folder_or_usage(out)
    plan = Plan(seed_or_drawn(seed), seconds_or_default(seconds, operations), operations, names)
    pair = Pair(open_or_usage(target[0]), open_or_usage(target[1]))
    print(f"{pair.name}: seed {plan.seed}", file=sys.stderr)
    try:
        differences = compare_targets(pair, plan)
        differences.keep(out, plan.seed)
    finally:
        pair.close()
    if as_json:
        print(differences.document().text())
    else:
        show(differences.document())
        for situation in differences.situations:
            print("\n" + "\n".join(situation.lines()))
    raise typer.Exit(differences.exit_code)
