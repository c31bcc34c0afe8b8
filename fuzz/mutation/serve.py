"""The program in which mutants are hunted: `python -m MODULE CORE SEED OPERATIONS CASES IN OUT`.

It opens the core once, which may take long, and forks a child for each mutant. IN and OUT are inherited file
descriptors; the lines are those of `opening.wire`. It begins with `["ready", seconds]` or `["unavailable", message]`.
`["hunt", module, source]` is answered by `["fate", status, document]`, with the fields of a `Fate` and the processor
time of the child. It runs in the core's interpreter, where only the standard library and the core are installed.
"""

import gc
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

from ..opening.serve import begin_child, send
from ..opening.targets import open_calculator_here, open_here
from ..opening.wire import line_of, message_of
from ..targets.base import TargetUnavailableError
from ..targets.family import Mutable
from .planting import dependents, read_again
from .stages import FREE, Answers, Budget, Fate, Kinds, hunt
from .subject import mutable_here

CHILD_S = 600
"""Processor time of one child, beyond all that its stages take, in which no single call is overdue."""
GROWTH_BYTES = 4 << 30
"""How much the address space of a child may grow."""


class Hunter:
    """Hunts mutants of one core, each in a child of this process."""

    def __init__(self, opened: str, seed: int, budget: Budget, requests: int, answers: int) -> None:
        """TargetUnavailableError if the core as it stands does not agree with the model over these seeds."""
        self._opened, self._budget = opened, budget
        self._pipes = (requests, answers)
        self._mutable: Mutable = mutable_here(opened)
        open_here(opened)
        try:
            self._answers = Answers(open_calculator_here(opened), seed, budget.cases)
        except RuntimeError as error:
            raise TargetUnavailableError(f"{opened} as it stands is found already: {error}") from None
        self._names = dependents(self._mutable.modules, self._mutable.package)
        self._before: Mapping[str, Kinds] | None = None
        gc.collect()
        gc.freeze()  # children share what is there now
        status, document = self.hunt(None, "")
        kinds = {stage: frozenset(map(tuple, found)) for stage, found in document.get("kinds", {}).items()}
        wrong = [stage for stage, found in kinds.items() if found and stage != FREE]
        if status != "survived" and (wrong or not kinds):
            raise TargetUnavailableError(f"{opened} as it stands is found already: {status}, {document['finding']}")
        self._before = kinds
        self.seconds: float = document["seconds"]

    def hunt(self, module: str | None, source: str) -> tuple[str, dict[str, Any]]:
        """What becomes of a mutant, or for no module of the core as it stands: killed, import or survived, and more."""
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(ours)
            self._in_child(theirs, module, source)
        os.close(theirs)
        with os.fdopen(ours, "rb") as said:
            text = said.read()
        _, ended, used = os.wait4(child, 0)
        document: dict[str, Any] = json.loads(text) if text else {"status": "killed", **_empty(_end(ended))}
        document["seconds"] = round(used.ru_utime + used.ru_stime, 2)
        return document.pop("status"), document

    def _in_child(self, answer: int, module: str | None, source: str) -> NoReturn:
        """Hunt in this process, which ends."""
        code = 1
        try:
            begin_child(*self._pipes)
            resource.setrlimit(resource.RLIMIT_CPU, (CHILD_S, CHILD_S))
            limit = _address_space() + GROWTH_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            send(answer, json.dumps(self._fate(module, source)).encode())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _fate(self, module: str | None, source: str) -> dict[str, Any]:
        """The answer about a mutant, but for the time."""
        try:
            if module is not None:
                read_again(self._names, module, source)
                self._mutable.forget()
            target, calculator = open_here(self._opened), open_calculator_here(self._opened)
        except Exception as error:
            return {"status": "import", **_empty(f"{type(error).__name__}: {str(error)[:200]}")}
        fate = hunt(target, calculator, self._answers, self._budget, self._before)
        return {"status": "killed" if fate.by else "survived", **_shown(fate)}


def _shown(fate: Fate) -> dict[str, Any]:
    kinds = {stage: sorted(found) for stage, found in fate.kinds.items()}
    return {**vars(fate), "kinds": kinds}


def _empty(finding: str) -> dict[str, Any]:
    return _shown(Fate(by="process", finding=finding))


def _end(status: int) -> str:
    """How a child ended that said nothing."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"no end within {CHILD_S} s" if number == signal.SIGXCPU else signal.Signals(number).name
    return f"exit status {os.WEXITSTATUS(status)}"


def _address_space() -> int:
    """Of this process, in bytes; unlimited on systems without /proc."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[0]) * resource.getpagesize()
    except OSError:
        return sys.maxsize - GROWTH_BYTES


def main(arguments: list[str]) -> None:
    """Answer requests until the parent closes the pipe."""
    opened, seed, operations, cases, *pipes = arguments
    requests, answers = map(int, pipes)
    begin_child(requests, answers)
    try:
        hunter = Hunter(opened, int(seed), Budget(int(operations), int(cases)), requests, answers)
    except (TargetUnavailableError, ValueError, ImportError) as error:
        send(answers, line_of(["unavailable", str(error)]))
        return
    send(answers, line_of(["ready", hunter.seconds]))
    with os.fdopen(requests, "rb") as lines:
        for line in lines:
            message: list[Any] = message_of(line)
            send(answers, line_of(["fate", *hunter.hunt(message[1], message[2])]))


if __name__ == "__main__":
    main(sys.argv[1:])
