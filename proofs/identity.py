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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias

from .guard import call, instead, left, noted
from .refusal import refusal
from .symbolic import SymbolicBool, SymbolicInt, SymbolicReal

_NAME = "_blockproof_same_object"
_CALL, _NOTED, _LEFT = "_blockproof_call", "_blockproof_noted", "_blockproof_left"
_OF_THE_FRAME = ("super", "locals", "globals", "vars", "dir", "eval", "exec")
_SYMBOLS = (SymbolicInt, SymbolicBool, SymbolicReal)


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


GUARD: dict[str, Callable[..., Any]] = {_NAME: same_object, _CALL: call, _NOTED: noted, _LEFT: left}
"""What code under proof asks, by the names under which it does."""
instead(operator.is_, same_object)
instead(operator.is_not, other_object)


class _AskInstead(ast.NodeTransformer):
    asks = False
    """True once anything asks."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A call goes through `guard.call`, but for those that look at the frame from which they are called."""
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in _OF_THE_FRAME and not (node.args and name in ("vars", "dir")):
            return node
        self.asks = True
        called = ast.copy_location(ast.Name(_CALL, ast.Load()), node)
        return ast.copy_location(ast.Call(called, [node.func, *node.args], node.keywords), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Exceptions that pass a function are noted; so are those that pass a part of it that may swallow them."""
        node.decorator_list, decorators = [], node.decorator_list
        self.generic_visit(node)
        node.decorator_list = decorators
        first = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
        node.body = [*node.body[:first], *self._noted(node.body[first:], _LEFT)]
        return node

    def visit_Try(self, node: ast.Try) -> ast.AST:
        self.generic_visit(node)
        node.body = self._noted(node.body)
        if node.finalbody:
            node.orelse = self._noted(node.orelse)
            for handler in node.handlers:
                handler.body = self._noted(handler.body)
        return node

    def visit_With(self, node: ast.With) -> ast.AST:
        self.generic_visit(node)
        node.body = self._noted(node.body)
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.body = self._noted(node.body, _LEFT)
        return node

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        self.generic_visit(node)
        node.body = self._noted(node.body)
        return node

    def visit_TryStar(self, node: ast.TryStar) -> ast.AST:
        self.generic_visit(node)
        node.body = self._noted(node.body)
        return node

    def _noted(self, body: list[ast.stmt], by: str = _NOTED) -> list[ast.stmt]:
        """The statements, with what passes them noted."""
        if not body:
            return body
        self.asks = True
        note = ast.Expr(ast.Call(ast.Name(by, ast.Load()), [], []))
        tapped = ast.Try(body, [ast.ExceptHandler(None, None, [note, ast.Raise()])], [], [])
        for new in ast.walk(tapped.handlers[0]):
            ast.copy_location(new, body[-1])
        return [ast.copy_location(tapped, body[0])]

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
    asking = _AskInstead()
    tree = asking.visit(ast.parse(text))
    if not asking.asks:
        return {}
    tree = ast.fix_missing_locations(tree)
    return dict(_asking(compile(tree, path, "exec", dont_inherit=True)))


def is_unguarded(code: CodeType) -> bool:
    """True if this ran as it stands in its file, though there is something in it that should have been looked at."""
    asks = _watched_code(code)
    return asks is not None and not any(GUARD.keys() & {*inner.co_names, *inner.co_varnames} for inner in _all(code))


def _asking(code: CodeType) -> Iterator[tuple[_Place, CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if any(GUARD.keys() & {*inner.co_names} for inner in _all(constant)):
                yield _place(constant), constant
            yield from _asking(constant)


def guarded(tree: ast.Module) -> ast.Module:
    """A module whose functions ask what is in `GUARD` by name."""
    watched = _AskInstead().visit(ast.fix_missing_locations(tree))
    assert isinstance(watched, ast.Module)
    return ast.fix_missing_locations(watched)


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
            return [*_variables(one), vars(one), one.__defaults__, one.__kwdefaults__]
        case type():
            return vars(one).values() if one.__module__ == module else ()
        case dict():
            return one.values()
        case list() | tuple() | set() | frozenset():
            return one
        case partial():
            return one.func, one.args, one.keywords
    own = getattr(one, "__dict__", None)
    has = own if isinstance(own, dict) else {}  # some objects have every attribute that they are asked for
    parts = ("__wrapped__", "__func__", "fget", "fset", "func")
    held = [getattr(one, part, None) for part in parts if part in has or hasattr(type(one), part)]
    return [*held, *_attributes(one)] if type(one).__module__ == module else held


def _attributes(one: Any) -> Iterator[Any]:
    """What an object keeps."""
    yield getattr(one, "__dict__", None)
    for kind in type(one).__mro__:
        for name in (slots,) if isinstance(slots := vars(kind).get("__slots__", ()), str) else slots:
            yield getattr(one, name, None)


def _variables(function: FunctionType) -> Iterator[Any]:
    """Values of the variables that an inner function has from outside."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # not assigned yet
            yield cell.cell_contents


_IS_NOT = operator.is_not
_FOUND: dict[int, tuple[list[Any], list[FunctionType]]] = {}
"""By the identity of a module: what its names stood for when its functions were looked for, and those functions."""


def _asking_functions(module: ModuleType) -> list[FunctionType] | None:
    """The functions of a module's file; None if nothing in the file asks anything.

    They are looked for once, and again whenever a name of the module stands for something else. One that is kept by
    another way since then runs as it stands in its file, and that is noticed (`is_unguarded`).
    """
    path = getattr(module, "__file__", None)
    if not path or not _compiled(path):
        return None
    values, (known, found) = list(vars(module).values()), _FOUND.get(id(module), ([], []))
    if len(known) != len(values) or any(map(_IS_NOT, known, values)):
        found = list(_functions(vars(module), path))
        _FOUND[id(module)] = values, found  # with the values, so that nothing else gets the identity of one
    return found


_WATCHED: dict[int, tuple[CodeType, CodeType | None]] = {}
"""What `_watched_code` has found, by the identity of the code; the code is kept, so that no other one gets it."""


def _watched_code(code: CodeType) -> CodeType | None:
    """The same function, with everything looked at; None if there is nothing in it to look at."""
    if id(code) not in _WATCHED:
        _WATCHED[id(code)] = code, _compiled(code.co_filename).get(_place(code))
    return _WATCHED[id(code)][1]


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
            found = _asking_functions(module)
            for one in found or ():
                watched = _watched_code(one.__code__)
                if watched is not None and one.__code__ is not watched:
                    restored.callback(setattr, one, "__code__", one.__code__)
                    one.__code__ = watched
            if found is not None:
                touched.append(module)
                vars(module).update(GUARD)
        try:
            yield
        finally:
            for module in touched:
                for name in GUARD:
                    vars(module).pop(name, None)
