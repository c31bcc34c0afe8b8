"""What functions under proof do with exceptions that a symbol may raise where a number would not.

Functions that Python has in C look at the type itself: `json.dumps`, `int.__add__` or `Decimal` raise a TypeError for a
symbol; and symbols take more of the stack, which may run out. Where such an error leaves the function under proof,
nothing is proved. Where the function catches it and goes on, it goes on as it never does with a number; and the text of
an exception that it has caught may be that of a symbol.
"""

import ast
import linecache
from collections.abc import Iterator
from functools import cache
from types import CodeType

_ANY = ("TypeError", "Exception", "BaseException", "AttributeError", "RecursionError", "RuntimeError")


def careless(code: CodeType, texts: bool) -> str:
    """What a function catches and should not, in a few words; empty if nothing. `texts`: may a message that is caught
    hold the text of a symbol?"""
    return _of_file(code.co_filename, texts).get((code.co_name, code.co_firstlineno), "")


@cache
def _of_file(path: str, texts: bool) -> dict[tuple[str, int], str]:
    """By name and first line of each function of a file that is careless."""
    found = {}
    for node in ast.walk(ast.parse("".join(linecache.getlines(path)))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            for said in _caught(node, texts):
                found[node.name, first] = said
    return found


def _caught(function: ast.AST, texts: bool) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.ExceptHandler) and not isinstance(node.body[-1], ast.Raise):
            if node.type is None or _names(node.type) & {*_ANY}:
                yield f"goes on after `except{' ' + ast.unparse(node.type) if node.type else ''}`"
            elif texts and any(_reads_text(one, node.name) for one in ast.walk(node)):
                yield f"reads the text of `{node.name}`, which it has caught,"
        if isinstance(node, ast.withitem) and isinstance(node.context_expr, ast.Call):
            called = node.context_expr
            if "suppress" in _names(called.func) and {name for one in called.args for name in _names(one)} & {*_ANY}:
                yield f"goes on after `{ast.unparse(called)}`"


def _names(node: ast.AST) -> set[str]:
    """The names in an expression, those of attributes, too."""
    inside = list(ast.walk(node))
    return {one.id for one in inside if isinstance(one, ast.Name)} | {
        one.attr for one in inside if isinstance(one, ast.Attribute)
    }


def _reads_text(node: ast.AST, name: str | None) -> bool:
    """True for `str(name)`, `repr(name)`, `name.args` and a name in a text."""
    match node:
        case ast.Call(ast.Name("str" | "repr" | "format"), [ast.Name(read), *_]):
            return read == name
        case ast.Attribute(ast.Name(read), "args") | ast.FormattedValue(ast.Name(read)):
            return read == name
    return False
