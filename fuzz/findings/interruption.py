"""The signals by which a user, a job of CI or a cluster ends a command: all of them end it as Ctrl-C does.

The command raises KeyboardInterrupt then, wherever it is, tells what it has found so far, and keeps it.
"""

import signal
from typing import Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_heard: list[int] = []
_listening: list[bool] = []


def listen() -> None:
    """Let these signals interrupt this program, except those that whoever started it wants it not to hear.

    A handler that another program has put there, as a measure of coverage does, gives way to this one.
    """
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    _listening.append(True)


def interrupt(number: int, frame: object) -> None:
    """What the program does at such a signal."""
    _heard.append(number)
    raise KeyboardInterrupt


def interrupts(number: int) -> bool:
    """True if this signal raises KeyboardInterrupt in this process."""
    return signal.getsignal(number) in (interrupt, signal.default_int_handler)


def is_from_outside() -> bool:
    """False for a KeyboardInterrupt of which it is known that a target has raised it: nobody has sent a signal."""
    return not _listening or bool(_heard)


def interrupted_by() -> str:
    """What has ended the command, in words."""
    name = signal.Signals(_heard[-1]).name if _heard else "SIGINT"
    return "Ctrl-C" if name == "SIGINT" else name
