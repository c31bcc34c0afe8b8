"""Code with one line changed: for what must be found wrong."""

import inspect
import linecache
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch


def changed(right: Callable[..., Any], line: str, instead: str = "") -> Callable[..., Any]:
    """The function with another line in place of this one, or without it.

    ValueError unless the line stands there once. Both are given without their indentation.
    """
    lines = textwrap.dedent(inspect.getsource(right)).splitlines(keepends=True)
    found = [number for number, text in enumerate(lines) if text.strip() == line]
    if len(found) != 1:
        raise ValueError(f"{right.__name__} has {len(found)} lines that say {line!r}: name one that stands there once")
    lines[found[0]] = lines[found[0]].replace(line, instead)
    of_class = right.__closure__ if right.__code__.co_freevars == ("__class__",) else None  # for `super()`
    if of_class:
        lines = ["def made(__class__):\n", *(f"    {text}" for text in lines), f"    return {right.__name__}\n"]
    source, place = "".join(lines), f"<{right.__name__}, {instead!r} for {line!r}>"
    # Where `inspect` looks for the source, from which the loop is cut.
    linecache.cache[place] = len(source), None, lines, place
    made: dict[str, Any] = {}
    exec(compile(source, place, "exec"), right.__globals__, made)
    function: Callable[..., Any] = made["made"](of_class[0].cell_contents) if of_class else made[right.__name__]
    return function


@contextmanager
def with_line(kinds: Iterable[type], name: str, line: str, instead: str) -> Iterator[None]:
    """While it lasts, the method of this name has another line in place of this one, in the first of the classes in
    which it stands there once. LookupError if there is none."""
    for kind in kinds:
        try:
            wrong = changed(vars(kind)[name], line, instead)
        except (ValueError, KeyError):
            continue
        with patch.object(kind, name, wrong):
            yield
        return
    raise LookupError(f"no {name} has a line that says {line!r}")
