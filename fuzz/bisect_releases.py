"""The releases of a family between two versions, installed as needed and tried side by side."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread

from .adapters import families, family_of
from .adapters.family import Family
from .bisect import Answer, BisectError, Question, State, observe, one_line
from .targets.base import TargetUnavailableError
from .targets.child import ChildTarget, Place
from .targets.commands import exercise
from .targets.environments import install
from .targets.registry import interpreter_of, open_target

_VERSION = re.compile(r"(\d+(?:\.\d+)*)(?:(\.dev|a|b|rc|\.post)(\d+))?")
_PHASES = {".dev": -4, "a": -3, "b": -2, "rc": -1, None: 0, ".post": 1}
_SLICE_S = 0.2
_INDEX_S = 120.0
"""How long the package index may take to list the versions."""


def version_key(version: str) -> tuple[tuple[int, ...], int, int]:
    """Sorts versions by age: 0.9 before 0.10, a release after its candidates; 0.20 and 0.20.0 are the same.

    ValueError for what is no version.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        raise ValueError(f"{version!r} is no version")
    numbers = [int(part) for part in match[1].split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers), _PHASES[match[2]], int(match[3] or 0)


def range_in(text: str, family_name: str | None, trace_target: str) -> tuple[Family, str, str]:
    """Family, first and last version in `A..B` or `NAME==A..B`.

    The family is the one written there, else `family_name`, else that of the trace's target. BisectError (2) for
    anything else.
    """
    name, named, versions = text.rpartition("==")
    family = _family(name if named else family_name, trace_target)
    first, _, last = versions.partition("..")
    try:
        family.version_in(family.spec(first))
        family.version_in(family.spec(last))
    except ValueError:
        example = f"{family.releases[0]}..{family.releases[-1]}"
        raise BisectError(f"--releases: {text!r} is no range; write A..B, as in {example}", 2) from None
    if version_key(first) >= version_key(last):
        raise BisectError(f"--releases: {first} is not older than {last}; write the older one first", 2)
    return family, first, last


def _family(name: str | None, trace_target: str) -> Family:
    known = ", ".join(families())
    if name is not None:
        if name not in families():
            raise BisectError(f"there is no family {name!r} of releases; write one of {known}", 2)
        return families()[name]
    family = family_of(trace_target)
    if family is None:
        raise BisectError(f"the trace was made with {trace_target!r}, no release; add --family and one of {known}", 2)
    return family


def candidates(family: Family, first: str, last: str, more: Iterable[str] = ()) -> tuple[str, ...]:
    """The versions to try, oldest first: both ends, and what the family knows between them, and these."""
    low, high = version_key(first), version_key(last)
    between = {version_key(version): version for version in (*more, *family.releases)}
    inner = {key: version for key, version in between.items() if low < key < high}
    return tuple(version for _, version in sorted({**inner, low: first, high: last}.items()))


def published(family: Family) -> tuple[str, ...]:
    """Every final version of the family that pip finds on its package index. BisectError (3) if it cannot ask."""
    command = [sys.executable, "-m", "pip", "index", "versions", family.distribution]
    command += ["--disable-pip-version-check", "--no-input", "--retries", "1"]
    advice = "leave out --patches to try the known releases only"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_INDEX_S, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BisectError(f"--patches: pip cannot be asked ({one_line(str(error))}); {advice}", 3) from None
    listed = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    if done.returncode or listed is None:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        why = one_line(said[0]) if said else "it listed none"
        raise BisectError(f"--patches: pip cannot list the versions of {family.distribution} ({why}); {advice}", 3)
    return tuple(version for version in listed[1].split(", ") if _VERSION.fullmatch(version))


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
                install(spec, lambda step: self._say(f"{spec}: {step}"), _version_run_by)
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


def _version_run_by(family: Family, place: Place) -> str:
    return exercise(ChildTarget(family.name, family.name, place))
