"""What a run reaches, as marks that can lead to further runs: abstract states, and edges of model and core.

`coverage_guided.py` says what comes of it. A mark is a tuple; of each the step is kept at which a run first got it.
"""

import sys
from collections.abc import Hashable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any, Protocol, TypeAlias

from blockproof import impl, model
from blockproof.fuzz.runs.run import Run

Mark: TypeAlias = tuple[Hashable, ...]
FOLDERS = tuple(str(Path(file).parent) for file in (model.__file__, impl.__file__) if file)
"""Where edges count: the model and our core, no oracle and no generator."""


class Reach(Protocol):
    """Follows one run after the other."""

    def begin(self, attention: str) -> None:
        """A run begins; its core is not built yet."""
        ...

    def look(self, run: Run) -> Iterator[Mark]:
        """Marks of the last operation; some may have come up in this run before."""
        ...

    def end(self) -> None:
        """There are no more runs."""
        ...


class States:
    """Abstract states, read off the situations that a run counts: what an operation was, which of its fields are set,
    what it came to, and which situations it made; that behind the last one that made any; how often each situation came
    up, in classes that double. All but pairs by what kind of core it is."""

    def begin(self, attention: str) -> None:
        """A run begins."""
        self._attention = attention
        self._total, self._counts = 0, dict[str, int]()
        self._before: Hashable = None

    def look(self, run: Run) -> Iterator[Mark]:
        """Marks of the last operation."""
        reached, shape = run.situations, run.shape
        core = self._attention, shape.eagle, shape.retention_interval is not None, shape.caching
        operation, outcome = run.operations[-1], type(run.outcomes[-1]).__name__
        kind = (type(operation).__name__, *(name for name, value in vars(operation).items() if value))
        if (total := sum(reached.values())) == self._total:
            yield core, kind, outcome
            return
        changed = tuple(name for name, count in reached.items() if count != self._counts.get(name, 0))
        self._total, self._counts = total, dict(reached)
        what = (kind, outcome, changed)
        yield core, *what
        yield *what, self._before
        self._before = what
        for name in changed:
            yield core, name, reached[name].bit_length()

    def end(self) -> None:
        """Nothing is held."""


class Edges:
    """Edges of model and core, by attention type: with the tracer of coverage.py, written in C; from Python 3.12 on
    with `sys.monitoring`, which tells lines, each once in a run."""

    def __init__(self) -> None:
        self._sets: dict[str, set[Any]] = {}
        self._seen = 0
        self._told: dict[str, int] = {}
        self._stop = self._monitored() if sys.version_info >= (3, 12) else self._traced()

    def begin(self, attention: str) -> None:
        """A run begins."""
        self._attention, self._seen = attention, 0
        self._known: dict[str, set[Any]] = {}
        for edges in self._sets.values():
            edges.clear()
        if sys.version_info >= (3, 12):
            sys.monitoring.restart_events()

    def look(self, run: Run) -> Iterator[Mark]:
        """Marks of what is new in this run."""
        if (seen := sum(map(len, self._sets.values()))) == self._seen:
            return
        self._seen = seen
        for file, edges in self._sets.items():
            known = self._known.setdefault(file, set())
            if len(edges) > len(known):
                for edge in sorted(edges - known):
                    yield self._attention, file, edge
                known |= edges

    def end(self) -> None:
        """Stop tracing."""
        self._stop()

    def _traced(self) -> Any:
        from coverage.tracer import CFileDisposition, CTracer

        def wanted(file: str, _: object) -> CFileDisposition:
            one = CFileDisposition()
            one.original_filename = one.canonical_filename = one.source_filename = file
            one.trace, one.reason, one.file_tracer, one.has_dynamic_filename = _is_ours(file), "", None, False
            return one

        tracer: Any = CTracer()
        tracer.data, tracer.trace_arcs, tracer.should_trace, tracer.should_trace_cache = self._sets, True, wanted, {}
        tracer.warn = tracer.lock_data = tracer.unlock_data = lambda *_: None
        tracer.file_tracers, tracer.concur_id_func, tracer.disable_plugin = {}, None, None  # all are needed
        tracer.should_start_context = tracer.switch_context = None
        tracer.start()
        return tracer.stop

    def _monitored(self) -> Any:
        tool, monitoring = 4, sys.monitoring

        def line(code: CodeType, number: int) -> object:
            if _is_ours(code.co_filename):
                self._sets.setdefault(code.co_filename, set()).add(number)
            return monitoring.DISABLE

        def stop() -> None:
            monitoring.set_events(tool, 0)
            monitoring.free_tool_id(tool)

        monitoring.use_tool_id(tool, "coverage_guided")
        monitoring.register_callback(tool, monitoring.events.LINE, line)
        monitoring.set_events(tool, monitoring.events.LINE)
        return stop


class Both:
    """Several at once."""

    def __init__(self, *parts: Reach) -> None:
        self._parts = parts

    def begin(self, attention: str) -> None:
        """A run begins."""
        for part in self._parts:
            part.begin(attention)

    def look(self, run: Run) -> Iterator[Mark]:
        """Marks of the last operation."""
        for part in self._parts:
            yield from part.look(run)

    def end(self) -> None:
        """There are no more runs."""
        for part in self._parts:
            part.end()


def _is_ours(file: str) -> bool:
    return file.startswith(FOLDERS)
