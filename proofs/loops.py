"""Cuts a function at its `for` loop, so that an induction over the rounds can be carried out on its own statements.

`cut` compiles three functions from the source of one: what comes before the loop, one round, and what comes after. Each
runs the statements as they are, in the module they come from; local variables go in and come out as a dictionary. To
prove something for any number of rounds, show that the statements before the loop bring about the invariant, that a
round keeps it from any state in which it holds, and that what comes after turns it into the claim.

Trusted, as `symbolic`: that these three, put together again, do what the function does (`Cut.whole`, held against the
function in tests). What cannot be cut is refused with a ProofError: two loops, a loop inside another statement, an
`else`, `break`, `continue` or `return` inside the loop, a generator.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from .identity import GUARD, guarded
from .solver import ProofError

Locals = dict[str, Any]


class _Unset:
    """A local variable that has no value yet."""

    def __repr__(self) -> str:
        return "unset"


UNSET = _Unset()


class ReturnedError(Exception):
    """The function returned before its loop."""

    def __init__(self, value: Any) -> None:
        super().__init__("the function returned before its loop")
        self.value = value


@dataclass(frozen=True)
class Cut:
    """A function, cut at its loop."""

    before: Callable[..., Locals]
    """Takes the arguments; gives the local variables when the loop begins, with what it goes through as `iterated`.
    ReturnedError if the loop is not reached."""
    round: Callable[[Mapping[str, Any], Any], Locals]
    """One round, for the local variables before it and the element that it is about; gives those after it."""
    after: Callable[[Mapping[str, Any]], Any]
    """What comes after the last round; gives what the function gives."""
    carried: tuple[str, ...]
    """Local variables that a round reads before it assigns them, and assigns: what one round leaves to the next."""

    def whole(self, *arguments: Any) -> Any:
        """The function, put together again."""
        try:
            state = self.before(*arguments)
        except ReturnedError as returned:
            return returned.value
        for element in state.pop("iterated"):
            state = self.round(state, element)
        return self.after(state)


@cache
def cut(function: FunctionType) -> Cut:
    """The three parts. ProofError if the function is not of this form."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise ProofError(f"{function.__qualname__} is no plain function: its loop cannot be cut out")
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While | ast.AsyncFor)]
    if len(loops) != 1 or loops[0] not in tree.body or not isinstance(loops[0], ast.For) or loops[0].orelse:
        raise ProofError(f"{function.__qualname__} must have one `for` loop, not inside anything: it cannot be cut")
    loop = loops[0]
    if any(isinstance(node, ast.Return | ast.Break | ast.Continue | ast.Yield) for node in ast.walk(loop)):
        raise ProofError(f"{function.__qualname__}: a loop that can be left early cannot be cut out")
    at = tree.body.index(loop)
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    reached = ast.parse("return reached(locals(), None)").body[0]
    assert isinstance(reached, ast.Return)
    assert isinstance(reached.value, ast.Call)
    reached.value.args[1] = loop.iter
    first = ast.Assign(targets=[loop.target], value=ast.Name("element", ast.Load()))
    before = compiled_part(function, [*tree.body[:at], reached], {"reached": _Reached, "range": Rounds})
    one = compiled_part(function, [first, *loop.body, *ast.parse("return locals()").body], {"element": UNSET})
    last = compiled_part(function, tree.body[at + 1 :] or [ast.Pass()], {})

    def run_before(*values: Any) -> Locals:
        result = before(**dict(zip(arguments, values, strict=True)))
        if not isinstance(result, _Reached):
            raise ReturnedError(result)
        return {**own_variables(result.state, function), "iterated": result.iterated}

    def run_round(state: Mapping[str, Any], element: Any) -> Locals:
        return own_variables(one(**state, element=element), function)

    return Cut(run_before, run_round, lambda state: last(**state), _carried(loop))


class Rounds:
    """What a loop over `range` goes through: `count` rounds, perhaps symbolic."""

    def __init__(self, count: Any) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))


@dataclass(frozen=True)
class _Reached:
    """The loop was reached."""

    state: Locals
    iterated: Any


def own_variables(state: Locals, function: FunctionType) -> Locals:
    """The function's own local variables, as far as they have a value."""
    own = function.__code__.co_varnames
    return {name: value for name, value in state.items() if value is not UNSET and name in own}


def compiled_part(function: FunctionType, body: list[ast.stmt], extra: Locals) -> Callable[..., Any]:
    """A function of all local variables, by name, that runs these statements where the function would."""
    defaults: Locals = {**dict.fromkeys(function.__code__.co_varnames, UNSET), **extra}
    arguments = ast.arguments(
        posonlyargs=[],
        args=[],
        kwonlyargs=[ast.arg(name) for name in (*defaults, *GUARD)],
        kw_defaults=[ast.Constant(None) for _ in (*defaults, *GUARD)],
        defaults=[],
    )
    part = ast.FunctionDef(name=function.__name__, args=arguments, body=body, decorator_list=[], returns=None)
    module = compile(guarded(ast.Module([part], [])), function.__code__.co_filename, "exec")
    code = next(constant for constant in module.co_consts if isinstance(constant, CodeType))
    # Which functions ran is found out by file, name and first line: this is the function itself.
    code = code.replace(co_qualname=function.__qualname__, co_firstlineno=function.__code__.co_firstlineno)
    made = FunctionType(code, function.__globals__, function.__name__)
    made.__kwdefaults__ = {**defaults, **GUARD}
    return made


def _carried(loop: ast.For) -> tuple[str, ...]:
    """Names that the body of a loop reads before it assigns them, and assigns."""
    known = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    early: dict[str, None] = {}
    assigned: set[str] = set()
    for statement in loop.body:
        names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        read = [node.id for node in names if isinstance(node.ctx, ast.Load)]
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            read.append(statement.target.id)
        early |= dict.fromkeys(name for name in read if name not in known)
        stored = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        assigned |= stored
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr | ast.Assert):
            known |= stored
        elif stored:
            raise ProofError(f"line {statement.lineno} of a loop assigns in a branch: it cannot be cut out")
    return tuple(name for name in early if name in assigned)


class _TappedError(Exception):
    """The method got to the call in which its loop is."""


def reach(method: FunctionType, instance: Any, *arguments: Any) -> tuple[Cut, Locals]:
    """Run a method up to its loop: the cut, and the local variables when the loop begins (`Cut.before`).

    The loop may be in another method of the instance, if calling that is the last thing the method does.
    """
    helper = _helper(method)
    if helper is None:
        return cut(method), cut(method).before(instance, *arguments)
    seen: list[Any] = []

    def tap(*values: Any) -> None:
        seen.extend(values)
        raise _TappedError

    kind = type(instance)
    looping = cut(getattr(kind, helper))
    instance.__class__ = type(kind.__name__, (kind,), {helper: tap})
    try:
        returned = method(instance, *arguments)
    except _TappedError:
        instance.__class__ = kind
        return looping, looping.before(*seen)
    finally:
        instance.__class__ = kind
    raise ReturnedError(returned)


@cache
def _helper(method: FunctionType) -> str | None:
    """The name of the method that is called last, unless there is a loop before."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(method))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    if any(isinstance(node, ast.For) for node in ast.walk(tree)):
        return None
    last = tree.body[-1]
    call = last.value if isinstance(last, ast.Expr | ast.Return) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        return call.func.attr
    raise ProofError(f"{method.__qualname__} has no loop, and does not end with a call of a method that has one")
