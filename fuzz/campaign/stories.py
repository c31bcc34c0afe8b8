"""Tasks of a campaign on an engine: it is simulated, and its stories are replayed. What is found is kept as the file of
a story, where a target's finding has a trace.
"""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..engines.stories import StoryTask
from ..engines.story_fuzzing import StoryOutcome, play, read_stored, simulate, story_name, story_text
from ..findings.severity import Severity
from ..findings.words import plural
from ..findings.writing import write_file
from ..reports.campaign import CampaignFound, CampaignRow
from ..reports.run import RunDocument
from ..reports.scheduler import SchedulerDocument
from ..reports.summary import NEW
from ..simulation.judges import CAPACITY, FATE, JUDGES, MEMORY, PROGRESS, TOKENS
from ..traces.files import STORY, TraceError
from .tasks import Cause, ReplayShown, Task, TaskFinding, TaskResult

SIMULATION = "simulation"
"""What makes the runs of such an arm, where others name one of `engines.seeded.ENGINES`."""
ORACLES = tuple(JUDGES)
"""What judges them."""
ALL = "all"
"""In place of attention types: all that the engine has."""
TASK_STEPS = 10_000
_SEVERITY: Mapping[str, Severity] = {
    TOKENS: Severity.WRONG_CONTENT,
    MEMORY: Severity.WRONG_CONTENT,
    PROGRESS: Severity.CRASH,
    FATE: Severity.CRASH,
    CAPACITY: Severity.LEAK,
}


def simulated(task: Task, tell: Callable[[TaskResult], None] = lambda result: None) -> TaskResult:
    """What a task on an engine comes to, without the seconds; `tell` hears what was found so far.

    TargetUnavailableError if the engine cannot be made, or says what cannot be meant.
    """
    if task.kind == "replay":
        return _replayed(task)
    attention = () if task.attention == ALL else (task.attention,)
    asked = StoryTask(task.seed, steps=task.operations or None, seconds=task.seconds, attention=attention)
    asked = replace(asked, shrink_seconds=task.options.shrink_seconds)
    outcome = simulate(task.target, asked, None, lambda line: None, on_found=lambda far: tell(_result(task, far)))
    return _result(task, outcome)


def _result(task: Task, outcome: StoryOutcome) -> TaskResult:
    told, reached = outcome.told, outcome.told.get("reached", {})
    runs, unbuilt = told.get("stories", 0), sum(told.get("not_built", {}).values())
    findings = [*_findings(outcome, task)]
    return TaskResult(
        task.number,
        told.get("steps", 0),
        runs=runs,
        unbuilt=unbuilt,
        situations={name: many for name, many in sorted(reached.items()) if many},
        keys=tuple(sorted(f"{name} x{1 << (many.bit_length() - 1)}" for name, many in reached.items() if many > 0)),
        findings=tuple(findings),
        problem=_problem(outcome) if told or outcome.lost else "",
        row=_row(task, outcome.document(), findings) if task.options.at_once else None,
    )


def _row(task: Task, run: SchedulerDocument, findings: Sequence[TaskFinding]) -> CampaignRow:
    """The same for people."""
    cell = RunDocument(task.target, run.stories, run.steps, SIMULATION, task.seed, run.seconds, oracles=[*ORACLES])
    cell.reached, cell.history = run.reached, run.history
    cell.attention, cell.unbuilt = {task.attention: run.stories}, {task.attention: sum(run.not_built.values())}
    row = CampaignRow(task.target, cells={task.attention: cell})
    for one in findings:
        judge, rule = one.cause[1:3]
        found = CampaignFound(str(Severity(one.severity)), one.oracle, judge, rule, task.attention)
        found.root_cause, found.text = one.root or NEW, one.text
        found.times, found.operations = one.times, one.operations
        row.findings.append(found)
    return row


def _problem(outcome: StoryOutcome) -> str:
    if outcome.lost:
        return f"the process was lost: {outcome.lost}"
    if outcome.exit_code == 3:
        return f"no step ran: {next(iter(outcome.told.get('not_built', ())), 'no engine was built')}"
    return ""


def _findings(outcome: StoryOutcome, task: Task) -> Iterator[TaskFinding]:
    """One for each cause, with its smallest story."""
    for name in dict.fromkeys(one["name"] for one in outcome.found):
        ones = [one for one in outcome.found if one["name"] == name]
        smallest = min(ones, key=lambda one: len(json.dumps(one["story"])))
        cause: Cause = (SIMULATION, smallest["judge"], smallest["known"] or smallest["rule"])
        cause += (task.attention,) if task.options.at_once else ()
        kept = {**smallest, "finding": {"identity": [smallest["judge"], smallest["rule"]]}}
        known = cause in task.options.known_causes
        yield TaskFinding(
            cause,
            smallest["judge"],
            f"{smallest['judge']}: {smallest['what']}",
            _SEVERITY.get(smallest["judge"], Severity.OUR_BUG).value,
            "" if known else story_text(kept, task.target),
            len(smallest["story"]["happenings"]),
            smallest["complete"],
            outcome.told.get("counted", {}).get(name, len(ones)),
            smallest["known"],
        )


def _replayed(task: Task) -> TaskResult:
    """What each of its stories shows. What shows something else than it was written for is a finding."""
    shown, others = list[ReplayShown](), list[TaskFinding]()
    for number, text in enumerate(task.options.traces):
        stored = read_stored(text.encode(), f"story {number}")
        outcome = play(stored, task.target, lambda line: None)
        identity: tuple[str, ...] = ()
        if outcome.found:
            identity = outcome.found[0]["judge"], outcome.found[0]["rule"]
            others += _findings(outcome, task) if identity != (stored.judge, stored.rule) else ()
        said = "; ".join(f"{one['judge']}: {one['what']}" for one in outcome.found) or _problem(outcome)
        shown.append(ReplayShown(identity, said, (), outcome.told.get("steps", 0)))
    return TaskResult(task.number, findings=tuple(others), replayed=tuple(shown))


@dataclass(frozen=True)
class KeptStory:
    """The file of a story, as text."""

    text: str
    raw: Mapping[str, Any]

    @property
    def what(self) -> str:
        """What it shows, in a few words."""
        return f"{self.raw['judge']}: {self.raw['what']}"

    @property
    def length(self) -> str:
        """How long it is."""
        return plural(len(self.raw["story"]["happenings"]), "happening")

    def path(self, folder: Path) -> Path:
        """Where it is written in a folder."""
        return folder / story_name(self.text)

    def write(self, folder: Path) -> Path:
        """Write it into a folder, which is made."""
        write_file(self.path(folder), self.text + "\n")
        return self.path(folder)

    def command(self, path: Path) -> str:
        """What repeats it."""
        return shlex.join(["blockproof", "replay", str(path), "--target", self.raw["target"]])


def kept_story(text: str, source: str) -> KeptStory | None:
    """The story in this text; None if it is a trace. TraceError if it cannot be used."""
    if f'"{STORY}"' not in text[:100]:
        return None
    if not read_stored(text.encode(), source).target:
        raise TraceError(source, "", "does not say with which engine it was made")
    return KeptStory(text, json.loads(text))
