"""Every call that code under proof makes, and every exception that passes it, is looked at while it runs on symbols.

What Python has in C looks at the type of what it is given. It may answer NotImplemented for a symbol, measure the
object, read its address, or raise an error that a number would not cause. No list of such functions is ever complete,
so it is the other way round: a function in C gets a symbol only if it is on a list (`_allowed`) of those that do
nothing but ask the symbol, which then answers truly or refuses; what those get to call is looked at, too. An exception
that was not raised by a `raise` of the code under proof, and that might be the symbol's doing, must leave the function:
where it is swallowed, by whatever means, the path is void.

Code under proof is compiled once more for that (`identity`), with calls and handlers that come here.
"""

import functools
import logging
import operator
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from dis import opname
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GeneratorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any, Final

from .refusal import refusal
from .symbolic import SymbolicBool, SymbolicInt, SymbolicReal
from .symbolic_run import running, under_way

SYMBOLS: Final = (SymbolicInt, SymbolicBool, SymbolicReal)
_IN_C = (BuiltinFunctionType, ClassMethodDescriptorType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType)
_CONTAINERS = (list, tuple, dict, set, frozenset, deque, defaultdict, OrderedDict, GeneratorType, slice, range)
_TEXTS = (str, bytes, bytearray)
_BUILTINS = frozenset(
    {
        "abs",
        "all",
        "any",
        "ascii",
        "callable",
        "delattr",
        "divmod",
        "enumerate",
        "filter",
        "format",
        "getattr",
        "hasattr",
        "hash",
        "isinstance",
        "issubclass",
        "iter",
        "len",
        "map",
        "max",
        "min",
        "next",
        "pow",
        "print",
        "repr",
        "reversed",
        "round",
        "setattr",
        "sorted",
        "sum",
        "zip",
    }
)
_TYPES = (bool, complex, enumerate, filter, float, int, map, object, property, reversed, str, super, type, zip)
_MODULES = ("math", "_typing", "_operator", "itertools", "_functools", "_collections", "_bisect", "_heapq")
_CALLING: Final = (map, filter, functools.partial, functools.reduce, sorted, min, max, defaultdict, list.sort)
"""What calls a function that it is given, besides all of `itertools`."""
DEEPEST = 4
"""Lists in lists that are searched for symbols."""
INSTEAD: dict[int, tuple[Any, Callable[..., Any]]] = {}
"""By the identity of a function of Python's own: what is called in its place."""


def instead(original: Any, ours: Callable[..., Any]) -> None:
    """Let code under proof call ours where it calls this function."""
    INSTEAD[id(original)] = original, ours


def call(function: Any, /, *arguments: Any, **named: Any) -> Any:
    """The call that code under proof makes. ProofError if what it calls may not see a symbol."""
    if not under_way():
        return function(*arguments, **named)
    kind = type(function)
    if kind is functools.partial:
        return call(function.func, *function.args, *arguments, **{**function.keywords, **named})
    known = INSTEAD.get(id(function))
    if known is not None:
        return known[1](*arguments, **named)
    inside = function.__func__ if kind is MethodType else function
    asked = None if kind in (FunctionType, MethodType) else _of_the_class(kind)
    if isinstance(asked, _IN_C):
        return call(asked, *arguments, **named)
    if isinstance(inside, _IN_C) or isinstance(function, type) or kind is operator.methodcaller:
        return _call_in_c(function, arguments, named)
    return _call_in_python(function, inside, arguments, named)


def _of_the_class(kind: type) -> Any:
    """What a class of somebody's own has for `__call__`, if that is a function in C that is bound to something else."""
    found = next((vars(one)["__call__"] for one in kind.__mro__ if "__call__" in vars(one)), None)
    return found if isinstance(found, MethodWrapperType | BuiltinFunctionType) else None


