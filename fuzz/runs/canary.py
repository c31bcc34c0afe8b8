"""A canary: before a run judges a target, its oracles must see mistakes that are planted for them.

Each oracle is given a short fixed trace on a mutant, which is the model with one mistake. It judges as in the run that
follows: the same kind of run with the same `Judging`, beside lockstep if that judges as well. Nothing is drawn and the
target is not asked, so a canary neither depends on it nor changes what is drawn for it.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from ...model import ops
from ...model.core import Model
from ...model.ops import Done, Group, Operation, Outcome, Refused, Shape
from ...model.snapshot import Snapshot
from ..findings.finding import Finding, Trace
from ..findings.oracle_names import ADDITIONS, CONTRACT, DIFFERENCE, LIVENESS, LOCKSTEP, SHADOW
from ..opening.known_deviations import model_for
from ..oracles.liveness import judge
from ..targets.base import Target, TargetUnavailableError, likeness
from .judging import Judging, TooLongError
from .lockstep import LockstepRun
from .model_looks import ModelLooks
from .open_run import open_run
from .pair import Pair
from .run import Run

MOST_SECONDS = 1.0
"""Processor time after which a mistake counts as not seen; it takes some milliseconds."""

Mistake: TypeAlias = Callable[[Model, Operation, Outcome], Outcome]
"""Changes a model after an operation, or what came of it."""
Plants: TypeAlias = Iterable[tuple[str, Callable[[], bool]]]
"""Names of oracles, each with a question that plants something and says whether the oracle sees it."""


class BlindOracleError(TargetUnavailableError):
    """An oracle does not see what is planted for it (exit code 3): with this harness no run may report success."""


@dataclass(frozen=True)
class Canary:
    """What was planted before a run."""

    seen: tuple[str, ...]
    """The oracles; each has seen all that was planted for it."""
    milliseconds: float
    """Processor time that it took."""

    def line(self) -> str:
        """For people."""
        return told_line(self.as_json())

    def as_json(self) -> dict[str, object]:
        """JSON-ready."""
        return {"seen": [*self.seen], "milliseconds": round(self.milliseconds, 2)}


def told_line(canary: Mapping[str, Any]) -> str:
    """What people are told of the JSON of a canary."""
    return f"canary: seen by {', '.join(canary['seen'])} in {max(1, round(canary['milliseconds']))} ms"


def check_oracles(target: Target, judging: Judging) -> Canary | None:
    """Plant mistakes for every oracle that is to judge this target. None if none is.

    BlindOracleError if one does not see them.
    """
    if isinstance(target, Pair):
        return check_plants([(DIFFERENCE, partial(_pair_differs, target))])
    return check_plants(
        (oracle, partial(_is_seen, oracle, planted, likeness(target), judging))
        for oracle in judging.oracles
        for planted in _PLANTED.get(oracle, ())
    )


def check_plants(plants: Plants) -> Canary | None:
    """Plant one after the other. None if there is none; BlindOracleError if an oracle does not see one."""
    begin, seen = time.process_time(), dict[str, bool]()
    for oracle, is_seen in plants:
        seen[oracle] = seen.get(oracle, True) and is_seen()
    if blind := [oracle for oracle, sees in seen.items() if not sees]:
        raise BlindOracleError(
            f"blind: {', '.join(blind)}; a mistake that was planted to try the harness was not found, so what it says "
            "of a target counts for nothing; look for what has changed blockproof"
        )
    return Canary(tuple(seen), 1000 * (time.process_time() - begin)) if seen else None


@dataclass(frozen=True)
class _Planted:
    """A mistake, and the trace that shows it."""

    trace: Trace
    step: int
    """Index of the operation at which it shows."""
    mistake: Mistake


class _Mutant:
    """The model as a core that makes a mistake."""

    def __init__(self, name: str, without: Iterable[str], mistake: Mistake) -> None:
        """`name`: of the target, whose known deviations the model has, but for those `without`."""
        self.name, self._without, self._mistake = name, tuple(without), mistake

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        self._model = model_for(self.name, shape, self._without)
        plant(self._model, self._mistake)
        self._looks = ModelLooks(self._model)
        return self._model.construction, self._looks.look()

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        return self._model.apply(operation), self._looks.look()

    def glance(
        self, operation: Operation, last: Snapshot, expected: Snapshot | None = None
    ) -> tuple[Outcome, Snapshot]:
        return self._model.apply(operation), self._looks.glance(operation, last, expected)

    def look(self) -> Snapshot:
        return self._looks.look()

    def close(self) -> None:
        """Nothing is open."""


def plant(model: Model, mistake: Mistake) -> None:
    """Let this one model make the mistake from now on."""
    right = model.apply
    setattr(model, "apply", lambda operation: mistake(model, operation, right(operation)))  # noqa: B010 - no subclass


def _is_seen(oracle: str, planted: _Planted, name: str, judging: Judging) -> bool:
    """True if the oracle, judging like this, finds the mistake at its operation."""
    beside = [one for one in judging.oracles if one in (LOCKSTEP, oracle, *ADDITIONS)]
    own = replace(judging, oracles=beside, seconds=MOST_SECONDS)
    run = open_run(_Mutant(name, judging.without, planted.mistake), own)
    if oracle != LOCKSTEP and isinstance(run, LockstepRun):  # there the model is to agree with the mutant
        _plant_in_model(run, planted.mistake)
    try:
        found = _judged(run, planted.trace) if oracle == LIVENESS else _stepped(run, planted.trace)
    except TooLongError:  # a scheduler that nobody watches goes on for ever with what is refused for ever
        return False
    return found is not None and (found.oracle, found.step) == (oracle, planted.step)


def _plant_in_model(run: LockstepRun, mistake: Mistake) -> None:
    right = run.start

    def start(shape: Shape) -> Finding | None:
        finding = right(shape)
        plant(run.model, mistake)
        return finding

    setattr(run, "start", start)  # noqa: B010 - the class stays as the run that follows has it


def _stepped(run: Run, trace: Trace) -> Finding | None:
    found = run.start(trace.shape)
    for operation in trace.operations:
        found = found or run.step(operation)
    return found or run.finish()


def _judged(run: Run, script: Trace) -> Finding | None:
    found = judge(run, script)
    return None if found is None else found[0]


def _pair_differs(pair: Pair) -> bool:
    """True if two models, one of which refuses what the other allows, differ as strictly as this pair is compared."""
    first, second = (_Mutant(name, (), mistake) for name, mistake in (("right", _no_mistake), ("wrong", _refuses)))
    found = _stepped(open_run(Pair(first, second, pair.strictness)), _TRACE)
    return found is not None and (found.oracle, found.step) == (DIFFERENCE, 1)


def _no_mistake(model: Model, operation: Operation, outcome: Outcome) -> Outcome:
    return outcome


def _refuses(model: Model, operation: Operation, outcome: Outcome) -> Outcome:
    """Every allocation is refused, though it has taken blocks."""
    return Refused() if isinstance(operation, ops.Allocate) else outcome


def _frees_head_first(model: Model, operation: Operation, outcome: Outcome) -> Outcome:
    """The free queue stands in reverse order after a request has ended."""
    if isinstance(operation, ops.Free):
        model.state.let_go(model.state.queue()[::-1])
    return outcome


def _moves_the_queue(model: Model, operation: Operation, outcome: Outcome) -> Outcome:
    """The free queue moves on by one at a question: a glance does not look there, the full look at the end does."""
    if isinstance(operation, ops.CommonPrefix):
        model.state.let_go(model.state.queue()[:1])
    return outcome


def _hands_out_twice(model: Model, operation: Operation, outcome: Outcome) -> Outcome:
    """The last block that b is given is one that a still holds."""
    if not isinstance(operation, ops.Allocate) or operation.request != "b" or not isinstance(outcome, Done):
        return outcome
    (tables,) = model.state.tables
    tables["b"][-1] = tables["a"][0]
    return Done((tuple(tables["b"]),))


def _answers_short(model: Model, operation: Operation, outcome: Outcome) -> Outcome:
    """The answer to an allocation lacks the last new block, so that a worker's table would."""
    if not isinstance(operation, ops.Allocate) or operation.request != "b" or not isinstance(outcome, Done):
        return outcome
    return Done((tuple(model.state.tables[0]["b"][:-1]),))


