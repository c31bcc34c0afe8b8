"""Runs stories on an engine one after the other, as they are asked for, and says what each came to.

`python -m blockproof.fuzz.engines.story_server TARGET READ WRITE`: a line of JSON for each story comes on one pipe and
is answered on the other. The first line says what the engine says of itself.
"""

import gc
import os
import sys
from dataclasses import asdict
from typing import Any

from ..opening.commands import last_lines
from ..opening.engines import engine_spec, open_engine_here
from ..opening.process import LAST_OUTPUT, ChildLimits, Launch, Process
from ..opening.program import object_of
from ..opening.serve import begin_child
from ..opening.targets import Home, python_for
from ..opening.wire import document_of, line_of
from ..simulation.story import SimulatedStory, story_from_json, story_to_json
from ..simulation.traffic import EngineFacts
from ..targets.base import TargetLostError, TargetUnavailableError
from ..targets.unharmed import notice_exits
from .deadlines import SPARE, START_SECONDS, STORY_SECONDS, end_what_hangs
from .played import Played, facts_from_json, facts_to_json, found_at_start, played_from_json
from .simulated import MOST_STEPS, SimulatedFamily


class StoryPlayer:
    """An engine in a process of its own, which plays one story after the other. To be closed."""

    def __init__(self, target: str, at: Home | None = None) -> None:
        """`at`: what is opened, and where, if the name does not say it. ValueError for a name that means no engine, and
        for an engine that declares what cannot be meant; TargetUnavailableError if it cannot be made."""
        self._target, self._at = target, at
        self._python = python_for(target, at)
        self._here = self._python.__enter__()
        self._process: Process | None = None
        try:
            self.facts = self._launch()
        except BaseException:
            self.close()
            raise

    def _launch(self) -> EngineFacts:
        spec = self._at.spec if self._at else engine_spec(self._target)
        launch = Launch(self._target, self._here.words(__name__, spec), self._here.environment)
        self._process = Process(launch, ChildLimits(operation_s=START_SECONDS + STORY_SECONDS + 2 * SPARE))
        first = self._process.first(object_of)
        if "refused" in first:
            raise (ValueError if first["usage"] else TargetUnavailableError)(first["refused"])
        return facts_from_json(first["facts"])

    def play(self, story: SimulatedStory) -> Played:
        """What a story comes to. A process that is lost with it is an answer; it is launched anew."""
        assert self._process is not None
        document = story_to_json(story)
        try:
            raw = self._process.exchange(line_of(document), "a story", self._process.limits.operation_s, object_of)
        except TargetLostError as lost:
            self._process.end()
            self._launch()
            how, _, printed = lost.detail.partition(LAST_OUTPUT)
            return Played.of_lost(lost.kind, how, last_lines(printed.encode()))
        return played_from_json(raw)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.end()
        self._python.__exit__(None, None, None)


def main(target: str, read: str, write: str) -> None:
    """See above."""
    begin_child(int(read), int(write))
    notice_exits()
    end_what_hangs(os.dup(2))
    stories, answers = os.fdopen(int(read), "rb"), os.fdopen(int(write), "wb", buffering=0)

    def say(told: dict[str, Any]) -> None:
        answers.write(line_of(told))

    try:
        family = SimulatedFamily(open_engine_here(target))
        gc.freeze()  # what an engine has imported stays
    except (ValueError, TargetUnavailableError) as wrong:
        say({"refused": str(wrong), "usage": isinstance(wrong, ValueError)})
        return
    say({"facts": facts_to_json(family.facts)})
    for line in stories:
        story = story_from_json(document_of(line))
        try:
            run = family.run_of(story)
        except Exception as error:  # an engine's start can fail in any way
            found = found_at_start(error)
            say(asdict(Played(found, not_built="" if found else f"{type(error).__name__}: {str(error)[:120]}")))
            continue
        found = run.run(MOST_STEPS)
        say(asdict(Played(found, run.fates, dict(run.reached))))


if __name__ == "__main__":
    main(*sys.argv[1:])