def _call_in_c(function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    if _calls(function):
        arguments = tuple(map(_passed, arguments))
        named = {name: _passed(value) for name, value in named.items()}
    if not _allowed(function) and _holds_symbol((*arguments, *named.values(), getattr(function, "__self__", None))):
        raise refusal(f"what `{getattr(function, '__qualname__', function)}` makes")
    try:
        found = function(*arguments, **named)
    except Exception:
        noted()  # here, since whoever has called this may be nobody who is watched
        raise
    return _implemented(found, function, arguments)


def _implemented(found: Any, function: Any, arguments: tuple[Any, ...]) -> Any:
    if found is NotImplemented and _holds_symbol((*arguments, getattr(function, "__self__", None))):
        raise refusal(f"the NotImplemented of `{getattr(function, '__qualname__', function)}`")
    return found


def _call_in_python(function: Any, inside: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    module = getattr(inside, "__module__", None)
    if module in ("logging", "warnings") and inside in _MESSAGES:
        _require_plain_logger(getattr(function, "__self__", None))
        running().forgive_text()
        return None  # what is written to a log is no part of any theorem
    if not _asks(getattr(inside, "__code__", None)):  # what it is handed is called there, and nobody looks
        arguments = tuple(map(_passed, arguments))
        named = {name: _passed(value) for name, value in named.items()}
    return _implemented(function(*arguments, **named), function, arguments)


def _asks(code: CodeType | None) -> bool:
    """True if a function is watched."""
    return code is not None and ("_blockproof_left" in code.co_names or "_blockproof_call" in code.co_names)


_MESSAGES = {
    *(getattr(logging.Logger, name) for name in ("debug", "info", "warning", "error", "exception", "critical", "log")),
    *(getattr(logging, name) for name in ("debug", "info", "warning", "error", "exception", "critical", "log")),
}


def _require_plain_logger(logger: Any) -> None:
    """ProofError if what is logged goes to somebody's own handler or filter, which may do anything with it."""
    while isinstance(logger, logging.Logger):
        for one in (logger, *logger.filters, *logger.handlers, *(f for h in logger.handlers for f in h.filters)):
            made_by = type(one).__module__.partition(".")[0]
            if made_by in sys.modules and made_by not in (*sys.stdlib_module_names, "_pytest") and _is_loud(one):
                raise refusal(f"what {type(one).__qualname__}, a handler of logs, makes")
        logger = logger.parent if logger.propagate else None


def _is_loud(one: Any) -> bool:
    return not isinstance(one, logging.Logger) or type(one).handle is not logging.Logger.handle


def _calls(function: Any) -> bool:
    """True of what calls a function that it is given."""
    return (
        function in _CALLING
        or getattr(function, "__name__", "") == "sort"
        or _module(function) in ("itertools", "_bisect")
    )


def _module(function: Any) -> str:
    return str(getattr(function, "__module__", None) or getattr(function, "__objclass__", type(None)).__module__)


class Passed:
    """A function of Python's own that is handed to another one: a call of it is looked at like any other."""

    __slots__ = ("function",)

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """As code under proof would call it."""
        return call(self.function, *arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)

    def __eq__(self, other: object) -> bool:
        return bool(self.function == (other.function if isinstance(other, Passed) else other))

    def __hash__(self) -> int:
        return hash(self.function)


def _passed(value: Any) -> Any:
    is_function = isinstance(value, _IN_C) or type(value) in (functools.partial, operator.methodcaller, MethodType)
    return Passed(value) if is_function or id(value) in INSTEAD else value


def _allowed(function: Any) -> bool:
    """True of functions that ask a symbol and nothing else, and of those that only keep it."""
    if isinstance(function, type):
        return _allowed_type(function)
    owner = getattr(function, "__self__", None)
    if type(function) is BuiltinFunctionType and (owner is None or isinstance(owner, type(sys))):
        return function.__name__ in _BUILTINS if _module(function) == "builtins" else _module(function) in _MODULES
    owner_kind = getattr(function, "__objclass__", None) or (owner if isinstance(owner, type) else type(owner))
    if isinstance(owner_kind, type) and issubclass(owner_kind, (*_CONTAINERS, *_TEXTS)):
        return True
    if owner_kind is type and isinstance(owner, type):
        return True
    name = function.__name__
    return name in ("__new__", "__init__", "__setattr__", "__init_subclass__", "__call__") or (
        owner_kind.__module__ in ("itertools", "functools") and name != "__reduce__"
    )


def _allowed_type(kind: type) -> bool:
    """True of classes whose own constructor is Python, and of those of Python's own that ask a symbol."""
    static = next(one for one in kind.__mro__ if not one.__flags__ & 1 << 9)
    if static is object or issubclass(static, BaseException | type):
        return True
    return static in _TYPES or static in (*_CONTAINERS, *_TEXTS) or static.__module__ in ("itertools", "functools")


def _holds_symbol(values: Iterable[Any], depth: int = 0) -> bool:
    for value in values:
        kind = type(value)
        if issubclass(kind, SYMBOLS):
            return True
        if depth < DEEPEST and kind in (list, tuple, dict, set, frozenset):
            inside = [*value, *value.values()] if kind is dict else value
            if _holds_symbol(inside, depth + 1):
                return True
    return False


# Exceptions.

_FAITHFUL = (LookupError, StopIteration, StopAsyncIteration, GeneratorExit, ZeroDivisionError, AttributeError)
"""Errors that Python itself raises for what is not there: a symbol answers such questions truly."""
_OURS = __name__.partition(".proofs")[0] + ".proofs"


def noted() -> None:
    """Look at the exception that passes. One that a symbol may have caused must leave the function under proof."""
    error = sys.exc_info()[1]
    if not under_way() or error is None or running().knows_error(error):
        return
    running().note_error(error, "" if _is_own(error) else _where(error))


def left() -> None:
    """The same of an exception that leaves a function: for what calls it from outside, its text is its own business."""
    noted()
    caller = sys._getframe(1).f_back
    while caller is not None and not _is_watched(caller.f_code):
        name = str(caller.f_globals.get("__name__"))
        if name.startswith(_OURS) and name != __name__:
            if under_way():
                running().forgive_text()
            return
        caller = caller.f_back


def _is_watched(code: CodeType) -> bool:
    return "_blockproof_left" in (*code.co_names, *code.co_varnames)


def _where(error: BaseException) -> str:
    *_, code, line = _innermost(error)
    return f"{code.co_qualname}, {code.co_filename.rpartition('/')[2]} line {line}"


def _innermost(error: BaseException) -> tuple[dict[str, Any], int, CodeType, int]:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    assert trace is not None
    return trace.tb_frame.f_globals, trace.tb_lasti, trace.tb_frame.f_code, trace.tb_lineno


def _is_own(error: BaseException) -> bool:
    """True if a `raise` of the code under proof, or of what stands for Python's own arithmetic, has raised it, or
    nothing but a symbol that answers truly can have caused it."""
    inside, at, code, _ = _innermost(error)
    name = str(inside.get("__name__"))
    if name == __name__:
        return isinstance(error, _FAITHFUL)
    if name.startswith(_OURS) or (isinstance(error, _FAITHFUL) and not isinstance(error, RecursionError)):
        return True
    raised = opname[code.co_code[at]] == "RAISE_VARARGS"
    return raised and name.partition(".")[0] not in sys.stdlib_module_names
