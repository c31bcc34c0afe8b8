"""`blockproof fuzz-traffic`: a request log as a workload."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from .options import (
    AllowVacuousOption,
    IsolateOption,
    JsonOption,
    OracleOption,
    OutOption,
    ShrinkOption,
    TargetOption,
    as_called,
    attention_names,
    closed_after,
    document_alone,
    open_or_usage,
    oracles_or_usage,
    teller,
    usage,
)
from .outputs import folder_or_usage


def fuzz_traffic(
    context: typer.Context,
    log: Annotated[
        Path,
        typer.Argument(metavar="LOG", help="JSON lines as of Mooncake, or a .csv file of lengths (BurstGPT, Azure)."),
    ],
    target: TargetOption = "impl",
    first: Annotated[int, typer.Option(min=0, help="Number of the first request that is served.")] = 0,
    requests: Annotated[int | None, typer.Option(min=1, help="Serve so many of them; all by default.")] = None,
    attention: Annotated[str, typer.Option(help="Attention types, as in full+sliding.")] = "full",
    block_size: Annotated[int, typer.Option(min=1, max=4096, help="Tokens in a block.")] = 16,
    blocks: Annotated[
        int | None,
        typer.Option(min=1, help="Blocks of the pool; by default little more than the longest request needs."),
    ] = None,
    running: Annotated[int, typer.Option(min=1, max=1024, help="Most requests that run at once.")] = 16,
    stride: Annotated[int, typer.Option(min=1, max=4096, help="Tokens that a request samples in a step.")] = 1,
    divide: Annotated[
        int, typer.Option(min=1, max=512, help="Divide all lengths by this: prefixes stay shared as they are.")
    ] = 1,
    shared: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Of a .csv file without sessions: share that begins like an earlier one."),
    ] = 0.5,
    seed: Annotated[int, typer.Option(help="For content that is made up, of a .csv file.")] = 0,
    oracle: OracleOption = None,
    look_every: Annotated[
        int,
        typer.Option(min=1, help="In lockstep: compare the whole state once in so many operations, else outcomes."),
    ] = 1,
    shrink_seconds: ShrinkOption = 60.0,
    out: OutOption = Path("findings"),
    isolate: IsolateOption = None,
    allow_vacuous: AllowVacuousOption = False,
    as_json: JsonOption = False,
) -> None:
    """Serve the requests of a log with a small scheduler on a target, and judge every operation.

    Requests arrive at their times and share prefixes as in the log; the pool is small enough for evictions. The share
    of tokens found is shown beside that of a cache without end.

    Exits with 0 if nothing was found, 1 on a finding, 3 if the run tested nothing.
    """
    from ..engines.plan import Plan
    from ..reports.formats import show
    from ..reports.progress import progress
    from ..traffic.driver import TrafficSetting
    from ..traffic.fuzzing import TrafficTask
    from ..traffic.fuzzing import fuzz_traffic as run
    from ..traffic.logs import read_log
    from ..workload.shapes import EVERY_ATTENTION

    if len(names := attention_names(attention)) != 1:
        raise typer.BadParameter(f"--attention: one of the types, not {len(names)}; a log is served by one core")
    with usage():
        read = read_log(log, seed, shared).cut(first, requests).shortened(divide)
    setting = TrafficSetting(EVERY_ATTENTION[names[0]], block_size, blocks, running, stride=stride, divisor=divide)
    plan = Plan(seed, attention=names, shrink_seconds=shrink_seconds, allow_vacuous=allow_vacuous)
    with closed_after(open_or_usage(target, isolate)) as core, document_alone(as_json):
        with usage("--attention"):
            plan = replace(plan.possible_on(core), oracles=oracles_or_usage(oracle, target, core))
        task = TrafficTask(read, setting, names[0], plan, look_every, as_called(context))
        with progress(None, len(read.requests), ("step", "request")) as show_progress:
            outcome = run(task, core, target, folder_or_usage(out), teller(as_json), show_progress)
    if as_json:
        print(outcome.document().text())
    else:
        show(outcome.document())
        print("\n".join(outcome.lines()))
    raise typer.Exit(outcome.exit_code)
