"""What a theorem claims, as it is proved: the source of its assumption and its claim, and of what these call.

Nobody writes this text by hand, so it cannot say anything but what is settled. Roles are read as `f.role`, variables as
`v.name`; `every`, `some`, `implies`, `same` and `negation` are the words of `claims`.
"""

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FunctionType
from typing import Any

_THEOREMS = f"{__package__}.theorems"
"""Functions of these modules are told with the claim; roles and the words of claims have their own documentation."""


def stated(assume: Callable[..., Any], claim: Callable[..., Any]) -> str:
    """Assumption and claim as Python, each with what it calls in the module of the theorem, and the values it holds."""
    lines = ["assume", *_told(assume), "claim", *_told(claim)]
    seen: dict[CodeType, None] = {}
    for function in (assume, claim):
        for helper in _helpers(function):
            seen.setdefault(helper.__code__)
    for code in seen:
        lines += ["", *_text(code).splitlines()]
    return "\n".join(lines)


def _told(function: Callable[..., Any]) -> Iterator[str]:
    """The body of a lambda, or the function as it stands; then the values that it was made with."""
    assert isinstance(function, FunctionType)
    yield from textwrap.indent(_text(function.__code__), "    ").splitlines()
    held = inspect.getclosurevars(function).nonlocals
    yield from (f"    where {name} = {_value(value)}" for name, value in held.items())


def _value(value: Any) -> str:
    return str(getattr(value, "__name__", value))


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
    """The source of a function without its docstring and comments, or what a lambda gives."""
    tree = _tree(code.co_filename)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda | ast.FunctionDef) and _is(node, code)]
    node = found[0]
    if isinstance(node, ast.Lambda):
        return ast.unparse(node.body)
    body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
    plain = ast.FunctionDef(node.name, node.args, body, [], None, lineno=node.lineno)
    for argument in (*plain.args.posonlyargs, *plain.args.args, *plain.args.kwonlyargs):
        argument.annotation = None
    return ast.unparse(plain)


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
