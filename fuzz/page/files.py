"""From what a user names to a document: a trace file, the JSON of a command, a folder of traces; several for a page."""

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from ..findings.oracle_names import TARGET
from ..findings.words import plural
from ..opening.oracles import oracles_named
from ..opening.targets import open_target
from ..reports.campaign import CampaignDocument
from ..reports.detection import DetectionDocument
from ..reports.difference import DifferenceDocument
from ..reports.document import (
    MOST_TRACES,
    VERSION,
    Document,
    FoundCard,
    ReportDocument,
    ResultDocument,
    TraceDocument,
)
from ..reports.exploration import ExplorationDocument
from ..reports.faults import FaultsDocument
from ..reports.floors import Floors
from ..reports.run import RunDocument
from ..reports.scaling import ScalingDocument
from ..reports.scheduler import SchedulerDocument
from ..reports.story import StoryDocument
from ..reports.theorems import ChangeDocument, TheoremsDocument
from ..targets.base import Target, TargetUnavailableError, close_target
from ..traces.files import STORY, Form, TraceError, decode, other_form, read_file
from ..traces.judges import judges_for
from ..traces.reproduction import replay_command
from ..traces.trace_file import FORM as TRACE
from ..traces.trace_file import TraceFile, load_trace, read_trace
from .html import PageError
from .trace_document import trace_document

CAMPAIGN_FILE = "campaign.json"
"""What `campaign` writes into its folder."""
TAG = "document"
"""The field of a JSON that says what it is."""
RESULTS: Mapping[str, type[ResultDocument]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        RunDocument,
        SchedulerDocument,
        CampaignDocument,
        ExplorationDocument,
        ChangeDocument,
        TheoremsDocument,
        FaultsDocument,
        DifferenceDocument,
        ScalingDocument,
        DetectionDocument,
    )
}
"""What has a page, by its tag."""
MADE_BY = (
    "`fuzz`, `simulate`, `explore`, `verify`, `prove`, `mutants` or `diff` with --json, `bench --scaling` with "
    "--json, or `campaign`"
)
FORM = Form("report", MADE_BY, TAG, 0)


@dataclass
class TraceSettings:
    """How traces are applied; to be closed, since targets stay open between traces."""

    target: str | None = None
    """The one that the user names; by default that of each trace."""
    compared_with: str | None = None
    """A target to be shown beside it in place of the model; by default the one that a trace of a difference names."""
    oracles: Sequence[str] | None = None
    """As the user has written them; by default those of each trace."""
    isolate: bool | None = None
    model_alone: bool = False
    """True if no target is to be started."""
    say: Callable[[str], None] = print
    """Told why a target was not run, a line each."""
    seconds: float | None = None
    """Processor time for all traces together; a trace for which none is left is given up (TraceError)."""
    tell_story: Callable[[Path, str | None], StoryDocument] | None = None
    """Runs a story again, on the target that is named, and says what its page shows (`engines.story_pages`)."""
    _begin: float = field(default_factory=time.process_time)
    _open: dict[str, Target] = field(default_factory=dict)
    _refused: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> "TraceSettings":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for target in self._open.values():
            close_target(target)
        self._open.clear()

    def core(self, spec: str, isolate: bool | None = None) -> Target:
        """The target of this name, opened once. Errors as from `open_target`."""
        if spec in self._refused:
            raise TargetUnavailableError(self._refused[spec])
        if spec not in self._open:
            try:
                self._open[spec] = open_target(spec, isolate=isolate or self.isolate)
            except TargetUnavailableError as error:
                self._refused[spec] = str(error)
                raise
        return self._open[spec]

    def left(self) -> float | None:
        """How much of the time is left; None without a limit."""
        return None if self.seconds is None else max(0.0, self.seconds - (time.process_time() - self._begin))

    def drop(self, spec: str) -> None:
        """The target is lost: open it again when it is needed."""
        if spec in self._open:
            close_target(self._open.pop(spec))


def before_name(path: Path) -> str:
    """Where the report of the campaign before the one in this file lies, beside it."""
    return f"{path.stem}-before.json"


def is_foreign(spec: str) -> bool:
    """True if the name stands for somebody's code: a file alone must not run code."""
    return ":" in spec and not spec.startswith("fault:")


def trace_page(file: TraceFile, path: Path, wanted: TraceSettings) -> TraceDocument:
    """The document of a trace. Without its target, which may not be installed, the model alone goes through it.

    TargetUnavailableError and ValueError only for a target that the user has named.
    """
    spec = wanted.target or file.target
    why = "no target was asked for" if wanted.model_alone else ""
    if not why and wanted.target is None and is_foreign(spec):
        why = f"the trace was made with {spec!r}; if you trust that code, add --target {shlex.quote(spec)}"
    if not why:
        try:
            return _on_pair(file, spec, path, wanted) or _on_target(file, spec, path, wanted)
        except (TargetUnavailableError, ValueError) as error:
            if wanted.target is not None:
                raise
            why = str(error)
    wanted.say(f"{path}: the model alone is shown: {why}")
    note = f"{file.target} was not run: {why}."
    document = trace_document(file, None, None, path.name, notes=[note], seconds=wanted.left())
    document.command = replay_command(path, file.target)
    return document


