"""How many blocks a request holds of layers that keep running states only: mamba mode align (T15).

A step writes its running state into the entry of its last token and those of `p` drafts into the entries behind. Which
blocks serve there, and which one stays besides, decides how many are held.
"""

from collections.abc import Sequence
from itertools import product
from types import SimpleNamespace
from typing import Any, NamedTuple

from ..claims import implies, one_of
from ..quotients import tokens
from ..roles.prediction import Held
from ..theorem import NegativeControl, Theorem, on_releases

STEP = {
    "b": "tokens per block",
    "x": "tokens computed in the block of the last computed token",
    "late": "of the computed tokens, how many may be taken back",
    "y": "tokens after the step in the block of its last token",
    "kind": "the number of the kind of step: how many blocks further it ends, and with how many drafts",
}
BOUNDED = (
    "all tables of 3 entries that hold at most 2 + p states, with identities or without, 0 or 1 speculative block, and "
    "steps that end at most 2 blocks further on, each for any b: loops go through entries and drafts, and each round "
    "does the same to another one"
)


def any_step(v: Any, kinds: int) -> list[Any]:
    """Any tokens of a step of so many kinds; the rest is its `Case`."""
    tokens_of_it = [v.b >= 1, v.x >= 1, v.x <= v.b, v.late >= 0, v.late <= 1, v.y >= 1, v.y <= v.b]
    return [*tokens_of_it, v.kind >= 0, v.kind < kinds]


class Case(NamedTuple):
    """A table and a step, but for the tokens."""

    p: int
    marks: tuple[int, ...]
    registered: int
    last: int  # block of the last computed token
    running: int  # block of the last token of the step


CASES = tuple(
    Case(p, marks, registered, 1, 1 + further)
    for p in (0, 1)
    for marks in product((0, 1), repeat=3)
    if sum(marks) <= 2 + p
    for registered in (0, 1)
    for further in (0, 1, 2)
)

LONGER = tuple(Case(1, marks, registered, 0, 0) for marks in product((0, 1), repeat=3) for registered in (0, 1))
"""Tables with an entry more than the step needs, since drafts of the step before were rejected."""


def by_kind(cases: Sequence[Case]) -> list[list[Case]]:
    """The cases of each kind of step: their tables differ. What is known of the tokens of one kind helps with no other,
    so a proof goes through the kinds one by one (`one_of`)."""
    kinds = sorted({(case.p, case.last, case.running) for case in cases})
    return [[case for case in cases if (case.p, case.last, case.running) == kind] for kind in kinds]


KINDS = by_kind(CASES)


def after_step(f: Any, v: Any, case: Case) -> Any:
    """The request after the step."""
    settled, computed = (tokens(case.last, rest, v.b) for rest in (v.x - v.late * case.p, v.x))
    main = tokens(case.running, v.y if case.running > case.last else v.b, v.b)
    return f.states(Held(v.b, case.p, case.marks, case.registered), settled, computed, main)


def _holds(f: Any, v: Any, case: Case, most: int) -> list[Any]:
    after, stays = after_step(f, v, case), case.marks[case.last]
    within = after.table.real <= most + case.p
    return [
        implies(v.b > case.p, within) if case.p else within,
        *(after.table[case.running + behind] != 0 for behind in range(1 + case.p)),
        *([after.table[case.last] == case.last + 1] if stays else []),
        *([implies(v.b <= case.p, after.table.real <= most + 2 * case.p)] if case.p else []),
    ]


def _in_order(f: Any, v: Any, most: int = 2) -> list[Any]:
    return [claim for case in one_of(v.kind, KINDS) for claim in _holds(f, v, case, most)]


class _Kept:
    """What a table is in which every state of before stays, with those that the step writes behind them."""

    def __init__(self, held: Held) -> None:
        self.real = sum(held.marks) + 1 + held.p

    def __getitem__(self, index: int) -> int:
        return index + 1


def _all_kept(held: Held, settled: Any, computed: Any, main: Any) -> Any:
    return SimpleNamespace(table=_Kept(held))


def given_back(held: Held, settled: Any, computed: Any, main: Any) -> Any:
    """A wrong prediction, which is right only where the table is too short: fewer blocks than none."""
    missing = -(-main // held.b) + held.p - len(held.marks)
    return SimpleNamespace(foreseen=missing, taken=max(0, missing))


_PILES_UP = (
    "a request holds more states than are budgeted for it, and the block that is too many is given back only when the "
    "request ends: a full pool, preemptions; or the entry of the running state is null where the step before was longer"
)

T15 = Theorem(
    id="T15",
    sentence="A request holds at most 2 + p running states, whatever its steps are: with drafts accepted or rejected, "
    "before or after the next step is allocated. Where a block has no more tokens than a step has drafts (1 here), "
    "it holds at most 2 + 2p, since rejected drafts lead back over more than a block. Each state that the step writes "
    "has a block, and that of the last computed token keeps its own.",
    variables=STEP,
    assume=lambda v: any_step(v, len(KINDS)),
    claim=_in_order,
    controls=(
        NegativeControl("no state is held besides those that are written", claim=lambda f, v: _in_order(f, v, most=1)),
        NegativeControl("nothing is ever given back", {"states": _all_kept}),
    ),
    unroll=6,
    bounded=BOUNDED,
    refuted_on=on_releases(_PILES_UP),
    meaning="Memory for 2 + p states per request is budgeted (`max_memory_usage_bytes`), and that is what is held.",
)

THEOREMS = (T15,)
