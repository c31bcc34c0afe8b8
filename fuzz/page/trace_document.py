"""A trace, applied once more, as the document of a page; and the page of a finding, written next to its trace."""

import re
from collections.abc import Sequence
from dataclasses import replace

from ..findings.finding import Finding, Trace
from ..findings.oracle_names import CONTRACT, LIVENESS, LOCKSTEP, SHADOW, TARGET
from ..findings.severity import severity
from ..findings.words import plural, shape_text
from ..oracles.contract import PROPERTIES as CONTRACT_RULES
from ..oracles.liveness import PROPERTIES as LIVENESS_RULES
from ..oracles.liveness import is_script
from ..reports.document import VERSION, GroupWords, TraceDocument
from ..reports.story import Place, Verdict
from ..runs.judging import Judging
from ..runs.open_run import open_run
from ..targets.base import Target
from ..traces.judges import Judges, was_difference
from ..traces.replay import replay_in
from ..traces.trace_file import TraceFile
from .changes import blocks_in
from .watched import ModelTarget, WatchedTarget
from .words import cut, group_words, outcomes_part, states_part

LARGE = 2_000
"""From so many blocks on it takes long to read all of them after each step."""
FULL_LOOK_EVERY = 64
"""Steps from one look at a whole large pool to the next."""
MAX_VERDICT = 6_000
"""Longest text of a finding, in characters."""


def trace_document(
    file: TraceFile,
    target: Target | None,
    judges: Judges | None,
    title: str,
    *,
    notes: Sequence[str] = (),
    other: Target | None = None,
    seconds: float | None = None,
) -> TraceDocument:
    """Apply the trace of a file to an opened target, under these judges, and write down what happens.

    Without a target the model alone goes through it: that shows what should happen, and the verdict is the one of the
    file. So it is with an `other` target, which is then shown beside this one. Errors as from `replay` and
    `memory_named`; TraceError if it takes more `seconds` of processor time.
    """
    trace = file.trace
    alone = target is None or judges is None
    judging = Judging((LIVENESS,) if is_script(trace) else (), seconds=seconds)
    judging = judging if judges is None else judges.judging(seconds)
    core = ModelTarget(file.target) if target is None else target
    if other is None:
        watched, finding, applied = _applied(core, trace, judging)
    else:
        watched, finding, applied = _applied_once(WatchedTarget(core, 0, other), trace, Judging((), seconds=seconds))
    said = [*notes, *_notes(file, watched, applied, finding, judging)]
    if was_difference(file) and other is None:
        said.append("The trace shows how two targets differ; one of them is shown. Two `--target` show both.")
    if other is not None:
        verdict = _differ(file, watched)
    else:
        verdict = _as_it_was(file, watched) if alone else _verdict(finding, watched)
    document = TraceDocument(
        VERSION,
        title,
        " and ".join(one.name for one in (other, core) if one is not None) if target is not None else file.target,
        shape_text(applied.shape),
        applied.shape.num_blocks,
        applied.shape.hash_block_size,
        [
            GroupWords(group.kind, group_words(group, applied.shape), group.block_size * applied.shape.parallel)
            for group in applied.shape.groups
        ],
        [],
        watched.steps,
        watched.sides(),
        watched.nodes(),
        verdict,
        oracles=[] if judges is None else list(judges.oracles),
        notes=said,
    )
    document.parting = None if other is not None else _parting(watched)
    document.requests = list(watched.requests.known)
    return document


