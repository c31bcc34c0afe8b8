"""The program in which mutants are hunted: `python -m MODULE CORE SEED OPERATIONS CASES IN OUT`.

It opens the core once, which may take long, and forks a child for each mutant. IN and OUT are inherited file
descriptors; the lines are those of `opening.wire`. It begins with `["ready", seconds]` or `["unavailable", message]`.
`["hunt", module, source, lines]`, with the first and the last line that is changed, is answered by
`["fate", document]`: the fields of a `Fate`, a status (`killed`, `import`, `survived`) and the processor time of the
child. It runs in the core's interpreter, where only the standard library and the core are installed.
"""

import gc
import json
import os
import resource
import select
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, NoReturn, TypeAlias

from ..opening.serve import Begun, answer_lines, begin_child
from ..opening.targets import open_calculator_here, open_here
from ..opening.wire import line_of, message_of
from ..targets.base import TargetUnavailableError
from ..targets.family import Mutable
from .stages import FREE, Answers, Budget, Fate, Kinds, Stage, hunt
from .subject import dependents, mutable_here, path_of, read_again

Line: TypeAlias = tuple[str, int]
"""A module and a line of its source, from 1."""


class Reached:
    """Context manager, as often as one likes: `lines` has the lines of these files that have run in it, in this thread.

    `modules`: by file, the module that it is.
    """

    def __init__(self, modules: Mapping[str, str]) -> None:
        self.lines: set[Line] = set()
        self._modules = modules
        self._left: dict[int, tuple[CodeType, set[int]]] = {}
        """By identity of a code, the code, which keeps it one, and those of its lines that have not run."""
        self._before: Any = None

    def __enter__(self) -> "Reached":
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        known = self._left.get(id(code))
        if known is None:
            lines = {line for *_, line in code.co_lines() if line} if code.co_filename in self._modules else set()
            known = self._left[id(code)] = (code, lines)
        return self._ran if known[1] else None

    def _ran(self, frame: FrameType, event: str, argument: object) -> Any:
        code, left = self._left[id(frame.f_code)]
        if frame.f_lineno in left:
            left.discard(frame.f_lineno)
            self.lines.add((self._modules[code.co_filename], frame.f_lineno))
        return self._ran


GROWTH_BYTES = 4 << 30
"""How much the address space of a child may grow."""
REAL_S = 3600.0
"""A child that neither works nor ends is killed after so long."""


@dataclass(frozen=True)
class ChildEnd:
    """What came of a child."""

    said: dict[str, Any] | None
    """What the work has returned; None if it did not get that far."""
    how: str
    """How the child ended if it said nothing."""
    seconds: float
    """Its processor time."""


def in_child(work: Callable[[], dict[str, Any]], most_s: int) -> ChildEnd:
    """Do the work, whose result is JSON-ready, in a child that has so many seconds of processor time."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        _say(theirs, work, most_s)
    os.close(theirs)
    with os.fdopen(ours, "rb") as said:
        if not select.select([said], [], [], REAL_S)[0]:
            os.kill(child, signal.SIGKILL)
        text = said.read()
    _, status, used = os.wait4(child, 0)
    seconds = round(used.ru_utime + used.ru_stime, 2)
    return ChildEnd(json.loads(text), "", seconds) if text else ChildEnd(None, _end(status, most_s), seconds)


def _say(answer: int, work: Callable[[], dict[str, Any]], most_s: int) -> NoReturn:
    """Do the work, write what it returns, and end this process."""
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (most_s, most_s))
        limit = _address_space() + GROWTH_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        text = json.dumps(work()).encode()
        with os.fdopen(answer, "wb") as out:
            out.write(text)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _end(status: int, most_s: int) -> str:
    """How a child ended that said nothing."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"no end within {most_s} s" if number == signal.SIGXCPU else signal.Signals(number).name
    return f"exit status {os.WEXITSTATUS(status)}"


