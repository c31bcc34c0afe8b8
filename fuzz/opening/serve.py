"""The program in the child process of a target: `python -m blockproof.fuzz.opening.serve SPEC ROLE [FIX] IN OUT`.

SPEC names the target; ROLE is `target` or `calculator`; IN and OUT are inherited file descriptors for requests and
answers. FIX is a Python file whose function `fix()` is called first, to change the engine that is opened next.
It runs in the target's Python environment, where only the standard library and the target are installed.
The target may print: stdout and stderr go to the parent through a pipe of their own.
"""

import faulthandler
import gc
import os
import runpy
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeAlias

from ...model.ops import Operation, Outcome
from ...model.snapshot import Snapshot
from ..findings.ops_json import operation_from_json, shape_from_json
from ..targets.answers import outcome_and_snapshot, problem_with_answer, raised_by_target
from ..targets.base import (
    TargetLostError,
    TargetUnavailableError,
    block_sizes_of,
    designs_of,
    hidden_from_model,
    is_told,
    lacking,
    losing,
    offering,
)
from ..targets.unharmed import allow_recursion
from .targets import open_calculator_here, open_here
from .wire import answer_message, line_of, lost_message, message_of, notes_of, unavailable_message

SAMPLE_EVERY = 256
"""Resident memory is measured every Nth operation."""


def main(arguments: list[str]) -> None:
    """Answer requests to one target until the parent closes the pipe."""
    spec, role, *fix, requests, answers = arguments
    answer_lines(int(requests), int(answers), lambda: _opened(spec, role, fix))


Begun: TypeAlias = tuple[list[object], Callable[[bytes], bytes]]
"""What a child says when it is ready, and how it answers a line with another one."""


def answer_lines(requests: int, answers: int, begin: Callable[[], Begun]) -> None:
    """What every child does, with the pipes that it inherits: say that it is ready, or why not, then answer lines until
    the parent closes the pipe.

    `begin` may raise TargetUnavailableError, NotImplementedError, ValueError or ImportError.
    """
    begin_child(requests, answers)
    try:
        ready, answer = begin()
    except (TargetUnavailableError, NotImplementedError, ValueError, ImportError) as error:
        send(answers, line_of(unavailable_message(error)))
        return
    send(answers, line_of(["ready", *ready]))
    with os.fdopen(requests, "rb") as lines:
        for line in lines:
            send(answers, answer(line))


def _opened(spec: str, role: str, fix: Sequence[str]) -> Begun:
    for path in fix:
        _apply(path)
    served: Any = open_calculator_here(spec) if role == "calculator" else open_here(spec)
    gc.freeze()  # what an engine has imported stays
    allow_recursion()
    said = [sorted(read(served)) for read in (lacking, hidden_from_model, designs_of, offering, losing, block_sizes_of)]
    asked = count()
    named = [str(getattr(served, "name", "")), str(getattr(served, "like", "") or "")]
    ready = [str(getattr(served, "version", "")), resident_bytes(), *said, *named]
    return ready, lambda line: _answer(served, line, next(asked) % SAMPLE_EVERY == 0)


def _apply(path: str) -> None:
    """Call `fix()` of this Python file. TargetUnavailableError if that fails."""
    try:
        runpy.run_path(path)["fix"]()
    except BaseException as error:  # it changes an engine of any release
        raise TargetUnavailableError(f"{path} cannot be applied: {type(error).__name__}: {error}") from error


def _answer(served: Any, line: bytes, measure: bool) -> bytes:
    try:
        message: list[Any] = message_of(line)
        kind, document = message
        if kind == "ask":
            return line_of(["answers", [served.ask(op, inputs) for op, inputs in document], resident_bytes()])
        if kind == "time":
            return line_of(["seconds", sum(_seconds_for(served, *trace) for trace in document)])
        if kind == "start":
            outcome, snapshot = outcome_and_snapshot(served.start(shape_from_json(document)))
        elif kind == "answer":
            outcome, snapshot = _outcome(served, operation_from_json(document)), None
        else:
            outcome, snapshot = outcome_and_snapshot(served.step(operation_from_json(document)))
        resident = resident_bytes() if measure or kind == "start" else 0
        return _line(answer_message(outcome, snapshot, resident, notes_of(served, kind == "start")), outcome, snapshot)
    except TargetLostError as lost:
        return line_of(lost_message(lost))
    except TargetUnavailableError as error:  # what it says of itself after a start cannot be used
        return line_of(unavailable_message(error))
    except BaseException as error:  # no signal interrupts this process: whatever it is, the target has raised it
        allow_recursion()
        return line_of(lost_message(raised_by_target(error)))
    finally:
        allow_recursion()


def _seconds_for(target: Any, shape: Any, operations: list[Any]) -> float:
    """Processor time of the operations, without the building of the core."""
    target.start(shape_from_json(shape))
    asked = [operation_from_json(one) for one in operations]
    begin = time.process_time()
    for operation in asked:
        if is_told(target, operation):
            target.step(operation)
    return time.process_time() - begin


def _line(message: list[object], outcome: object, snapshot: object) -> bytes:
    """The answer of a target. TargetLostError if it has a type that no line can hold: a target may return anything."""
    if isinstance(outcome, Outcome) and (snapshot is None or type(snapshot) is Snapshot):
        try:
            return line_of(message)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            problem = problem_with_answer(outcome, snapshot, None)
            raise TargetLostError("protocol", problem or f"no line can hold the answer: {error}") from None
    raise TargetLostError("protocol", problem_with_answer(outcome, snapshot, None) or "the answer is none")


def _outcome(served: Any, operation: Operation) -> Outcome:
    """What an operation comes to, by a target that need not show its state."""
    if hasattr(served, "answer"):
        outcome: Outcome = served.answer(operation)
        return outcome
    return outcome_and_snapshot(served.step(operation))[0]


def resident_bytes() -> int:
    """Resident memory of this process in bytes; without /proc the maximum so far."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def begin_child(requests: int, answers: int) -> None:
    """What every child does first, with the pipes that it inherits: leave Ctrl-C to the parent, be ready to print its
    stack, keep the pipes from its own children, and end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends us
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=False)  # the parent asks for the stack of a target that hangs
    for descriptor in (requests, answers):
        os.set_inheritable(descriptor, False)
    threading.Thread(target=_end_with_parent, args=(requests,), daemon=True).start()


def _end_with_parent(requests: int) -> None:
    """End this process as soon as the parent is gone, even while the target is busy."""
    hang_up = select.poll()
    hang_up.register(requests, 0)
    while not any(event & (select.POLLHUP | select.POLLERR) for _, event in hang_up.poll()):
        pass
    os._exit(0)


def send(descriptor: int, data: bytes) -> None:
    """Write a line to the parent."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


if __name__ == "__main__":
    main(sys.argv[1:])
