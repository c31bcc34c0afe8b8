"""`BenchSide`: one core in a process of its own, asked for one piece of work after the other."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from ..opening.child import PythonChild, PythonPlace
from ..opening.names import Program, ReleaseName, parsed
from ..opening.targets import home_of, interpreter_of
from ..opening.wire import line_of, message_of
from ..targets.base import TargetUnavailableError
from .workload import BenchPiece, Facts, Params

_CHILD = f"{__package__}.child"
LENT = ("xxhash",)
"""Packages with hash functions that a release uses where they are installed."""
DEADLINE_S = 600.0
"""Seconds for one answer; the longest take some ten."""


class BenchError(Exception):
    """A core failed, or did other work than the others: nothing can be said of its speed. A line says what."""


class LacksError(Exception):
    """The core has no such thing; the text says what is missing."""


class BenchSide(PythonChild):
    """One core. TargetUnavailableError if it cannot be started; BenchError if it fails later."""

    def __init__(self, spec: str, cpu: int = -1) -> None:
        named = parsed(spec)
        if isinstance(named, Program):
            raise TargetUnavailableError(f"{spec}: a program does its work in a process that cannot be timed")
        self.name = interpreter_of(spec)[0] if isinstance(named, ReleaseName) else spec
        opened, place = home_of(spec)
        super().__init__(spec, _CHILD, [opened, str(cpu)], place)

    def _lend(self, place: PythonPlace | None, folder: Path) -> None:
        """What a release can use but does not need, if its interpreter is ours."""
        if place is None or place.python.resolve() != Path(sys.executable).resolve():
            return
        for name in LENT:
            found = find_spec(name)
            for source in found.submodule_search_locations or () if found is not None else ():
                (folder / name).symlink_to(source, target_is_directory=True)

    def prepare(self, kind: str, params: Params) -> list[str]:
        """Be ready for the pieces of this workload; the hashes that must be equal on all cores."""
        (digests,) = self._ask("prepare", kind, dict(params))
        assert isinstance(digests, list)
        return [str(digest) for digest in digests]

    def piece(self) -> BenchPiece:
        """The next piece."""
        ns, operations, facts, notes = self._ask("piece")
        assert isinstance(ns, int)
        assert isinstance(operations, int)
        return BenchPiece(ns, operations, _facts(facts), _facts(notes))

    def summary(self) -> Facts:
        """See `Workload.summary`."""
        return _facts(*self._ask("summary"))

    def memory(self, params: Params) -> Facts:
        """See `memory.memory_of`; right only in a process that was asked nothing else."""
        return _facts(*self._ask("memory", dict(params)))

    def close(self) -> None:
        """End the process."""
        self.end()

    def _ask(self, *question: object) -> list[object]:
        """What comes behind `done`. LacksError, BenchError for the other answers; TargetLostError for none."""
        kind, *rest = self.exchange(line_of(question), question, DEADLINE_S, message_of)
        if kind == "done":
            return rest
        if kind == "lacks":
            raise LacksError(str(rest[0]))
        raise BenchError(f"{self.name}: {rest[0]}")


def _facts(raw: object) -> Facts:
    assert isinstance(raw, dict)
    return {str(name): int(value) for name, value in raw.items()}


def one_processor() -> int:
    """The last processor that this process may run on; -1 where that cannot be asked."""
    return max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else -1