def _swaps_entries(model: Model, operation: Operation, outcome: Outcome) -> Outcome:
    """The first two entries of a table change places while its request goes on."""
    if operation == ops.Allocate("a", 1):
        table = model.state.tables[0]["a"]
        table[0], table[1] = table[1], table[0]
    return outcome


_SHAPE = Shape((Group("full", 2),), 9, 12, 2, 2, 16)
_TRACE = Trace(
    _SHAPE,
    (
        ops.Submit("a", (1, 2, 3, 4, 5)),
        ops.Allocate("a", 5),
        ops.Advance("a", (6,)),
        ops.Allocate("a", 1),
        ops.Advance("a", (7,)),
        ops.Submit("b", (8, 9, 10)),
        ops.Allocate("b", 3),
        ops.Advance("b", (11,)),
        ops.Free("a"),
        ops.CommonPrefix("b"),
    ),
)
_SCRIPT = Trace(_SHAPE, (ops.Submit("a", (1, 2, 3)), ops.Advance("a", (4, 5))))
_PLANTED: Mapping[str, tuple[_Planted, ...]] = {
    LOCKSTEP: (
        _Planted(_TRACE, 1, _refuses),
        _Planted(_TRACE, 8, _frees_head_first),
        _Planted(_TRACE, 9, _moves_the_queue),
    ),
    CONTRACT: (_Planted(_TRACE, 6, _hands_out_twice), _Planted(_TRACE, 6, _answers_short)),
    SHADOW: (_Planted(_TRACE, 3, _swaps_entries),),
    LIVENESS: (_Planted(_SCRIPT, 0, _refuses),),
}
