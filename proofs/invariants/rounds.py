"""Cuts a function at all its `for` loops, so that an induction over the rounds of each can be carried out.

`loops` cuts at one loop whose variables go from round to round. Here a function may have several loops, one behind the
other, a round may end early (`continue`) and have a loop inside; but what a round leaves to the next must lie in
objects, not in variables, apart from sums: variables to which rounds only add (`Parts.round` gives them back). A loop
that is all of an `if` goes through nothing where that does not hold. To prove something for any number of rounds of
every loop, show that the statements up to a loop bring about its invariant, that a round keeps it, and that the
statements from there to the next loop, or to the end, turn it into what is claimed there.

Trusted, as `loops`: that the parts, put together again, do what the function does (`Parts.whole`, held against the
functions in tests). Refused with a ProofError: a loop inside another statement that is more than that loop, `else`,
`break`, `return` or `yield` inside a loop, a variable that a round reads before it sets it, though a round sets it.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import compress
from types import FunctionType
from typing import Any, cast

from ...impl.pool.block import with_and_without_identity
from ..loops import UNSET, Locals, ReturnedError, compiled_part, own_variables
from ..solver import ProofError


@dataclass(frozen=True)
class Reached:
    """The function has got to a loop: its variables there, and what the loop goes through."""

    variables: Locals
    iterated: Any


@dataclass(frozen=True)
class Numbered:
    """What `enumerate` makes of something that a loop goes through."""

    items: Any
    start: Any = 0

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return iter(enumerate(self.items, self.start))


@dataclass(frozen=True)
class Range:
    """What `range` makes: the numbers from `start` to `stop - 1`."""

    start: Any
    stop: Any

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.stop))


def _range(*bounds: Any) -> Range:
    return Range(0, bounds[0]) if len(bounds) == 1 else Range(*bounds)


def _list(items: Any = ()) -> Any:
    """`list`; something that stands for a sequence of any length is its own list."""
    return items if getattr(items, "any_length", False) else list(items)


def _any_length(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """A function; what stands for a sequence of any length, as last argument or as all, has a method of that name."""

    def seen(*arguments: Any) -> Any:
        last = arguments[-1] if arguments else ()
        return getattr(last, name)(*arguments[:-1]) if hasattr(last, name) else plain(*arguments)

    return seen


def _filtered(wanted: Callable[[Any], bool], items: Any) -> Any:
    """`[item for item in items if wanted(item)]`."""
    return items.any_filtered(wanted) if hasattr(items, "any_filtered") else [item for item in items if wanted(item)]


def _set_all(items: Any, value: Any, *fields: str) -> None:
    """`for item in items: item.field = value`."""
    for field in fields:
        if hasattr(items, "any_set_to"):
            items.any_set_to(field, value)
        else:
            for item in items:
                setattr(item, field, value)


def _compress(items: Any, mask: Any) -> Any:
    """`itertools.compress`."""
    return items.any_compressed(mask) if hasattr(items, "any_compressed") else compress(items, mask)


_SEEN = {
    "enumerate": Numbered,
    "range": _range,
    "list": _list,
    "set": _any_length("any_set", set),
    "map": _any_length("any_map", map),
    "compress": _compress,
    "filtered": _filtered,
    "set_all": _set_all,
    "with_and_without_identity": _any_length("any_with_and_without", with_and_without_identity),
    "not_reached": lambda: _not_reached(),
}
"""What the statements see in place of these functions."""


class _Filters(ast.NodeTransformer):
    """`[x for x in items if wanted]` becomes `filtered(lambda x: wanted, items)`."""

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.ListComp(ast.Name(one), [ast.comprehension(ast.Name(other), items, [wanted])]) if one == other:
                argument = ast.arguments([], [ast.arg(one)], None, [], [], None, [])
                return ast.Call(ast.Name("filtered", ast.Load()), [ast.Lambda(argument, wanted), items], [])
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """What a pool leaves to the pool under it, `super().take(k)` or `BlockPool.take(self, k)`, is for the proof to
        answer: `self._inherited("take", k)`."""
        self.generic_visit(node)
        match node.func:
            case ast.Attribute(ast.Call(ast.Name("super")), name):
                given = node.args
            case ast.Attribute(ast.Name("BlockPool"), name):
                given = node.args[1:]
            case _:
                return node
        asked = ast.Attribute(ast.Name("self", ast.Load()), "_inherited", ast.Load())
        return ast.Call(asked, [ast.Constant(name), *given], node.keywords)

    def visit_For(self, node: ast.For) -> ast.AST:
        """A loop inside a statement that gives one value to the same fields of all: each round is the last word on its
        own item, and says nothing of another one."""
        self.generic_visit(node)
        match node:
            case ast.For(ast.Name(one), items, [ast.Assign(targets, ast.Constant() as value)], []):
                fields = [
                    target.attr
                    for target in targets
                    if isinstance(target, ast.Attribute)
                    and isinstance(target.value, ast.Name)
                    and target.value.id == one
                ]
                if len(fields) == len(targets):
                    named = [ast.Constant(field) for field in fields]
                    return ast.Expr(ast.Call(ast.Name("set_all", ast.Load()), [items, value, *named], []))
        return node


def without_filters(function: FunctionType) -> Callable[..., Any]:
    """A function without loops but those that `_Filters` knows and those inside statements, which are for what they go
    through to answer; it sees these functions."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    tree = _Filters().visit(tree)
    ast.fix_missing_locations(tree)
    if any(isinstance(node, ast.For) for node in tree.body) or any(
        isinstance(node, ast.While) for node in ast.walk(tree)
    ):
        raise ProofError(f"{function.__qualname__} has loops: it is to be cut")
    made = compiled_part(function, tree.body, _SEEN)

    def call(*arguments: Any, **named: Any) -> Any:
        bound = inspect.signature(function).bind(*arguments, **named)
        bound.apply_defaults()
        return made(**bound.arguments)

    return call


