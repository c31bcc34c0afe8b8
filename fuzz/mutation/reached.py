"""Which lines of some files run in a block. A mutant of lines that do not run there changes nothing, and is spared."""

import sys
from collections.abc import Mapping
from types import CodeType, FrameType, TracebackType
from typing import Any, TypeAlias

Line: TypeAlias = tuple[str, int]
"""A module and a line of its source, from 1."""


class Reached:
    """Context manager, as often as one likes: `lines` has the lines of these files that have run in it, in this thread.

    `modules`: by file, the module that it is.
    """

    def __init__(self, modules: Mapping[str, str]) -> None:
        self.lines: set[Line] = set()
        self._modules = modules
        self._left: dict[int, tuple[CodeType, set[int]]] = {}
        """By identity of a code, the code, which keeps it one, and those of its lines that have not run."""
        self._before: Any = None

    def __enter__(self) -> "Reached":
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        known = self._left.get(id(code))
        if known is None:
            lines = {line for *_, line in code.co_lines() if line} if code.co_filename in self._modules else set()
            known = self._left[id(code)] = (code, lines)
        return self._ran if known[1] else None

    def _ran(self, frame: FrameType, event: str, argument: object) -> Any:
        code, left = self._left[id(frame.f_code)]
        if frame.f_lineno in left:
            left.discard(frame.f_lineno)
            self.lines.add((self._modules[code.co_filename], frame.f_lineno))
        return self._ran
