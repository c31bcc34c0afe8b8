"""How long an engine under simulation may take: for one call, for its start, and for a whole story.

A signal comes now and then, and its handler looks at which call goes on: so a call costs nothing for being watched. An
engine that does not come back to Python, as in a loop of C++, hears no signal: in a process of its own, a thread of the
interpreter's own prints its stack then, and ends the process (`faulthandler.dump_traceback_later`).
"""

import faulthandler
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ..simulation.answers import StoryOverError
from ..simulation.run import SimulatedRun

CALL_SECONDS = 10.0
"""As a target has for an operation (`ChildLimits`)."""
START_SECONDS = 60.0
"""Some engines load a model. Those that compute with one have as long for a call."""
STORY_SECONDS = 60.0
"""A story that takes longer hangs: nearly all end within a fraction of a second."""
SPARE = 5.0
"""So much later the process of an engine is ended that does not come back to Python."""
HANG = "hang"
"""With it begins the rule of a finding that an engine does not come back."""
START_HANGS = f"{HANG} in start"
"""That of one that takes too long to try it again."""
_LOOKS = 10
"""In the time of a call."""
_stacks: list[int] = []


class StoryTooLongError(StoryOverError):
    """A call has taken its time, or a story has."""

    def __init__(self, method: str, step: int, what: str) -> None:
        super().__init__(what)
        self.method, self.step, self.what = method, step, what


def end_what_hangs(stacks: int) -> None:
    """From now on this process is ended if an engine does not come back to Python; its stack is printed to this
    descriptor."""
    _stacks[:] = [stacks]


@contextmanager
def deadline(*, starts: bool = False, computes: bool = False) -> Iterator[None]:
    """`StoryTooLongError` in the block once a call of an engine has taken too long, or the whole block. With `starts`
    an engine is started in it; one that `computes` itself has as long for each call."""
    watch = _Watch(STORY_SECONDS, START_SECONDS if starts or computes else CALL_SECONDS)
    before = signal.signal(signal.SIGALRM, watch.look)
    watch.arm()
    signal.setitimer(signal.ITIMER_REAL, CALL_SECONDS / _LOOKS, CALL_SECONDS / _LOOKS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if _stacks:
            faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)


class _Watch:
    """Looks at which call goes on."""

    def __init__(self, whole: float, call: float) -> None:
        self._end, self._whole, self._most = time.monotonic() + whole, whole, call
        self._call: FrameType | None = None
        self._seen = 0.0
        self._is_over = False
        """It has been said that it is too late: who catches that and goes on is ended."""

    def arm(self) -> None:
        """The process has so long until the next look."""
        if _stacks:
            faulthandler.dump_traceback_later(self._most + SPARE, exit=True, file=_stacks[0])

    def look(self, number: int, frame: FrameType | None) -> None:
        """What the signal does."""
        if not self._is_over:
            self.arm()
        now, call = time.monotonic(), _call_of(frame)
        if call is None or call is not self._call:
            self._call, self._seen = call, now
        elif now - self._seen >= self._most:
            method, run, self._is_over = call.f_locals["method"], call.f_locals["self"], True
            raise StoryTooLongError(method, run.step_of(method), f"{method} does not return within {self._most:g} s")
        if now > self._end:
            self._is_over = True
            step = 0 if call is None else call.f_locals["self"].steps
            raise StoryTooLongError("", step, f"the story has no end within {self._whole:g} s")


def _call_of(frame: FrameType | None) -> FrameType | None:
    """The frame in which the driver calls the engine; None if it does not do so just now."""
    while frame is not None and frame.f_code is not SimulatedRun._call.__code__:
        frame = frame.f_back
    return frame