@dataclass(frozen=True)
class Parts:
    """A function, cut at its loops."""

    name: str
    _between: tuple[Callable[..., Any], ...]
    _rounds: tuple[Callable[..., Any], ...]
    _sums: tuple[tuple[str, ...], ...]
    _function: FunctionType

    @property
    def loops(self) -> int:
        """How many loops there are."""
        return len(self._rounds)

    def begin(self, *arguments: Any, **named: Any) -> Reached:
        """What comes before the first loop. ReturnedError if the function ends there."""
        bound = inspect.signature(self._function).bind(*arguments, **named)
        bound.apply_defaults()
        return self._reached(0, bound.arguments)

    def behind(self, loop: int, variables: Mapping[str, Any]) -> Reached:
        """What comes between a loop, counted from 0, and the next. ReturnedError if the function ends there."""
        return self._reached(loop + 1, variables)

    def round(self, loop: int, variables: Mapping[str, Any], element: Any) -> Locals:
        """One round of a loop, for the variables with which the loop begins. Its sums afterwards."""
        after = self._rounds[loop](**variables, element=element)
        return {name: after[name] for name in self._sums[loop]}

    def whole(self, *arguments: Any, **named: Any) -> Any:
        """The function, put together again."""
        try:
            reached = self.begin(*arguments, **named)
            for loop in range(self.loops):
                variables = dict(reached.variables)
                for element in reached.iterated:
                    variables |= self.round(loop, variables, element)
                reached = self.behind(loop, variables)
        except ReturnedError as returned:
            return returned.value
        raise ProofError(f"{self.name} goes on behind its last loop for ever")

    def _reached(self, part: int, variables: Mapping[str, Any]) -> Reached:
        result = self._between[part](**variables)
        if not isinstance(result, Reached):
            raise ReturnedError(result)
        return Reached(own_variables(result.variables, self._function), result.iterated)


@cache
def parts(function: FunctionType) -> Parts:
    """The parts of a function. ProofError if it is not of this form."""
    name = function.__qualname__
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise ProofError(f"{name} is no plain function: its loops cannot be cut out")
    tree.body = [_always(_inner(statement)) for statement in tree.body]
    ast.fix_missing_locations(tree)
    loops = [statement for statement in tree.body if isinstance(statement, ast.For)]
    found = [
        node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While | ast.AsyncFor | ast.comprehension)
    ]
    inside = [node for loop in loops for node in ast.walk(loop) if node in found]
    # A comprehension before or behind the loops runs as it is.
    if not loops or any(node not in inside and not isinstance(node, ast.comprehension) for node in found):
        raise ProofError(f"{name} must have `for` loops one behind the other, not inside anything: it cannot be cut")
    between, rounds, sums, at = [], [], [], 0
    for loop in loops:
        sums.append(_sums_of(loop))
        _require_plain(name, tree, loop, set(sums[-1]))
        here = tree.body.index(loop)
        stop = ast.parse("return reached(locals(), None)").body[0]
        assert isinstance(stop, ast.Return)
        assert isinstance(stop.value, ast.Call)
        stop.value.args[1] = loop.iter
        between.append(compiled_part(function, [*tree.body[at:here], stop], {"reached": Reached, **_SEEN}))
        once = ast.For(target=loop.target, iter=ast.parse("(element,)", mode="eval").body, body=loop.body, orelse=[])
        rounds.append(compiled_part(function, [once, *ast.parse("return locals()").body], {"element": UNSET}))
        at = here + 1
    between.append(compiled_part(function, tree.body[at:] or [ast.Pass()], _SEEN))
    return Parts(name, tuple(between), tuple(rounds), tuple(sums), function)


