"""What roles need where Python asks for plain integers: numbers as keys, `int`, `gcd` and `lcm`, plain loop bounds.

Each agrees with Python on plain integers, which is what a replay uses.
"""

import ast
import inspect
import math
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

import z3

from ..claims import every
from ..refusal import asking_frame, refusal
from ..solver import ProofError
from ..symbolic import SymbolicInt, is_plain, running, symbol, term
from ..symbolic_bytes import Integer, seeing
from ..symbolic_run import under_way


class Key(SymbolicInt):
    """A symbolic integer that can be in a set or a dict.

    All have one hash, so that a lookup compares, and a comparison forks: exact, as long as the same set or dict meets
    no plain number as well. So in a proof every number is made one (`key`), and a hash is refused where the code that
    asks for it has a set or a dict in which plain numbers are keys, too, or writes one with a number in it
    (`_mixes`).
    """

    __slots__ = ()

    def __hash__(self) -> int:
        asking = asking_frame()
        if asking is not None and _mixes(asking):
            raise refusal("the hash, where plain numbers are keys,")
        return 1


_KEYED = ("get", "setdefault", "pop", "add", "discard", "remove")


def _mixes(frame: FrameType) -> bool:
    """True if the code may put plain numbers and keys into one container, as far as can be seen from here."""
    found = (value for value in frame.f_locals.values() if type(value) in (set, frozenset, dict, defaultdict))
    return any(map(_has_plain, found)) or _writes_plain_keys(frame.f_code)


def _has_plain(container: Any) -> bool:
    return any(is_plain(one) or type(one) is float for one in container)


@cache
def _writes_plain_keys(code: CodeType) -> bool:
    """True if a number is written as an element of a set, as a key of a dict, or as what is looked for in either."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError):  # a part of an expression: its function is asked for the same
        return False
    written: list[ast.expr | None] = []
    for node in ast.walk(tree):
        match node:
            case ast.Set(elements):
                written += elements
            case ast.Dict(keys, _):
                written += keys
            case ast.Compare(left, [ast.In() | ast.NotIn(), *_], [right, *_]):
                written += [left, right]
            case ast.Call(ast.Attribute(_, name), [first, *_]) if name in _KEYED:
                written.append(first)
    return any(isinstance(one, ast.Constant) and isinstance(one.value, int | float) for one in written)


def key(value: Any) -> Any:
    """The same number, hashable; in a proof a plain one, too, becomes a `Key`, so that it meets others like it."""
    if isinstance(value, SymbolicInt):
        return Key(value.term)
    return Key(z3.IntVal(int(value))) if under_way() and is_plain(value) else value


def chosen(value: Any, least: int, most: int) -> int:
    """The plain value, after a fork for each from `least` to `most`. ProofError if it may be another."""
    if not isinstance(value, SymbolicInt):
        return int(value)
    for plain in range(least, most + 1):
        if value == plain:
            return plain
    raise ProofError(f"{running().name}: {value} may lie outside {least} to {most}: assume that it does not")


def divisor(*numbers: Any) -> Any:
    """`gcd`; of symbolic positive numbers some positive common divisor. What holds of each holds of the greatest."""
    return _common(math.gcd, lambda common, number: number % common == 0, numbers)


def multiple(*numbers: Any) -> Any:
    """`lcm`; of symbolic positive numbers some positive common multiple. What holds of each holds of the least."""
    return _common(math.lcm, lambda common, number: common % number == 0, numbers)


def _common(exact: Callable[..., int], relation: Callable[[Any, Any], Any], numbers: tuple[Any, ...]) -> Any:
    if not any(isinstance(number, SymbolicInt) for number in numbers):
        return exact(*numbers)
    run = running()
    if not every(*(number >= 1 for number in numbers)):
        raise ProofError(f"{run.name}: {exact.__name__} of a number that may be 0 or negative: assume it positive")

    def defined() -> Any:
        common = symbol(run.fresh_name(exact.__name__))
        # Such a number exists: it is what the real function returns. So this assumes nothing.
        run.assume((common >= 1).term)
        for number in numbers:
            run.assume(relation(common, number).term)
        return common

    return run.once((f"common {exact.__name__}", *map(term, numbers)), defined)


_OURS: Mapping[str, Any] = {
    "int": Integer,
    "gcd": divisor,
    "lcm": multiple,
    "math": SimpleNamespace(**{**vars(math), "gcd": divisor, "lcm": multiple}),
    "get_dtype_size": lambda dtype: dtype.itemsize,
}
"""By the name under which a module has it. Torch would measure a dtype on an empty tensor, which takes its own dtypes
only: the size is what counts."""


@contextmanager
def _seen(module: str) -> Iterator[None]:
    inside = vars(sys.modules[module])
    with seeing(inside, {name: ours for name, ours in _OURS.items() if name in inside or name == "int"}):
        yield


def lenient(function: Callable[..., Any], *owners: Any) -> Callable[..., Any]:
    """The function, while its module and those of the owners, if any (functions or classes), see what is defined here
    for `int`, `gcd`, `lcm` and the size of a dtype."""
    modules = {owner.__module__ for owner in (function, *owners)}

    def call(*arguments: Any, **named: Any) -> Any:
        with ExitStack() as seen:
            for module in sorted(modules):
                seen.enter_context(_seen(module))
            return function(*arguments, **named)

    return call


class Sized:
    """A dtype of which only the size is known, in bytes."""

    def __init__(self, itemsize: Any) -> None:
        self.itemsize = itemsize


def internal(names: Any, public: str, private: str) -> Any:
    """A function that a core does not promise to users; it lives in the module of one that it does, if anywhere.

    UnavailableError if there is none.
    """
    inside = vars(sys.modules[names(public).__module__])
    return inside[private] if private in inside else names(private)
