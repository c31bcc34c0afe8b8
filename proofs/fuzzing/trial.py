"""Settles claims about drawn functions, and holds the answers against brute force over small integers."""

import linecache
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from types import MappingProxyType, ModuleType
from typing import Any, Literal, NamedTuple, TypeAlias

import z3

from ..kernel import Account, Path, follows
from ..quotients import divisor
from ..solver import Obligation, ProofError
from ..symbolic import Run, SymbolicInt, symbol, term
from ..symbolic_builtins import symbolic_builtins
from .functions import MOST_ROUNDS, Drawn, draw

SMALL = range(-3, 5)
"""The integers of brute force."""
FEW = range(-2, 4)
"""The same for three arguments."""
CLAIMS = 10
"""About each function."""
SECONDS = 0.3
"""For each question to the solver."""
PATHS = 40
"""A function with more is left alone: there are enough others."""

Status: TypeAlias = Literal["proved", "refuted", "undecided"]
Values: TypeAlias = Mapping[str, int]
Claim: TypeAlias = Callable[..., Any]
Tools: TypeAlias = Mapping[str, Any]
"""What a drawn function finds in its module, by name."""


class WrongAnswer(NamedTuple):
    """An answer of the prover that is not true."""

    seed: int
    claim: str
    said: str
    values: dict[str, int]
    source: str

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.claim} is {self.said}, but see {self.values} of\n{self.source}"


@dataclass
class Tally:
    """What came of many claims."""

    statuses: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    """Of what is undecided."""
    wrong: list[WrongAnswer] = field(default_factory=list)
    lost: dict[int, str] = field(default_factory=dict)
    """Programs, by number, that were not tried to their end, and why; their claims are undecided."""
    lost_claims: int = 0
    program: int = 0
    """Number of the last one."""

    def add(self, other: "Tally") -> None:
        """Add what came of other claims."""
        self.statuses += other.statuses
        self.reasons += other.reasons
        self.wrong += other.wrong

    def lose(self, program: int, how: str, claims: int) -> None:
        """Note that so many claims about a program could not be settled to the end."""
        self.lost[program] = how
        self.lost_claims += claims
        self.statuses["undecided"] += claims

    @property
    def cases(self) -> int:
        """Claims that were tried."""
        return self.statuses.total()


class Function:
    """A drawn function, compiled."""

    def __init__(self, drawn: Drawn, tools: Tools) -> None:
        self.drawn = drawn
        self.module = ModuleType("drawn")
        vars(self.module).update(tools)
        self.module.__file__ = path = f"<drawn {zlib.crc32(drawn.source.encode())}>"
        linecache.cache[path] = len(drawn.source), None, drawn.source.splitlines(keepends=True), path
        exec(compile(drawn.source, path, "exec"), vars(self.module))
        self.assumed = [self.claim(text) for text in drawn.assume]

    def claim(self, text: str) -> Claim:
        """A condition as a function of the arguments."""
        made: Claim = eval(f"lambda {', '.join(self.drawn.names)}: {text}", vars(self.module))
        return made

    def points(self) -> Iterator[tuple[int, ...]]:
        """The small arguments that satisfy the assumption."""
        numbers = SMALL if len(self.drawn.names) < 3 else FEW
        return (
            point
            for point in product(numbers, repeat=len(self.drawn.names))
            if all(one(*point) for one in self.assumed)
        )


def holds(claim: Claim, point: Sequence[int]) -> bool:
    """What Python says; an error is no."""
    try:
        return bool(claim(*point))
    except Exception:
        return False


def claims_about(function: Function, seed: int) -> list[str]:
    """Claims of which some hold and some do not: what they compare with has been seen nearby."""
    drawn = random.Random(f"claims {seed}")
    call = f"f({', '.join(function.drawn.names)})"
    f, seen = function.claim(call), []
    for point in function.points():
        try:
            seen.append(int(f(*point)))
        except Exception:
            continue
    low, high = (min(seen), max(seen)) if seen else (0, 0)
    some = drawn.choice(seen) if seen else 0
    first = drawn.choice(function.drawn.names)
    kinds = [
        f"{call} >= {low}",
        f"{call} >= {low + 1}",
        f"{call} <= {high}",
        f"{call} < {high}",
        f"{call} != {some}",
        f"{call} != {high + 1}",
        f"{call} % 3 != {(some + 1) % 3}",
        f"{call} == {call}",
        f"{call} <= {first} + {high}",
        f"{call} - {first} != {some}",
        f"{call} == {some}",
        f"{call} * 2 > {low * 2 - 1}",
    ]
    drawn.shuffle(kinds)
    return [f"{call} == 0", *kinds[: 1 if "abs(" * 9 in function.drawn.source else CLAIMS - 1]]


