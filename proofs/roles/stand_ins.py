"""What roles need where Python asks for plain integers: numbers as keys, sizes of dtypes.

Each agrees with Python on plain integers, which is what a replay uses.
"""

import ast
import inspect
import textwrap
from collections import defaultdict
from functools import cache
from types import CodeType, FrameType
from typing import Any

import z3

from ..refusal import asking_frame, refusal
from ..symbolic import SymbolicInt, is_plain
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


class Sized:
    """A dtype of which only the size is known, in bytes."""

    def __init__(self, itemsize: Any) -> None:
        self.itemsize = itemsize
