"""Since which release of an engine a trace fails: the releases are installed as needed and tried at the same time."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from ..opening.environments import install
from ..opening.new_target import version_run_by
from ..opening.patches import Patch
from ..opening.targets import interpreter_of, open_target
from ..targets.base import TargetUnavailableError
from ..targets.family import unpatched
from .bisect import (
    BisectAnswer,
    BisectQuestion,
    State,
    TurningPoint,
    answer_lines,
    changes,
    observe,
    one_line,
    search,
)
from .bisect_story import StoryQuestion, observe_story
from .versions import candidates, published, range_in

_SLICE_S = 0.2
Say = Callable[[str], None]


@dataclass(frozen=True)
class Range:
    """Which releases are asked about, and how."""

    text: str
    """`A..B` or `NAME==A..B`."""
    family: str | None = None
    """Name of the engine, where `text` has none; if None, that of the trace."""
    every: bool = False
    """Try every release, not only what a search takes."""
    patches: bool = False
    """All versions that the package index has, not only those that are known to work."""
    installs: bool = True
    """Install what is missing."""
    jobs: int = 2
    """Releases tried at a time."""
    over: Patch | None = None
    """What is put over each release."""


@dataclass(frozen=True)
class BisectedReleases:
    """What a trace does on the releases that were tried, and what follows from it."""

    question: BisectQuestion | StoryQuestion
    specs: tuple[str, ...]
    """All releases of the range, oldest first."""
    answers: Mapping[int, BisectAnswer]
    """By the place in `specs`, for those that were tried."""
    every: bool
    interrupted: bool
    """True if Ctrl-C ended the search."""

    @property
    def known(self) -> dict[int, bool | None]:
        """By place: whether the trace fails; None where that cannot be seen."""
        return {place: answer.state.fails for place, answer in self.answers.items()}

    @property
    def code(self) -> int:
        """0 if there is an answer, 1 if both ends do the same, 3 if too few releases could be observed, 130 for Ctrl-C.

        With `every`, one release that could be observed is an answer.
        """
        if self.interrupted:
            return 130
        if self._observed() < (1 if self.every else 2):
            return 3
        return 0 if self.every or any(changes(self.known)) else 1

    def lines(self) -> list[str]:
        """A table of the answers, and below it what they come to."""
        rows = [(self.specs[place], self.answers[place]) for place in sorted(self.answers)]
        return [*answer_lines("release", rows, self.question.unit, self.question.count), self.verdict()]

    def verdict(self) -> str:
        """What the answers come to, in a sentence for each change."""
        if self.interrupted:
            return "interrupted"
        if self._observed() < (1 if self.every else 2):
            return "fewer than two releases could be observed, so nothing is told"
        found = list(changes(self.known))
        if not found:
            what = "it fails" if True in self.known.values() else "it does not fail"
            if self.every:
                return f"{what} in any release that could be observed"
            return f"{what} at either end, so there is no first release to tell; --all tries every release between"
        lines = [self._change_text(change) for change in found]
        if len(found) > 1:
            lines.insert(0, f"it changes {len(found)} times:")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The same as JSON-ready data."""
        return {
            "kind": self.question.kind,
            "oracles": self.question.oracles,
            "releases": [
                {"release": self.specs[place], **self.answers[place].as_json()} for place in sorted(self.answers)
            ],
            "changes": [self._change_json(change) for change in changes(self.known)],
            "text": self.verdict(),
        }

    def _observed(self) -> int:
        return sum(fails is not None for fails in self.known.values())

    def _change_text(self, change: TurningPoint) -> str:
        before, after = self.specs[change.before], self.specs[change.after]
        if change.begins:
            text = f"first fails in {after} (the last that does not: {before})"
        else:
            text = f"first release in which it no longer fails: {after} (the last that does: {before})"
        if change.blind:
            text += f"; or in one between, where it could not be seen: {', '.join(self._names(change.blind))}"
        if change.untried:
            text += f"; not tried between them: {', '.join(self._names(change.untried))} (--all tries them)"
        return text

    def _change_json(self, change: TurningPoint) -> dict[str, Any]:
        return {
            "begins": change.begins,
            "before": self.specs[change.before],
            "after": self.specs[change.after],
            "not_observed": self._names(change.blind),
            "not_tried": self._names(change.untried),
        }

    def _names(self, places: Sequence[int]) -> list[str]:
        return [self.specs[place] for place in places]


