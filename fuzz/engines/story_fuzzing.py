"""`blockproof simulate` without its command line: the process of the stories, what is kept and reported."""

import hashlib
import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from ..findings.interruption import interrupted_by
from ..findings.oracle_names import BLOCKPROOF
from ..findings.words import plural
from ..findings.writing import told_if_lost, write_file
from ..opening.commands import Printing
from ..opening.engines import engine_spec
from ..opening.targets import Home, python_for
from ..page.live import LivePage, News
from ..reports.scheduler import SchedulerDocument
from ..runs.canary import BlindOracleError, told_line
from ..simulation.tier_policies import hit_ratios
from ..targets.base import TargetUnavailableError
from ..traces.files import STORY, Form, TraceError, envelope, read_file
from .older_stories import in_form_of_today
from .stories import StoryTask

TITLE = "schedulers"
FORM = Form("finding", "`blockproof simulate`", STORY, 1)
FLOORS_FROM = 2000
"""A run of so many steps must have reached some of everything."""


@dataclass
class StoryOutcome:
    """What a run came to."""

    target: str
    task: StoryTask
    told: dict[str, Any] = field(default_factory=dict)
    """The child's own report (`stories.StoriesDone`); empty if it did not get so far."""
    so_far: dict[str, Any] = field(default_factory=dict)
    """The same as long as it goes on, if a page is told of it."""
    found: list[dict[str, Any]] = field(default_factory=list)
    """Findings that were shrunk, each with its `file` if it was kept."""
    lost: str = ""
    """How the process ended if that was before its report."""
    interrupted: bool = False
    shown: list[str] = field(default_factory=list)
    """A replayed story, call by call, if that was asked for."""
    picture: dict[str, Any] = field(default_factory=dict)
    """The same for a page (`simulation.picture.StoryPicture`)."""
    progress: str = ""
    """What was done when it was last told."""
    begun: int = -1
    """Number of the last story that was begun, where the process tells it."""

    @property
    def unmet(self) -> list[str]:
        """Floors that were not reached. Findings end stories early, and a replay has no floors."""
        reached, steps = self.told.get("reached", {}), self.told.get("steps", 0)
        if steps < FLOORS_FROM or self.task.replay is not None or self.task.fault:
            return []
        return [
            f"{name}: {reached.get(name, 0)}, at least {least}"
            for name, least in self.told.get("floors", {}).items()
            if reached.get(name, 0) < least
        ]

    @property
    def new(self) -> list[dict[str, Any]]:
        """Findings that no written-up one explains."""
        return [one for one in self.found if not one["known"]]

    @property
    def exit_code(self) -> int:
        """1 for a finding (a known one, too), a lost process or an unmet floor; 70 if blockproof has failed and nothing
        else was found; 3 if no step ran, unless all requests of a replay were refused; 130 after Ctrl-C."""
        if self.found and all(one["judge"] == BLOCKPROOF for one in self.found) and not self.lost:
            return 70
        if self.found or self.lost:
            return 1
        if self.interrupted:
            return 130
        asked = self.told.get("reached", {}).get("requests") if self.task.replay is not None else 0
        if not self.told.get("steps") and not asked:
            return 3
        return 1 if self.unmet else 0

    def document(self) -> SchedulerDocument:
        """What came of it, for people and machines."""
        facts = {"target": self.target, "task": asdict(self.task), **self.so_far, **self.told}
        ends = {"found": list(self.found), "floors_unmet": self.unmet, "lost": self.lost}
        return msgspec.convert({**facts, **ends}, SchedulerDocument)

    def lines(self) -> list[str]:
        """The report for people."""
        told = self.told
        if self.lost:
            lost = f"{self.target}, seed {self.task.seed}: the process was lost: {self.lost}"
            return [lost, *(self._found_lines() if self.found else ())]
        if not told:
            done = f" after {self.progress}" if self.progress else ""
            return [f"{self.target}, seed {self.task.seed}: ended by {interrupted_by()}{done}", *self._found_lines()]
        rate = told["steps"] / told["cpu_seconds"] if told["cpu_seconds"] else 0.0
        counts = f"{plural(told['stories'], 'engine')}, {plural(told['steps'], 'scheduler step')}"
        lines = [*self.shown]
        lines += [
            f"{self.target}, seed {self.task.seed}: {counts} in {told['seconds']:.0f} s ({rate:.0f} steps/s of CPU)"
        ]
        lines += [f"  {name}: {count}" for name, count in sorted(told["reached"].items()) if count]
        lines += [f"  {ratios}"] if (ratios := hit_ratios(told["reached"])) else []
        for kinds, of_kind in sorted(told["by_kind"].items()):
            lines.append(f"  {kinds}: " + ", ".join(f"{name} {count}" for name, count in of_kind.items() if count))
        lines += [f"not built, {count} times: {reason}" for reason, count in told["not_built"].items()]
        lines += [f"floor not reached: {line}" for line in self.unmet]
        lines += [f"not observed: {name}" for name in told.get("not_observed", ())]
        lines += [told_line(told["canary"])] if told.get("canary") else []
        return [*lines, *self._found_lines()]

    def _found_lines(self) -> list[str]:
        counted = self.told.get("counted", {})
        lines = []
        for name in sorted({one["name"] for one in self.found}):
            ones = [one for one in self.found if one["name"] == name]
            one = min(ones, key=lambda one: len(json.dumps(one["story"])))
            times = plural(counted.get(name, len(ones)), "engine")
            lines += ["", f"{name} ({times}): {one['judge']}, step {one['step']}: {one['what']}"]
            if one.get("file"):
                command = ["blockproof", "replay", one["file"], "--target", self.target]
                lines.append(f"  repeat: {shlex.join(command)}")
        return lines or ["nothing found"]


