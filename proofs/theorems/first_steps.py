"""First steps (T16.begin, T16.first): what a request gets at once is what the long way gives it, and no more changes.

How many blocks a step takes, and when it is refused, is proved for any sizes; what else it does is tried. Two cores
with the same past are asked for the same first step, one of them the long way. Blocks, names, references, the order of
the free queue, events, ids of new blocks and the answer must be the same then, as well as behind the next step and the
end of the request.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from inspect import signature
from itertools import product
from typing import Any, NamedTuple, TypeAlias
from unittest.mock import patch

from ...model.ops import Group
from ..claims import same, use
from ..coverage import Watched
from ..exhaustion import Trial, TriedStatement, Wrong, first_wrong
from ..hybrid_subjects import AnyElement, spec_of
from ..roles.admission import Beginning
from ..theorem import Claim, NegativeControl, Subject, Theorem
from ..wrong_code import with_line
from .admission import cdiv, rounded_up

# How many blocks, for any sizes.

_ANY = {
    "b": "tokens per block",
    "n": "tokens of the step",
    "lookahead": "tokens of drafts",
    "batched": "most tokens of one step",
    "known": "tokens of the request",
    "whole": "whether all of these must find room",
    "free": "free blocks",
    "reserved": "blocks that stay free",
}
_HIT = {
    "hit": "blocks of the hit",
    "first": "index of the first block of the hit that nobody holds",
    "end": "index behind the last one, of blocks that stand together",
}


def _any_first_step(v: Any) -> list[Any]:
    some_or_none = v.lookahead, v.free, v.reserved
    few = _few(v.n, v.known, *some_or_none)
    return [v.b >= 1, v.n >= 1, v.n <= v.batched, v.known >= 1, *(x >= 0 for x in some_or_none), *few]


def _few(*counts: Any) -> list[Any]:
    """Counterexamples are run on tables of so many entries."""
    return [x <= 100_000 for x in counts]


def _any_hit(v: Any) -> list[Any]:
    return [v.first >= 0, v.first <= v.end, v.end <= v.hit, v.hit * v.b < v.known]


def _as_the_long_way(kind: str, known: Mapping[str, str], *wrong: str) -> Claim:
    def claim(f: Any, v: Any) -> list[Any]:
        told = Beginning(**{name: getattr(v, name) for name in known})
        for tokens in (told.hit * told.b + told.n, told.known):
            use(rounded_up, tokens + told.lookahead, told.b)
        (refused, *short), (long_refused, *long) = f.begun(kind, told, True, wrong), f.begun(kind, told, False)
        return [same(refused, long_refused), *(one == other for one, other in zip(short, long, strict=True))]

    return claim


def _a_block_more(kind: str, told: Beginning, at_once: bool, wrong: Sequence[str] = ()) -> tuple[Any, ...]:
    return False, cdiv(told.n, told.b) + at_once, 0, 0


def _begin(
    number: str,
    kind: str,
    what: str,
    more: Mapping[str, str],
    any_more: Callable[[Any], list[Any]],
    *wrong: Sequence[str],
) -> Theorem:
    known = {**_ANY, **more}
    return Theorem(
        id=number,
        sentence=f"{what}: a first step that is taken at once takes as many blocks as the long way does and is refused "
        "where that is, whether all tokens of the request must find room or not, and counts as many as registered.",
        variables=known,
        assume=lambda v: [*_any_first_step(v), *any_more(v)],
        claim=_as_the_long_way(kind, known),
        controls=(
            NegativeControl("a block more", {"begun": _a_block_more}),
            *(NegativeControl(what, claim=_as_the_long_way(kind, known, *line)) for what, *line in wrong),
        ),
        bounded="up to 100,000 tokens; one group: several, and what else a step does, T16.first",
        meaning="What is proved of allocation holds of the way on which most requests begin.",
    )


_BEGINS = (
    _begin(
        "T16.begin",
        "full",
        "Full attention, also behind a hit",
        _HIT,
        _any_hit,
        ("room is not looked at", "begin", "if needed > room:", "if False:"),
        ("one block too many counts as free", "begin", "if needed > room:", "if needed > room + 1:"),
        (
            "a block more where they fill the last one",
            "begin",
            "missing = (slots + size - 1) // size - held",
            "missing = slots // size + 1 - held",
        ),
    ),
    *(
        _begin(
            f"T16.begin.{kind}",
            kind,
            f"{what} without a hit",
            {"w": f"{size}, in tokens"},
            lambda v: [v.w >= 1],
            ("what must find room is not looked at", "_begin_each", "if needed > room:", "if False:"),
            ("no block for drafts", "_begin_each", "slots = slots if slots < most else most", "slots = num_new_tokens"),
        )
        for kind, what, size in (("sliding", "Sliding window", "window"), ("chunked", "Chunked attention", "chunk"))
    ),
)

# What else.

Names: TypeAlias = Callable[[str], Any]
_B, _LONGEST = 2, 10
"""Tokens of a block, and most tokens of a request."""
_KNOWN = tuple(range(5))
"""Tokens that were computed before: two blocks, and a part of one."""
_FULL, _WINDOW, _CHUNK = Group("full", _B), Group("sliding", _B, window=3), Group("chunked", _B, chunk=4)


class Past(NamedTuple):
    """A core, and who was there before: a request with the known tokens, which has ended, or runs on."""

    groups: Sequence[Group]
    room: int
    """Blocks for each group."""
    options: tuple[str, ...] = ()
    """What is on besides: options of a manager, in their order."""
    runs_on: bool = False


class FirstStep(NamedTuple):
    """A first step."""

    hit: bool
    new: int
    lookahead: int
    reserved: int
    whole: bool
    delayed: bool
    computed: int = 0


_OPTIONS: dict[str, Any] = {
    "enable_kv_cache_events": True,
    "use_eagle": True,
    "num_hash_lookahead_tokens": 1,
    "watermark": 0.2,
    "enable_caching": False,
}
_STEPS = (
    *(FirstStep(*one) for one in product((False, True), (1, 2, 3, 4), (0, 3), (0, 1), (False, True), (False,))),
    *(FirstStep(*one) for one in product((False, True), (2, 4), (0,), (0, 2), (False,), (True,))),
    FirstStep(True, 2, 0, 0, False, False, 2),
)
_STATES = Group("mamba", _B, mamba_mode="align")
_KINDS = ((_FULL,), (_WINDOW,), (_CHUNK,), (_FULL, _WINDOW), (_FULL, _FULL), (_FULL, _STATES))


def _pasts() -> list[Past]:
    return [Past(*one) for one in product(_KINDS, (4, 6, 9), ((), *((one,) for one in _OPTIONS)), (False, True))]


class _Core:
    """A core with this past."""

    def __init__(self, names: Names, past: Past, at_once: bool) -> None:
        self._names, self._options = names, {one: _OPTIONS[one] for one in past.options}
        groups = [
            names("KVCacheGroupSpec")([f"layer.{i}"], spec_of(group, names, AnyElement()), False)
            for i, group in enumerate(past.groups)
        ]
        self.manager = names("KVCacheManager")(
            names("KVCacheConfig")(1 + past.room * len(groups), [], groups), _LONGEST, _B, _B, **self._options
        )
        self.manager._begins &= at_once
        before = self.request("before", _KNOWN)
        for count in (2 * _B, len(_KNOWN) - 2 * _B):
            if self.manager.allocate_slots(before, count) is not None:
                before.num_computed_tokens += count
            self.manager.new_step_starts()
        if not past.runs_on:
            self.manager.free(before)

    def request(self, name: str, tokens: Sequence[int]) -> Any:
        """A request with these tokens, of which each full block has a hash."""
        made = self._names("Request")(name, list(tokens))
        ahead = self._options.get("num_hash_lookahead_tokens", 0)
        made.block_hashes = [
            repr(tokens[: i + _B + ahead]).encode() for i in range(0, len(tokens) - _B - ahead + 1, _B)
        ]
        return made

    def begin(self, told: FirstStep) -> Iterator[Any]:
        """What there is behind this step, behind the next one, and behind the end of the request."""
        manager = self.manager
        request = self.request("new", (*_KNOWN, *range(7, 11)) if told.hit else tuple(range(20, 27)))
        request.num_computed_tokens = told.computed
        found, length, *_ = manager.get_computed_blocks(request)
        answer = manager.allocate_slots(
            *(request, told.new, length, found, told.lookahead),
            delay_cache_blocks=told.delayed,
            full_sequence_must_fit=told.whole,
            reserved_blocks=told.reserved,
        )
        yield _ids(answer), self.shown()
        if answer is not None:
            request.num_computed_tokens += length + told.new
            yield _ids(manager.allocate_slots(request, 2)), _ids(answer), self.shown()
            manager.free(request)
            yield self.shown()
            manager.check()

    def shown(self) -> Any:
        """All that an engine could ask for."""
        pool, managers = self.manager.block_pool, self.manager.coordinator.single_type_managers
        tables = [{name: _of(row) for name, row in one.req_to_blocks.items() if row} for one in managers]
        registered = [dict(one.num_cached_block) for one in managers]
        new, events = [list(one.take_new_block_ids()) for one in managers], self.manager.take_events()
        return pool.free_ids(), pool.ref_counts(), pool.identities(), tables, registered, new, events


def _of(row: Any) -> list[int]:
    return [block.block_id for block in row]


def _ids(answer: Any) -> Any:
    return None if answer is None else [_of(row) for row in answer.blocks]


def tried(names: Names, pasts: Sequence[Past]) -> Trial:
    """Every step behind each of these."""
    return first_wrong(((past, told), partial(_wrong, names, past, told)) for past, told in product(pasts, _STEPS))


def _wrong(names: Names, past: Past, told: FirstStep) -> str:
    long = list(_Core(names, past, False).begin(told))
    short = list(_Core(names, past, True).begin(told))
    return "" if short == long else f"{short}, not {long}"


_WRONG: tuple[Wrong, ...] = (
    ("room is not looked at", "begin", "if needed > room:", "if False:"),
    (
        "a block more where they fill the last one",
        "begin",
        "missing = (slots + size - 1) // size - held",
        "missing = slots // size + 1 - held",
    ),
    (
        "that all must find room is forgotten",
        "begin",
        "if whole and slots < cached + num_lookahead_tokens:",
        "if False:",
    ),
    ("a block has its name before it is full", "begin", "cached = tokens", "cached = tokens + size - 1"),
    ("nobody holds the hit", "begin", "self._pool.touch(found)", "pass"),
    ("the hit does not count as registered", "begin", "lane.registered[request_id] = held", "pass"),
    ("new blocks stand before the hit", "begin", "table += row", "table[:0] = row"),
    (
        "of several groups the last one must find room",
        "_begin_each",
        "needed += (length + lane.size - 1) // lane.size",
        "needed = (length + lane.size - 1) // lane.size",
    ),
    (
        "the answer grows with the table",
        "_begin_each",
        "lane.tables[request_id] = row[:]",
        "lane.tables[request_id] = row",
    ),
    (
        "what is computed later has its name",
        "_begin_each",
        "cached = num_new_tokens if num_new_tokens < tokens else tokens",
        "cached = tokens",
    ),
    (
        "the last block counts as full",
        "register_row",
        "end = tokens // size",
        "end = (tokens + 1) // size",
    ),
    ("what is registered does not count", "register_row", "self.registered[request.request_id] = end", "pass"),
)
_WRONG_OLDER: tuple[Wrong, ...] = (("new blocks are not listed", "begin", "self.manager.new_blocks += row", "pass"),)
"""By the rule of today they are listed beside states alone, where tables begin otherwise."""
_WRONG_TODAY: tuple[Wrong, ...] = (
    ("beside states nobody holds the hit", "_attach", "self._pool.touch(row)", "pass"),
    ("nobody holds the state that is hit", "_attach", "self._pool.touch(row[entry:])", "pass"),
    ("nobody notes which states a step writes", "begin", "manager.note_step(request_id, start, tokens, end)", "pass"),
)
"""Where states are kept, each step of a prompt."""


@dataclass(frozen=True, kw_only=True)
class AtOnce(TriedStatement):
    """That a first step which is taken at once does what the long way does."""

    wrong = _WRONG

    def parts(self, subject: Subject) -> tuple[Names, Sequence[Past]]:
        """The names of the core, and the pasts whose options it knows."""
        names: Names = subject.find("core_that_begins")
        known = {*signature(names("KVCacheManager")).parameters}
        return names, [past for past in _pasts() if known.issuperset(past.options)]

    def tried(self, parts: tuple[Names, Sequence[Past]], watched: Watched) -> Trial:
        """Every step behind every past; one with each kind and option comes to what they are about."""
        names, pasts = parts
        with watched:
            tried(names, [*{(one.groups, one.options): one for one in pasts}.values()])
        answers: set[bool | None] = set()
        with ExitStack() as noted:
            for kind in _kinds(parts)[:-1]:
                if "begin" in vars(kind):
                    noted.enter_context(patch.object(kind, "begin", _noting(vars(kind)["begin"], answers)))
            trial = tried(names, pasts)
        if not trial.problem and len(answers) < 3:
            return trial._replace(problem=f"steps were only {answers}: taken, refused and left to the long way is all")
        return trial

    def refutations(self, parts: tuple[Names, Sequence[Past]]) -> Iterator[tuple[str, bool]]:
        """Those of its own rule as well."""
        of_today = any("_attach" in vars(kind) for kind in _kinds(parts))
        wrong = (*_WRONG, *(_WRONG_TODAY if of_today else _WRONG_OLDER))
        return ((what, self.is_refuted(parts, *change)) for what, *change in wrong)

    def is_refuted(self, parts: tuple[Names, Sequence[Past]], name: str, line: str, instead: str) -> bool:
        """Of a method of the steps, or of a group in them."""
        with with_line(_kinds(parts), name, line, instead):
            return bool(tried(*parts).problem)


def _kinds(parts: tuple[Names, Sequence[Past]]) -> Sequence[type]:
    """The classes of the steps of these cores, those above others first, and that of a group in them."""
    names, pasts = parts
    steps = [
        _Core(names, past, True).manager._steps for past in {past.groups: past for past in reversed(pasts)}.values()
    ]
    kinds = dict.fromkeys(kind for one in steps for kind in type(one).__mro__)
    return *sorted(kinds, key=lambda kind: -len(kind.__mro__)), type(steps[0].lanes[0])


def _noting(begin: Callable[..., Any], answers: set[bool | None]) -> Callable[..., Any]:
    def noted(*given: Any) -> Any:
        rows = begin(*given)
        answers.add(None if rows is None else bool(rows))
        return rows

    return noted


FIRST = AtOnce(
    id="T16.first",
    sentence="A first step that is taken at once gives the blocks, names, references and events that the long way "
    "gives, leaves the free queue as that does, and all else as it was; so do the next step and the request's end.",
    bounded=f"{len(_STEPS)} steps in each of {len(_pasts())} small cores: one group or two, blocks of {_B} tokens, "
    "with and without a hit, room, events, others that run, names that look ahead, watermark; by the rule of today, "
    "with states beside full attention, each step of a prompt. Lockstep compares those of larger ones",
    meaning="Most requests begin on this way: with it, what is proved of the long one holds of them.",
)

THEOREMS = (*_BEGINS, FIRST)
