"""A story in a process of its own, forked from one that has made the engine: for engines that end their process.

What a story has come to, the process sends when it is over. Until then it notes which call goes on, in memory that both
share: so it is known where it has ended.
"""

import faulthandler
import os
import pickle
import select
import struct
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from mmap import mmap
from typing import Any, Final, NamedTuple, NoReturn

from ..findings.story_finding import StoryFinding
from ..opening.commands import KEPT, OUTSIDE, ended_by, last_lines
from ..simulation.answers import StoryOverError
from ..simulation.judges import FATE
from ..simulation.protocol import OPTIONAL, Engine, ScheduledBatch
from ..simulation.run import Fates
from ..targets.unharmed import notice_exits, really_exit
from .deadlines import HANG, end_what_hangs
from .played import found_at_start

LOST: Final = "the process was lost"
"""With it begins the rule of a finding that an engine ends its process."""
CALLS = ("start", "add", "cancel", "schedule", "update", "idle", *OPTIONAL)
_NOTE = struct.Struct("qqq")


class EndsHereError(StoryOverError):
    """A story goes no further: with its next call the process would end."""


class Noted(NamedTuple):
    """Which call goes on."""

    calls: int = 0
    """So many there were, with this one."""
    steps: int = 0
    method: int = 0
    """Its place in `CALLS`."""

    @property
    def name(self) -> str:
        """The method's name."""
        return CALLS[self.method]

    @property
    def step(self) -> int:
        """Number of the step that it belongs to."""
        return self.steps + (self.name == "schedule")


class NotingEngine:
    """An engine that notes its calls. All else is the engine's own."""

    def __init__(self, engine: Engine, memory: mmap, ends_at: int = 0) -> None:
        """With `ends_at` the call of this number raises `EndsHereError`."""
        self._engine, self._memory, self._ends_at = engine, memory, ends_at
        self._calls = self._steps = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._engine, name)
        return partial(self._noted, CALLS.index(name), found) if name in CALLS else found

    def _noted(self, method: int, call: Callable[..., Any], *given: Any) -> Any:
        self._calls += 1
        if CALLS[method] == "start":
            self._steps = 0
        _NOTE.pack_into(self._memory, 0, self._calls, self._steps, method)
        if self._calls == self._ends_at:
            raise EndsHereError
        answer = call(*given)
        self._steps += isinstance(answer, ScheduledBatch)
        return answer


class _Came(NamedTuple):
    """What a story came to."""

    found: list[StoryFinding]
    reached: Counter[str]
    fates: Fates
    lines: list[str]
    picture: dict[str, Any]
    happened: int


class Forked:
    """The run of one story, as `Guarded` is one: `made` makes that."""

    def __init__(self, engine: Engine, made: Callable[[Engine, bool], Any], steps: int, *, tells: bool = False) -> None:
        """`made` gets the engine and whether the run is told. Runs the story; NotImplementedError if the engine cannot
        be built."""
        came = self._run(engine, made, steps, tells=False)
        if tells:
            ends_at = came.calls if isinstance(came, _Lost) else 0
            told = self._run(engine, made, steps, tells=True, ends_at=ends_at)
            if not isinstance(told, _Lost):
                came = told._replace(found=came.found if isinstance(came, _Lost) else told.found)
        self._found, self._came = came.found, came if isinstance(came, _Came) else None

    @property
    def lines(self) -> list[str]:
        """See `Guarded`."""
        return self._came.lines if self._came else []

    @property
    def picture(self) -> dict[str, Any]:
        """See `Guarded`."""
        return self._came.picture if self._came else {}

    @property
    def reached(self) -> Counter[str]:
        """See `Guarded`; nothing is known of a process that was lost."""
        return self._came.reached if self._came else Counter()

    @property
    def fates(self) -> Fates:
        """See `Guarded`."""
        return self._came.fates if self._came else {}

    @property
    def happened(self) -> int | None:
        """See `Guarded`."""
        return self._came.happened if self._came else None

    def run(self, steps: int) -> list[StoryFinding]:
        """What was found."""
        return self._found

    def _run(
        self, engine: Engine, made: Callable[[Engine, bool], Any], steps: int, *, tells: bool, ends_at: int = 0
    ) -> "_Came | _Lost":
        """In a process. NotImplementedError if the engine cannot be built."""
        reads, writes = os.pipe()
        with mmap(-1, _NOTE.size) as memory, tempfile.TemporaryFile() as printed:
            child = os.fork()
            if not child:
                os.close(reads)
                _in_child(writes, printed.fileno(), lambda: made(NotingEngine(engine, memory, ends_at), tells), steps)
            os.close(writes)
            sent, status = _received(reads, child)
            if sent:
                built, came = pickle.loads(sent)
                if not built:
                    raise NotImplementedError(came)
                return _Came(*came)
            noted = Noted(*_NOTE.unpack(memory[:]))
            printed.seek(max(0, printed.seek(0, os.SEEK_END) - KEPT))
            return _Lost(noted.calls, [lost_at(noted, status, last_lines(printed.read()))])


class _Lost(NamedTuple):
    """The process was lost in the call of this number."""

    calls: int
    found: list[StoryFinding]


def lost_at(noted: Noted, status: int, printed: list[str]) -> StoryFinding:
    """What is said of an engine that has ended its process in this call."""
    how = ended_by(status, printed)
    if how == OUTSIDE:
        what = f"{noted.name} does not come back to Python"
        return StoryFinding(FATE, f"{HANG} in {noted.name}", what, noted.step, more=tuple(printed))
    what = f"{noted.name} ends the process: {how}"
    return StoryFinding(FATE, f"{LOST}: {how} in {noted.name}", what, noted.step, more=tuple(printed))


def _received(descriptor: int, child: int) -> tuple[bytes, int]:
    """All that comes from a process until its end, and its exit status. What it has started and left is not waited
    for."""
    got, status = b"", None
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        while True:
            has_ended = status is not None
            if status is None and (ended := os.waitpid(child, os.WNOHANG))[0]:
                status = os.waitstatus_to_exitcode(ended[1])
            if select.select([pipe], [], [], 0.1)[0]:
                if not (data := os.read(descriptor, 1 << 18)):
                    break
                got += data
            elif has_ended:
                break
    return got, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if status is None else status


def _in_child(writes: int, printed: int, made: Callable[[], Any], steps: int) -> NoReturn:
    """What the process does."""
    try:
        for descriptor in (1, 2):
            os.dup2(printed, descriptor)
        faulthandler.enable(printed, all_threads=False)
        end_what_hangs(printed)
        notice_exits()
        try:
            run = made()
        except Exception as error:  # an engine's start can fail in any way
            found = found_at_start(error)
            answer: tuple[bool, object] = bool(found), (found, Counter(), {}, [], {}, 0)
            answer = answer if found else (False, f"{type(error).__name__}: {error}")
        else:
            found = run.run(steps)
            answer = True, (found, run.reached, run.fates, run.lines, run.picture, run.happened)
        with os.fdopen(writes, "wb") as pipe:
            pickle.dump(answer, pipe)
    except BaseException:
        traceback.print_exc()
        really_exit(1)
    really_exit(0)
