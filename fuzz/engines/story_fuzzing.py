"""`blockproof simulate` without its command line: the process of the stories, what is kept and reported."""

import hashlib
import json
import shlex
import time
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
from ..opening.targets import Home, ReleasePython, python_for
from ..page.live import LivePage, News
from ..reports.scheduler import SchedulerDocument
from ..runs.canary import BlindOracleError, told_line
from ..simulation.story import SimulatedStory, story_from_json
from ..simulation.tier_policies import hit_ratios
from ..targets.base import TargetUnavailableError
from ..traces.files import STORY, Form, TraceError, envelope, read_file
from .deadlines import HANG, START_HANGS
from .older_stories import in_form_of_today
from .stories import StoryTask
from .story_limits import check_story

TITLE = "schedulers"
FORM = Form("finding", "`blockproof simulate`", STORY, 1)
AGAIN_SECONDS = 60.0
"""A run that took longer is not run again as a whole to see how its process was lost."""
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
    """How the process ended if that was before its report, and no finding says it."""
    ended_in: str = ""
    """The same if a finding says it."""
    last_output: list[str] = field(default_factory=list)
    """Of a process that was lost."""
    noticed: dict[str, Any] = field(default_factory=dict)
    """A finding that is made smaller now."""
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
        begin = f"{self.target}, seed {self.task.seed}:"
        if self.lost:
            lost = [f"{begin} the process was lost: {self.lost}", *(f"  {line}" for line in self.last_output)]
            return [*lost, *(self._found_lines() if self.found else ())]
        if self.ended_in:
            return [*self.shown, f"{begin} {self.ended_in}", *self._found_lines()]
        if not told:
            done = f" after {self.progress}" if self.progress else " before a step was told of"
            lines = self._found_lines() if self.found else ["nothing found until then"]
            return [f"{begin} interrupted by {interrupted_by()}{done}", *lines]
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
        if self.task.replay is None and told["steps"]:
            lines.append(f"repeat this run: {self.command(steps=told['steps'])}")
        return [*lines, *self._found_lines()]

    def smallest(self) -> list[dict[str, Any]]:
        """Of each name the finding with the smallest story."""
        by_name: dict[str, dict[str, Any]] = {}
        for one in sorted(self.found, key=lambda one: (one["name"], len(json.dumps(one["story"])))):
            by_name.setdefault(one["name"], one)
        return [*by_name.values()]

    def _found_lines(self) -> list[str]:
        counted = self.told.get("counted", {})
        lines = []
        for one in self.smallest():
            name = one["name"]
            times = plural(counted.get(name, sum(other["name"] == name for other in self.found)), "engine")
            lines += ["", f"{name} ({times}): {one['judge']}, step {one['step']}: {one['what']}"]
            lines += [f"    {line}" for line in one.get("more", ())]
            lines += [f"  {line}" for line in self._shrunk(one)]
            if one.get("behind") is not None:
                lines.append(f"  alone it shows nothing; behind engine {one['behind']} and those after it it does:")
                lines.append(f"  repeat: {self.command(one['behind'])}")
            elif one.get("file"):
                command = ["blockproof", "replay", one["file"], "--target", self.target]
                lines.append(f"  repeat: {shlex.join(command)}")
            lines += [f"  page: {one['page']}"] if one.get("page") else []
        return lines or ["nothing found"]

    def _shrunk(self, one: Mapping[str, Any]) -> list[str]:
        """What was made of the story that was to be made smaller."""
        if self.task.replay is None or not self.task.shrink_seconds:
            return []
        before, after = story_from_json(self.task.replay), story_from_json(one["story"])
        tries = plural(one["tries"], "try", "tries")
        if after == before:
            return [f"nothing smaller shows it, in {tries}" if one["complete"] else f"nothing smaller yet, in {tries}"]
        more = "" if one["complete"] else "; it may get smaller still"
        return [f"made smaller, from {_size(before)} to {_size(after)}, in {tries}{more}"]

    def command(self, first: int | None = None, steps: int | None = None) -> str:
        """The command that runs the same again, from this engine on, for so many steps."""
        task, first = self.task, self.task.first if first is None else first
        words = ["blockproof", "simulate", "--target", self.target, "--seed", str(task.seed)]
        words += ["--first", str(first)] if first else []
        words += ["--attention", ",".join(task.attention)] if task.attention else []
        words += [word for option in task.options for word in ("--option", option)]
        words += ["--fault", task.fault] if task.fault else []
        words += ["--keep-going"] if task.goes_on else []
        words += ["--steps", str(steps)] if steps else []
        return shlex.join(words)


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
    begin = time.monotonic()
    with python_for(target, at) as python:
        _run(outcome, python, task, out, say, page, on_found)
        if outcome.lost:
            _settle(outcome, python, out, say, time.monotonic() - begin)
            if not outcome.lost:
                on_found(outcome)
    if page is not None:
        words = f"ended by {interrupted_by()}" if outcome.interrupted else "the run has ended"
        page.show(News(TITLE, words, outcome.document(), 1.0, ended=True))
    return outcome


