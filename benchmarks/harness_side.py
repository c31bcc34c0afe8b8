"""One side of `harness.py`: a process of its own, which imports the package and `throughput.py` from its checkout."""

import gc
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from typing import Any
from unittest.mock import patch


class Side:
    """Runs the harness of one checkout. Names are taken from its own `throughput.py`: modules have moved since."""

    def __init__(self) -> None:
        self.names: Any = import_module("throughput")
        self.target = self.names.open_target("impl")
        import_module("numpy")  # a side that waits for the first embedding would import it in the midst of a turn
        self.traces: list[Any] = []

    def drawn(self, oracles: Sequence[str], seed: int, operations: int) -> dict[str, Any]:
        """What the engine `random` does with this seed, at least so many operations of it."""
        names, summary = self.names, self.names.Summary("impl", "random", seed)
        plan = names.Plan(seed, operations=operations, oracles=tuple(oracles))
        with patch.object(names.open_run, "draw_shape", self._of_64_blocks(names.open_run.draw_shape)):
            begin = time.process_time_ns()
            names.run_engine(self.target, plan, summary)
            taken = time.process_time_ns() - begin
        assert summary.finding is None, summary.finding
        of = {"Refused": 0, "Failed": 0} | Counter(result for _, result in summary.outcomes.elements())
        met = {"refused": of["Refused"], "hits": summary.reached["hit"], "situations": summary.reached.total()}
        return {"operations": summary.operations, "cost": taken, "met": met}

    def _of_64_blocks(self, drawn: Callable[..., Any]) -> Callable[..., Any]:
        """Shapes as this side draws them, but for the size of the pool."""
        return lambda *about, **tuned: replace(drawn(*about, **tuned), num_blocks=self.names.BLOCKS)

    def recorded(self, oracles: Sequence[str], seed: int, operations: int) -> dict[str, Any]:
        """The recorded operations, each trace in a run of its own. The seed says nothing here."""
        done, begin = 0, time.process_time_ns()
        for trace in self.traces:
            done += self._apply(trace, oracles)
        taken = time.process_time_ns() - begin
        return {"operations": done, "cost": taken, "met": {}}

    def _apply(self, trace: Any, oracles: Sequence[str]) -> int:
        """Operations of the trace that are applied without a finding."""
        names = self.names
        judging = replace(names.Plan(0, oracles=tuple(oracles)).judging(), full_look_every=names.FULL_LOOK_EVERY)
        run = names.open_run.open_run(self.target, judging)
        if run.start(trace.shape) is not None or not run.built:
            return 0
        for number, operation in enumerate(trace.operations):
            if run.step(operation) is not None:
                return number
        return len(trace.operations) if getattr(run, "finish", lambda: None)() is None else 0

    def counted(self, way: str, oracles: Sequence[str], seed: int, operations: int) -> list[tuple[int, dict[str, Any]]]:
        """What `drawn` or `recorded` answers, here in a child process that ends with it, and before it what one answers
        that only begins; each behind its id. What runs this process counts instructions of each up to its end."""
        begins = {"drawn": lambda: self.drawn(oracles, seed, 1), "recorded": lambda: {"operations": 0, "met": {}}}
        return [_in_child(begins[way]), _in_child(lambda: getattr(self, way)(oracles, seed, operations))]

    def record(self) -> list[Any]:
        """Runs of this side's own generator, JSON-ready."""
        return [[_plain(trace.shape), [_plain(one) for one in trace.operations]] for trace in self.names.recorded()]

    def take(self, recorded: list[Any]) -> list[int]:
        """Keep these runs. Returns numbers of those that are legal here from end to end, and in which nothing is
        found."""
        ops, legal = import_module("blockproof.model.ops"), import_module("blockproof.model.legal")
        taken = []
        for number, (shape, operations) in enumerate(recorded):
            trace = self.names.Trace(_made(ops, shape), tuple(_made(ops, one) for one in operations))
            model = self.names.Model(trace.shape)
            allowed = [legal.allows(model, one) and bool(model.step(one)) for one in trace.operations]
            if all(allowed) and self._apply(trace, ("lockstep", "shadow")) == len(operations):
                taken.append(number)
            self.traces.append(trace)
        return taken

    def keep(self, numbers: list[int]) -> None:
        """Of the runs that were taken only these."""
        self.traces = [self.traces[number] for number in numbers]


def _in_child(work: Callable[[], dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    """The id of a child process, and what the work returned there."""
    read, write = os.pipe()
    if not (child := os.fork()):
        gc.freeze()  # a collection of all that was imported costs as much as a hundred operations
        try:
            os.write(write, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return child, json.loads(text)


def serve() -> None:
    """Answer calls of methods of `Side`, one JSON array a line, until the input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr
    side = Side()
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(side, name)(*arguments)), file=answers, flush=True)


def _plain(value: Any) -> Any:
    """A record as its kind and its fields; None for a field that is at its default."""
    if is_dataclass(value) and not isinstance(value, type):
        changed = [one for one in fields(value) if getattr(value, one.name) != one.default]
        return {"": type(value).__name__, **{one.name: _plain(getattr(value, one.name)) for one in changed}}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _made(ops: Any, value: Any) -> Any:
    """The inverse of `_plain`."""
    if isinstance(value, dict):
        return getattr(ops, value[""])(**{name: _made(ops, one) for name, one in value.items() if name})
    return tuple(_made(ops, one) for one in value) if isinstance(value, list) else value


if __name__ == "__main__":
    serve()