def bisect_releases(target: str, question: BisectQuestion | StoryQuestion, wanted: Range, say: Say) -> BisectedReleases:
    """Search a range of releases for those between which the trace, or story, begins, or no longer continues, to fail.

    `target`: that of its file. `say` is told what happens, a line each. Ctrl-C ends it with the answers there are.
    BisectError for a range that makes no sense.
    """
    family, first, last = range_in(wanted.text, wanted.family, target)
    versions = candidates(family, first, last, published(family) if wanted.patches else ())
    specs = [(wanted.over or Patch()).over(family.spec(version)) for version in versions]
    line = Releases(specs, question, say, jobs=wanted.jobs, installs=wanted.installs)
    interrupted = False
    try:
        if wanted.every:
            line.look(range(len(specs)))
        else:
            search(len(specs), line.look, wanted.jobs)
    except KeyboardInterrupt:
        interrupted = True
    return BisectedReleases(question, line.specs, line.answers, wanted.every, interrupted)


class Releases:
    """A line of releases and what a trace does on each: an answer for every one that was tried."""

    def __init__(
        self,
        specs: Sequence[str],
        question: BisectQuestion | StoryQuestion,
        say: Say,
        *,
        jobs: int = 2,
        installs: bool = True,
    ) -> None:
        """`say` is told what happens. Without `installs`, a release that is not there is not observed."""
        self.specs = tuple(specs)
        self.answers: dict[int, BisectAnswer] = {}
        """By the place in `specs`."""
        self._question = question
        self._say = say
        self._jobs = jobs
        self._installs = installs

    def look(self, places: Sequence[int]) -> dict[int, bool | None]:
        """Try the releases at these places, `jobs` of them at a time; the next is installed meanwhile."""
        waiting: SimpleQueue[int | None] = SimpleQueue()
        done: SimpleQueue[tuple[int, BisectAnswer | BaseException]] = SimpleQueue()
        started = 0
        # Not an executor: the interpreter would wait for its threads, and Ctrl-C must not wait for a target.
        for _ in range(min(self._jobs, len(places))):
            Thread(target=self._work, args=(waiting, done), daemon=True).start()
        try:
            for place in places:
                why = self._missing(self.specs[place])
                if why:
                    self._take(place, BisectAnswer(State.UNSEEN, why))
                else:
                    waiting.put(place)
                    started += 1
                while not done.empty():
                    self._take(*done.get())
                    started -= 1
            while started:
                # In slices: a thread that waits for good may not notice Ctrl-C if that comes as it begins to wait.
                with suppress(Empty):
                    self._take(*done.get(timeout=_SLICE_S))
                    started -= 1
        finally:
            for _ in range(self._jobs):
                waiting.put(None)
        return {place: self.answers[place].state.fails for place in places}

    def _missing(self, spec: str) -> str:
        """Why this release cannot be started; empty if it is here, if need be since now."""
        try:
            interpreter_of(unpatched(spec))
        except TargetUnavailableError as error:
            if not self._installs:
                return one_line(str(error))
            try:
                install(unpatched(spec), lambda step: self._say(f"{spec}: {step}"), version_run_by)
            except TargetUnavailableError as failure:
                return one_line(str(failure))
        return ""

    def _work(
        self, waiting: "SimpleQueue[int | None]", done: "SimpleQueue[tuple[int, BisectAnswer | BaseException]]"
    ) -> None:
        """What a thread does: try what is waiting, until there is nothing more to come."""
        while (place := waiting.get()) is not None:
            spec = self.specs[place]
            try:
                done.put((place, _observed(self._question, spec)))
            except BaseException as error:
                done.put((place, error))

    def _take(self, place: int, answer: BisectAnswer | BaseException) -> None:
        if isinstance(answer, BaseException):
            raise answer
        self.answers[place] = answer
        self._say(f"{self.specs[place]}: {answer.state}" + (f" ({answer.why})" if answer.why else ""))


def _observed(question: BisectQuestion | StoryQuestion, spec: str) -> BisectAnswer:
    if isinstance(question, StoryQuestion):
        return observe_story(question, spec)
    return observe(question, lambda: open_target(spec, isolate=True))
