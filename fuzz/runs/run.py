"""One run of a target under the oracles: after every operation it is judged, and the first finding ends the run.

There are two kinds of run. With a model (`lockstep.LockstepRun`), model and target must agree exactly, and the next
operation is drawn from the model's state. Without one (`model_free.ModelFreeRun`), it is drawn from what the target has
answered so far. What both share is here: asking the target, and the oracles that need no model.
"""

import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ...model.ops import Operation, Outcome, Shape
from ...model.scene import Scene
from ...model.snapshot import Snapshot, difference
from ..findings.finding import CORRUPTION, Finding, Trace
from ..findings.oracle_names import CONTRACT, SHADOW, STRICT
from ..oracles.contract import KNOWN_LOSSES, Contract, unobserved
from ..oracles.shadow import Corruption, Shadow, check_block_ids
from ..targets.base import Target, TargetLostError, TargetUnavailableError, copies_of, hidden_fields
from .judging import USUAL, Judging

Asked = TypeVar("Asked", Shape, Operation)


class Run(ABC):
    """Drives one target; `start` begins a run, `step` goes on with it."""

    def __init__(self, target: Target, judging: Judging = USUAL) -> None:
        self.target = target
        self.judging = judging
        self.oracles = judging.oracles
        self.operations: list[Operation] = []
        """What has been applied in this run."""
        self.outcomes: list[Outcome] = []
        """The outcome of each: the model's in lockstep, else the target's."""
        self.misuse: Counter[str] = Counter()
        """What a target that is known not to check it made of misuse."""
        self.seen: Counter[str] = Counter()
        """What the oracles made of this run, besides a finding."""
        self.found: Finding | None = None
        """What this run has found; nothing is applied after it."""
        self.in_step = False
        """True while the two sides may be out of step; it stays true where Ctrl-C breaks a step off."""
        self.built = False

    @property
    @abstractmethod
    def scene(self) -> Scene:
        """What the next operation is drawn from."""

    @property
    @abstractmethod
    def dead(self) -> bool:
        """True once no rule says what follows; the run ends there."""

    @property
    @abstractmethod
    def situations(self) -> Counter[str]:
        """How often each interesting situation came up, besides what the oracles have seen."""

    @property
    def trace(self) -> Trace:
        """This run so far."""
        return Trace(self.shape, tuple(self.operations))

    def start(self, shape: Shape) -> Finding | None:
        """Build the core. A finding if that fails where it should not."""
        self.shape = shape
        self.operations, self.outcomes = [], []
        self.misuse, self.seen = Counter(), Counter()
        self.found, self.in_step, self.built = None, False, False
        self.shadow: Shadow | None = None
        if SHADOW in self.oracles:
            self.shadow = Shadow(shape, self.judging.new_memory, strict=STRICT in self.oracles)
        self.contract: Contract | None = None
        return self._start(shape)

    def step(self, operation: Operation) -> Finding | None:
        """Apply one operation and judge all that can be seen."""
        self.in_step = True
        self.operations.append(operation)
        finding = self._step(operation)
        self.in_step = False
        return finding

    def unobserved(self) -> dict[str, str]:
        """Properties of the contract that could not be judged in this run, and why."""
        return {} if self.contract is None else unobserved(hidden_fields(self.target))

    def reached(self) -> Counter[str]:
        """Situations that came up, and what the oracles counted."""
        counts = self.situations + self.seen
        for oracle in (self.shadow, self.contract):
            counts.update({} if oracle is None else oracle.reached)
        return counts

    @abstractmethod
    def _start(self, shape: Shape) -> Finding | None: ...

    @abstractmethod
    def _step(self, operation: Operation) -> Finding | None: ...

    def _watch(self, snapshot: Snapshot) -> None:
        """The core has been built: only now does the target say what it cannot show of it."""
        if CONTRACT in self.oracles:
            excused_by_none = KNOWN_LOSSES if STRICT in self.oracles else ()
            self.contract = Contract(self.shape, hidden_fields(self.target), excused_by_none)
            self.contract.start(snapshot)

    def _lost(self, lost: TargetLostError, operation: Operation | None, expected: Outcome | None) -> Finding:
        self.found = Finding(lost.kind, operation, len(self.operations) - 1, expected, None, detail=lost.detail)
        return self.found

    def _objection(
        self, operation: Operation, actual: Outcome, before: Snapshot | None, after: Snapshot, *, sound: bool = False
    ) -> Finding | None:
        """What the oracles that need no model find. `sound` says that the tables are known to name real blocks."""
        oracle = SHADOW
        try:
            if not sound:
                check_block_ids(after, self.shape)
            if self.shadow is not None:
                self.shadow.step(operation, actual, after, copies_of(self.target))
            if self.contract is None or before is None:
                return None
            violation = self.contract.step(operation, actual, before, after, self.scene)
            if violation is None:
                return None
            oracle, (observable, what) = CONTRACT, violation
        except Corruption as corruption:
            observable, what = CORRUPTION, str(corruption)
        changes = tuple(difference(before or after, after))
        step = len(self.operations) - 1
        return Finding(observable, operation, step, actual, actual, (), changes, what, oracle)


def ask(call: Callable[[Asked], tuple[Outcome, Snapshot | None]], about: Asked) -> tuple[Outcome, Snapshot | None]:
    """The target's answer. TargetLostError if it raises or returns anything else: a target may be a user's own code."""
    try:
        outcome, snapshot = call(about)
    except (TargetLostError, TargetUnavailableError):
        raise
    except SystemExit as end:
        raise TargetLostError("crash", f"the target ended the process (SystemExit: {end})") from end
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}, line {last.lineno}"
        what = f"the target raised {type(error).__name__}: {error} ({place}); an exception of the core is an outcome"
        raise TargetLostError("protocol", f"{what}: return Failed") from error
    return outcome, snapshot
