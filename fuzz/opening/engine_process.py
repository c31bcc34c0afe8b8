"""How a process of ours that runs an engine tells what it finds: on a descriptor that the engine does not know.

What is read of it, `commands.Printing` says.
"""

import faulthandler
import json
import os
import signal
import sys
from collections.abc import Callable
from io import TextIOWrapper

from ..targets.unharmed import notice_exits


def begin_telling() -> tuple[Callable[..., None], int]:
    """What such a process does first. Returns what tells an object, by the names that it is given, and the descriptor
    to which stacks are written.

    The engine may print, close its streams and write to descriptor 1 as it likes: that leads to standard error. If it
    is ended by a signal, the stack is printed there; `os._exit` raises SystemExit, so that it is known where the engine
    has called it. Ctrl-C is for the parent: a KeyboardInterrupt in here comes from the engine.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    told, stacks = os.dup(1), os.dup(2)  # no process inherits them that the engine starts
    os.dup2(2, 1)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # what it has printed is the last that is heard of it
    faulthandler.enable(stacks, all_threads=False)
    notice_exits()

    def tell(**what: object) -> None:
        """Write a line, whatever was written there before."""
        left = memoryview(f"\n{json.dumps(what)}\n".encode())
        while left:
            left = left[os.write(told, left) :]

    return tell, stacks
