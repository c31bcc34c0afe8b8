"""`blockproof campaign`: many targets under the same oracles, and a table of what was found on which; with a store for
hours or days (`stored`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..adapters import families
from .completion import target_names
from .engines import EngineOption, are_engines, not_with_engine
from .options import (
    AllowVacuousOption,
    AttentionOption,
    JsonOption,
    LiveOption,
    OracleOption,
    SeedOption,
    ShrinkOption,
    attention_names,
    guarded,
    is_auto,
    jobs_option,
    oracles_or_usage,
    page_of,
    seconds_option,
    seed_or_drawn,
    teller,
    usage,
)
from .outputs import folder_or_usage, to_file, to_folder, written
from .stored import Going, run_with_store

if TYPE_CHECKING:
    from ..campaign.settings import Settings
    from ..page.live import LivePage

DEFAULT_OPERATIONS = 200_000
DEFAULT_OUT = Path("findings")
OF_STORE = {"task_operations", "from_corpus", "ray"}
"""Options of a campaign with a store only."""
OF_ONCE = {"write", "allow_vacuous", "live"}
"""Options of a campaign without one."""
OF_RESUME = {"resume", "operations", "seconds", "jobs", "from_corpus", "ray", "as_json"}
"""All that may stand beside --resume."""
app = typer.Typer(
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
    epilog=f"Example: blockproof campaign --releases {next(iter(families()))} --jobs 2",
)


TargetsOption = Annotated[
    list[str] | None, typer.Option(help="A target; name several by repeating it.", autocompletion=target_names)
]
ReleasesOption = Annotated[str | None, typer.Option(help="All known releases of this engine, or NAME==A..B.")]
OperationsOption = Annotated[
    int | None, typer.Option(min=1, help="For each target, 200,000 if no limit is given; with a store in all.")
]
SecondsOption = Annotated[float | None, seconds_option("For each target, with a store in all")]
StoreOption = Annotated[
    Path | None,
    to_file("Go on for hours or days and keep everything in this file; the same command resumes it."),
]
ResumeOption = Annotated[
    Path | None, typer.Option(help="Go on with the campaign of this store; a limit given here is for now, not in all.")
]
TaskOption = Annotated[int | None, typer.Option(min=1, help="With a store: operations of a task; 4,000 by default.")]
CorpusOption = Annotated[
    bool, typer.Option("--from-corpus", help="With a store: replay its corpus before anything is drawn.")
]
RayOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="With a store: do its tasks on this Ray cluster, HOST:PORT of its head or auto, with as many at a time as "
        "it has cores. Needs the extra `cluster`.",
    ),
]
JobsOption = Annotated[int, jobs_option("Tasks at a time", 256)]
FolderOption = Annotated[Path, to_folder("Folder for what is found, one below it for each target.")]
WriteOption = Annotated[Path | None, to_file("Write the tables as Markdown to this file.")]


@app.callback()
def campaign(
    context: typer.Context,
    target: TargetsOption = None,
    releases: ReleasesOption = None,
    operations: OperationsOption = None,
    seconds: SecondsOption = None,
    seed: SeedOption = None,
    oracle: OracleOption = None,
    attention: AttentionOption = "all",
    jobs: JobsOption = 2,
    shrink_seconds: ShrinkOption = 10.0,
    out: FolderOption = DEFAULT_OUT,
    write: WriteOption = None,
    allow_vacuous: AllowVacuousOption = False,
    live: LiveOption = None,
    store: StoreOption = None,
    resume: ResumeOption = None,
    task_operations: TaskOption = None,
    from_corpus: CorpusOption = False,
    ray: RayOption = None,
    as_json: JsonOption = False,
    engine: EngineOption = False,
) -> None:
    """Fuzz several targets, each in a process of its own, and go on after what is found.

    Findings on a release are grouped by root cause, settled by experiment: the finding that is written up of it
    (`blockproof findings`), a known deviation, or `new`. What is new is told in full, with its trace.

    A target that cannot be started, dies, hangs or eats memory does not end the others. Exits with 1 on a finding, 3 if
    nothing could be tested or a run tested nothing, 130 if Ctrl-C ended it and nothing was found.

    A task is an attention type on a target, and all have the same share. With --store there are many, which go
    where something new still comes. It can be killed at any time; the same command or --resume goes on with it.
    With --ray the tasks are done on a cluster; one that cannot be reached, or goes away, ends the campaign with 3.
    """
    if context.invoked_subcommand is not None:
        return
    _check_options(context, store, resume)
    limits = (operations, seconds)
    asked = CampaignAsked(target or [], releases, oracle, attention, limits, seed, shrink_seconds, out, jobs, as_json)
    if resume is not None:
        raise typer.Exit(_with_store(Going(resume, None, seed, limits, jobs, from_corpus, as_json), ray))
    wanted = (_engine_settings if are_engines(asked.targets, engine) else _settings)(asked, task_operations)
    if store is not None:
        raise typer.Exit(_with_store(Going(store, wanted, seed, limits, jobs, from_corpus, as_json), ray))
    with page_of(live, teller(True)) as page:
        raise typer.Exit(_at_once(asked, wanted, write, allow_vacuous, page))


@dataclass(frozen=True)
class CampaignAsked:
    """What was asked for of any campaign."""

    targets: list[str]
    releases: str | None
    oracles: list[str] | None
    attention: str
    limits: tuple[int | None, float | None]
    """In operations, and in seconds."""
    seed: int | None
    shrink_s: float
    out: Path
    jobs: int
    as_json: bool

    def judges(self) -> dict[str, tuple[str, ...]]:
        """The oracles by target. BadParameter for a wrong name."""
        from ..opening.oracles import suited_when_asked

        suited = suited_when_asked if is_auto(self.oracles) else lambda spec: oracles_or_usage(self.oracles, spec)
        return {spec: suited(spec) for spec in _specs(self.targets, self.releases)}


def _check_options(context: typer.Context, store: Path | None, resume: Path | None) -> None:
    """BadParameter for an option that the kind of campaign has not."""
    said = {name for name in context.params if str(context.get_parameter_source(name)).endswith("COMMANDLINE")}
    if store is not None and resume is not None:
        raise typer.BadParameter("--resume: goes on with a store as it is; leave --store out")
    if {"jobs", "ray"} <= said:
        raise typer.BadParameter("--jobs: a cluster does as many tasks at a time as it has cores; leave it out")
    if resume is not None and (more := sorted(said - OF_RESUME)):
        raise typer.BadParameter(f"{_option(more[0])}: the store that --resume names says it; leave it out")
    if store is not None and (more := sorted(said & OF_ONCE)):
        raise typer.BadParameter(f"{_option(more[0])}: not with --store; see blockproof campaign status")
    if store is None and resume is None and (more := sorted(said & OF_STORE)):
        raise typer.BadParameter(f"{_option(more[0])}: only with --store or --resume")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _settings(asked: CampaignAsked, task_operations: int | None) -> "Callable[[int], Settings]":
    """The settings of a campaign with a store, by its seed. BadParameter for a wrong name."""
    from ..campaign.settings import TASK_OPERATIONS, CampaignLimits, Settings
    from ..campaign.tasks import Options
    from ..releases.findings import known_causes

    roots = tuple((tuple(sorted(ids)), name) for ids, name in known_causes().items())
    operations, seconds = asked.limits
    return partial(
        Settings,
        targets=asked.judges(),
        attention=attention_names(asked.attention),
        task_operations=task_operations or TASK_OPERATIONS,
        options=Options(roots=roots, shrink_seconds=asked.shrink_s),
        limits=CampaignLimits(seconds, operations),
        out=str(asked.out),
    )


def _engine_settings(asked: CampaignAsked, task_operations: int | None) -> "Callable[[int], Settings]":
    """The same for engines to be simulated. BadParameter for what goes with targets only."""
    from ..campaign.settings import CampaignLimits, Settings
    from ..campaign.stories import ALL, ORACLES, SIMULATION, TASK_STEPS
    from ..campaign.tasks import Options

    not_with_engine(oracle=not is_auto(asked.oracles))
    operations, seconds = asked.limits
    return partial(
        Settings,
        targets=dict.fromkeys(_specs(asked.targets, asked.releases), ORACLES),
        attention=(ALL,) if asked.attention == ALL else tuple(asked.attention.split(",")),
        engines=(SIMULATION,),
        task_operations=task_operations or TASK_STEPS,
        options=Options(shrink_seconds=asked.shrink_s),
        limits=CampaignLimits(seconds, operations),
        out=str(asked.out),
    )


def _with_store(going: Going, ray: str | None) -> int:
    from ..campaign.executor import Executor, LocalExecutor
    from ..campaign.ray_executor import RayExecutor, check_address

    if ray is not None:
        with usage("--ray"):
            check_address(ray)

    def executor() -> Executor:
        return LocalExecutor(going.jobs) if ray is None else RayExecutor(ray)

    return run_with_store(going, executor)


def _at_once(
    asked: CampaignAsked,
    wanted: "Callable[[int], Settings]",
    write: Path | None,
    allow_vacuous: bool,
    page: "LivePage | None",
) -> int:
    """The campaign without a store: each target has its share. Returns the exit code."""
    import msgspec

    from ..campaign.once import run_once, write_campaign
    from ..campaign.settings import CampaignLimits
    from ..reports.formats import reports, show

    say, settings = teller(True), wanted(seed_or_drawn(asked.seed))
    operations, seconds = asked.limits
    if operations is None and seconds is None:
        operations = DEFAULT_OPERATIONS
    for judges in dict.fromkeys(settings.targets.values()):
        judged = [spec for spec, oracles in settings.targets.items() if oracles == judges]
        say(f"{', '.join(judged)}: {', '.join(judges)}; seed {settings.seed}")
    options = msgspec.structs.replace(settings.options, at_once=True)
    shares = {"limits": CampaignLimits(), "shares": CampaignLimits(seconds, operations), "options": options}
    out = str(folder_or_usage(asked.out))
    settings = msgspec.structs.replace(settings, **shares, allow_vacuous=allow_vacuous, out=out)
    done = guarded(lambda: run_once(settings, asked.jobs, say, page))

    def tell() -> None:
        if asked.as_json:
            print(done.text())
        else:
            show(done)
            print("\n".join(done.lines()))

    def kept() -> None:
        folder = write_campaign(done, asked.out).parent
        say(f"to look at it: blockproof report {folder} --open")

    return written(done.exit_code, (tell, kept, *reports(done, None, write)))


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
