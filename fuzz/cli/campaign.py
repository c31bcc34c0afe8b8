"""`blockproof campaign`: many targets under the same oracles, and a table of what was found on which."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .completion import target_names
from .options import (
    AllowVacuousOption,
    AttentionOption,
    JsonOption,
    OracleOption,
    PortOption,
    SeedOption,
    ServeOption,
    attention_names,
    is_auto,
    oracles_or_usage,
    seed_or_drawn,
    served,
    teller,
    usage,
)

if TYPE_CHECKING:
    from ..releases.campaign import Row

DEFAULT_OPERATIONS = 200_000


def campaign(
    target: Annotated[
        list[str] | None,
        typer.Option(help="A target; name several by repeating it.", autocompletion=target_names),
    ] = None,
    releases: Annotated[str | None, typer.Option(help="All known releases of this engine, or NAME==A..B.")] = None,
    operations: Annotated[
        int | None, typer.Option(min=1, help="For each target; 200,000 if no limit is given.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(min=0.0, help="For each target.")] = None,
    seed: SeedOption = None,
    oracle: OracleOption = None,
    attention: AttentionOption = "all",
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Targets at a time.")] = 2,
    shrink_seconds: Annotated[float, typer.Option(min=0.0, help="For the trace of each finding.")] = 10.0,
    out: Annotated[Path, typer.Option(help="Folder for what is found, one below it for each target.")] = Path(
        "findings"
    ),
    summary: Annotated[Path | None, typer.Option(help="Write the tables as Markdown to this file.")] = None,
    allow_vacuous: AllowVacuousOption = False,
    serve: ServeOption = False,
    port: PortOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fuzz several targets, each in a process of its own, and go on after what is found.

    Findings on a release are grouped by root cause, settled by experiment: the finding that is written up of it
    (`blockproof findings`), a known deviation, or `new`. What is new is told in full, with its trace.

    A target that cannot be started, dies, hangs or eats memory does not end the others. Exits with 1 on a finding, 3 if
    nothing could be tested or a run tested nothing, 130 if Ctrl-C ended it and nothing was found.
    """
    from ..engines.plan import Plan
    from ..opening.oracles import suited_when_asked
    from ..releases import campaign_report as report
    from ..releases.campaign import Orders, Row, run_by_oracles
    from ..releases.findings import known_causes
    from ..releases.live_campaign import LiveCampaign
    from ..reports.progress import steps

    specs = _specs(target or [], releases)
    names = attention_names(attention)
    if operations is None and seconds is None:
        operations = DEFAULT_OPERATIONS
    suited = suited_when_asked if is_auto(oracle) else lambda spec: oracles_or_usage(oracle, spec)
    judges = {spec: suited(spec) for spec in specs}
    plan = Plan(seed_or_drawn(seed), seconds, operations, names, allow_vacuous=allow_vacuous, roots=known_causes())
    orders, say = Orders(plan, shrink_seconds), teller(True)
    with served(serve, port, say) as page, steps(len(specs), "target") as show:
        ended: set[str] = set()
        whole, live = report.KeptWhole(out, orders.plan.seed), LiveCampaign(page, specs, orders, out, say)

        def changed(row: Row) -> None:
            whole.keep(row)
            ended.update([row.target] if row.done or row.problem else [])
            show(len(ended), row.target)
            say(report.progress_line(row))
            live.changed(row)

        rows = run_by_oracles(judges, orders, jobs, say, changed, live.grown if serve else None)
        report.keep_findings(rows, out, orders.plan.seed)
        folder = report.write_campaign(rows, out).parent
        live.ended(rows)
    say(f"to look at it: blockproof report {folder} --open")
    if summary is not None:
        report.write_page(rows, names, summary)
    raise typer.Exit(_tell(rows, names, as_json))


def _tell(rows: "list[Row]", names: tuple[str, ...], as_json: bool) -> int:
    """Print what came of it. Returns the exit code."""
    from ..releases import campaign_report as report
    from ..reports.tables import show_sections

    code = report.exit_code(rows)
    if as_json:
        print(json.dumps(report.as_json(rows), indent=2))
    else:
        show_sections(report.headline(rows), report.tables(rows, names), report.verdict(rows), bad=code == 1)
        print("\n".join(report.lines(rows)))
    return code


def _specs(targets: list[str], releases: str | None) -> list[str]:
    """Names of all targets, each once. BadParameter for a wrong one, or if there is none."""
    from ..opening.targets import check_spec
    from ..releases.versions import named_targets

    with usage():
        specs = named_targets(targets, releases)
        for spec in specs:
            check_spec(spec)
    if not specs:
        raise typer.BadParameter("no target: add --target or --releases")
    return specs
