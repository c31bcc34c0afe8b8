"""Plain values for the variables of a theorem, drawn at random from those that its assumptions allow.

They are small and large, near each other and near the numbers that stand in the code that ran, since what goes wrong,
goes wrong at some border. How large they may get is tried first: a function of a table is run on a real list, which
has to fit into memory, so numbers grow only as long as a run takes no more lines and no more bytes for larger ones.
"""

import random
import sys
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, TypeAlias

import z3

from .solver import limit

Plain: TypeAlias = dict[str, int]
Run: TypeAlias = Callable[[Mapping[str, int]], tuple[bool, str]]
"""Runs a claim on plain values. Whether it fails, and how."""

LEVELS = (100, 1_000, 100_000, 1 << 31, 1 << 64, 1 << 200)
"""Numbers up to these are tried, one level after the other."""
LINES_MORE, BYTES_MORE = 500, 1 << 12
"""A run that takes so many lines and bytes more than with smaller values grows with them: these are the largest."""
LINES_MOST, BYTES_MOST = 10_000, 1 << 22
"""A run that takes more is too long: its values are smaller."""
_TRIES = 40
"""Changes of values that are tried before the solver is asked for other ones."""
_STEPS = 0.01
"""For each such question (`solver.limit`)."""


@dataclass(frozen=True)
class Domain:
    """What values may be drawn."""

    names: tuple[str, ...]
    truths: frozenset[str]
    """Those of them that are truth values."""
    allows: Callable[[Mapping[str, int]], bool]
    """Whether the assumptions hold."""
    formulas: Sequence[z3.BoolRef]
    """The assumptions as the solver has them."""
    symbols: Mapping[str, z3.ExprRef]


def constants(codes: Iterable[CodeType]) -> list[int]:
    """The integers that stand in these functions, and in the functions inside them."""
    found: set[int] = set()
    waiting: list[Any] = list(codes)
    while waiting:
        one = waiting.pop()
        if isinstance(one, CodeType):
            waiting += one.co_consts
        elif isinstance(one, tuple | frozenset):
            waiting += one
        elif type(one) is int:
            found.add(one)
    return sorted(found)


