"""`blockproof fuzz` without its command line: run an engine, keep what it finds, and say whether that is a failure."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..findings.interruption import interrupted_by
from ..findings.oracle_names import LOCKSTEP, ORACLES
from ..findings.words import plural
from ..opening.names import ReleaseName, parsed
from ..opening.oracles import suited_and_why, suited_to
from ..opening.targets import check_spec, isolate_words
from ..page.live import LivePage
from ..reports.floors import Floors, check_floors
from ..reports.progress import progress
from ..reports.run import RunDocument
from ..reports.summary import Summary, digest_text
from ..reports.vacuity import vacuity
from ..targets.base import Target, likeness
from ..targets.family import unpatched
from ..targets.unharmed import unharmed
from ..workload.shapes import EVERY_ATTENTION, possible_attention
from .jobs import run_jobs
from .live_run import LiveRun
from .plan import DEFAULT_SECONDS, Plan
from .reproductions import KeptFinding, KeptFound, keep_all, recorded_name
from .seeded import run_engine

SLOW_OPERATIONS = 50.0
"""Operations a second; a core in Python does some thousand."""
SLOW_AFTER_S = 2.0
"""Shorter runs say nothing about how fast a target is."""


@dataclass(frozen=True)
class FuzzTask:
    """What is to be fuzzed, and how."""

    spec: str
    """Name of the target, as `--target` takes it."""
    engine: str
    """Name of one of `ENGINES`."""
    plan: Plan
    jobs: int = 1
    """Processes, each with a seed of its own."""
    isolate: bool | None = None
    """Whether the target runs in a process of its own (`opening.targets.open_target`)."""
    known_file: str = ""
    """The file that the plan's known findings come from, as the command that repeats the run names it."""


@dataclass(frozen=True)
class FuzzOutcome:
    """What came of a task."""

    done: Summary
    unmet: Sequence[str]
    """A line for each floor that was not reached."""
    repeat: str
    """The shell command that makes the same runs again."""
    every: Sequence[KeptFound] = ()
    """Everything that was kept, the worst first: more than one if the runs went on after findings."""
    floors: Floors = field(default_factory=dict)
    """What had to be reached."""

    @property
    def kept(self) -> KeptFinding | None:
        """What was kept of the worst, if anything was found."""
        return self.every[0].kept if self.every else None

    @property
    def failed(self) -> bool:
        """True if something was found or a floor was not reached."""
        return self.done.finding is not None or bool(self.unmet)

    @property
    def exit_code(self) -> int:
        """1 if it failed, 70 if blockproof itself did and nothing else was found, 130 if Ctrl-C ended it before that, 3
        if it tested nothing, else 0."""
        if self.done.finding is not None and not self.unmet:
            return self.done.finding.exit_code
        if self.failed or self.done.interrupted:
            return 1 if self.failed else 130
        return 0 if vacuity(self.done).problem is None else 3

    def document(self, verbose: bool = False) -> RunDocument:
        """What came of it, for people and machines. `verbose` as for `Finding.text`."""
        document = RunDocument.of(self.done)
        document.floors_unmet, document.repeat = [*self.unmet], self.repeat
        document.findings = [one.told(verbose) for one in self.every]
        if self.floors:
            document.floors = {name: dict(floors) for name, floors in self.floors.items()}
        if self.every:
            document.finding, document.reproduction = self.every[0].as_json(), self.every[0].kept.reproduced()
        return document

    def lines(self) -> list[str]:
        """What a person is told below the report."""
        notes = [f"note: {warning}" for warning in vacuity(self.done).warnings]
        lines = [*slow(self.done), *notes, *self.unmet, f"digest of the operations: {digest_text(self.done.drawn)}"]
        lines += [f"repeat this run: {self.repeat}"]
        return (
            [*lines, f"interrupted by {interrupted_by()} after {self.done.seconds:.0f} s"]
            if self.done.interrupted
            else lines
        )