def pair_command(trace: Path, targets: tuple[str, str]) -> str:
    """The shell command that shows a trace on two targets side by side."""
    named = [word for target in targets for word in ("--target", target)]
    return shlex.join(["blockproof", "report", str(trace), *named])


def _on_pair(file: TraceFile, spec: str, path: Path, wanted: TraceSettings) -> TraceDocument | None:
    """The trace on two targets side by side; None if there is no second one, or it is not to be had.

    TargetUnavailableError and ValueError only for a target that the user has named.
    """
    first = wanted.compared_with or (file.compared_with if wanted.target is None else None)
    if first is None or first == spec:
        return None
    if wanted.compared_with is None and is_foreign(first):
        both = f"--target {shlex.quote(first)} --target {shlex.quote(spec)}"
        wanted.say(f"{path}: shown without {first!r}; if you trust that code, name both: {both}")
        return None
    try:
        other = wanted.core(first)
    except (TargetUnavailableError, ValueError) as error:
        if wanted.compared_with is not None:
            raise
        wanted.say(f"{path}: shown without {first}: {error}")
        return None
    second = wanted.core(spec, file.lost_its_target)
    document = trace_document(file, second, None, path.name, other=other, seconds=wanted.left())
    document.command = pair_command(path, (first, spec))
    return document


def _on_target(file: TraceFile, spec: str, path: Path, wanted: TraceSettings) -> TraceDocument:
    core = wanted.core(spec, file.lost_its_target)
    given = () if wanted.oracles is None else oracles_named(wanted.oracles, spec, core)
    judges = judges_for(file, lambda: oracles_named(None, spec, core), given)
    document = trace_document(file, core, judges, path.name, seconds=wanted.left())
    document.command = replay_command(path, spec)
    if document.verdict.oracle == TARGET:
        wanted.drop(spec)
    return document


def document_of(
    path: Path, wanted: TraceSettings, floors: Floors | None = None, before: Path | None = None
) -> Document:
    """What a page of this file or folder shows; `before` is another campaign, to hold this one against.

    TraceError if it is of no known kind, ChartError if its numbers contradict each other.
    """
    kept = path / CAMPAIGN_FILE
    if before is None and path.is_dir() and not kept.is_file():
        return _of_folder(path, wanted)
    if path.is_dir():
        path = kept
    data = read_file(path, FORM)
    if is_page(data):
        raise TraceError(str(path), "", PAGE_ALREADY)
    if before is None and other_form(path) == STORY:
        return _of_story(path, wanted)
    if before is None and is_trace(data, str(path)):
        return trace_page(load_trace(data, str(path)), path, wanted)
    done = result_in(data, str(path))
    if isinstance(done, CampaignDocument):
        return _of_campaign(done, path, wanted, before)
    if before is not None:
        raise TraceError(str(path), "", "is no campaign; only campaigns are held against one another")
    if floors is not None and isinstance(done, RunDocument):
        done.floors = {name: dict(table) for name, table in floors.items()}
    return _with_traces(done.report(path.name), path.parent, wanted)


def _of_story(path: Path, wanted: TraceSettings) -> StoryDocument:
    """The story of an engine, run again. TraceError also where nobody can do that, or one engine is not all."""
    if wanted.model_alone or wanted.compared_with is not None or wanted.tell_story is None:
        raise TraceError(str(path), "", "is a story, which one engine is shown in; name one with --target")
    return wanted.tell_story(path, wanted.target)


PAGE_ALREADY = "is a page already: open it in a browser, or let --open do it"


def is_page(data: bytes) -> bool:
    """True for what `report` has written, or any other page."""
    return data[:200].lstrip().lower().startswith((b"<!doctype html", b"<html"))


def is_trace(data: bytes, source: str) -> bool:
    """True for what has the version of a trace in it. TraceError if it is no JSON."""
    raw = decode(data, object, FORM, source)
    return isinstance(raw, dict) and TRACE.version_field in raw and TAG not in raw


def result_in(data: bytes, source: str) -> ResultDocument:
    """What a command came to, as it has printed it. TraceError if it is of no known kind, or does not say of which."""
    raw: Any = decode(data, object, FORM, source)
    tag = raw.get(TAG) if isinstance(raw, dict) else None
    if not isinstance(tag, str):
        problem = (
            f"has no field `{TAG}` that says what it is: make it again with this version ({MADE_BY}), or name a trace"
        )
        raise TraceError(source, "", problem)
    if tag not in RESULTS:
        raise TraceError(source, "", f"is of the kind {tag!r}, which has no page; there are pages of {MADE_BY}")
    return decode(data, RESULTS[tag], FORM, source)