def settle(
    function: Function, claims: Sequence[str], others: Sequence[ModuleType] = ()
) -> tuple[list[tuple[Status, dict[str, int]]], str]:
    """The status of each claim, with the counterexample, if any; and why nothing could be settled, if so."""
    drawn = function.drawn
    symbols = [symbol(name) for name in drawn.names]
    asked = [function.claim(text) for text in claims]

    def body() -> list[Any]:
        return [claim(*(divisor(one) if one is wrapped else one for one in symbols)) for claim in asked]

    wrapped = symbols[-1] if drawn.divisor else None
    run = Run("drawn", [one(*symbols) for one in function.assumed], MOST_ROUNDS + 1, SECONDS)
    paths: list[Path] = []
    try:
        with symbolic_builtins([function.module, *others]):
            for path in run.paths(body):
                paths.append(path)
                if len(paths) > PATHS:
                    raise ProofError("too many paths")
    except ProofError as error:
        return [("undecided", {})] * len(claims), str(error)
    return [_settled(run, paths, number, symbols) for number in range(len(claims))], ""


def _settled(
    run: Run, paths: Sequence[Path], number: int, symbols: Sequence[SymbolicInt]
) -> tuple[Status, dict[str, int]]:
    """What comes of one claim on all paths."""
    try:
        account = Account(run.name, run.assumptions, SECONDS)
        for path in paths:
            claims = path.value if path.error is None else None
            one = replace(path, value=None if claims is None else [claims[number]])
            claim = z3.BoolVal(False) if claims is None else term(claims[number])
            owed = [*(each for each in path.obligations if not each.forced)]
            owed.append(Obligation("claim", tuple(path.hypotheses), claim))
            proofs = list(path.proofs)
            for obligation in owed:
                proved, model = follows(obligation, SECONDS)
                if proved is None and model is not None:
                    values = [model.eval(each.term, model_completion=True).as_long() for each in symbols]
                    return "refuted", dict(zip((str(each.term) for each in symbols), values, strict=True))
                proofs += [proved] if proved is not None else []
            account.enter(one, proofs)
        return account.proved(), {}
    except ProofError:
        return "undecided", {}


def try_seed(seed: int, tally: Tally) -> None:
    """Draw a function of integers, settle claims about it, and compare."""
    try_drawn(draw(seed), seed, tally)


def try_drawn(
    drawn: Drawn, seed: int, tally: Tally, tools: Tools = MappingProxyType({}), others: Sequence[ModuleType] = ()
) -> Function:
    """Settle claims about a function, and compare. `others`: modules whose functions it calls."""
    function = Function(drawn, tools)
    claims = claims_about(function, seed)
    settled, reason = settle(function, claims, others)
    if reason:
        tally.reasons[reason.partition(": ")[2][:60]] += len(claims)
    points = list(function.points())
    for text, (status, values) in zip(claims, settled, strict=True):
        claim = function.claim(text)
        shown: dict[str, int] | None = None
        if status == "proved":
            failing = next((point for point in points if not holds(claim, point)), None)
            shown = None if failing is None else dict(zip(function.drawn.names, failing, strict=True))
        elif status == "refuted" and (holds(claim, list(values.values())) or not _within(function, values)):
            if drawn.loose:
                status = "undecided"
            else:
                shown = values
        tally.statuses[status] += 1
        if shown is not None:
            tally.wrong.append(WrongAnswer(seed, text, status, shown, drawn.source))
    return function


def _within(function: Function, values: Values) -> bool:
    return all(one(*values.values()) for one in function.assumed)


def fuzz(cases: int, seed: int) -> Tally:
    """Settle at least so many claims; each function depends on the seed and its number only."""
    tally, number = Tally(), 0
    while tally.cases < cases:
        try_seed(seed * 1_000_003 + number, tally)
        number += 1
    return tally
