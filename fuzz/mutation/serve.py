"""The program in which mutants are hunted: `python -m MODULE CORE SEED OPERATIONS CASES IN OUT`.

It opens the core once, which may take long, and forks a child for each mutant. IN and OUT are inherited file
descriptors; the lines are those of `opening.wire`. It begins with `["ready", seconds]` or `["unavailable", message]`.
`["hunt", module, source, lines]`, with the first and the last line that is changed, is answered by
`["fate", document]`: the fields of a `Fate`, a status (`killed`, `import`, `survived`) and the processor time of the
child. It runs in the core's interpreter, where only the standard library and the core are installed.
"""

import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from ..opening.serve import Begun, answer_lines, begin_child
from ..opening.targets import open_calculator_here, open_here
from ..opening.wire import line_of, message_of
from ..targets.base import TargetUnavailableError
from ..targets.family import Mutable
from .forked import in_child
from .planting import dependents, path_of, read_again
from .reached import Line, Reached
from .stages import FREE, Answers, Budget, Fate, Kinds, Stage, hunt
from .subject import mutable_here

CHILD_S = 600
"""Processor time of one child, beyond all that its stages take, in which no single call is overdue."""


class Hunter:
    """Hunts mutants of one core, each in a child of this process."""

    def __init__(self, opened: str, seed: int, budget: Budget, requests: int, answers: int) -> None:
        """TargetUnavailableError if the core as it stands does not agree with the model over these seeds."""
        self._opened, self._pipes = opened, (requests, answers)
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
        self.seconds = sum(map(self._learn, self._stages))
        """Processor time of all stages on the core as it stands."""

    def hunt(self, module: str, source: str, lines: tuple[int, int]) -> dict[str, Any]:
        """What becomes of a mutant, of which these lines are changed: the fields of its fate, status and time."""
        changed = {(module, line) for line in range(lines[0], lines[1] + 1)}
        stages = [stage for stage, reached in zip(self._stages, self._reached, strict=True) if reached & changed]
        return self._in_child(lambda: self._fate(module, source, stages, self._before))

    def _learn(self, stage: Stage) -> float:
        """Run a stage on the core as it stands; returns the processor time.

        In a child of its own, so that it does not depend on others, some of which a mutant may be spared.
        """
        said = self._in_child(lambda: self._as_it_stands(stage))
        kinds = frozenset(map(tuple, said["kinds"].get(stage.name, ())))
        if said["status"] != "survived" and (stage.name != FREE or not kinds):
            raise TargetUnavailableError(f"{self._opened} as it stands is found already: {said['finding']}")
        self._before[stage.name] = kinds
        self._reached.append(frozenset((module, line) for module, line in said["reached"]))
        return float(said["seconds"])

    def _as_it_stands(self, stage: Stage) -> dict[str, Any]:
        first = self._mutable.modules[0]
        source = Path(path_of(first)).read_text(encoding="utf-8")
        reached = Reached({path_of(module): module for module in self._mutable.modules})
        fate = self._fate(first, source, [stage], None, reached)
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
