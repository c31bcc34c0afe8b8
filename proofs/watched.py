"""Which functions of a core run while a theorem is settled, and whether they are still the same later."""

import hashlib
import inspect
import io
import sys
import textwrap
import tokenize
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any


class Watched:
    """Notes every function of some modules that runs inside a `with`: what a theorem covers is measured."""

    def __init__(self, modules: Sequence[ModuleType], ignore: bool = False) -> None:
        """With `ignore` it notes nothing: being watched makes a run slower by a third."""
        self._ignore = ignore
        self._files = {module.__file__: module.__name__ for module in modules if module.__file__}
        self._seen: set[CodeType] = set()
        self._before: list[Any] = []

    def __enter__(self) -> None:
        if not self._ignore:
            self._before.append(sys.getprofile())
            sys.setprofile(self._note)

    def __exit__(self, *exception: object) -> None:
        if not self._ignore:
            sys.setprofile(self._before.pop())

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self._seen.add(frame.f_code)

    def functions(self) -> dict[str, str]:
        """Those that have run so far, `module:name`, with a hash of their source."""
        return {
            f"{self._files[code.co_filename]}:{code.co_qualname}": source_hash(code)
            for code in self._seen
            if code.co_filename in self._files and not code.co_name.startswith("<")
        }


def source_hash(code: CodeType) -> str:
    """First 12 digits of the SHA-256 of a function's source, without comments, docstrings and spaces.

    The same under every version of Python.
    """
    try:
        source = inspect.getsource(code)
    except OSError:
        source = Path(code.co_filename).name + code.co_qualname + code.co_code.hex()
    with suppress(tokenize.TokenError, IndentationError):  # a part of an expression is taken as it stands
        source = _statements(source)
    return hashlib.sha256("".join(source.split()).encode()).hexdigest()[:12]


def _statements(source: str) -> str:
    """The tokens of some source, `>` and `<` for indentation; nothing for a statement that is a plain text."""
    statements: list[str] = []
    tokens: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(textwrap.dedent(source)).readline):
        match token.type:
            case tokenize.COMMENT | tokenize.NL | tokenize.ENDMARKER:
                continue
            case tokenize.INDENT | tokenize.DEDENT:
                statements.append("<>"[token.type == tokenize.INDENT])
            case tokenize.NEWLINE:
                docstring = len(tokens) == 1 and tokens[0].endswith(('"', "'"))
                statements += [] if docstring else [*tokens, ";"]
                tokens = []
            case _:
                # Braces in f-strings are doubled in some versions and not in others.
                tokens.append(token.string.replace("{{", "{").replace("}}", "}"))
    return "".join([*statements, *tokens])
