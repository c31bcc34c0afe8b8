"""What the functions that ran can find again when they run the next time: globals, defaults, attributes, variables.

A function that counts its calls, or remembers one, is not one function but several, of which a proof has seen the
first. So what they can reach is looked at before they run many times, and afterwards.
"""

import gc
import itertools
import random
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from types import BuiltinFunctionType, CodeType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_ITERATORS: tuple[type, ...] = (
    itertools.count,
    itertools.cycle,
    itertools.repeat,
    itertools.chain,
    type(iter([])),
    type(iter(())),
    type(iter(range(0))),
    type(reversed([])),
    zip,
    map,
    enumerate,
)
DEEPEST = 12
MOST = 4_000
"""Values that are looked at from one root: what is behind them is left out."""
NUMBERS_MOST = 300
_OURS = __name__.partition(".proofs")[0] + ".proofs"


class State:
    """What some functions can reach, by name."""

    def __init__(self, codes: Iterable[CodeType], memos: frozenset[str] = frozenset()) -> None:
        """`memos`: names that are left out."""
        self._functions, self._memos = list(functions_of(codes)), memos

    def shown(self) -> dict[str, int]:
        """A number for what stands under each name: another one for another state."""
        return {name: _Look().at(value, 0) for name, value in self._roots() if name not in self._memos}

    def numbers(self) -> set[int]:
        """The integers that stand in it, as far as they are looked at."""
        look = _Look()
        for _, value in self._roots():
            look.at(value, 0)
        return look.numbers

    def changed(self, before: dict[str, int]) -> str:
        """The first name under which there is something else than before; empty if there is none."""
        now = self.shown()
        return next((name for name in {**before, **now} if before.get(name) != now.get(name)), "")

    def _roots(self) -> Iterator[tuple[str, Any]]:
        seen: set[tuple[int, str]] = set()
        for function in self._functions:
            names, where = set(_names(function.__code__)), function.__globals__
            for name in sorted(names & where.keys()):
                if (id(where), name) not in seen:
                    seen.add((id(where), name))
                    value = where[name]
                    yield f"{function.__module__}.{name}", value
                    if isinstance(value, ModuleType):
                        yield from _of_module(value, names)
            yield f"what {function.__qualname__} holds", function


_KNOWN: dict[int, tuple[CodeType, list[FunctionType]]] = {}
"""Functions by their code: to look for them takes long."""


def functions_of(codes: Iterable[CodeType]) -> Iterator[FunctionType]:
    """The functions that there are of these codes, wherever they are kept."""
    asked = list(codes)
    new = {id(code): (code, list[FunctionType]()) for code in asked if id(code) not in _KNOWN}
    for one in gc.get_objects() if new else ():
        if type(one) is FunctionType and id(one.__code__) in new:
            new[id(one.__code__)][1].append(one)
    _KNOWN.update(new)  # with the code, so that no other one gets its identity
    known = [one for code in asked for one in _KNOWN[id(code)][1]]
    return iter(sorted(known, key=lambda one: (one.__module__ or "", one.__qualname__)))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _of_module(module: ModuleType, names: set[str]) -> Iterator[tuple[str, Any]]:
    return ((f"{module.__name__}.{name}", vars(module)[name]) for name in sorted(names & vars(module).keys()))


class _Look:
    """One look at a value, and at what hangs on it."""

    def __init__(self) -> None:
        self._met: dict[int, int] = {}
        self._kept: list[Any] = []
        self.numbers: set[int] = set()

    def at(self, value: Any, depth: int) -> int:
        """A number for it."""
        kind = type(value)
        if kind in _PLAIN:
            if kind is int and len(self.numbers) < NUMBERS_MOST:
                self.numbers.add(value)
            return hash((kind.__name__, value if value == value else "nan"))
        if id(value) in self._met or depth > DEEPEST or len(self._met) > MOST:
            return self._met.get(id(value), 0)
        self._met[id(value)] = len(self._met) + 1
        self._kept.append(value)
        return hash((kind.__qualname__, *(self.at(part, depth + 1) for part in self._parts(value, kind))))

    def _parts(self, value: Any, kind: type) -> Sequence[Any]:
        if isinstance(value, dict):
            return [part for pair in [*value.items()] for part in pair]
        if isinstance(value, list | tuple | deque):
            return [*value, *self._fields(value)]
        if isinstance(value, set | frozenset):
            return sorted(_Look().at(part, 0) for part in [*value])
        if isinstance(value, bytearray | array | memoryview):
            return [bytes(value)]
        if isinstance(value, random.Random):
            return [value.getstate()]
        if isinstance(value, FunctionType):
            return _of_function(value)
        if isinstance(value, MethodType | BuiltinFunctionType):
            return [] if isinstance(value.__self__, ModuleType | None) else [value.__self__]
        if isinstance(value, GeneratorType):
            frame = value.gi_frame
            return [] if frame is None else [frame.f_lasti, dict(frame.f_locals)]
        if kind in _ITERATORS:
            return [repr(value)] if kind in (itertools.count, itertools.repeat) else list(value.__reduce__()[1:])
        return self._fields(value)

    def _fields(self, value: Any) -> list[Any]:
        """The attributes of an object, or of a class that is somebody's own."""
        module = str(getattr(value if isinstance(value, type) else type(value), "__module__", ""))
        if isinstance(value, ModuleType | Enum) or module.startswith((_OURS, "z3")):
            return []
        if isinstance(value, type):
            own = [] if module == "builtins" else [one for one in vars(value).items() if not one[0].startswith("__")]
            return [part for pair in own for part in pair]
        fields = getattr(value, "__dict__", None)
        found = [] if not isinstance(fields, dict) else [part for pair in [*fields.items()] for part in pair]
        for kind in type(value).__mro__:
            for name in (slots,) if isinstance(slots := vars(kind).get("__slots__", ()), str) else slots:
                with suppress(AttributeError):
                    found.append(object.__getattribute__(value, name))
        return found


def _of_function(function: FunctionType) -> list[Any]:
    cells = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # not assigned yet
            cells.append(cell.cell_contents)
    return [function.__defaults__, function.__kwdefaults__, function.__dict__, cells]
