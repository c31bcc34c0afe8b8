"""Calls of a core that the world may refuse, such as that for a page of memory: named, wrapped, and refused on demand.

The name of a call is `MODULE:FUNCTION` or `MODULE:CLASS.METHOD`. What is refused returns None; with `=ERROR` behind the
name it raises this class, a built-in one or `MODULE.CLASS`.
"""

import builtins
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any

EXAMPLE = "my_pool:Pages.take, or my_pool:Pages.take=MemoryError if it raises"


class Refusals:
    """Some calls of a core in this process, all of them answered but when it is said that they are not."""

    def __init__(self, calls: Collection[str]) -> None:
        """Wrap each of the calls where it is found. ValueError for a name that leads to nothing that can be called."""
        self._left: int | None = None
        """How many calls are answered yet; None for all."""
        for call in sorted(calls):
            self._wrap(call)

    @contextmanager
    def after(self, served: int) -> Iterator[None]:
        """Answer this number of calls, and refuse all others until the block is left."""
        self._left = served
        try:
            yield
        finally:
            self._left = None

    def _wrap(self, call: str) -> None:
        name, _, error = call.partition("=")
        try:
            owner, last, real = _found(name)
            raised = _error_named(error) if error else None
        except (ImportError, AttributeError, TypeError, ValueError) as problem:
            raise ValueError(f"--refuse: {call!r} cannot be refused: {problem}; write {EXAMPLE}") from None
        static = isinstance(vars(owner).get(last), staticmethod | classmethod)
        gate = self._gate(name, real, raised)
        setattr(owner, last, staticmethod(gate) if static else gate)

    def _gate(self, name: str, real: Callable[..., Any], raised: type[BaseException] | None) -> Callable[..., Any]:
        @wraps(real)
        def asked(*arguments: Any, **named: Any) -> Any:
            if self._left is None or self._left > 0:
                self._left = self._left and self._left - 1
                return real(*arguments, **named)
            if raised is not None:
                raise raised(f"{name} is refused, since that was asked for")
            return None

        return asked


def _found(name: str) -> tuple[Any, str, Callable[..., Any]]:
    """What holds the call, under which name, and the call."""
    module, colon, path = name.partition(":")
    if not (module and colon and path):
        raise ValueError("it names no call of a module")
    *outer, last = path.split(".")
    owner: Any = import_module(module)
    for one in outer:
        owner = getattr(owner, one)
    real = getattr(owner, last)
    if not callable(real):
        raise TypeError(f"{last} is a {type(real).__name__}")
    return owner, last, real


def _error_named(name: str) -> type[BaseException]:
    module, _, last = name.rpartition(".")
    found = getattr(import_module(module) if module else builtins, last)
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        raise TypeError(f"{name} is no exception")
    return found
