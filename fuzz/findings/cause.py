"""What is kept of an exception that a core raised: its type, its message, and the places it came through."""

from dataclasses import dataclass
from os.path import basename

from ...model.ops import Failed, error_kind
from .visible import whole

MAX_MESSAGE = 300
CORE_FRAMES = 2
"""How many places of the core are kept of an exception."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One place that an exception came through."""

    file: str  #: without its folder
    line: int
    function: str
    adapter: bool = False  #: in the file that caught the exception, so part of the target and not of its core


@dataclass(frozen=True, slots=True)
class Cause:
    """What is known of an exception, for those who have to find out why it was raised."""

    type: str
    message: str  #: one line of at most `MAX_MESSAGE` characters
    frames: tuple[Frame, ...] = ()  #: the place in the adapter, then the innermost places of the core


def cause_of(error: BaseException, skip: int = 0) -> Cause:
    """Type, message and innermost places of an exception that was caught.

    The file that caught it is taken as the adapter: of it the last place is kept, and what lies behind is the core's.
    `skip` outermost places are left out first: those of a caller that is no part of the target.
    """
    try:
        message = whole(" ".join(str(error).split()))
    except KeyboardInterrupt:
        raise
    except BaseException as broken:  # an exception of a core may be unable to say anything
        message = f"(no message: its text raised {type(broken).__name__})"
    if len(message) > MAX_MESSAGE:
        message = message[: MAX_MESSAGE - 4] + " ..."
    places = []
    trace = error.__traceback__
    while trace is not None:
        places.append((trace.tb_frame.f_code, trace.tb_lineno))
        trace = trace.tb_next
    places = places[skip:]
    last = max((i for i, (code, _) in enumerate(places) if code.co_filename == places[0][0].co_filename), default=0)
    kept = [*places[last : last + 1], *places[last + 1 :][-CORE_FRAMES:]]
    frames = (
        Frame(basename(code.co_filename), line, getattr(code, "co_qualname", code.co_name), i == 0)
        for i, (code, line) in enumerate(kept)
    )
    return Cause(type(error).__name__, message, tuple(frames))


def failed(error: BaseException) -> Failed:
    """The outcome of a call that raised this exception, with its cause. To be called where the exception is caught."""
    return Failed(error_kind(error), cause_of(error))
