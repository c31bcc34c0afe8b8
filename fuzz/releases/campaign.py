"""Many targets, each under the same oracles: what was run on each, and what was found.

Every target has a process of its own, and where that can be a child that holds the core. A target that is killed, hangs
or eats memory costs its own time only: what it was lost over is a finding, and the campaign goes on with the rest.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..engines.plan import Plan
from ..engines.root_causes import small_of
from ..engines.seeded import is_given_up, run_engine
from ..findings.finding import Finding, Trace
from ..findings.oracle_names import without
from ..findings.words import plural, trace_lines
from ..opening.process import ChildLimits
from ..opening.targets import open_target
from ..opening.workers import Desk, Pool, WorkerError
from ..page.trace_page import document_beside
from ..reports.document import TraceDocument
from ..reports.progress import Pace
from ..reports.summary import Found, Summary
from ..reports.vacuity import Vacuity, vacuity
from ..targets.base import Target, TargetUnavailableError, close_target
from ..traces.judges import Judges
from ..traces.reproduction import Reproduction
from ..traces.trace_file import FoundWhat, TraceFile


@dataclass(frozen=True)
class KeptOnTarget:
    """A finding on one target, with its smallest trace."""

    finding: Finding
    trace: Trace
    attention: str
    """Name of the attention types whose runs showed it."""
    times: int
    """How many of their runs showed it."""
    complete: bool
    """False if a shorter trace may exist."""
    oracles: tuple[str, ...] = ()
    """What shows it."""
    root: str = ""
    """Its root cause: the finding that is written up of it, a known deviation, or `new`; empty if nobody has asked."""
    settled: int = 0
    """For how many of its runs that was settled by experiment; the others were taken to be alike."""
    files: Reproduction | None = None
    """Where it was written."""
    document: TraceDocument | None = None
    """What its page shows, if that could be made."""
    page: Path | None = None
    """Where its page was written."""

    def lines(self) -> list[str]:
        """The trace, what it shows and where the files are, for a person."""
        length = plural(len(self.trace.operations), "operation")
        early = "" if self.complete else "; it may get shorter"
        lines = [f"{length}{early}", *trace_lines(self.trace.shape, self.trace.operations), "", str(self.finding)]
        if self.files is None:
            return lines
        return [*lines, "", *(f"{name}: {text}" for name, text in self.named().items())]

    def named(self) -> dict[str, str]:
        """Its files and the command that repeats it, as texts, by name; empty before they are written."""
        page = {"page": str(self.page)} if self.page else {}
        return {} if self.files is None else {**self.files.named(), **page}


@dataclass
class CampaignResult:
    """What a campaign did with one target."""

    target: str
    cells: dict[str, Summary] = field(default_factory=dict)
    """By the name of the attention types."""
    kept: list[KeptOnTarget] = field(default_factory=list)
    problem: str = ""
    """Why it did not come to its end: it could not be started, or its process was lost. Empty if it did."""
    done: bool = False
    interrupted: bool = False
    """True if Ctrl-C ended it."""
    attention: tuple[str, ...] = ()
    """The names of the attention types that were asked for."""

    @property
    def operations(self) -> int:
        """Over all cells."""
        return sum(cell.operations for cell in self.cells.values())

    @property
    def vacuity(self) -> Vacuity:
        """Whether all cells together tested anything; of a target that had a problem that is not asked."""
        if self.problem or not self.cells:
            return Vacuity(None)
        whole = Summary(self.target, "random", 0)
        for cell in self.cells.values():
            whole.merge(cell)
            whole.allow_vacuous |= cell.allow_vacuous
        whole.interrupted |= self.interrupted
        return vacuity(whole)

    @property
    def seconds(self) -> float:
        """Over all cells."""
        return sum(cell.seconds for cell in self.cells.values())


@dataclass(frozen=True)
class Orders:
    """What to do with each target."""

    plan: Plan
    """`operations` and `seconds` are for each target, and shared among its attention types."""
    shrink_s: float = 10.0
    """How long each finding is shrunk at most."""
    deadline_s: float = ChildLimits.operation_s
    """How long a target may take for an operation."""
    growth_bytes: int = ChildLimits.growth_bytes
    """How much its resident memory may grow."""
    tells: bool = False
    """True if each target also tells now and then how far it is."""

    def of_cell(self, name: str, operations: int | None, seed: int) -> Plan:
        """The plan for an attention type, with so many operations."""
        seconds = None if self.plan.seconds is None else self.plan.seconds / len(self.plan.attention)
        return replace(self.plan, attention=(name,), operations=operations, seconds=seconds, seed=seed, keep_going=True)


OnRow = Callable[[CampaignResult], None]


def run_by_oracles(
    oracles: Mapping[str, tuple[str, ...]],
    orders: Orders,
    jobs: int,
    say: Callable[[str], None],
    on_change: OnRow,
    on_growth: OnRow | None = None,
) -> list[CampaignResult]:
    """Run a campaign for all targets that are judged by the same oracles, after that for the next ones.

    `oracles` are by target; targets with an exact model may be judged by other ones. `say` is told in a line what
    begins; the rest is as for `run_campaign`.
    """
    rows: list[CampaignResult] = []
    for chosen in dict.fromkeys(oracles.values()):
        specs = [spec for spec, judges in oracles.items() if judges == chosen]
        say(f"{', '.join(specs)}: {', '.join(chosen)}; seed {orders.plan.seed}")
        own = replace(orders, plan=replace(orders.plan, oracles=chosen))
        rows += run_campaign(specs, own, jobs, on_change, on_growth)
    return rows


def run_campaign(
    specs: Sequence[str], orders: Orders, jobs: int, on_change: OnRow, on_growth: OnRow | None = None
) -> list[CampaignResult]:
    """Run all targets, `jobs` at a time. `on_change` is told whenever a row has come to something, `on_growth` now and
    then how far a row is. Ctrl-C ends it early.

    The rows come back in the order of `specs`; one that Ctrl-C has cut short is not `done`.
    """
    rows = [CampaignResult(spec, attention=tuple(orders.plan.attention)) for spec in specs]
    orders = replace(orders, tells=on_growth is not None)
    with Pool(_work, jobs) as pool:
        try:
            for number, row in enumerate(rows):
                pool.submit(number, (row.target, orders))
            while pool.busy:
                for number, said, over in pool.events():
                    row = rows[number]
                    if isinstance(said, _SoFar):
                        row.cells[said.name] = said.cell
                        if on_growth is not None:
                            on_growth(row)
                        continue
                    _take(row, said, over)
                    on_change(row)
        except KeyboardInterrupt:
            for row in rows:
                row.interrupted = not row.done and not row.problem
    for row in rows:
        if not row.done:  # what its process has found has not been shrunk
            row.kept = as_they_are(row, orders)
    return rows


def _take(row: CampaignResult, said: Any, over: bool) -> None:
    """Take into the row what was told of it."""
    if not over:
        name, cell = said
        row.cells[name] = cell
    elif isinstance(said, WorkerError):
        row.problem = f"this is a bug of blockproof: {said}"
    elif isinstance(said, Exception):
        row.problem = str(said)
    else:
        row.kept, row.done = said, True


def as_they_are(row: CampaignResult, orders: Orders) -> list[KeptOnTarget]:
    """What was found on a target, with the traces of its runs."""
    return [_as_it_is(name, found, orders) for name, cell in row.cells.items() for found in cell.ranked()]


@dataclass(frozen=True)
class _SoFar:
    """How far an attention type is."""

    name: str
    cell: Summary


def _work(given: tuple[str, Orders], desk: Desk) -> list[KeptOnTarget]:
    """What is done with a target: each cell is told, and at the end returned what was kept."""
    spec, orders = given
    target = open_target(spec, isolate=True, deadline_s=orders.deadline_s, growth_bytes=orders.growth_bytes)
    try:
        return _run_all(desk, target, _possible(orders, target))
    finally:
        close_target(target)


def _possible(orders: Orders, target: Target) -> Orders:
    """The orders with the attention types that the target can have. TargetUnavailableError if there are none."""
    try:
        return replace(orders, plan=orders.plan.possible_on(target))
    except ValueError as error:
        raise TargetUnavailableError(str(error)) from error


def _run_all(desk: Desk, target: Target, orders: Orders) -> list[KeptOnTarget]:
    """Every attention type has its share; what those leave over that cannot be built goes to the others."""
    plan, cells = orders.plan, {}
    share = None if plan.operations is None else -(-plan.operations // len(plan.attention))
    for name in plan.attention:
        own, pace = orders.of_cell(name, share, plan.seed), Pace() if orders.tells else None
        cells[name] = _run_cell(target, own, desk, pace)
        desk.tell((name, cells[name]))
    useful = [name for name, cell in cells.items() if cell.operations and not is_given_up(cell)]
    missing = (plan.operations or 0) - sum(cell.operations for cell in cells.values())
    for name in useful if missing > 0 else ():
        more = _run_cell(target, orders.of_cell(name, -(-missing // len(useful)), plan.seed + 1))
        cells[name].merge(more, later=True)
        desk.tell((name, cells[name]))
    return [_shrunk(name, found, target, orders) for name, cell in cells.items() for found in cell.ranked()]


def _run_cell(target: Target, plan: Plan, desk: Desk | None = None, pace: Pace | None = None) -> Summary:
    """Runs of an attention type. What is found is told at once, if somebody is to know: this process may be killed. How
    far they are is told at this pace.
    """
    told = 0

    def tell(summary: Summary) -> None:
        nonlocal told
        if desk is not None and len(summary.found) > told:
            told = len(summary.found)
            desk.tell((plan.attention[0], summary))
        elif desk is not None and pace is not None and pace.due:
            with pace.telling():
                desk.tell(_SoFar(plan.attention[0], summary))

    summary = Summary(target.name, "random", plan.seed, oracles=plan.oracles, allow_vacuous=plan.allow_vacuous)
    return run_engine(target, plan, summary, tell)


def _shrunk(name: str, found: Found, target: Target, orders: Orders) -> KeptOnTarget:
    shown = small_of(found, target, orders.plan, orders.shrink_s)
    if shown is None:
        return _as_it_is(name, found, orders)
    small, oracles = shown
    file = TraceFile(small.trace, target.name, FoundWhat.of(small.finding))
    document = document_beside(file, target, Judges(oracles, "as in the campaign"))
    kept = KeptOnTarget(
        small.finding, small.trace, name, found.times, small.complete, oracles, found.root, found.settled
    )
    return replace(kept, document=document)


def _as_it_is(name: str, found: Found, orders: Orders) -> KeptOnTarget:
    """The finding with the trace of its run."""
    oracles = without(orders.plan.oracles, found.passed)
    return KeptOnTarget(found.finding, found.trace, name, found.times, False, oracles, found.root, found.settled)