def _applied(target: Target, trace: Trace, judging: Judging) -> tuple[WatchedTarget, Finding | None, Trace]:
    """Apply a trace. Of a large pool only what a step can have changed is read, as long as nothing is wrong. If
    something is, it is applied once more, with full looks from the last one on that has found nothing."""
    if trace.shape.num_blocks < LARGE or len(trace.operations) < FULL_LOOK_EVERY:
        return _applied_once(WatchedTarget(target), trace, judging)
    glancing = replace(judging, full_look_every=FULL_LOOK_EVERY)
    watched, finding, applied = _applied_once(WatchedTarget(target, len(trace.operations)), trace, glancing)
    if finding is None or finding.oracle == TARGET:
        return watched, finding, applied
    first = max(1, (finding.step - 1) // FULL_LOOK_EVERY * FULL_LOOK_EVERY)
    again = _applied_once(WatchedTarget(target, first), trace, glancing)
    return (watched, finding, applied) if again[1] is None else again


def _applied_once(
    watched: WatchedTarget, trace: Trace, judging: Judging
) -> tuple[WatchedTarget, Finding | None, Trace]:
    watched.run = run = open_run(watched, judging)
    finding, applied = replay_in(run, trace)
    finding = finding or run.finish()
    watched.settle()
    return watched, finding, applied


def _notes(
    file: TraceFile, watched: WatchedTarget, applied: Trace, finding: Finding | None, judging: Judging
) -> list[str]:
    notes = []
    script = LIVENESS in judging.oracles and is_script(file.trace)
    left_out = len(file.trace.operations) - len(applied.operations)
    if script:
        notes.append("The trace is a script of requests: a scheduler of our own asked for what the steps show.")
    elif finding is None and left_out:
        notes.append(f"{plural(left_out, 'operation')} left out, since they make no sense where they stand.")
    if why := watched.not_built():
        notes.append(f"{watched.name} builds no core of this shape: it {why}.")
    return notes


def _as_it_was(file: TraceFile, watched: WatchedTarget) -> Verdict:
    """The verdict of the file, where the target that showed it was not run."""
    if file.finding is None:
        return Verdict(False, "the model alone: nothing was judged")
    text = cut(file.finding.text, MAX_VERDICT)
    oracle = file.finding.identity[0] if file.finding.identity else ""
    head = f"found on {file.target} when the trace was written: {text.partition(chr(10))[0]}"
    sentence = "Shown is the model alone: what a core should do."
    step = len(watched.steps) - 1
    return Verdict(True, cut(head, 300), sentence, text, oracle, file.finding.observable, step=step)


def _differ(file: TraceFile, watched: WatchedTarget) -> Verdict:
    """The verdict on two targets: for those that the file of a difference names, that of the file, and the first
    difference in what they show last."""
    names, step = watched.pair, watched.first_difference() if len(watched.lines) == 2 else -1
    if step is None:
        return Verdict(False, f"{names[0]} and {names[1]} show the same after each of these operations")
    if not was_difference(file) or names != (file.compared_with, file.target):
        if len(watched.lines) < 2:
            return Verdict(False, f"not both of {names[0]} and {names[1]} build a core of this shape")
        where = "once they are built" if step < 0 else f"from step {step} on"
        sentence = outcomes_part(names, *watched.parted_over) if watched.parted == step >= 0 else ""
        return Verdict(True, f"{names[0]} and {names[1]} differ {where}", cut(sentence, 1_000), step=step)
    verdict = _as_it_was(file, watched)
    verdict.headline, verdict.sentence = cut(verdict.text.partition("\n")[0], 300), ""
    if len(watched.lines) < 2:
        return verdict
    shown = watched.snapshots()
    if watched.parted >= 0:
        operation, *answers = watched.parted_over
        verdict.sentence = outcomes_part(names, operation, *answers)
    elif shown[0] is not None and shown[1] is not None:
        verdict.sentence, verdict.place = states_part(names, shown[0], shown[1], watched.requests)
    verdict.sentence = cut(verdict.sentence, 1_000)
    return verdict


def _verdict(finding: Finding | None, watched: WatchedTarget) -> Verdict:
    if finding is None:
        where = f"in {plural(len(watched.steps), 'operation')} on {watched.name}"
        return Verdict(False, f"no difference {where}" if watched.lines else f"nothing judged on {watched.name}")
    text = cut(finding.text(), MAX_VERDICT)
    rules = {**CONTRACT_RULES, **LIVENESS_RULES}
    verdict = Verdict(True, cut(text.partition("\n")[0], 300), "", text, finding.oracle, finding.observable)
    verdict.rule = rules.get(finding.observable, "") if finding.oracle in (CONTRACT, LIVENESS) else ""
    verdict.severity = str(severity(finding))
    verdict.step = len(watched.steps) - 1 if finding.oracle == LIVENESS else finding.step
    verdict.sentence, verdict.place = _explained(finding, watched)
    verdict.sentence = cut(verdict.sentence, 1_000)
    return verdict


def _explained(finding: Finding, watched: WatchedTarget) -> tuple[str, Place | None]:
    """A sentence, and where to look."""
    detail = finding.detail.partition("\n")[0]
    if finding.is_our_bug:
        return "blockproof itself failed here: that says nothing of the target. Please report it with the trace.", None
    if finding.oracle == TARGET:
        return f"The target gave no answer that could be judged ({finding.observable}): {detail}", None
    if finding.oracle == LOCKSTEP:
        names, shown = ("model", "target"), watched.snapshots()
        if finding.observable == "outcome" or len(shown) < 2 or shown[0] is None or shown[1] is None:
            text = outcomes_part(names, finding.operation, finding.expected, finding.actual)
            request = getattr(finding.operation, "request", None)
            return text, None if request is None else Place(request=watched.requests(request))
        return states_part(names, shown[0], watched.shown_to_model(shown[1], shown[0]), watched.requests)
    corruption = watched.run.corruption
    if finding.oracle == SHADOW and corruption is not None and corruption.request in watched.requests.known:
        where = f"Request {corruption.request}, group {corruption.group}, position {corruption.position}"
        place = _at(corruption.request, corruption.group, corruption.position, watched)
        return f"{where}: {corruption.what}.{_taken(place, watched)}", place
    return f"{finding.observable}: {detail}", _named_in(detail, watched)


def _at(request: str, group: int, position: int, watched: WatchedTarget) -> Place:
    """The place of a token in the table of the target."""
    assert watched.shape is not None
    groups, shown = watched.shape.groups, watched.snapshots()[-1]
    size = groups[group].block_size * watched.shape.parallel
    table = [] if shown is None else shown.tables[group].get(request, [])
    entry = position // size
    block = table[entry] if entry < len(table) else -1
    return Place(watched.requests(request), group, entry, position, block)


def _taken(place: Place, watched: WatchedTarget) -> str:
    """Who took the block of this place before, in a sentence; empty if nobody did.

    The last other request into whose table it came.
    """
    if place.block <= 0:
        return ""
    names = {number: name for name, number in watched.requests.known.items()}
    for step, change in reversed(list(enumerate(watched.changes()))):
        for _, request, length, *runs in change.tables:
            if length >= 0 and request != place.request and place.block in blocks_in(runs):
                return f" Request {names[request]} got that block at step {step}."
    return ""


def _named_in(detail: str, watched: WatchedTarget) -> Place | None:
    """The request, the group, the entry and the block that a violated equation names, as far as it does."""
    place = Place()
    known = watched.requests.known
    names = sorted((name for name in known if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", detail)), key=len)
    place.request = known[names[-1]] if names else -1
    for field in ("group", "entry", "position", "block"):
        if match := re.search(rf"\b{field} (\d{{1,9}})\b", detail):
            setattr(place, field, int(match[1]))
    return place if place != Place() else None


def _parting(watched: WatchedTarget) -> Verdict | None:
    """Where a model that does not judge has answered otherwise first."""
    if watched.parted < 0:
        return None
    operation, *answers = watched.parted_over
    text = outcomes_part(("model", "target"), operation, *answers)
    head = f"the model would have answered otherwise at step {watched.parted}"
    return Verdict(False, head, text, step=watched.parted)
