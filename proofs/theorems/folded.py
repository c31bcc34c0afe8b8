"""Folded runs (T8.folded): a map that folds runs has what a plain map has, whatever happens to their blocks.

A pool of a few blocks goes through every history of a scope: requests whose prompts begin alike, or are the same, find
what is known, register their blocks one by one or in rows, and end; blocks lose their names alone, from the middle, in
rows, or as they are handed out; they get second names and give them away; and somebody asks for a name otherwise than
from the left. After each step every name has the blocks that it has in a plain map, in the order in which they got it,
and every prompt finds what stands under its hashes one by one.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import product, takewhile
from types import SimpleNamespace
from typing import Any, TypeAlias
from unittest.mock import patch

from ..coverage import Watched
from ..exhaustion import Trial, TriedStatement, Wrong, first_wrong
from ..kernel import Evidence
from ..symbolic_bytes import globals_of, seeing
from ..theorem import Subject, UnavailableError
from ..wrong_code import changed

_GROUP, _BLOCKS, _STEPS = 0, 6, 4
_PROMPTS = ("abc", "abd", "ae")
"""The hashes of the prompts, a letter each: one names all before it, too."""
_SECOND, _PART = "x", "y"
"""A name that one block may have besides, and one of a part of a block."""
Step: TypeAlias = tuple[Any, ...]


def _goes(left: int, fresh: list[int]) -> Iterator[tuple[list[int], bool]]:
    """The next blocks that are registered, and whether in a row."""
    yield from ((fresh[:n], row) for n in range(1, min(left, len(fresh)) + 1) for row in sorted({n > 1, True}))


class _World:
    """A real pool, the tables of two requests, and what a plain map would have."""

    def __init__(self, pool_kind: Any) -> None:
        self.pool = pool_kind(_BLOCKS + 1, True, 1)
        self.pool.fold([_GROUP])
        self.map, self.blocks = self.pool.cached_block_hash_to_block, self.pool.blocks
        self.tables: list[tuple[str, list[int]] | None] = [None, None]
        self.names: dict[str, list[int]] = {}

    def steps(self) -> Iterator[Step]:
        """Everything that may come next."""
        named = sorted({block for blocks in self.names.values() for block in blocks})
        held = {block for table in self.tables if table for block in table[1]}
        free = [block for block in range(1, _BLOCKS + 1) if block not in held and block not in named]
        parts = [block for block in self.names.get(_PART, []) if block not in held]
        fresh = [*free[:1], *parts, *free[1:]]  # one that has the name of a part gets one of the whole
        for t, table in enumerate(self.tables):
            if table is None:
                if None not in self.tables[:t]:
                    for prompt, hit in product(_PROMPTS, sorted({False, _PROMPTS[0][0] in self.names})):
                        known = self.known(prompt) if hit else []
                        yield from (("begin", t, prompt, hit, *go) for go in _goes(len(prompt) - len(known), fresh))
                continue
            yield from (("go", t, *go) for go in _goes(len(table[0]) - len(table[1]), fresh))
            yield "end", t
        yield from (("evict", [block]) for block in named)
        ends = {one.run for one in self.blocks if one.run is not None and one.run.whole and one.run.blocks[-1] is one}
        for ids in sorted([one.block_id for one in run.blocks[:-3:-1]] for run in ends):
            if len(ids) > 1 and not held & {*ids}:
                yield "take", ids
                yield "forget", ids[::-1]
        yield ("ask",)
        if _SECOND not in self.names:
            yield from (("name", block) for block in named)
        if free and _PART not in self.names:
            yield "part", free[0]
        if free:
            yield from (("move", block, free[0]) for block in named if block in self.names.get(_SECOND, named[:1]))

    def do(self, step: Step) -> None:
        """One step, and the same in the plain map."""
        match step:
            case "begin", t, prompt, hit, *go:
                found = self.map.prefix(_GROUP, list(prompt), len(prompt)) if hit else []
                self.tables[t] = prompt, [block.block_id for block in found]
                self._go(t, *go)
            case "go", t, ids, row:
                self._go(t, ids, row)
            case "end", t:
                self.tables[t] = None
            case "evict", ids:
                self.pool.evict_blocks(ids)
                self._forget(ids)
            case "take", ids:
                assert self.map.take_end([self.blocks[i] for i in ids]), "the end of a run is not seen"
                self._forget(ids)
            case "forget", ids:
                self.map.forget_all([self.blocks[i] for i in ids])
                self._forget(ids)
            case ("ask",):
                self.pool.get_cached_block("nobody's", [_GROUP])
            case "move", block, other:
                self.pool.move_names(self.blocks[block], self.blocks[other])
                names = [name for name in self.names if block in self.names[name]]
                first = [name for name in names if name != _SECOND]
                self._forget([block])
                for name in (*first, *(name for name in names if name == _SECOND)):
                    self.names.setdefault(name, []).append(other)
            case kind, block:
                name, covers = (_SECOND, None) if kind == "name" else (_PART, 0)
                self.pool.add_name(self.blocks[block], _GROUP, name, covers)
                self.names.setdefault(name, []).append(block)

    def _go(self, t: int, ids: list[int], row: bool) -> None:
        table = self.tables[t]
        assert table is not None
        prompt, own = table
        first = len(own)
        own += ids
        request = SimpleNamespace(request_id="request", block_hashes=list(prompt))
        blocks = [self.blocks[i] for i in own]
        if row or self.blocks[ids[0]].content is not None:
            self.pool.cache_row(request, blocks, first, len(own), 1, _GROUP)
        else:
            self.pool.cache_full_block(request, blocks, first, 1, _GROUP)
        if len(own) == len(prompt):
            self.tables[t] = None
        self._forget(ids)
        for name, block in zip(prompt[first:], ids, strict=False):
            self.names.setdefault(name, []).append(block)

    def _forget(self, ids: list[int]) -> None:
        for name, blocks in list(self.names.items()):
            self.names[name] = [block for block in blocks if block not in ids]
            if not self.names[name]:
                del self.names[name]

    def problem(self) -> str:
        """What differs from the plain map; nothing if all is as there. AssertionError if the map contradicts itself."""
        self.pool._check_names()
        for name in (*dict.fromkeys("".join(_PROMPTS)), _SECOND, _PART):
            found = [block.block_id for block in self.map.blocks_in(_GROUP, name)]
            if found != self.names.get(name, []):
                return f"{name} has {found}, not {self.names.get(name, [])}"
        for prompt in _PROMPTS:
            found = [block.block_id for block in self.map.prefix(_GROUP, list(prompt), len(prompt))]
            if found != self.known(prompt):
                return f"{prompt} finds {found}, not {self.known(prompt)}"
        return ""

    def known(self, prompt: str) -> list[int]:
        """What stands under its hashes one by one."""
        there = takewhile(self.names.__contains__, prompt)
        return [self.names[name][0] for name in there]

    def shown(self) -> str:
        """All that decides what comes of the steps from here."""
        folds, numbers, runs = self.map.folds[_GROUP], dict[int, int](), list[Any]()

        def number(run: Any) -> int:
            if run is None:
                return -1
            if id(run) not in numbers:
                numbers[id(run)] = len(numbers)
                own = [one.block_id for one in run.blocks], run.contents, run.first, run.whole
                more = (run.folded, sorted({*(run.leaves or ())})) if hasattr(run, "folded") else ()
                runs.append((*own, *more, number(getattr(run, "again", None))))
            return numbers[id(run)]

        carried = [(one.content, number(one.run)) for one in self.blocks]
        tables = sorted(map(repr, self.tables))
        return repr((carried, runs, sorted(self.names.items()), tables, folds.orphans, _GROUP in self.map.groups))


def tried_at_low_limits(pool_kind: Any, steps: int = _STEPS) -> Trial:
    """Every history, where two blocks are worth a run, and one that leaves is worth a look."""
    several = globals_of(pool_kind.fold)["SeveralNames"]
    with ExitStack() as low:
        for names, limit in (
            (globals_of(several.suffix), {"_WORTH_A_RUN": 2}),
            (globals_of(several.unfold), {"_MANY": 1}),
        ):
            if not limit.keys() <= names.keys():
                wrong = f"the limit {', '.join(limit)} has another name: what is as small as this does not reach it"
                return Trial(Evidence(), wrong)
            low.enter_context(seeing(names, limit))
        return first_wrong(_cases(pool_kind, steps))


def _cases(pool_kind: Any, steps: int) -> Iterator[tuple[Any, Callable[[], str]]]:
    seen, level = set[str](), [tuple[Step, ...]()]
    for _ in range(steps):
        ahead: list[tuple[Step, ...]] = []
        for history in level:
            for step in list(_after(pool_kind, history).steps()):
                longer = *history, step
                yield longer, partial(_wrong, pool_kind, longer, seen, ahead)
        level = ahead


def _wrong(pool_kind: Any, history: tuple[Step, ...], seen: set[str], ahead: list[tuple[Step, ...]]) -> str:
    """From a state that no shorter history has come to it goes on."""
    world = _after(pool_kind, history)
    state = world.shown()
    if state in seen:
        return ""
    seen.add(state)
    ahead.append(history)
    return world.problem()


def _after(pool_kind: Any, history: tuple[Step, ...]) -> _World:
    world = _World(pool_kind)
    for step in history:
        world.do(step)
    return world


_WRONG: tuple[Wrong, ...] = (
    ("a run that is left has an end that somebody stands behind", "_drop_leaves", "folds.orphans = True", "pass"),
    ("nobody is noted where a run is left", "_room", "self._note_leaf(folds, parent, at, head)", "pass"),
    ("where a run parts from another one it stays folded", "_room", "self._unfold_end(parent, at)", "pass"),
    ("what knows one of the hashes stays folded", "_room", "self._unfold_known(folds, contents, False)", "pass"),
    ("a run that cannot go on stays folded", "_room", "self._unfold_run(parent)", "pass"),
    ("a second run hides the first one", "_room", "_all(others)[-1].again = made", "heads[head] = made"),
    ("what has left the middle is found on", "forget", "self._unfold_run(run)", "run.folded = False"),
    ("an end goes, and its hashes stay", "_drop_end", "del run.contents[-n:], run.blocks[-n:]", "del run.blocks[-n:]"),
    (
        "the first of two runs goes, and with it the second",
        "take_out",
        "folds.heads[head] = again",
        "del folds.heads[head]",
    ),
    (
        "the second of two blocks is put in the place of the first",
        "_insert",
        "found = index.setdefault(content, block)",
        "found = index[content] = block",
    ),
    ("of the second run nothing is found", "prefix", "while run.again is not None and i < end:", "while False:"),
    ("a run that is refused has named its blocks", "register_new", "other.content = other.run = None", "pass"),
    ("what is taken as it is handed out is still found", "take_end", "self._drop_end(run, blocks)", "pass"),
    ("a block with a second name stays in its run", "mark", "self.unfold(group)", "pass"),
    ("a block alone is begun as a run, and found alone, too", "_fold_first", "del folds.index[content]", "pass"),
)


@dataclass(frozen=True, kw_only=True)
class Folded(TriedStatement):
    """That a map with folded runs has what a plain map has."""

    wrong = _WRONG

    def parts(self, subject: Subject) -> Any:
        """The pool, whose map it is."""
        pool_kind = subject.find("pool_kind")
        if not hasattr(pool_kind, "fold"):
            raise UnavailableError("the pool folds no runs")
        return pool_kind

    def tried(self, parts: Any, watched: Watched) -> Trial:
        """Every history of the scope; shorter ones come to all functions."""
        with watched:
            tried_at_low_limits(parts, _STEPS - 1)
        return tried_at_low_limits(parts)

    def is_refuted(self, parts: Any, name: str, line: str, instead: str) -> bool:
        """Of a method of the map, or a function beside it."""
        several = globals_of(parts.fold)["SeveralNames"]
        modules = [globals_of(method) for method in (several.forget, several.unfold, several.suffix)]
        for kind in (*several.__mro__, *(SimpleNamespace(**names) for names in modules)):
            try:
                wrong = changed(vars(kind)[name], line, instead)
            except (ValueError, KeyError):
                continue
            with ExitStack() as there:
                if isinstance(kind, type):
                    there.enter_context(patch.object(kind, name, wrong))
                for names in modules:  # under this name each has the same function, or none
                    there.enter_context(seeing(names, {name: wrong} if name in names else {}))
                return bool(tried_at_low_limits(parts).problem)
        return False


FOLDED = Folded(
    id="T8.folded",
    sentence="A map that folds runs has under each name the blocks that a plain map has, in the order in which they "
    "got it, and finds of each prompt what stands under its hashes one by one.",
    bounded=f"all histories of {_STEPS} steps of a pool of {_BLOCKS} blocks, where two requests at once have prompts "
    f"of three blocks at most, {len(_PROMPTS)} different ones that begin alike; two blocks are worth a run there. "
    "Lockstep compares names and hits of larger pools after every operation",
    meaning="To register a prompt costs one entry of a map, not one a block, and every hit is what it was.",
)

THEOREMS = (FOLDED,)