def _address_space() -> int:
    """Of this process, in bytes; unlimited on systems without /proc."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[0]) * resource.getpagesize()
    except OSError:
        return sys.maxsize - GROWTH_BYTES


CHILD_S = 600
"""Processor time of one child, beyond all that its stages take, in which no single call is overdue."""


class Hunter:
    """Hunts mutants of one core, each in a child of this process."""

    def __init__(self, opened: str, seed: int, budget: Budget, requests: int, answers: int) -> None:
        """TargetUnavailableError if the core as it stands does not agree with the model over these seeds."""
        self._opened, self._pipes, self._budget = opened, (requests, answers), budget
        self._mutable: Mutable = mutable_here(opened)
        self._stages = tuple(budget.stages(open_here(opened)))
        self._answers = Answers(open_calculator_here(opened), seed, budget.cases)
        for found in self._answers.left_out:
            print(f"left out, since {opened} as it stands is found already: {found}", file=sys.stderr)
        self._names = dependents(self._mutable.modules, self._mutable.package)
        gc.collect()
        gc.freeze()  # children share what is there now
        self._before: dict[str, Kinds] = {}
        self._reached: list[frozenset[Line]] = []
        """By stage, the lines that run in it, those that run when the core is imported among them."""
        self.seconds = sum(self._learn(stage, self._reached) for stage in self._stages)
        """Processor time of all stages on the core as it stands."""

    def hunt(self, module: str, source: str, lines: tuple[int, int]) -> dict[str, Any]:
        """What becomes of a mutant, of which these lines are changed: the fields of its fate, status and time."""
        changed = {(module, line) for line in range(lines[0], lines[1] + 1)}
        stages = [stage for stage, reached in zip(self._stages, self._reached, strict=True) if reached & changed]
        fate = self._in_child(lambda: self._fate(module, source, stages, self._before))
        further = self._budget.further(stages) if fate["status"] == "survived" else []
        for stage in further:
            if stage.name not in self._before:
                self._learn(stage)
        if not further:
            return fate
        more = self._in_child(lambda: self._fate(module, source, further, self._before))
        return more | {name: fate[name] + more[name] for name in ("operations", "cases", "seconds")}

    def _learn(self, stage: Stage, reached: list[frozenset[Line]] | None = None) -> float:
        """Run a stage on the core as it stands; returns the processor time. `reached` gets the lines that run in it.

        In a child of its own, so that it does not depend on others, some of which a mutant may be spared.
        """
        said = self._in_child(lambda: self._as_it_stands(stage, reached is not None))
        kinds = frozenset(map(tuple, said["kinds"].get(stage.name, ())))
        if said["status"] != "survived" and (stage.name != FREE or not kinds):
            raise TargetUnavailableError(f"{self._opened} as it stands is found already: {said['finding']}")
        self._before[stage.name] = kinds
        if reached is not None:
            reached.append(frozenset((module, line) for module, line in said["reached"]))
        return float(said["seconds"])

    def _as_it_stands(self, stage: Stage, watched: bool) -> dict[str, Any]:
        first = self._mutable.modules[0]
        source = Path(path_of(first)).read_text(encoding="utf-8")
        reached = Reached({path_of(module): module for module in self._mutable.modules if module in sys.modules})
        fate = self._fate(first, source, [stage], None, reached if watched else None)
        return {**fate, "reached": sorted(reached.lines)}

    def _fate(
        self,
        module: str,
        source: str,
        stages: Sequence[Stage],
        before: Mapping[str, Kinds] | None,
        watched: AbstractContextManager[object] | None = None,
    ) -> dict[str, Any]:
        """What becomes of the core with this source of a module, in this process."""
        try:
            with watched or nullcontext():
                read_again(self._names, module, source)
                self._mutable.forget()
                target, calculator = open_here(self._opened), open_calculator_here(self._opened)
        except Exception as error:
            return _shown("import", Fate(by="import", finding=f"{type(error).__name__}: {str(error)[:200]}"))
        fate = hunt(target, calculator, self._answers, stages, before, watched)
        return _shown("killed" if fate.by else "survived", fate)

    def _in_child(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What a child has to say, with its processor time; how it ended if it said nothing."""

        def begun() -> dict[str, Any]:
            begin_child(*self._pipes)
            return work()

        ended = in_child(begun, CHILD_S)
        said = _shown("killed", Fate(by="its end", finding=ended.how)) if ended.said is None else ended.said
        return said | {"seconds": ended.seconds}


def _shown(status: str, fate: Fate) -> dict[str, Any]:
    kinds = {stage: sorted(found) for stage, found in fate.kinds.items()}
    return {**vars(fate), "kinds": kinds, "status": status}


def main(arguments: list[str]) -> None:
    """Answer requests until the parent closes the pipe."""
    opened, *numbers = arguments
    seed, operations, cases, requests, answers = map(int, numbers)

    def begin() -> Begun:
        hunter = Hunter(opened, seed, Budget(operations, cases), requests, answers)

        def answer(line: bytes) -> bytes:
            message: list[Any] = message_of(line)
            _, module, source, lines = message
            return line_of(["fate", hunter.hunt(module, source, lines)])

        return [hunter.seconds], answer

    answer_lines(requests, answers, begin)


if __name__ == "__main__":
    main(sys.argv[1:])
