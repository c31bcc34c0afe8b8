"""What `replay` does with the files of other commands than `fuzz`: a question of `fuzz-config`, a story of
`fuzz-scheduler`.
"""

from pathlib import Path
from typing import NoReturn

import typer

from .options import calculator_or_usage, closed_after, document_alone, guarded, recorded_target, timed_teller
from .outputs import tagged


def replay_question(path: Path, target: str | None, isolate: bool | None, as_json: bool) -> NoReturn:
    """Ask again what a file of a finding holds, and exit."""
    from ..configuration.findings import as_document, finding_text, read_finding
    from ..configuration.fuzzing import ask_recorded

    recorded = read_finding(path)
    spec = target or recorded_target(path, recorded.target)
    with closed_after(calculator_or_usage(spec, isolate)) as calculator, document_alone(as_json):
        found = ask_recorded(path, recorded, calculator)
    if as_json:
        print(tagged("replay", {"target": calculator.name, "found": as_document(found) if found else None}))
    else:
        print(finding_text(found) if found else f"{recorded.op}: {calculator.name} agrees")
    raise typer.Exit(1 if found else 0)


def replay_story(path: Path, target: str | None, as_json: bool) -> NoReturn:
    """Run the engine of a file of a finding again, on its release or on another one, and exit."""
    from ..engines.stories import StoryTask
    from ..engines.story_fuzzing import fuzz_scheduler as run
    from ..engines.story_fuzzing import read_story

    stored = read_story(path)
    task = StoryTask(replay=stored.story, fault=stored.fault, shrink_seconds=0.0)
    outcome = guarded(lambda: run(target or stored.target, task, None, timed_teller(), None))
    print(outcome.document().text() if as_json else "\n".join(outcome.lines()))
    raise typer.Exit(outcome.exit_code)
