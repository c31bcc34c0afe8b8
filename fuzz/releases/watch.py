"""Judges a release that has just come out against the one before: every part is a command of its own.

A part that fails, or for which no time is left, costs only itself: the page about the release says so. What a part is
to find new, fixed or changed is read off the JSON that its command prints.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..adapters import family_of
from ..findings.interruption import interrupted_by
from ..findings.prose import broken
from ..findings.words import plural
from ..opening.commands import Ran
from ..opening.commands import run as run_command
from ..opening.known_deviations import known_of
from ..reports.summary import NEW
from .bisect import one_line
from .deviations import ALIKE, SAME
from .scheduler_cases import NOTHING, SHOWS
from .watch_engines import engine_parts
from .watch_functions import read_functions
from .watch_parts import ROOT, PartNews, Sides, Unexplained, WatchPart

LONGEST = 0.5
"""No part but the last takes more of the time that is left."""
Run = Callable[[WatchPart, float], Ran]
"""Runs a part for so many seconds at most."""


@dataclass
class PartDone:
    """One part that was tried."""

    part: WatchPart
    told: PartNews | None = None
    problem: str = ""
    """Why it did not come to its end; empty if it did."""
    seconds: float = 0.0


@dataclass
class WatchedRelease:
    """Everything about a release."""

    sides: Sides
    done: list[PartDone] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """Names of the parts that were not begun: a page that is written on the way must not look like the whole."""
    interrupted: bool = False

    def lines(self, name: str) -> list[str]:
        """The lines of one of the lists of `PartNews`, over all parts."""
        return [line for one in self.done if one.told for line in getattr(one.told, name)]

    @property
    def open(self) -> list[str]:
        """What could not be judged."""
        failed = [f"{one.part.name}: {one.problem}" for one in self.done if one.problem]
        return [*failed, *self.lines("open"), *(f"{name}: not begun" for name in self.left)]

    @property
    def code(self) -> int:
        """Exit code: 1 if something is new, 130 if Ctrl-C ended it before, 3 if a part could not be judged, else 0."""
        if self.lines("new"):
            return 1
        if self.interrupted:
            return 130
        return 3 if any(one.problem for one in self.done) or not self.done else 0


def run_part(part: WatchPart, seconds: float) -> Ran:
    """Run a part for so many seconds at most."""
    return run_command([sys.executable, "-P", "-m", f"{ROOT}.{part.module}", *part.words], seconds=seconds)


def watch(
    sides: Sides,
    parts: Sequence[WatchPart],
    say: Callable[[str], None],
    on_done: Callable[[WatchedRelease], None],
    run: Run = run_part,
) -> WatchedRelease:
    """Run all parts, one after the other. `on_done` is told after each, so that nothing is lost with what follows.

    Ctrl-C ends it with what there is.
    """
    watched = WatchedRelease(sides)
    end = time.monotonic() + 60 * sides.minutes
    for number, part in enumerate(parts, 1):
        begin = time.monotonic()
        left = (end - begin) * (1.0 if number == len(parts) else LONGEST)
        done = PartDone(part)
        watched.done.append(done)
        watched.left = [other.name for other in parts[number:]]
        say(part.command)
        try:
            _run_one(done, sides, left, run)
            for one in done.told.unexplained if done.told else ():
                _look_back(one, done, sides, begin + left - time.monotonic(), run)
        except KeyboardInterrupt:
            done.problem, watched.interrupted = f"ended by {interrupted_by()}", True
        done.seconds = time.monotonic() - begin
        say(f"{part.name}: {done.problem or (done.told.figures if done.told else '')}")
        on_done(watched)
        if watched.interrupted:
            break
    return watched


def _run_one(done: PartDone, sides: Sides, seconds: float, run: Run) -> None:
    """Fill in what the part has come to, or its problem."""
    if seconds <= 0:
        done.problem = f"not tried: the {sides.minutes:g} minutes are over"
        return
    ended = run(done.part, seconds)
    if ended.status is None:
        done.problem = f"not done within its {seconds / 60:.1f} minutes"
        return
    try:
        if ended.status not in done.part.codes:
            raise ValueError
        done.told = done.part.read(ended.output if done.part.plain else json.loads(ended.output), sides)
    except (ValueError, KeyError, TypeError, AttributeError):
        said = [line for line in ended.errors.splitlines() if line.strip()] or ["nothing was said"]
        done.problem = f"exit status {ended.status}: {one_line(said[-1])}"


def _look_back(one: Unexplained, done: PartDone, sides: Sides, seconds: float, run: Run) -> None:
    """Whether the trace of what is unexplained shows the same on the old release, where it is nothing new then."""
    assert done.told is not None
    part = WatchPart("replay", ("replay", one.trace, "--target", sides.old, "--isolate", "--json"), _shown_kind)
    again = PartDone(part)
    _run_one(again, sides, seconds, run)
    if again.told is not None and again.told.figures == " ".join(one.kind):
        done.told.still.append(f"on {sides.old}, too: {one.text}")
    else:
        done.told.new.append(one.text)


def _shown_kind(said: Any, sides: Sides) -> PartNews:
    finding = said["finding"]
    return PartNews(f"{finding['observable']} {finding['operation']}" if finding else "")


SECTIONS = {
    "new": "New",
    "fixed": "Fixed",
    "changed": "Changed",
    "still": "Still there",
}


def page(watched: WatchedRelease, command: str) -> str:
    """What was found as Markdown: the verdict, a table of the parts, and a section for each kind of line."""
    sides = watched.sides
    lines = [
        f"# {sides.new}, held against {sides.old}",
        "",
        "Written by",
        f"`{command}`",
        f"on {time.strftime('%Y-%m-%d', time.gmtime())}, {machine()}.",
        "",
        f"**{verdict(watched)}**",
        "",
        "| part | what it came to | minutes |",
        "| --- | --- | ---: |",
    ]
    for one in watched.done:
        told = one.told.figures if one.told else f"could not be judged: {one.problem}"
        lines.append(f"| {one.part.name} | {_cell(told)} | {one.seconds / 60:.1f} |")
    total = sum(one.seconds for one in watched.done)
    lines += [f"| all | | {total / 60:.1f} |", ""]
    lines += ["## To begin with", "", *_items(beginning(watched)), ""]
    for name, title in SECTIONS.items():
        lines += [f"## {title}", "", *_items(watched.lines(name)), ""]
    lines += ["## Could not be judged", "", *_items(watched.open), ""]
    lines += ["## Commands", "", *_items([f"{one.part.name}: `{one.part.command}`" for one in watched.done]), ""]
    return "\n".join(lines)


FIRST = 12
"""Situations in which the releases differ that the list to begin with has."""


def beginning(watched: WatchedRelease) -> list[str]:
    """What somebody begins with who brings the model to the new release: functions to read, deviations that went, and
    the first situations in which the two differ, each with a trace in the folder of differences."""
    gone = [f"went: {line}" for line in watched.lines("fixed") if line.startswith("deviation ")]
    differs = [one.told.changed for one in watched.done if one.told and one.part.name == DIFFERENCE]
    return [*watched.lines("begin"), *gone, *(f"differs: {line}" for lines in differs for line in lines[:FIRST])]


def verdict(watched: WatchedRelease) -> str:
    """One line: how much is new, fixed and changed."""
    counts = [f"{len(watched.lines(name))} {title.lower()}" for name, title in SECTIONS.items()]
    ended = f"; ended by {interrupted_by()}" if watched.interrupted else ""
    return f"{', '.join(counts)}; {plural(len(watched.open), 'thing')} could not be judged{ended}"


def machine() -> str:
    """The machine in words, without its name."""
    cores = plural(os.cpu_count() or 1, "core")
    return f"{cores}, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def _items(lines: Sequence[str]) -> Iterator[str]:
    """A list; what has several lines is indented below its first one. A command at its end has a line of its own."""
    for line in lines:
        first, *rest = line.splitlines()
        words, colon, command = first.partition(": `")
        yield from broken(words + colon.rstrip(" `"), "* ")
        if command:
            yield f"  `{command}"
        yield from (f"  {more}" if more else "" for more in rest)
    if not lines:
        yield "Nothing."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


CAMPAIGN_SHARE, DIFF_SHARE = 0.1, 0.05
"""Of the minutes: for both releases together, and for holding them against each other."""


DIFFERENCE = "difference"
"""The part that holds the two against each other."""
_CAMPAIGN = "campaign"
"""Under this name `Sides.seen` has the root causes that came up on the old release."""
_JUDGED = ("--oracle", "shadow,contract,liveness", "--seed", "2026", "--jobs", "1", "--shrink-seconds", "2", "--json")


def parts_of(sides: Sides) -> list[WatchPart]:
    """What is asked about a release, and how."""
    both, family = ("--target", sides.old, "--target", sides.new), family_of(sides.new)
    shared = 60 * sides.minutes
    campaign = f"{max(1.0, shared * CAMPAIGN_SHARE / 2):.0f}"
    parts = []
    if family is not None and family.here != family.version_in(sides.new):
        for spec in dict.fromkeys(filter(None, (sides.old, sides.new, sides.reference))):
            parts.append(WatchPart(f"installing {spec}", ("targets", "install", spec), _read_install, (0,), plain=True))
    simulated = sides.engine or (family is not None and family.open_engine is not None)
    parts += engine_parts(sides) if simulated else ()
    if sides.engine:
        scripts = WatchPart("scripts", ("findings", "--scripts", *both, "--json"), _read_findings)
        return [*parts, *([scripts] if family is not None else ())]
    if sides.reference:  # done at once, and what somebody asks for first
        read_first = WatchPart(
            "functions", (sides.old, sides.new), read_functions, module="fuzz.releases.watch_functions"
        )
        parts.append(read_first)
    parts.append(WatchPart("answers", ("targets", "check", sides.new, "--json"), _read_check))
    for spec, read in ((sides.old, _read_old_campaign), (sides.new, _read_campaign)):
        judged = ("campaign", "--target", spec, *_JUDGED, "--seconds", campaign, "--out", str(sides.out))
        parts.append(WatchPart(f"campaign on {spec}", judged, read))
    if family is not None:
        parts.append(WatchPart("findings", ("findings", *both, "--json"), _read_findings))
    seconds = f"{max(1.0, shared * DIFF_SHARE):.0f}"
    kept = str(sides.out / "differences")
    parts.append(
        WatchPart(
            DIFFERENCE, ("diff", *both, "--seconds", seconds, "--seed", "2026", "--out", kept, "--json"), _read_diff
        )
    )
    known = known_of(sides.reference) if sides.reference else None
    traces = known.traces if known is not None else ""
    for spec in (sides.old, sides.new) if sides.reference else ():
        asked = ("--target", sides.reference, "--check", traces, "--also", spec, "--json")
        read = _read_old_deviations if spec == sides.old else _read_deviations
        parts.append(WatchPart(f"deviations of {spec}", ("deviations", *asked), read))
    if family is not None:  # last what takes longest
        parts.append(WatchPart("scripts", ("findings", "--scripts", *both, "--json"), _read_findings))
    if sides.reference:
        parts.append(WatchPart("theorems", (sides.old, sides.new), _read_proofs, module="fuzz.releases.verify_proofs"))
    return parts


def _read_install(said: Any, sides: Sides) -> PartNews:
    return PartNews(one_line(str(said).partition(";")[0]))


def _read_check(said: Any, sides: Sides) -> PartNews:
    told = PartNews(f"{plural(said['asked'], 'operation')} asked, {said['wrong']} answered in a wrong form")
    if said["wrong"]:
        told.new.append(f"{plural(said['wrong'], 'answer')} in a wrong form: `blockproof targets check {sides.new}`")
    return told


def _read_old_campaign(said: Any, sides: Sides) -> PartNews:
    (row,) = said["targets"]
    sides.seen[_CAMPAIGN] = {one["root_cause"]: "" for one in row["findings"]}
    return _of_campaign(row)


def _of_campaign(row: Any) -> PartNews:
    problem = row["problem"] or row["tested_nothing"]
    open_ones = [f"campaign on {row['target']}: {one_line(problem)}"] if problem else []
    return PartNews(
        f"{plural(row['operations'], 'operation')}, {plural(len(row['findings']), 'finding')}", open=open_ones
    )


def _read_campaign(said: Any, sides: Sides) -> PartNews:
    """What came up on the new release, and not on the old one, is asked of the old one again."""
    (new,) = said["targets"]
    told = _of_campaign(new)
    known = {one["root_cause"] for one in new["findings"]} - {NEW}
    before = sides.seen.get(_CAMPAIGN, {}).keys() - {NEW}
    for one in new["findings"]:
        root = one["root_cause"]
        if root not in before:
            why = "explained by no known flaw" if root == NEW else root
            what = f"{one['observable']} at {one['operation']} ({one['attention']}), {why}"
            text = f"{what}: `{one['command']}`\n\n{_block(one['text'])}"
            told.unexplained.append(Unexplained(text, one["trace"], (one["observable"], one["operation"])))
    told.still += [f"{root} (campaign)" for root in sorted(known & before)]
    told.changed += [f"{root} came up on {sides.old} only (campaign)" for root in sorted(before - known)]
    return told


def _block(text: str) -> str:
    return "\n".join(["```", *text.splitlines(), "```"])


def _read_findings(said: Any, sides: Sides) -> PartNews:
    told = PartNews()
    rows = said["observed"]
    for name, row in sorted(rows.items()):
        old, new = row.get(sides.old, ""), row.get(sides.new, "")
        if new == SHOWS:
            if old == SHOWS:
                told.still.append(name)
            else:
                told.new.append(f"{name}: {old or '-'}, now {new}")
        elif old == SHOWS and new == NOTHING:
            told.fixed.append(name)
        elif old != new:
            told.changed.append(f"{name}: {old or '-'}, now {new or '-'}")
        if new not in (SHOWS, NOTHING):
            told.open.append(f"{name}: {new or 'not observed'}")
    shown = sum(row.get(sides.new) == SHOWS for row in rows.values())
    told.figures = f"{plural(len(rows), 'observation')}, {shown} show a defect"
    return told


def _read_old_deviations(said: Any, sides: Sides) -> PartNews:
    sides.seen[sides.old] = {one["id"]: one["verdict"] for one in said}
    return PartNews(_of_deviations(said))


def _read_deviations(said: Any, sides: Sides) -> PartNews:
    told, before = PartNews(_of_deviations(said)), sides.seen.get(sides.old, {})
    for one in said:
        old, new = before.get(one["id"], "not observed"), one["verdict"]
        if (old, new) == (SAME, ALIKE):
            told.new.append(f"deviation {one['id']} is back: {one['text']}")
        elif (old, new) == (ALIKE, SAME):
            told.fixed.append(f"deviation {one['id']}")
        elif old != new:
            told.changed.append(f"deviation {one['id']}: {old}, now {one['text']}")
    return told


def _of_deviations(said: Any) -> str:
    counts = {verdict: sum(one["verdict"] == verdict for one in said) for verdict in (SAME, ALIKE)}
    return f"{len(said)} traces; {counts[SAME]} as the rule, {counts[ALIKE]} as the reference"


def _read_proofs(said: Any, sides: Sides) -> PartNews:
    if isinstance(said, str):
        return PartNews(said, open=[f"theorems: {said}"])
    told = PartNews(said["text"])
    told.changed += [f"function under a theorem: {name}" for name in said["changed"]]
    for name, each in said["theorems"].items():
        if each["old"] != each["new"]:
            line = f"theorem {name}: {each['old']}, now {each['new']}"
            lists = {"refuted": told.new, "proved": told.fixed}
            settled = {each["old"], each["new"]} <= {"proved", "refuted"}
            (lists[each["new"]] if settled else told.open).append(line)
    return told


def _read_diff(said: Any, sides: Sides) -> PartNews:
    told = PartNews()
    for compared in said["comparisons"]:
        for one in compared["situations"]:
            where = f"by {compared['compared']}, in {plural(one['runs'], 'run')}"
            told.changed.append(f"{one['situation']} at {one['operation']}, {where}")
    operations = sum(compared["operations"] for compared in said["comparisons"])
    told.figures = f"{plural(operations, 'operation')} on both, {plural(len(told.changed), 'situation')} that differ"
    return told
