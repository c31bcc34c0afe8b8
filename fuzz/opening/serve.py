"""The program in the child process of a target: `python -m blockproof.fuzz.opening.serve SPEC IN OUT ROLE`.

SPEC names the target; IN and OUT are inherited file descriptors for requests and answers; ROLE is `target` or
`calculator`. It runs in the target's Python environment, where only the standard library and the target are installed.
The target may print: stdout and stderr go to the parent through a pipe of their own.
"""

import faulthandler
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

from ...model.ops import operation_from_json, shape_from_json
from ..targets.base import TargetLostError, TargetUnavailableError
from .targets import open_calculator_here, open_here
from .wire import HEADER, answer_message, frame, message_of, notes_of

SAMPLE_EVERY = 256
"""Resident memory is measured every Nth operation."""


def main(arguments: list[str]) -> None:
    """Answer requests to one target until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends us
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=False)  # the parent asks for the stack of a target that hangs
    spec, requests, answers, role = arguments[0], int(arguments[1]), int(arguments[2]), arguments[3]
    for descriptor in (requests, answers):
        os.set_inheritable(descriptor, False)
    threading.Thread(target=_end_with_parent, args=(requests,), daemon=True).start()
    try:
        served: Any = open_calculator_here(spec) if role == "calculator" else open_here(spec)
    except (TargetUnavailableError, ValueError, ImportError) as error:
        _send(answers, frame(["unavailable", str(error)]))
        return
    said = [sorted(getattr(served, name, ())) for name in ("lacks", "hides")]
    _send(answers, frame(["ready", str(getattr(served, "version", "")), resident_bytes(), *said]))
    for count, payload in enumerate(_frames(requests)):
        _send(answers, _answer(served, payload, count % SAMPLE_EVERY == 0))


def _answer(served: Any, payload: bytes, measure: bool) -> bytes:
    try:
        message: list[Any] = message_of(payload)
        kind, document = message
        if kind == "ask":
            return frame(["answers", [served.ask(op, inputs) for op, inputs in document], resident_bytes()])
        if kind == "start":
            outcome, snapshot = served.start(shape_from_json(document))
        else:
            outcome, snapshot = served.step(operation_from_json(document))
        resident = resident_bytes() if measure or kind == "start" else 0
        return frame(answer_message(outcome, snapshot, resident, notes_of(served, kind == "start")))
    except TargetLostError as lost:
        return frame(["lost", lost.kind, lost.detail])
    except Exception:
        return frame(["lost", "protocol", traceback.format_exc(limit=-4)])


def resident_bytes() -> int:
    """Resident memory of this process in bytes; without /proc the maximum so far."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _end_with_parent(requests: int) -> None:
    """End this process as soon as the parent is gone, even while the target is busy."""
    hang_up = select.poll()
    hang_up.register(requests, 0)
    while not any(event & (select.POLLHUP | select.POLLERR) for _, event in hang_up.poll()):
        pass
    os._exit(0)


def _frames(descriptor: int) -> Iterator[bytes]:
    """Payloads of the frames as they arrive, until the pipe is closed."""
    with os.fdopen(descriptor, "rb") as pipe:
        while len(header := pipe.read(HEADER.size)) == HEADER.size:
            yield pipe.read(HEADER.unpack(header)[0])


def _send(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


if __name__ == "__main__":
    main(sys.argv[1:])
