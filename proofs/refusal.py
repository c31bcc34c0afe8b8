"""Refusals: what a symbol is asked for that it cannot give truly, in which function and line.

A text that is made of a symbol would not be the text that the number makes, so it is refused as well, but for one use:
what a message says. That is where the running code stands in a `raise`, or assigns something right before one; in the
message of an `assert`; or in a call of a logger.
"""

import ast
import linecache
import sys
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from types import FrameType
from typing import TypeAlias

from .solver import ProofError
from .symbolic_run import running, under_way

_OURS = __name__.partition(".proofs")[0] + ".proofs"
_GUARD = f"{_OURS}.guard"
_LOGGERS = ("logger", "logging", "warnings")
_Place: TypeAlias = tuple[int, int]
"""Line and column."""


def refusal(what: str) -> ProofError:
    """The error that says what cannot be followed, and where it was asked for."""
    return ProofError(f"{_where()}: {what} of a symbol is not that of the number it stands for: it cannot be followed")


def shown(text: str) -> str:
    """The text of a symbol, for a message. ProofError if it is asked for by code under proof in any other place."""
    for frame in _frames():
        inside = str(frame.f_globals.get("__name__")).startswith(_OURS)
        ProofError.shown = ProofError.shown or not inside
        if not inside and under_way():
            running().tell(_where())
        if inside or _in_message(frame):
            break
        if not _is_library(frame):
            raise refusal("the text")
    return text


def asking_frame() -> FrameType | None:
    """The innermost frame that does not belong to the proofs: what asks something of a symbol."""
    return next((one for one in _frames() if not str(one.f_globals.get("__name__")).startswith(_OURS)), None)


def _where() -> str:
    """Function and line of the innermost frame that does not belong to the machinery of symbols."""
    for frame in _frames():
        if str(frame.f_globals.get("__name__")).rpartition(".")[0] != _OURS:
            return f"{frame.f_code.co_qualname}, {frame.f_code.co_filename.rpartition('/')[2]} line {frame.f_lineno}"
    return "?"


def _frames() -> Iterator[FrameType]:
    """The frames from whoever asked this module, outwards."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    while frame is not None and frame.f_code.co_name in ("__repr__", "__str__", "__format__"):
        frame = frame.f_back
    while frame is not None:
        if frame.f_globals.get("__name__") != _GUARD:  # which calls what the code under proof calls
            yield frame
        frame = frame.f_back


def _is_library(frame: FrameType) -> bool:
    """True for Python's own modules, which may print what somebody else hands them."""
    name = str(frame.f_globals.get("__name__")).partition(".")[0]
    return name in sys.stdlib_module_names


def _in_message(frame: FrameType) -> bool:
    """True if the code stands in what a message says."""
    positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    line, end_line, column, end_column = positions
    if line is None or end_line is None or column is None or end_column is None:
        return False
    begin, end = (line, column), (end_line, end_column)
    return any(first <= begin and end <= last for first, last in _messages(frame.f_code.co_filename))


@cache
def _messages(path: str) -> tuple[tuple[_Place, _Place], ...]:
    """Where in a file messages are made."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return ()
    made: list[ast.expr | None] = []
    for node in ast.walk(tree):
        for suite in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if isinstance(suite, list) and suite and isinstance(suite[-1], ast.Raise):
                before = takewhile(lambda one: isinstance(one, ast.Assign), reversed(suite[:-1]))
                made += [one.value for one in before if isinstance(one, ast.Assign)]
        if isinstance(node, ast.Raise):
            made.append(node.exc)
        elif isinstance(node, ast.Assert):
            made.append(node.msg)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id in _LOGGERS:
                made.append(node.value)
    return tuple((_begin(node), _end(node)) for node in made if node is not None)


def _begin(node: ast.expr) -> _Place:
    return node.lineno, node.col_offset


def _end(node: ast.expr) -> _Place:
    return node.end_lineno or node.lineno, node.end_col_offset or 0
