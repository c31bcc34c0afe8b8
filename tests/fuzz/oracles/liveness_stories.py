"""Scripts for the liveness oracle, written down and drawn, and how they are judged: what its tests share."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from blockproof.fuzz.faults import MADE_UP
from blockproof.fuzz.findings.finding import Finding, Trace
from blockproof.fuzz.findings.oracle_names import LIVENESS
from blockproof.fuzz.oracles.liveness import draw_script, judge
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.model_free import ModelFreeRun
from blockproof.fuzz.runs.run import Run
from blockproof.fuzz.targets.base import Target
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.shapes import ATTENTION
from blockproof.model import ops


def shape_of(group: ops.Group, usable: int, budget: int, length: int = 8) -> ops.Shape:
    unit = group.block_size
    return ops.Shape((group,), usable + 1, length, unit, unit, max_num_batched_tokens=budget)


def request_of(name: str, prompt: int, outputs: int, token: int = 0) -> list[ops.Operation]:
    return [ops.Submit(name, (token,) * prompt), ops.Advance(name, (token,) * outputs)]


def script_of(shape: ops.Shape, *parts: Sequence[ops.Operation]) -> Trace:
    return Trace(shape, tuple(operation for part in parts for operation in part))


FULL, WINDOW, STATES = ops.Group("full", 1), ops.Group("sliding", 1, window=3), ops.Group("mamba", 1)


def judged(target: Target, script: Trace) -> tuple[Finding | None, Run]:
    run = ModelFreeRun(target, Judging(()))
    found = judge(run, script)
    return None if found is None else found[0], run


def drawn(count: int, seed: str = "drawn", names: Sequence[str] = tuple(ATTENTION)) -> Iterable[Trace]:
    return (draw_script(SeededDraw(f"{seed}/{i}"), ATTENTION[names[i % len(names)]]) for i in range(count))


def names_of(script: Trace) -> list[str]:
    return [operation.request for operation in script.operations if isinstance(operation, ops.Submit)]


def prompt_of(script: Trace, name: str) -> tuple[int, ...]:
    return next(op.prompt for op in script.operations if isinstance(op, ops.Submit) and op.request == name)


class Limited:
    """A target that says of itself what it has no equivalent of and what it cannot show."""

    def __init__(
        self, target: Target, lacks: Iterable[str] = (), hides: Iterable[str] = (), loses: Iterable[str] = ()
    ) -> None:
        self.name, self.start, self.step, self.close = target.name, target.start, target.step, target.close
        self.lacks, self.hides, self.loses = frozenset(lacks), frozenset(hides), frozenset(loses)


LIVENESS_FAULTS = {name: fault for name, fault in MADE_UP.items() if fault.oracles == (LIVENESS,)}


STORIES = {
    "gate-counts-whole-sequence": script_of(
        shape_of(ops.Group("sliding", 1, window=2), usable=3, budget=1), request_of("long", 4, 1)
    ),
    "refusal-leaks-block": script_of(
        shape_of(FULL, usable=2, budget=4), request_of("too long", 3, 1), [ops.StepStart()], request_of("fits", 2, 1)
    ),
    "gate-counts-nothing": script_of(
        shape_of(FULL, usable=4, budget=4), request_of("first", 3, 1), request_of("next", 3, 1, token=1)
    ),
    "gate-counts-one-window-block": script_of(
        shape_of(WINDOW, usable=4, budget=4), request_of("first", 3, 1), request_of("next", 3, 1, token=1)
    ),
    "same-step-rule-never-forgets": script_of(
        shape_of(STATES, usable=2, budget=1), request_of("first", 1, 1), request_of("next", 2, 1)
    ),
    "gate-counts-null-block": script_of(shape_of(FULL, usable=2, budget=1), request_of("too long", 3, 1)),
    "preempted-keeps-blocks": script_of(
        shape_of(FULL, usable=4, budget=4), request_of("first", 2, 3), request_of("gives way", 1, 2)
    ),
    "gate-counts-no-lookahead": script_of(
        replace(shape_of(FULL, usable=9, budget=3), eagle=True),
        request_of("first", 2, 1),
        request_of("next", 4, 1, token=1),
    ),
    "gate-counts-first-states": script_of(
        shape_of(ops.Group("mamba", 1, mamba_mode="align"), usable=2, budget=4),
        request_of("first", 2, 1),
        request_of("next", 2, 1, token=1),
    ),
    "registered-states-stay": script_of(
        shape_of(ops.Group("mamba", 1, mamba_mode="align", speculative_blocks=1), usable=4, budget=2),
        request_of("alone", 1, 3),
    ),
    "running-step-wants-spare-block": script_of(shape_of(FULL, usable=3, budget=4), request_of("alone", 2, 2)),
}
"""For each planted fault a script with which it is the only thing wrong."""
