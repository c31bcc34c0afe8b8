"""Cuts a function at all its `for` loops, so that an induction over the rounds of each can be carried out.

`loops` cuts at one loop whose variables go from round to round. Here a function may have several loops, one behind the
other, a round may end early (`continue`) and have a loop inside; but what a round leaves to the next must lie in
objects, not in variables. To prove something for any number of rounds of every loop, show that the statements up to a
loop bring about its invariant, that a round keeps it, and that the statements from there to the next loop, or to the
end, turn it into what is claimed there.

Trusted, as `loops`: that the parts, put together again, do what the function does (`Parts.whole`, held against the
functions in tests). Refused with a ProofError: a loop inside another statement that is not a loop, `else`, `break`,
`return` or `yield` inside a loop, a variable that a round reads before it sets it, though a round sets it.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

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

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return iter(enumerate(self.items))


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


_SEEN = {"enumerate": Numbered, "range": _range, "list": _list}
"""What the statements see in place of these builtins."""


@dataclass(frozen=True)
class Parts:
    """A function, cut at its loops."""

    name: str
    _between: tuple[Callable[..., Any], ...]
    _rounds: tuple[Callable[..., Any], ...]
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

    def round(self, loop: int, variables: Mapping[str, Any], element: Any) -> None:
        """One round of a loop, for the variables with which the loop begins."""
        self._rounds[loop](**variables, element=element)

    def whole(self, *arguments: Any, **named: Any) -> Any:
        """The function, put together again."""
        try:
            reached = self.begin(*arguments, **named)
            for loop in range(self.loops):
                for element in reached.iterated:
                    self.round(loop, reached.variables, element)
                reached = self.behind(loop, reached.variables)
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
    loops = [statement for statement in tree.body if isinstance(statement, ast.For)]
    found = [
        node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While | ast.AsyncFor | ast.comprehension)
    ]
    inside = [node for loop in loops for node in ast.walk(loop) if node in found]
    # A comprehension before or behind the loops runs as it is.
    if not loops or any(node not in inside and not isinstance(node, ast.comprehension) for node in found):
        raise ProofError(f"{name} must have `for` loops one behind the other, not inside anything: it cannot be cut")
    between, rounds, at = [], [], 0
    for loop in loops:
        _require_plain(name, tree, loop)
        here = tree.body.index(loop)
        stop = ast.parse("return reached(locals(), None)").body[0]
        assert isinstance(stop, ast.Return)
        assert isinstance(stop.value, ast.Call)
        stop.value.args[1] = loop.iter
        between.append(compiled_part(function, [*tree.body[at:here], stop], {"reached": Reached, **_SEEN}))
        once = ast.For(target=loop.target, iter=ast.parse("(element,)", mode="eval").body, body=loop.body, orelse=[])
        rounds.append(compiled_part(function, [once], {"element": UNSET}))
        at = here + 1
    between.append(compiled_part(function, tree.body[at:] or [ast.Pass()], _SEEN))
    return Parts(name, tuple(between), tuple(rounds), function)


def _require_plain(name: str, tree: ast.FunctionDef, loop: ast.For) -> None:
    """ProofError if the loop can be left early, or a round leaves something in a variable that is read later."""
    early = [node for node in ast.walk(loop) if isinstance(node, ast.Return | ast.Break | ast.Yield | ast.YieldFrom)]
    if early or loop.orelse:
        raise ProofError(f"{name}: a loop that can be left early cannot be cut out")
    left = {node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
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
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, context)}
