"""What a theorem claims, as it is proved: the source of its assumption and its claim, and of what these call.

Nobody writes this text by hand, so it cannot say anything but what is settled. Roles are read as `f.role`, variables as
`v.name`; `every`, `some`, `implies`, `same` and `negation` are the words of `claims`.
"""

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import cache
from types import CodeType, FunctionType
from typing import Any

_THEOREMS = f"{__package__}.theorems"
"""Functions of these modules are told with the claim; roles and the words of claims have their own documentation."""

WIDTH = 110
"""Most characters of a line that Python prints; where it would print longer ones, source is told as it stands."""


def stated(assume: Callable[..., Any], claim: Callable[..., Any]) -> str:
    """Assumption and claim as Python, each with what it calls in the module of the theorem, and the values it holds."""
    lines = ["assume", *_told(assume), "claim", *_told(claim)]
    called = [helper for function in (assume, claim) for helper in _helpers(function)]
    for text in dict.fromkeys("\n".join([_text(helper.__code__), *_held(helper)]) for helper in called):
        lines += ["", *text.splitlines()]
    return "\n".join(lines)


def _told(function: Callable[..., Any]) -> Iterator[str]:
    """The body of a lambda, or the function as it stands; then the values that it was made with."""
    assert isinstance(function, FunctionType)
    yield from textwrap.indent(_text(function.__code__), "    ").splitlines()
    yield from _held(function)


def _held(function: Callable[..., Any]) -> Iterator[str]:
    """The values that a function was made with."""
    for name, value in inspect.getclosurevars(function).nonlocals.items():
        said = f"where {name} = {_value(value)}"
        yield from textwrap.wrap(said, WIDTH, initial_indent="    ", subsequent_indent="        ")


def _value(value: Any) -> str:
    """A value as it could be written: the same in every run, so no address of an object."""
    if isinstance(value, FunctionType):
        arguments = ", ".join(inspect.signature(value).parameters)
        return f"lambda {arguments}: {_text(value.__code__)}" if value.__name__ == "<lambda>" else value.__name__
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_value(key)}: {_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            named = ", ".join(f"{name}={_value(part)}" for name, part in zip(value._fields, value, strict=True))
            return f"{type(value).__name__}({named})"
        return f"({', '.join(map(_value, value))})"
    return repr(value)


def _helpers(function: Any) -> Iterator[FunctionType]:
    """Functions of the theorems that it calls, and those that these call."""
    waiting, known = [function], {function}
    while waiting:
        one = waiting.pop(0)
        held = inspect.getclosurevars(one)
        for value in (*held.nonlocals.values(), *held.globals.values()):
            if isinstance(value, FunctionType) and value not in known and value.__module__.startswith(_THEOREMS):
                known.add(value)
                waiting.append(value)
                yield value


@cache
def _text(code: CodeType) -> str:
    """The source of a function without docstrings and comments, or what a lambda gives."""
    found = [
        node
        for node in ast.walk(_tree(code.co_filename))
        if isinstance(node, ast.Lambda | ast.FunctionDef) and _is(node, code)
    ]
    node = found[0]
    if isinstance(node, ast.Lambda):
        return _broken(node.body, WIDTH - 4)
    plain = ast.unparse(_bare(node))
    return plain if all(len(line) <= WIDTH for line in plain.splitlines()) else _as_it_stands(node, code.co_filename)


def _broken(node: ast.expr | ast.keyword, room: int) -> str:
    """An expression, with a line for each part of a list or a call that has no room on one."""
    plain = ast.unparse(node)
    parts: list[ast.expr | ast.keyword]
    match node:
        case _ if len(plain) <= room:
            return plain
        case ast.List(elements):
            begin, parts, end = "[", [*elements], "]"
        case ast.Call(called, arguments, named):
            begin, parts, end = f"{ast.unparse(called)}(", [*arguments, *named], ")"
        case _:
            return plain
    lines = [textwrap.indent(_broken(part, room - 4), "    ") + "," for part in parts]
    return "\n".join([begin, *lines, end])


def _bare(node: ast.FunctionDef) -> ast.FunctionDef:
    """The function without decorators, docstrings and annotations of its own arguments."""
    plain = deepcopy(node)
    plain.decorator_list, plain.returns = [], None
    for argument in (*plain.args.posonlyargs, *plain.args.args, *plain.args.kwonlyargs):
        argument.annotation = None
    for one in ast.walk(plain):
        if isinstance(one, ast.FunctionDef) and ast.get_docstring(one) is not None:
            one.body = one.body[1:] or [ast.Pass()]
    return plain


def _as_it_stands(node: ast.FunctionDef, path: str) -> str:
    """The lines of the file, which break where a reader expects it; without docstrings and lines that only comment."""
    said = [one.body[0] for one in ast.walk(node) if isinstance(one, ast.FunctionDef) and ast.get_docstring(one)]
    left_out = {line for one in said for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)}
    lines = linecache.getlines(path)[: node.end_lineno]
    kept = [line for number, line in enumerate(lines, 1) if number >= node.lineno and number not in left_out]
    return textwrap.dedent("".join(line for line in kept if not line.lstrip().startswith("#"))).rstrip()


@cache
def _tree(path: str) -> ast.Module:
    return ast.parse("".join(linecache.getlines(path)))


def _is(node: ast.Lambda | ast.FunctionDef, code: CodeType) -> bool:
    """True if the code was compiled from the node."""
    if isinstance(node, ast.FunctionDef):
        return node.name == code.co_name and _first(node) == code.co_firstlineno
    if code.co_name != "<lambda>" or node.lineno != code.co_firstlineno:
        return False
    places = [place for place in code.co_positions() if place[0] is not None and place[2] is not None]
    body = node.body
    inside = ((line, column) for line, _, column, _ in places if column and line)
    return any((body.lineno, body.col_offset) <= place <= (body.end_lineno, body.end_col_offset) for place in inside)


def _first(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
