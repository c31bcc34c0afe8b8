"""Lookups by runs (T8.runs): blocks registered one behind the other answer together, and as each would alone.

A map of identities goes through every history of a scope: two requests with a common beginning register their blocks,
some lose their identity, and lookups make runs of what they find one by one. After each history a lookup of either
request must find what stands under its hashes one by one, up to the first that is not there, or back to it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from ..coverage import Watched
from ..exhaustion import Trial, TriedStatement, Wrong, first_wrong
from ..kernel import Evidence
from ..symbolic_bytes import globals_of, seeing
from ..theorem import Subject
from ..wrong_code import changed

_COMMON, _LENGTH, _STEPS = 2, 4, 5
_REQUESTS = (("a0", "a1", "a2", "a3"), ("a0", "a1", "b2", "b3"))
"""The hashes of two requests, of which the first ones are the same."""
_WORTH = {"_WORTH_A_RUN": 2}
Step: TypeAlias = tuple[str, int, int]
"""`register` so many more blocks of a request, `forget` the block with a number or the whole row of a request, its end
first, or `look` a request up."""


def _histories(steps: int) -> Iterator[tuple[Step, ...]]:
    """All sequences of so many steps, and the shorter ones on the way to them."""
    if not steps:
        yield ()
        return
    for before in _histories(steps - 1):
        if len(before) < steps - 1:
            yield before
            continue
        yield before
        done = [sum(count for kind, one, count in before if (kind, one) == ("register", request)) for request in (0, 1)]
        for request in (0, 1):
            for count in range(1, min(3, _LENGTH - done[request] + 1)):
                yield (*before, ("register", request, count))
            yield (*before, ("look", request, 0))
        yield from ((*before, ("forget row", request, 0)) for request in (0, 1) if done[request] > 1)
        gone = {block for kind, block, _ in before if kind == "forget"}
        yield from ((*before, ("forget", block, 0)) for block in range(sum(done)) if block not in gone)


class _Map:
    """A real map, and the blocks that were registered in it."""

    def __init__(self, map_kind: Any, block_kind: Any, *folding: Any) -> None:
        self.map, self._kind = map_kind(*folding), block_kind
        self.blocks: list[Any] = []
        self.rows: tuple[list[Any], ...] = ([], [])

    def do(self, step: Step) -> None:
        """One step of a history."""
        kind, one, count = step
        if kind == "forget":
            self.map.forget_all([self.blocks[one]])
        elif kind == "forget row":
            self.map.forget_all(self.rows[one][::-1])
        elif kind == "look":
            self.map.prefix(0, list(_REQUESTS[one]), _LENGTH)
        else:
            row = self.rows[one]
            first, new = len(row), [self._kind(len(self.blocks) + number) for number in range(count)]
            self.map.register(0, list(_REQUESTS[one][first : first + count]), new, (first, row[-1] if row else None))
            row += new
            self.blocks += new

    def problem(self) -> str:
        """What is wrong with a lookup; nothing if all find what they should. AssertionError if the map finds something
        else than its blocks carry."""
        self.map.check(self.blocks)
        for hashes in _REQUESTS:
            for most in (_LENGTH, _COMMON + 1):
                right: list[Any] = []
                for one in hashes[:most]:
                    block = self.map.find(0, one)
                    if block is None:
                        break
                    right.append(block)
                found = self.map.prefix(0, list(hashes), most)
                if found != right:
                    return f"{hashes[:most]} has {found}, not {right}"
                for first in range(most):
                    right = []
                    for one in hashes[first:most][::-1]:
                        block = self.map.find(0, one)
                        if block is None:
                            break
                        right.insert(0, block)
                    found = self.map.suffix(0, list(hashes), first, most)
                    if found != right:
                        return f"{hashes[first:most]} ends with {found}, not {right}"
        return ""


def _wrong(history: tuple[Step, ...], map_kind: Any, block_kind: Any, ways: Sequence[tuple[Any, ...]]) -> str:
    for way in ways:
        made = _Map(map_kind, block_kind, *way)
        for step in history:
            made.do(step)
        if wrong := made.problem():
            return wrong
    return ""


def tried(map_kind: Any, block_kind: Any) -> Trial:
    """Every history, on maps of both kinds if there are two."""
    names = globals_of(map_kind.suffix)
    ways: tuple[tuple[Any, ...], ...] = ((), ((0,),)) if hasattr(map_kind, "unfold") else ((),)
    if not _WORTH.keys() <= names.keys():
        return Trial(
            Evidence(), f"the limit {', '.join(_WORTH)} has another name: rows as short as these do not reach it"
        )
    with seeing(names, _WORTH):
        return first_wrong((one, partial(_wrong, one, map_kind, block_kind, ways)) for one in _histories(_STEPS))


_WRONG: tuple[Wrong, ...] = (
    ("a run that has lost a block answers for it", "forget", "run.whole = False", "pass"),
    ("a run ends where the request does not", "prefix", "i += n", "i += len(run.blocks) - at"),
    ("it is not compared", "agreement", "if contents[at + last] == hashes[i + last]:", "if True:"),
    ("from the end, more of a run is found than is asked for", "suffix", "n = min(at + 1, end - first)", "n = at + 1"),
    ("an end that others share is forgotten whole", "_drop_end", "registered[content] = entry", "pass"),
)


@dataclass(frozen=True, kw_only=True)
class ByRuns(TriedStatement):
    """That a lookup by runs finds what looking block by block finds."""

    wrong = _WRONG

    def parts(self, subject: Subject) -> tuple[Any, Any]:
        """The map and the blocks."""
        return subject.find("map_with_runs"), subject.find("block_kind")

    def tried(self, parts: tuple[Any, Any], watched: Watched) -> Trial:
        """Every history of the scope."""
        with watched:
            return tried(*parts)

    def is_refuted(self, parts: tuple[Any, Any], name: str, line: str, instead: str) -> bool:
        """Of a method of the map, or a function beside it."""
        map_kind, block_kind = parts
        names = globals_of(map_kind.suffix)
        rights: list[Callable[..., Any]] = [vars(kind)[name] for kind in map_kind.__mro__ if name in vars(kind)]
        for right in rights or [names[name]]:  # a class may leave the line to the one below it
            try:
                wrong = changed(right, line, instead)
            except ValueError:
                continue
            if name in names:
                with seeing(names, {name: wrong}):
                    return bool(tried(map_kind, block_kind).problem)
            return bool(tried(type(map_kind.__name__, (map_kind,), {name: wrong}), block_kind).problem)
        return False


RUNS = ByRuns(
    id="T8.runs",
    sentence="A lookup by runs finds the blocks that stand under its hashes one by one, up to the first that is not "
    "there, whatever was registered, forgotten or looked up before.",
    bounded=f"all histories of up to {_STEPS} steps with two requests of {_LENGTH} blocks, of which the first "
    f"{_COMMON} are the same; a run pays from {_WORTH['_WORTH_A_RUN']} blocks on there. Exploration restores states "
    "with runs, and lockstep compares hits of any length",
    meaning="A long hit costs one comparison of two lists, and is the hit that block by block would be found.",
)

THEOREMS = (RUNS,)