def _inner(statement: ast.stmt) -> ast.stmt:
    """A statement that is no loop, and what of it `_Filters` knows; a loop that is all of an `if` stays one."""
    match statement:
        case ast.For():
            return statement
        case ast.If(test, [ast.For()], []):
            statement.test = _Filters().visit(test)
            return statement
    return cast(ast.stmt, _Filters().visit(statement))


def _always(statement: ast.stmt) -> ast.stmt:
    """A loop that is all of an `if`, as a loop that goes through nothing where that does not hold."""
    match statement:
        case ast.If(test, [ast.For() as loop], []) if not loop.orelse:
            loop.iter = ast.IfExp(test, loop.iter, ast.Tuple([], ast.Load()))
            return loop
        case ast.If():
            return cast(ast.stmt, _NotReached().visit(statement))
    return statement


class _NotReached(ast.NodeTransformer):
    """A loop inside more than one statement is refused where a run gets to it, as with events, which are off."""

    def visit_For(self, node: ast.For) -> ast.AST:
        return ast.copy_location(ast.parse("not_reached()").body[0], node)


def _not_reached() -> None:
    raise ProofError("a run gets to a loop inside another statement: it cannot be cut out")


def _sums_of(loop: ast.For) -> tuple[str, ...]:
    """Variables that rounds add to, or subtract from, and do nothing else with."""
    added = [
        node.target.id
        for node in ast.walk(loop)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and isinstance(node.op, ast.Add)
    ]
    named = [node.id for node in ast.walk(loop) if isinstance(node, ast.Name)]
    return tuple(sorted({name for name in added if named.count(name) == added.count(name)}))


def _require_plain(name: str, tree: ast.FunctionDef, loop: ast.For, sums: set[str]) -> None:
    """ProofError if the loop can be left early, or a round leaves something in a variable that is read later."""
    early = [node for node in ast.walk(loop) if isinstance(node, ast.Return | ast.Break | ast.Yield | ast.YieldFrom)]
    if early or loop.orelse:
        raise ProofError(f"{name}: a loop that can be left early cannot be cut out")
    left = {node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    left -= sums
    _require_set(name, [loop], left)
    _require_set(name, tree.body[tree.body.index(loop) + 1 :], left)


def _require_set(name: str, statements: Sequence[ast.stmt], unset: set[str]) -> set[str]:
    """Those of the variables that the statements do not surely set. ProofError if one is read before it is set."""
    unset = set(unset)
    for statement in statements:
        if isinstance(statement, ast.If):
            _require_not_read(name, statement.test, unset)
            unset = _require_set(name, statement.body, unset) | _require_set(name, statement.orelse, unset)
        elif isinstance(statement, ast.For):
            _require_not_read(name, statement.iter, unset)
            _require_set(name, statement.body, unset - _names(statement.target, ast.Store))
        elif isinstance(statement, ast.While | ast.With | ast.Try | ast.Match):
            raise ProofError(f"{name}: a loop with a statement of this kind cannot be cut out: line {statement.lineno}")
        else:
            _require_not_read(name, statement, unset)
            augmented = isinstance(statement, ast.AugAssign) and _names(statement.target, ast.Store) & unset
            if augmented:
                raise ProofError(f"{name}: a round leaves {augmented} to the next: it cannot be cut out here")
            unset -= _names(statement, ast.Store)
    return unset


def _require_not_read(name: str, node: ast.AST, unset: set[str]) -> None:
    read = _names(node, ast.Load) & unset
    if read:
        raise ProofError(f"{name}: a round leaves {read} to the next, or to what comes later: it cannot be cut out")


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """Variables of the function; those of a comprehension or a `lambda` are its own."""
    found = [one for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, context)]
    inner = [one for one in ast.walk(node) if isinstance(one, ast.ListComp | ast.GeneratorExp | ast.Lambda)]
    own = {
        name.id if isinstance(name, ast.Name) else name.arg
        for one in inner
        for part in ([one.args] if isinstance(one, ast.Lambda) else [each.target for each in one.generators])
        for name in ast.walk(part)
        if isinstance(name, ast.Name | ast.arg)
    }
    outside = [one for one in found if not any(one in ast.walk(part) for part in inner)]
    return {one.id for one in outside} | ({one.id for one in found} - own)
