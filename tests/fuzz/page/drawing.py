"""Traces to show: a small one, and such as the seeded engine draws."""

from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.page.trace_document import trace_document
from blockproof.fuzz.runs.open_run import drawn_shape, open_run, workload_of
from blockproof.fuzz.traces.judges import Judges
from blockproof.fuzz.traces.trace_file import TraceFile
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.model.ops import Allocate, Free, Group, Shape, Submit

FULL = Shape((Group("full", 2),), 6, 8, 2, 2, 8)
TWICE = (Submit("a", (0, 0, 0, 0)), Allocate("a", 4), Free("a"))


def drawn_trace(seed, attention, length=120):
    """A trace without a finding on our core."""
    run, draw = open_run(open_target("impl")), SeededDraw(seed)
    while True:
        assert run.start(drawn_shape(run, draw, attention)) is None
        if run.built:
            break
    workload = workload_of(run, draw, run.shape)
    for _ in range(length):
        assert run.step(workload.next(run.scene)) is None
    return run.trace


def shown(operations, target="impl", shape=FULL, oracles=("lockstep", "shadow"), title="a trace"):
    """The document of a trace on a target."""
    core = open_target(target)
    file = TraceFile(Trace(shape, tuple(operations)), target)
    return trace_document(file, core, Judges(oracles, "as asked for"), title)
