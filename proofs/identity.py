"""What `is` says of symbols: Python has no way to tell it, so functions that use it are compiled once more for a proof.

In these, `x is y` asks `same_object`, unless one side is None; nothing else is changed. For two values of which none is
a symbol it is Python's own `is`. A truth value is one of two objects, so `flag is True` is a question about its truth.
Whether two equal integers are one object is nothing that a function may rely on: that is refused. `operator.is_` and
`operator.is_not` ask the same, under whatever name a module has them. Functions are found as values of a module and of
its classes, and in what these hold: tables of functions, partial calls, the variables of inner functions. Not watched
are those that a module makes from text while it is imported, as `dataclass` does.
"""

import ast
import linecache
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias

from .refusal import refusal
from .symbolic import SymbolicBool, SymbolicInt, SymbolicReal

_NAME = "_blockproof_same_object"
_SYMBOLS = (SymbolicInt, SymbolicBool, SymbolicReal)
_HINT = re.compile(r"\bis\b(?!\s+(not\s+)?None\b)")


def same_object(*pair: Any) -> bool:
    """`one is other`, for symbols as for the numbers they stand for. ProofError for two integers or two floats."""
    if not pair:
        raise refusal("the identity, in the midst of other comparisons,")
    one, other = pair
    if not any(issubclass(type(value), _SYMBOLS) for value in (one, other)):
        return one is other
    if isinstance(one, bool) and isinstance(other, bool):
        return bool(one == other)
    if isinstance(one, int | float) and isinstance(other, int | float) and one.__class__ is other.__class__:
        raise refusal("the identity")
    return False


def other_object(one: Any, other: Any) -> bool:
    """`one is not other`, for symbols as for the numbers they stand for. ProofError as of `same_object`."""
    return not same_object(one, other)


class _AskInstead(ast.NodeTransformer):
    asks = False
    """True once anything asks."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        return self._asked(node)

    def _asked(self, node: ast.Compare) -> ast.expr:
        if not any(isinstance(one, ast.Is | ast.IsNot) for one in node.ops):
            return node
        if len(node.ops) != 1:
            self.asks = True
            return ast.copy_location(self._pairs(node), node)
        sides = [node.left, node.comparators[0]]
        if any(isinstance(side, ast.Constant) and side.value is None for side in sides):
            return node
        self.asks = True
        asked: ast.expr = ast.Call(ast.Name(_NAME, ast.Load()), sides, [])
        asked = ast.UnaryOp(ast.Not(), asked) if isinstance(node.ops[0], ast.IsNot) else asked
        return ast.copy_location(asked, node)

    def _pairs(self, node: ast.Compare) -> ast.expr:
        """`a is b < c` as `a is b and b < c`; refused where `b` is more than a name, since it would be asked twice."""
        sides = [node.left, *node.comparators]
        if not all(isinstance(side, ast.Name | ast.Constant) for side in sides[1:-1]):
            return ast.Call(ast.Name(_NAME, ast.Load()), [], [])
        pairs = [ast.Compare(sides[i], [one], [sides[i + 1]]) for i, one in enumerate(node.ops)]
        return ast.BoolOp(ast.And(), [self._asked(ast.copy_location(pair, node)) for pair in pairs])


_Place: TypeAlias = tuple[str, int, tuple[int, int]]


def _place(code: CodeType) -> _Place:
    """Where a function stands: name, line, and the place of the first thing that it does: a line may have several."""
    places = [(line or 0, column or 0) for line, _, column, end in code.co_positions() if end]
    return code.co_qualname, code.co_firstlineno, min(places, default=(0, 0))


@cache
def _compiled(path: str) -> dict[_Place, CodeType]:
    """The functions of a file that ask `same_object`."""
    text = "".join(linecache.getlines(path))
    if not _HINT.search(text):
        return {}
    asking = _AskInstead()
    tree = asking.visit(ast.parse(text))
    if not asking.asks:
        return {}
    tree = ast.fix_missing_locations(tree)
    return dict(_asking(compile(tree, path, "exec", dont_inherit=True)))


def _asking(code: CodeType) -> Iterator[tuple[_Place, CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if any(_NAME in inner.co_names for inner in _all(constant)):
                yield _place(constant), constant
            yield from _asking(constant)


def _all(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all(constant)


def _functions(names: dict[str, Any], path: str) -> Iterator[FunctionType]:
    """The functions of a file that a module's names lead to."""
    waiting, seen = list(names.values()), set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            if isinstance(one, FunctionType) and one.__code__.co_filename == path:
                yield one
            waiting += _held(one, names.get("__name__"))


def _held(one: Any, module: Any) -> Iterable[Any]:
    """What may lead from a value to functions of a module."""
    match one:
        case FunctionType():
            return [*_variables(one), vars(one)]
        case type():
            return vars(one).values() if one.__module__ == module else ()
        case dict():
            return one.values()
        case list() | tuple() | set() | frozenset():
            return one
        case partial():
            return one.func, one.args, one.keywords
    return [getattr(one, part, None) for part in ("__wrapped__", "__func__", "fget", "fset", "func")]


def _variables(function: FunctionType) -> Iterator[Any]:
    """Values of the variables that an inner function has from outside."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # not assigned yet
            yield cell.cell_contents


@contextmanager
def identity_watched(modules: Sequence[ModuleType]) -> Iterator[None]:
    """While it lasts, functions of these modules ask `same_object` where they say `is`."""
    touched = []
    with ExitStack() as restored:
        for name, function in (("is_", same_object), ("is_not", other_object)):
            restored.callback(setattr, operator, name, getattr(operator, name))
            for module in modules:
                for alias in [key for key, value in vars(module).items() if value is getattr(operator, name)]:
                    restored.callback(setattr, module, alias, getattr(operator, name))
                    setattr(module, alias, function)
            setattr(operator, name, function)
        for module in modules:
            path = getattr(module, "__file__", None)
            codes = _compiled(path) if path else {}
            for one in _functions(vars(module), path) if path and codes else ():
                code = codes.get(_place(one.__code__))
                if code is not None and one.__code__ is not code:
                    restored.callback(setattr, one, "__code__", one.__code__)
                    one.__code__ = code
            if codes:
                touched.append(module)
                setattr(module, _NAME, same_object)
        try:
            yield
        finally:
            for module in touched:
                vars(module).pop(_NAME, None)
