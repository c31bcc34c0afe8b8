"""What a job of continuous integration does with an engine: it is simulated, and stories are replayed on it."""

import shlex
from pathlib import Path
from xml.etree import ElementTree

from ..engines.stories import StoryTask
from ..engines.story_fuzzing import StoryOutcome, simulate
from ..engines.story_pages import page_beside_story
from .story_corpus import StoryAgain, read_story_case

STEPS = 20_000
"""How many steps are made if no limit is given."""


def simulate_words(target: str, task: StoryTask, out: Path) -> list[str]:
    """The arguments of `blockproof` that do the same."""
    options = {"target": target, "seed": task.seed, "steps": task.steps, "seconds": task.seconds, "out": out}
    words = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
    return ["simulate", *words, *(["--attention", ",".join(task.attention)] if task.attention else [])]


def simulated(target: str, task: StoryTask, out: Path) -> StoryOutcome:
    """Simulate the engine, and write a page of what is found beside it."""
    outcome = simulate(target, task, out, print)
    for one in outcome.found:
        page_beside_story(Path(one["file"]), print, target)
    return outcome


def replayed_stories(folder: Path, target: str, pages: Path) -> list[StoryAgain]:
    """What each story of a folder shows; TraceError if one cannot be read, or is the trace of a target."""
    outcomes = [read_story_case(path, target).run() for path in sorted(folder.glob("*.json"))]
    for one in outcomes:
        if one.outcome.found:
            page_beside_story(one.case.path, print, target, pages / f"{one.case.path.stem}.html")
    return outcomes


def _failures(outcome: StoryOutcome) -> list[tuple[str, str]]:
    """A headline and a text for each thing that is wrong."""
    told = []
    for one in outcome.found:
        command = shlex.join(["blockproof", "replay", one["file"], "--target", outcome.target, "--show"])
        told.append((f"{one['judge']}: {one['what']}", f"{one['name']}\n{one['what']}\nrepeat it: {command}"))
    told += [(f"floor not reached: {line}", line) for line in outcome.unmet if not told]
    if outcome.exit_code and not told:
        why = next(iter(outcome.told.get("not_built", ())), "no step ran")
        problem = f"the process was lost: {outcome.lost}" if outcome.lost else f"nothing tested: {why}"
        told.append((problem, "\n".join(outcome.lines())))
    return told


def junit(outcome: StoryOutcome) -> str:
    """JUnit XML: one test case."""
    failures = _failures(outcome)
    seconds = f"{outcome.told.get('seconds', 0.0):.3f}"
    numbers = {"tests": "1", "failures": str(len(failures)), "errors": "0", "time": seconds}
    suite = ElementTree.Element("testsuite", {"name": f"blockproof {outcome.target}", **numbers})
    case = ElementTree.SubElement(suite, "testcase", classname="simulation", name="simulate", time=seconds)
    for message, text in failures:
        ElementTree.SubElement(case, "failure", message=message).text = text
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def summary(outcome: StoryOutcome) -> str:
    """Markdown: what was done, and what was found."""
    lead, failures = outcome.document().lead(), _failures(outcome)
    lines = [f"## blockproof: {lead.conclusion}", "", lead.headline]
    for _, text in failures:
        lines += ["", "```", text, "```"]
    return "\n".join([*lines, ""])
