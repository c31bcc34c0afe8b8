"""Judges an engine while its own scheduler runs it: shadow memory, contract, liveness, and what it raises.

The engine is the one of a family's adapter (`Family.stories`). It tells each operation that its scheduler makes on its
core, with the state before and after; what its device reads it checks itself.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...model.ops import Operation, Outcome
from ...model.shown.snapshot import Snapshot
from ..findings.finding import BUG
from ..findings.oracle_names import BLOCKPROOF, CONTRACT, LIVENESS, PASSABLE, SHADOW
from ..findings.story_finding import StoryFinding, place_of, rule_of
from ..oracles.contract import Contract, Violation
from ..targets.block_ids import STRAY_ID, stray_id, without_hidden

RAISED = "exception"
JUDGES = (SHADOW, CONTRACT, LIVENESS, RAISED)
PATIENCE = 400
"""Steps in a row after which some request must have ended; no story has requests that need half as many."""


class _FoundError(Exception):
    """Ends a story at an operation that breaks the contract."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation.id)
        self.violation = violation


class _OwnError(Exception):
    """The contract itself has failed, with its cause behind it. It must get through the engine that called."""


@dataclass
class _Scene:
    """What the contract asks of a scene: who holds blocks besides the requests."""

    outside: Sequence[int] = ()

    @property
    def state(self) -> "_Scene":
        """The holders."""
        return self


class StoryRun:
    """One engine from its construction to its end, or to the first finding after which it cannot go on."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.findings: list[StoryFinding] = []
        self._contract = Contract(engine.shape, engine.hides, engine.loses, PASSABLE)
        self._contract.start(engine.shown)
        self._scene: Any = _Scene()
        self._seen: set[tuple[str, str, str]] = set()
        engine.judge = self._judge

    @property
    def reached(self) -> Counter[str]:
        """What the engine and the contract reached."""
        return Counter(self.engine.counts()) + self._contract.reached

    def run(self, steps: int) -> list[StoryFinding]:
        """Take at most so many steps. Returns what was found, one finding of each kind."""
        engine, ended, since = self.engine, 0, 0
        try:
            while not engine.over and engine.observed.steps < steps and not self.findings:
                engine.step()
                self._look()
                since = since + 1 if len(engine.observed.finished) == ended else 0
                ended = len(engine.observed.finished)
                if since > PATIENCE:
                    self._find(LIVENESS, "nobody ends", f"{since} steps in a row in which no request ends")
            if engine.over and not self.findings:
                engine.finish()
                self._look()
                self._judge_end()
        except _FoundError as found:
            self._find(CONTRACT, found.violation.id, found.violation.what, found.violation.kind)
        except _OwnError as failed:
            own = failed.__cause__
            where = f"{type(own).__name__} in {place_of(own.__traceback__ if own else None)}"
            self._find(BLOCKPROOF, f"{BUG}: {where}", f"a bug of blockproof, please report it: {where}: {own}")
        except Exception as error:
            place = place_of(error.__traceback__)
            self._find(RAISED, f"{type(error).__name__} in {place}", f"{type(error).__name__}: {str(error)[:300]}")
        return self.findings

    def _find(self, judge: str, rule: str, what: str, said: str = "") -> None:
        finding = StoryFinding(judge, rule, what, self.engine.observed.steps, said)
        if finding.kind not in self._seen:
            self._seen.add(finding.kind)
            self.findings.append(finding)

    def _judge(self, operation: Operation, outcome: Outcome, before: Snapshot, after: Snapshot) -> None:
        """Every operation on the core, as soon as it was made."""
        self._scene.outside = self.engine.outside(after)
        size, hides = self.engine.shape.num_blocks, self.engine.hides
        if stray := stray_id(operation, outcome, after, size, hides):
            raise _FoundError(Violation(STRAY_ID, stray))
        try:
            was, now = without_hidden(before, size, hides), without_hidden(after, size, hides)
            violation = self._contract.step(operation, outcome, was, now, self._scene)
        except Exception as error:
            raise _OwnError from error
        if violation is not None:
            raise _FoundError(violation)

    def _look(self) -> None:
        """What the last step has brought to light."""
        for violation in self._contract.passed():
            self._find(CONTRACT, violation.id, violation.what, violation.kind)
        observed = self.engine.observed
        for line in observed.corruption:
            self._find(SHADOW, rule_of(line), line)
        if observed.starved:
            self._find(LIVENESS, "starved", f"never scheduled again: {', '.join(observed.starved)}")

    def _judge_end(self) -> None:
        observed = self.engine.observed
        if observed.starved:
            return
        if lost := sorted(self.engine.expected - set(observed.finished)):
            self._find(LIVENESS, "lost", f"arrived, were not aborted and never ended: {', '.join(lost)}")
        if observed.missing_blocks:
            self._find(LIVENESS, "blocks missing", f"{observed.missing_blocks} blocks are not free after the last end")
