"""The methods of a queue of batches, made ready for a proof about rows and batches of any length.

Three things that a method cannot do with a list of symbolic length are handed to whoever makes the proof (`Hooks`), and
everything else of the method runs as it stands:

* **A `while` loop** becomes one round of it from any state that its invariant allows. `enter` owes that the invariant
  holds where the loop begins, and gives the local variables that the loop assigns new values, of which nothing but the
  invariant is known. If the condition of the loop holds then, its body runs; where it ends, or goes on with `continue`,
  `again` owes that the invariant holds again, and that what can be done only so often has become less; there the path
  ends. If the condition does not hold, the method goes on behind the loop; and a `return` in a round is one.
* **A `for` loop that sets one field of each item to one value**, and does nothing else, becomes a call of `each`.
* **A list of those items of which something is true** becomes a call of `filtered`.

Trusted, as `loops`: that this is what these statements do. Any other loop is left as it is, and ends in an error where
it goes through something symbolic.
"""

import ast
import linecache
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from types import CodeType, FunctionType
from typing import Any, Protocol

from .identity import GUARD, guarded
from .solver import ProofError
from .symbolic_bytes import globals_of, seeing

_HOOKS = "_blockproof_rows"


class RoundDone(Exception):
    """A round of a loop has ended, and with it this path. What is owed there."""

    def __init__(self, owed: list[Any]) -> None:
        super().__init__("a round of a loop has ended")
        self.owed = owed


class Hooks(Protocol):
    """What becomes of the statements above."""

    def enter(self, method: str, names: tuple[str, ...], stored: int, state: Mapping[str, Any]) -> tuple[Any, ...]:
        """A loop begins with these local variables; gives those of any round for the names in it.

        The first so many names are those that it assigns.
        """

    def again(self, method: str, state: Mapping[str, Any]) -> None:
        """A round ends with these. Raises RoundDone."""

    def each(self, items: Any, field: str, value: Any) -> None:
        """Set the field of each item."""

    def filtered(self, items: Any, condition: Callable[[Any], Any]) -> Any:
        """The items of which the condition is true, in their order."""

    def same(self, one: Any, other: Any) -> Any:
        """`one is other` in such a condition."""


@contextmanager
def hooked(kinds: tuple[type, ...], hooks: Hooks, seen: Mapping[str, Any]) -> Iterator[None]:
    """While it lasts, the methods of these classes ask the hooks, and their modules see other values for some names."""
    with ExitStack() as restored:
        for kind in kinds:
            for name, method in list(vars(kind).items()):
                if isinstance(method, FunctionType):
                    made = _made_ready(method, method.__code__)
                    if made is not None:
                        restored.callback(setattr, kind, name, method)
                        setattr(kind, name, made)
            inside = globals_of(vars(kind)["__init__"])
            if _HOOKS not in inside:
                restored.enter_context(seeing(inside, {_HOOKS: hooks, **seen}))
        yield


@cache
def _made_ready(method: FunctionType, code: CodeType) -> FunctionType | None:
    """The method with its loops handed to the hooks; None if it has none."""
    tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    found = [node for node in functions if node.name == code.co_name and node.lineno == code.co_firstlineno]
    if len(found) != 1 or found[0].decorator_list:
        return None
    node, asking = found[0], _Asking(method.__qualname__, code.co_varnames)
    asking.generic_visit(node)
    if not asking.asks:
        return None
    for one in (*node.args.args, *node.args.kwonlyargs):
        one.annotation = None
    node.returns = None
    node.args.kwonlyargs += [ast.arg(name) for name in GUARD]
    node.args.kw_defaults += [ast.Constant(None) for _ in GUARD]
    module = compile(guarded(ast.Module([node], [])), code.co_filename, "exec", dont_inherit=True)
    made = next(constant for constant in module.co_consts if isinstance(constant, CodeType))
    # Which functions ran is found out by file, name and first line: this is the method itself.
    made = made.replace(co_qualname=code.co_qualname, co_firstlineno=code.co_firstlineno)
    function = FunctionType(made, method.__globals__, method.__name__, method.__defaults__)
    function.__kwdefaults__ = {**(method.__kwdefaults__ or {}), **GUARD}
    return function


class _Asking(ast.NodeTransformer):
    def __init__(self, method: str, variables: tuple[str, ...]) -> None:
        self.asks = False
        self._method, self._variables = method, variables

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        """One round of the loop, from any state."""
        inside = [one for statement in node.body for one in ast.walk(statement)]
        if node.orelse or any(isinstance(one, ast.While | ast.For | ast.Break | ast.Yield) for one in inside):
            raise ProofError(f"{self._method}: a loop with a loop, a `break` or an `else` in it cannot be followed")
        used = [one for one in inside if isinstance(one, ast.Name) and one.id in self._variables]
        stored = {one.id for one in used if isinstance(one.ctx, ast.Store)}
        names = [*sorted(stored), *sorted({one.id for one in used} - stored)]
        body = _Continued(self._method).visit(ast.Module(node.body, [])).body
        stands = [ast.Constant(self._method), _constants(names), ast.Constant(len(stored)), _locals()]
        entered = _call("enter", *stands)
        target = ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())
        begins = ast.Assign([target], entered)
        test = ast.If(node.test, [*body, _again(self._method)], [])
        self.asks = True
        return [ast.copy_location(one, node) for one in (begins, test)]

    def visit_For(self, node: ast.For) -> ast.AST:
        """A loop that sets one field of each item."""
        match node:
            case ast.For(
                target=ast.Name(item),
                iter=items,
                body=[ast.Assign([ast.Attribute(ast.Name(owner), field)], ast.Name() | ast.Constant() as value)],
                orelse=[],
            ) if owner == item and getattr(value, "id", "") != item:
                self.asks = True
                call = _call("each", items, ast.Constant(field), value)
                return ast.copy_location(ast.Expr(call), node)
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        """A list of some of the items."""
        match node:
            case ast.ListComp(ast.Name(one), [ast.comprehension(ast.Name(item), items, [condition], 0)]) if one == item:
                self.asks = True
                arguments = ast.arguments([], [ast.arg(item)], None, [], [], None, [])
                asked = ast.Lambda(arguments, _Same().visit(condition))
                return ast.copy_location(_call("filtered", items, asked), node)
        return node


class _Continued(ast.NodeTransformer):
    def __init__(self, method: str) -> None:
        self._method = method

    def visit_Continue(self, node: ast.Continue) -> ast.AST:
        """The end of the round."""
        return ast.copy_location(_again(self._method), node)


class _Same(ast.NodeTransformer):
    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """`is`, as a question."""
        if [type(one) for one in node.ops] == [ast.Is]:
            return ast.copy_location(_call("same", node.left, node.comparators[0]), node)
        return node


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name(_HOOKS, ast.Load()), name, ast.Load()), list(arguments), [])


def _again(method: str) -> ast.stmt:
    return ast.Expr(_call("again", ast.Constant(method), _locals()))


def _locals() -> ast.expr:
    return ast.Call(ast.Name("locals", ast.Load()), [], [])


def _constants(values: list[str]) -> ast.expr:
    return ast.Tuple([ast.Constant(value) for value in values], ast.Load())
