"""The releases of a family between two versions, installed as needed and tried side by side."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread

from ..opening.environments import install
from ..opening.exercise import version_run_by
from ..opening.targets import interpreter_of, open_target
from ..targets.base import TargetUnavailableError
from .bisect import Answer, Question, State, observe, one_line

_SLICE_S = 0.2


class Releases:
    """A line of releases and what a trace does on each: an answer for every one that was tried."""

    def __init__(
        self,
        specs: Sequence[str],
        question: Question,
        say: Callable[[str], None],
        *,
        jobs: int = 2,
        installs: bool = True,
    ) -> None:
        """`say` is told what happens. Without `installs`, a release that is not there is not observed."""
        self.specs = tuple(specs)
        self.answers: dict[int, Answer] = {}
        """By the place in `specs`."""
        self._question = question
        self._say = say
        self._jobs = jobs
        self._installs = installs

    def look(self, places: Sequence[int]) -> dict[int, bool | None]:
        """Try the releases at these places, `jobs` of them at a time; the next is installed meanwhile."""
        waiting: SimpleQueue[int | None] = SimpleQueue()
        done: SimpleQueue[tuple[int, Answer | BaseException]] = SimpleQueue()
        started = 0
        # Not an executor: the interpreter would wait for its threads, and Ctrl-C must not wait for a target.
        for _ in range(min(self._jobs, len(places))):
            Thread(target=self._work, args=(waiting, done), daemon=True).start()
        try:
            for place in places:
                why = self._missing(self.specs[place])
                if why:
                    self._take(place, Answer(State.UNSEEN, why))
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
            interpreter_of(spec)
        except TargetUnavailableError as error:
            if not self._installs:
                return one_line(str(error))
            try:
                install(spec, lambda step: self._say(f"{spec}: {step}"), version_run_by)
            except TargetUnavailableError as failure:
                return one_line(str(failure))
        return ""

    def _work(
        self, waiting: "SimpleQueue[int | None]", done: "SimpleQueue[tuple[int, Answer | BaseException]]"
    ) -> None:
        """What a thread does: try what is waiting, until there is nothing more to come."""
        while (place := waiting.get()) is not None:
            spec = self.specs[place]
            try:
                done.put((place, observe(self._question, lambda spec=spec: open_target(spec, isolate=True))))  # type: ignore[misc]
            except BaseException as error:
                done.put((place, error))

    def _take(self, place: int, answer: Answer | BaseException) -> None:
        if isinstance(answer, BaseException):
            raise answer
        self.answers[place] = answer
        self._say(f"{self.specs[place]}: {answer.state}" + (f" ({answer.why})" if answer.why else ""))