class Sampler:
    """Draws values. The same seed draws the same."""

    def __init__(self, domain: Domain, known: Sequence[Plain], numbers: Sequence[int], seed: int) -> None:
        """`known`: values that the assumptions allow; `numbers`: those that stand in the code."""
        self._domain, self._random = domain, random.Random(seed)
        self._known = [dict(values) for values in known] or [values for values in [self._solved({})] if values]
        self._numbers = sorted({near for one in numbers for near in (one - 1, one, one + 1)})
        self.most = LEVELS[0]

    def up_to(self, run: Run) -> None:
        """Find out how large values may get for this."""
        lines = size = -1
        known: dict[tuple[int, ...], tuple[int, int]] = {}

        def cost(values: Plain) -> tuple[int, int]:
            key = tuple(values.values())
            if key not in known:
                known[key] = _cost(run, values)
            return known[key]

        for level in LEVELS:
            costs = [cost(values) for values in self._largest(level)]
            most_lines = max((one for one, _ in costs), default=0)
            most_bytes = max((one for _, one in costs), default=0)
            if most_lines > LINES_MOST or most_bytes > BYTES_MOST:
                return
            self.most = level
            if lines >= 0 and (most_lines > lines + LINES_MORE or most_bytes > size + BYTES_MORE):
                return
            lines, size = most_lines, most_bytes

    def draw(self, count: int) -> Iterator[Plain]:
        """So many, all different as far as there are so many."""
        seen: set[tuple[int, ...]] = set()
        for _ in range(count if self._known else 0):
            values = self._fresh(seen)
            seen.add(tuple(values.values()))
            yield values

    def _fresh(self, seen: set[tuple[int, ...]]) -> Plain:
        values = self._random.choice(self._known)
        for attempt in range(_TRIES):
            values = self._changed(values if attempt % 4 else self._random.choice(self._known))
            if tuple(values.values()) not in seen:
                if len(self._known) < 200:
                    self._known.append(values)
                return values
        solved = self._solved({name: self._target(values, name) for name in self._domain.names})
        return values if solved is None else solved

    def _changed(self, values: Plain) -> Plain:
        """With one value or several replaced, as far as the assumptions allow."""
        names = self._domain.names
        for name in self._random.sample(names, self._random.randint(1, len(names))) if names else ():
            other = {**values, name: self._target(values, name)}
            if abs(other[name]) <= self.most and self._domain.allows(other):
                values = other
        return values

    def _target(self, values: Plain, name: str) -> int:
        drawn = self._random
        if name in self._domain.truths:
            return drawn.random() < 0.5
        kind, other = drawn.randrange(8), values[drawn.choice(self._domain.names)]
        if kind < 2:
            return drawn.randint(-2, 9)
        if kind == 2 and self._numbers:
            return drawn.choice(self._numbers)
        if kind == 3:
            return int(other) + drawn.randint(-2, 2)
        if kind == 4:
            return int(other) * int(values[drawn.choice(self._domain.names)]) + drawn.randint(-1, 1)
        if kind == 5:
            return drawn.randint(0, 100)
        bits = drawn.randint(1, self.most.bit_length() - 1)
        return drawn.choice((1 << bits, drawn.getrandbits(bits), (1 << bits) + drawn.randint(-2, 2), -(1 << bits)))

    def _largest(self, level: int) -> Iterator[Plain]:
        """Values of which one, or all, are as large as can be up to a level."""
        for chosen in (self._domain.names, *((name,) for name in self._domain.names)):
            values = dict(self._random.choice(self._known)) if self._known else {}
            for name in chosen if values else ():
                size = level
                while name not in self._domain.truths and size > 1:
                    other = {**values, name: size}
                    if self._domain.allows(other):
                        values = other
                        break
                    size = size // 3 if size <= 100_000 else size // 1000
            if values:
                yield values

    def _solved(self, wanted: Mapping[str, int]) -> Plain | None:
        """Values near those wanted, as far as the solver finds some."""
        domain, solver = self._domain, z3.SimpleSolver()
        limit(solver, _STEPS)
        solver.add(*domain.formulas, *(domain.symbols[name] <= self.most for name in self._integers()))
        if solver.check() != z3.sat:
            return None
        model = solver.model()
        for name in self._random.sample(list(wanted), len(wanted)):
            solver.push()
            solver.add(domain.symbols[name] == (bool(wanted[name]) if name in domain.truths else wanted[name]))
            if solver.check() == z3.sat:
                model = solver.model()
            else:
                solver.pop()
        values = {name: _plain(model, symbol) for name, symbol in domain.symbols.items()}
        return values if domain.allows(values) else None

    def _integers(self) -> Iterator[str]:
        return (name for name in self._domain.names if name not in self._domain.truths)


def _plain(model: z3.ModelRef, symbol: z3.ExprRef) -> int:
    value: Any = model.eval(symbol, model_completion=True)
    return bool(z3.is_true(value)) if z3.is_bool(value) else int(value.as_long())


class _TooLongError(BaseException):
    """A run takes too many lines."""


def _is_aside(frame: FrameType | None) -> bool:
    """True where an object is given up, in the midst of anything: an exception would leave that half done, and would be
    printed and forgotten. (Callbacks of weak references that are somebody's own cannot be told from other calls.)"""
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_globals.get("__name__") in ("weakref", "_weakrefset"):
            return True
        frame = frame.f_back
    return False


def _cost(run: Run, values: Plain) -> tuple[int, int]:
    """Lines and bytes that a run takes; one that is too long is ended."""
    lines = 0

    def each(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += 1
        if lines > LINES_MOST and not _is_aside(frame):
            raise _TooLongError
        return each

    def unheard(told: Any) -> None:
        if issubclass(told.exc_type, _TooLongError):
            sys.settrace(each)  # which Python has taken away: the next line raises it again
        else:
            hook(told)

    before, was_tracing, hook = sys.gettrace(), tracemalloc.is_tracing(), sys.unraisablehook
    if not was_tracing:
        tracemalloc.start()
    tracemalloc.reset_peak()
    held = tracemalloc.get_traced_memory()[0]
    sys.unraisablehook = unheard
    sys.settrace(each)
    try:
        run(values)
    except (_TooLongError, MemoryError):
        lines = LINES_MOST + 1
    finally:
        sys.settrace(before)
        sys.unraisablehook = hook
        peak = tracemalloc.get_traced_memory()[1] - held
        if not was_tracing:
            tracemalloc.stop()
    return lines, peak