def _of_campaign(done: CampaignDocument, path: Path, wanted: TraceSettings, before: Path | None) -> ReportDocument:
    """The campaign of a file; by default it is held against the one that was in its folder before it."""
    older = before or path.with_name(before_name(path))
    older = older / CAMPAIGN_FILE if older.is_dir() else older
    last = None
    with suppress(TraceError, OSError) if before is None else nullcontext():
        last = result_in(read_file(older, FORM), str(older)) if before or older.is_file() else None
    if before is not None and not isinstance(last, CampaignDocument):
        raise TraceError(str(older), "", "is no campaign; only campaigns are held against one another")
    title = path.parent.name if path.name == CAMPAIGN_FILE else path.name
    report = done.report(title or path.name, last=last if isinstance(last, CampaignDocument) else None)
    return _with_traces(report, path.parent, wanted)


def _of_folder(folder: Path, wanted: TraceSettings) -> ReportDocument:
    traces = traces_below(folder)
    if not traces:
        raise TraceError(str(folder), "", "holds no trace; name a trace, a folder of traces, or the JSON of a run")
    cards = [_card(path) for path in traces]
    return _with_traces(_report_of(cards, folder.name), Path(), wanted)


def _report_of(cards: Sequence[FoundCard], title: str) -> ReportDocument:
    targets = len({card.target for card in cards})
    figures = [["traces", f"{len(cards):,}"], ["targets", f"{targets:,}"]]
    words = f"{plural(len(cards), 'trace')} of {plural(targets, 'target')}"
    return ReportDocument(VERSION, title, words, "traces, applied again", "note", figures, list(cards))


def _card(path: Path) -> FoundCard:
    file = read_trace(path)
    text = "no finding is recorded" if file.finding is None else file.finding.text
    return FoundCard(f"{path.name}: {text.partition(chr(10))[0]}", text, target=file.target, file=str(path))


def _with_traces(document: ReportDocument, folder: Path, wanted: TraceSettings) -> ReportDocument:
    """The document with the trace of each of its cards, as far as it is found: from here, or from the report."""
    for card in document.cards:
        if not (name := card.file):
            continue
        path = next((path for path in (Path(name), folder / name, *_beside(name, folder)) if path.is_file()), None)
        if path is None:
            card.why_not = f"its trace is not there: {name}"
        elif other_form(path) == STORY:
            card.why_not = "" if card.page else f"a story has a page of its own: blockproof report {path}"
        elif len(document.traces) >= MOST_TRACES:
            card.why_not = f"a page holds {MOST_TRACES} traces; for this one: blockproof report {path}"
        else:
            try:
                document.traces.append(trace_page(read_trace(path), path, wanted))
                card.trace = len(document.traces) - 1
            except TraceError as error:
                card.why_not = str(error)
    return document


def _beside(name: str, folder: Path) -> list[Path]:
    """Where the trace may be if the folder of a campaign was moved: by its last two parts, or its name alone.

    Also in the folder where `verify` leaves its traces.
    """
    parts = Path(name).parts
    return [folder.joinpath(*parts[-2:]), folder / parts[-1], folder / "differences" / parts[-1]] if parts else []


def traces_below(folder: Path) -> list[Path]:
    """Trace files in a folder and below it, without those of whole runs, which end on `_whole`."""
    found = []
    for path in sorted(folder.rglob("*.json")):
        if not path.name.startswith(".") and not path.stem.endswith("_whole"):
            with suppress(TraceError):
                read_trace(path)
                found.append(path)
    return found


def encoded(document: Document) -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(document)


_MOODS = ("good", "note", "bad")


def joined(first: Document, more: Sequence[Document]) -> Document:
    """The first report, and behind it what the others found and show; what is worst of all of them is said first.

    The documents given are changed. PageError if one of them is no report, or if two have a matrix of targets.
    """
    for one in more:
        if not isinstance(first, ReportDocument) or not isinstance(one, ReportDocument):
            title = one.title if isinstance(first, ReportDocument) else first.title
            raise PageError(f"--with: {title} is no report of a run, a campaign, theorems or planted faults")
        _join(first, one)
    return first


def _join(first: ReportDocument, one: ReportDocument) -> None:
    if first.matrix is not None and one.matrix is not None:
        raise PageError(f"--with: {first.title} and {one.title} are both campaigns; a page shows one")
    traces, cards = len(first.traces), len(first.cards)
    for card in one.cards:
        card.trace += traces if card.trace >= 0 else 0
    if one.matrix is not None:
        for cell in (cell for oracle in one.matrix.cells for row in oracle for cell in row):
            cell.cards = [place + cards for place in cell.cards]
        first.matrix = one.matrix
    if _MOODS.index(one.mood) > _MOODS.index(first.mood):
        first.mood, first.verdict = one.mood, f"{first.verdict}; {one.title}: {one.verdict}"
    first.cards += one.cards
    first.traces += one.traces
    first.notes += [f"{one.title}: {one.verdict}; {one.headline}", *one.notes]
    first.charts += one.charts
    first.tables += one.tables