def simulate(
    target: str,
    task: StoryTask,
    out: Path | None,
    say: Callable[[str], None],
    page: LivePage | None = None,
    at: Home | None = None,
    on_found: Callable[[StoryOutcome], None] = lambda outcome: None,
) -> StoryOutcome:
    """Run stories in the interpreter of the target; write what is found into the folder `out`. `page` shows them while
    they go on; `at`: what is opened, and where, if the name does not say it; `on_found` is told of each finding.

    ValueError for a name that means no engine, for an engine that declares what cannot be meant, and for attention
    types and options that it does not have. TargetUnavailableError if it is not installed or cannot be made, and if a
    judge does not see what is planted for it before the run. Ctrl-C ends the run.
    """
    task = replace(task, target=at.spec if at else engine_spec(target), tells=page is not None)
    outcome = StoryOutcome(target, task)
    if page is not None:
        page.show(_so_far(outcome))
    with python_for(target, at) as python:
        command = python.words(f"{__package__}.stories", json.dumps(asdict(task)))
        with Printing(command, python.environment) as printing:
            try:
                for told in printing:
                    _take(outcome, told, out, say)
                    if "found" in told:
                        on_found(outcome)
                    if page is not None and not told.keys() & {"progress", "begun", "shown"}:
                        page.grown(lambda: _so_far(outcome))
                if not outcome.told:
                    outcome.lost = _how_lost(outcome, printing.status())
            except KeyboardInterrupt:
                outcome.interrupted = True
    if page is not None:
        words = f"ended by {interrupted_by()}" if outcome.interrupted else "the run has ended"
        page.show(News(TITLE, words, outcome.document(), 1.0, ended=True))
    return outcome


def _how_lost(outcome: StoryOutcome, status: int) -> str:
    """How the process has ended, and with which story."""
    how = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
    again = f"--seed {outcome.task.seed} --first {outcome.begun}"
    return how if outcome.begun < 0 else f"{how}, in engine {outcome.begun}; again with {again}"


def _so_far(outcome: StoryOutcome) -> News:
    """What its page is told."""
    so_far, task = outcome.so_far, outcome.task
    pairs = ((so_far.get("steps", 0), task.steps), (so_far.get("seconds", 0.0), task.seconds))
    share = min(1.0, max((done / most for done, most in pairs if most), default=-1.0))
    return News(TITLE, "running" if so_far else "starting", outcome.document(), share)


def _take(outcome: StoryOutcome, told: Mapping[str, Any], out: Path | None, say: Callable[[str], None]) -> None:
    if "found" in told:
        one = dict(told["found"])
        if out is not None:
            with told_if_lost():
                one["file"] = str(write_story(one, outcome.target, out))
        outcome.found.append(one)
        say(f"{one['name']}: {one['what']}")
    elif "progress" in told:
        outcome.progress = f"{told['progress']['steps']} steps, {told['progress']['stories']} engines"
        say(outcome.progress)
    elif "so_far" in told:
        outcome.so_far = told["so_far"]
    elif "shown" in told:
        outcome.shown, outcome.picture = told["shown"]["lines"], told["shown"]["picture"]
    elif "begun" in told:
        outcome.begun = told["begun"]["number"]
    elif "refused" in told:
        raise (ValueError if told["refused"]["usage"] else TargetUnavailableError)(told["refused"]["why"])
    elif "blind" in told:
        raise BlindOracleError(told["blind"]["why"])
    elif "end" in told:
        outcome.told = told["end"]


def write_story(found: Mapping[str, Any], target: str, folder: Path) -> Path:
    """The finding as a file of its own in this folder, which is made."""
    text = story_text(found, target)
    path = folder / story_name(text)
    write_file(path, text + "\n")
    return path


def story_text(found: Mapping[str, Any], target: str) -> str:
    """The text of such a file."""
    return json.dumps({FORM.version_field: FORM.version, "target": target, **found}, indent=1)


def story_name(text: str) -> str:
    """The name of the file with this text."""
    found, digest = json.loads(text), hashlib.sha256(text.encode()).hexdigest()[:8]
    name = found["known"].replace("/", "-").replace("#", "-") or f"new-{found['judge']}"
    return f"simulated_{name}_{digest}.json"


@dataclass(frozen=True)
class StoredStory:
    """What is read of such a file."""

    target: str
    judge: str
    rule: str
    story: dict[str, Any]
    fault: str = ""


def read_story(path: Path) -> StoredStory:
    """What `write_story` wrote. TraceError, in one line, if the file holds something else."""
    return read_stored(read_file(path, FORM), str(path))


def read_stored(raw: bytes, source: str) -> StoredStory:
    """The same of the text of such a file; `source` is what messages call it."""
    stored = envelope(raw, StoredStory, FORM, source)
    try:
        return replace(stored, story=in_form_of_today(stored.story))
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(source, "story", f"{error}: draw it anew with simulate") from None


def play(
    stored: StoredStory,
    target: str,
    say: Callable[[str], None],
    out: Path | None = None,
    *,
    shrink_seconds: float = 0.0,
    shows: bool = False,
    at: Home | None = None,
) -> StoryOutcome:
    """Run a story again, on this target. What it shows is made smaller for so many seconds and written to `out`, if
    that is named; `shows`: it is told call by call; `at` as in `simulate`. Errors as from the command that wrote it."""
    task = StoryTask(replay=stored.story, fault=stored.fault, shrink_seconds=shrink_seconds, shows=shows)
    return simulate(target, task, out, say, at=at)