def _run(
    outcome: StoryOutcome,
    python: ReleasePython,
    task: StoryTask,
    out: Path | None,
    say: Callable[[str], None],
    page: LivePage | None = None,
    on_found: Callable[[StoryOutcome], None] = lambda outcome: None,
) -> None:
    """Run a process, and take what it tells."""
    command = python.words(f"{__package__}.stories", json.dumps(asdict(task)))
    with Printing(command, python.environment) as printing:
        try:
            for told in printing:
                _take(outcome, told, out, say)
                if "found" in told:
                    on_found(outcome)
                if page is not None and not told.keys() & {"progress", "begun", "shown", "noticed"}:
                    page.grown(lambda: _so_far(outcome))
            if not outcome.told:
                outcome.lost, outcome.last_output = printing.how_ended(), printing.last_output()
        except KeyboardInterrupt:
            outcome.interrupted = True
    if outcome.noticed:  # there was no time to make it smaller
        _take(outcome, {"found": outcome.noticed}, out, say)
        on_found(outcome)


def _settle(
    outcome: StoryOutcome, python: ReleasePython, out: Path | None, say: Callable[[str], None], seconds: float
) -> None:
    """The process was lost with a story: that is run again, each time in a process of its own, so that it is known with
    which call it ends, and it can be made smaller. If it needs those before it, they are run again as well, unless
    they took too long."""
    task, number, lost = outcome.task, outcome.begun, outcome.lost
    if number < 0 and task.replay is None:
        return
    number = max(number, 0)
    say(f"the process was lost: {lost}, in engine {number}; it is run again, in a process of its own")
    for first in (number, task.first):
        alone = first == number
        if not alone and (task.replay is not None or seconds > AGAIN_SECONDS):
            break
        again = StoryOutcome(outcome.target, task)
        forked = replace(task, first=first, forks_at=number, goes_on=False, steps=None, seconds=None, tells=False)
        _run(again, python, forked, None, lambda line: None)
        outcome.interrupted |= again.interrupted
        if again.found:
            one = again.found[0]
            if not alone:
                one = {**one, "behind": first}
            _take(outcome, {"found": one}, out, say)
            outcome.shown, outcome.picture = again.shown, again.picture
            outcome.ended_in, outcome.lost = f"the process was lost: {lost}, in engine {number}", ""
            return
        if alone and first == task.first:
            break
    where = "with this story" if task.replay is not None else f"in engine {number}; again with: {outcome.command()}"
    outcome.lost = f"{lost}, {where}"


def _size(story: SimulatedStory) -> str:
    tokens = sum(len(job.prompt) + job.max_tokens for job in story.jobs)
    blocks = plural(story.shape.groups[0].block_size, "token") if story.shape.groups else "no token"
    return f"{plural(len(story.happenings), 'happening')}, {plural(tokens, 'token')} and blocks of {blocks}"


def _so_far(outcome: StoryOutcome) -> News:
    """What its page is told."""
    so_far, task = outcome.so_far, outcome.task
    pairs = ((so_far.get("steps", 0), task.steps), (so_far.get("seconds", 0.0), task.seconds))
    share = min(1.0, max((done / most for done, most in pairs if most), default=-1.0))
    return News(TITLE, "running" if so_far else "starting", outcome.document(), share)


def _take(outcome: StoryOutcome, told: Mapping[str, Any], out: Path | None, say: Callable[[str], None]) -> None:
    if not told.keys() & {"progress", "so_far"}:
        outcome.noticed = {}
    if "noticed" in told:
        outcome.noticed = told["noticed"]
        hangs = outcome.noticed["rule"].startswith(HANG) and outcome.noticed["rule"] != START_HANGS
        if hangs and outcome.task.shrink_seconds:
            say(f"{outcome.noticed['what']}; it is made smaller, for {outcome.task.shrink_seconds:g} s at most")
    elif "found" in told:
        one = dict(told["found"])
        if out is not None:
            with told_if_lost():
                one["file"] = str(write_story(one, outcome.target, out))
        outcome.found.append(one)
        say(f"{one['name']}: {one['what']}")
    elif "progress" in told:
        say(f"{plural(told['progress']['steps'], 'step')}, {plural(told['progress']['stories'], 'engine')}")
    elif "so_far" in told:
        outcome.so_far = told["so_far"]
    elif "shown" in told:
        outcome.shown, outcome.picture = told["shown"]["lines"], told["shown"]["picture"]
    elif "begun" in told:
        outcome.begun, steps = told["begun"]["number"], told["begun"]["steps"]
        outcome.progress = f"{plural(steps, 'step')}, {plural(outcome.begun - outcome.task.first, 'engine')}"
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

    judge: str
    rule: str
    story: dict[str, Any]
    target: str = ""
    """Empty: whoever runs it says on which engine."""
    fault: str = ""


def read_story(path: Path) -> StoredStory:
    """What `write_story` wrote. TraceError, in one line, if the file holds something else."""
    return read_stored(read_file(path, FORM), str(path))


def read_stored(raw: bytes, source: str) -> StoredStory:
    """The same of the text of such a file; `source` is what messages call it."""
    stored = envelope(raw, StoredStory, FORM, source)
    try:
        stored = replace(stored, story=in_form_of_today(stored.story))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceError(source, "story", f"{error}: draw it anew with simulate") from None
    check_story(stored.story, source)
    return stored


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