def fuzz(
    task: FuzzTask,
    target: Target,
    out: Path,
    floors: Floors,
    say: Callable[[str], None],
    page: LivePage | None = None,
) -> FuzzOutcome:
    """Run the engine on the opened target and keep the first finding in the folder `out`.

    Progress is shown on a terminal, and `say` is told each step in a line; `page` shows it while it goes on. Ctrl-C
    ends the runs early; what they did until then is reported. TargetUnavailableError if the target cannot be started.
    """
    plan, name = task.plan, recorded_name(task.spec, target)
    done = Summary(name, task.engine, plan.seed, oracles=plan.oracles, core_name=likeness(target))
    done.allow_vacuous = plan.allow_vacuous
    say(f"fuzzing {name} under {', '.join(plan.oracles)}, engine {task.engine}, seed {plan.seed}")
    suited, why = suited_and_why(task.spec, target)
    if plan.oracles == suited != ORACLES:
        say(f"judged by {', '.join(suited)}: {why}")
    live = None if page is None else LiveRun(page, plan, floors, target, out, say)
    with unharmed():
        _run(task, target, done, live)
    unmet, repeat = check_floors(done, floors), repeat_command(task, done, target)
    every = keep_all(done, target, plan, out, say if live is None else live.also(done))
    outcome = FuzzOutcome(done, unmet, repeat, every, floors)
    if live is not None:
        live.ended(outcome.document())
    return outcome


def known_of_target(given: str | None, spec: str, oracles: Sequence[str]) -> str:
    """The target whose findings are only counted: the one that is named, else, where no model knows the mistakes of the
    release under a patch, that release; empty for none. ValueError for a name that has no known form."""
    if given is not None:
        check_spec(given)
        return given
    named = parsed(spec)
    is_patched = isinstance(named, ReleaseName) and named.patch is not None
    return unpatched(spec) if is_patched and LOCKSTEP not in oracles else ""


def slow(done: Summary) -> list[str]:
    """A line for a target that is so slow that its runs reach little; else none."""
    if done.seconds < SLOW_AFTER_S or done.rate >= SLOW_OPERATIONS or not done.operations:
        return []
    what = f"slow: {done.rate:.1f} operations a second, {plural(done.operations, 'operation')} in all"
    return [f"{what}, reach little; give more --seconds or --jobs, and look at what the target does in start and step"]


def _run(task: FuzzTask, target: Target, done: Summary, live: LiveRun | None) -> None:
    """Fill in the summary. Ctrl-C ends the runs, not the program."""
    plan = task.plan
    if live is not None:
        live.grown(done, "starting")
    with progress(plan.seconds, plan.operations) as show:

        def grown(so_far: Summary) -> None:
            show(so_far.runs, so_far.operations, so_far.seconds)
            if live is not None:
                live.grown(so_far)

        try:
            if task.jobs > 1:
                run_jobs(task.spec, done, plan, task.jobs, isolate=task.isolate, on_progress=show, live=live)
            else:
                run_engine(target, plan, done, grown)
        except KeyboardInterrupt:
            done.interrupted = True


def _is_all(plan: Plan, target: Target | None) -> bool:
    """True if the plan has all attention types that the target can have."""
    return tuple(plan.attention) == possible_attention(tuple(EVERY_ATTENTION), plan.left_out_for(target))


def repeat_command(task: FuzzTask, done: Summary, target: Target | None = None) -> str:
    """The shell command that makes the same runs again."""
    plan = task.plan
    words = ["blockproof", "fuzz", "--target", task.spec, "--seed", str(plan.seed)]
    # Operations, unlike seconds, lead to the same end on any machine; several processes share them as they come.
    limit = str(done.operations) if task.jobs == 1 and done.operations else None
    words += ["--operations", limit] if limit else ["--seconds", f"{plan.seconds or DEFAULT_SECONDS:g}"]
    words += ["--jobs", str(task.jobs)] if task.jobs > 1 else []
    words += ["--attention", ",".join(plan.attention)] if not _is_all(plan, target) else []
    words += ["--oracle", ",".join(plan.oracles)] if plan.oracles != suited_to(task.spec, target) else []
    words += ["--tensors", plan.tensors] if plan.tensors else []
    words += ["--chaos"] if plan.chaos else []
    words += ["--keep-going"] if plan.keep_going else []
    words += ["--known", task.known_file] if task.known_file else []
    usual = known_of_target(None, task.spec, plan.oracles)
    words += ["--known-of", plan.known_of] if plan.known_of != usual else []
    words += isolate_words(task.spec, task.isolate)
    words += ["--allow-vacuous"] if plan.allow_vacuous else []
    return shlex.join(words)
