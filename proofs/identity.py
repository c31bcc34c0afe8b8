"""What `is` says of symbols: Python has no way to tell it, so functions that use it are compiled once more for a proof.

In these, `x is y` asks `same_object`, unless one side is None; nothing else is changed. For two values of which none is
a symbol it is Python's own `is`. A truth value is one of two objects, so `flag is True` is a question about its truth.
Whether two equal integers are one object is nothing that a function may rely on: that is refused.
"""

import ast
import linecache
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .refusal import refusal
from .symbolic import SymbolicBool, SymbolicInt, SymbolicReal

_NAME = "_blockproof_same_object"
_SYMBOLS = (SymbolicInt, SymbolicBool, SymbolicReal)
_HINT = re.compile(r"\bis\b(?!\s+(not\s+)?None\b)")


def same_object(one: Any, other: Any) -> bool:
    """`one is other`, for symbols as for the numbers they stand for. ProofError for two integers or two floats."""
    if not any(issubclass(type(value), _SYMBOLS) for value in (one, other)):
        return one is other
    if isinstance(one, bool) and isinstance(other, bool):
        return bool(one == other)
    if isinstance(one, int | float) and isinstance(other, int | float) and one.__class__ is other.__class__:
        raise refusal("the identity")
    return False


class _AskInstead(ast.NodeTransformer):
    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) != 1 or not isinstance(node.ops[0], ast.Is | ast.IsNot):
            return node
        sides = [node.left, node.comparators[0]]
        if any(isinstance(side, ast.Constant) and side.value is None for side in sides):
            return node
        asked: ast.expr = ast.Call(ast.Name(_NAME, ast.Load()), sides, [])
        asked = ast.UnaryOp(ast.Not(), asked) if isinstance(node.ops[0], ast.IsNot) else asked
        return ast.copy_location(asked, node)


@cache
def _compiled(path: str) -> dict[tuple[str, int], CodeType]:
    """The functions of a file that ask `same_object`, by name and line."""
    text = "".join(linecache.getlines(path))
    if not _HINT.search(text):
        return {}
    tree = ast.parse(text)
    before = ast.dump(tree)
    tree = ast.fix_missing_locations(_AskInstead().visit(tree))
    if ast.dump(tree) == before:
        return {}
    return dict(_asking(compile(tree, path, "exec", dont_inherit=True)))


def _asking(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if any(_NAME in inner.co_names for inner in _all(constant)):
                yield (constant.co_qualname, constant.co_firstlineno), constant
            yield from _asking(constant)


def _all(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all(constant)


def _functions(names: dict[str, Any], path: str) -> Iterator[FunctionType]:
    """The functions of a module, and those of its classes."""
    for value in names.values():
        for one in (value, *(getattr(value, part, None) for part in ("__wrapped__", "__func__", "fget", "func"))):
            if isinstance(one, FunctionType) and one.__code__.co_filename == path:
                yield one
        if isinstance(value, type) and value.__module__ == names.get("__name__"):
            yield from _functions({**vars(value), "__name__": None}, path)


@contextmanager
def identity_watched(modules: Sequence[ModuleType]) -> Iterator[None]:
    """While it lasts, functions of these modules ask `same_object` where they say `is`."""
    before: list[tuple[FunctionType, CodeType]] = []
    touched = []
    try:
        for module in modules:
            path = getattr(module, "__file__", None)
            codes = _compiled(path) if path else {}
            for function in _functions(vars(module), path) if path and codes else ():
                code = codes.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
                if code is not None and function.__code__ is not code:
                    before.append((function, function.__code__))
                    function.__code__ = code
            if codes:
                touched.append(module)
                setattr(module, _NAME, same_object)
        yield
    finally:
        for function, code in reversed(before):
            function.__code__ = code
        for module in touched:
            vars(module).pop(_NAME, None)
