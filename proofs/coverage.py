"""Which functions of a core run while a theorem is settled, and whether they are still the same later."""

import cProfile
import hashlib
import inspect
import io
import linecache
import textwrap
import tokenize
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import ClassVar

from .handlers import careless


class Watched:
    """Notes every function of some modules that runs inside a `with`: what a theorem covers is measured."""

    _open: ClassVar[list[cProfile.Profile]] = []
    """Those that are under way; only the last one notes."""

    def __init__(self, modules: Sequence[ModuleType], ignore: bool = False) -> None:
        """With `ignore` it notes nothing: being watched makes a run slower."""
        self._ignore = ignore
        self._files = {module.__file__: module.__name__ for module in modules if module.__file__}
        # The fastest way in which Python tells which functions run: no Python is run for it.
        self._profile = cProfile.Profile(subcalls=False, builtins=False)

    def __enter__(self) -> None:
        if not self._ignore:
            self._switch(self._open[-1:], [self._profile])
            self._open.append(self._profile)

    def __exit__(self, *exception: object) -> None:
        if not self._ignore:
            self._switch([self._open.pop()], self._open[-1:])

    @staticmethod
    def _switch(off: list[cProfile.Profile], on: list[cProfile.Profile]) -> None:
        for profile in off:
            profile.disable()
        for profile in on:
            profile.enable(subcalls=False, builtins=False)

    def functions(self) -> dict[str, str]:
        """Those that have run so far, `module:name`, with a hash of their source.

        A module's `__getattr__` is not among them: it hands out names, and does nothing that a theorem could be about.
        """
        return {
            f"{self._files[code.co_filename]}:{code.co_qualname}": _hash(code.co_filename, code) for code in self._ran()
        }

    def codes(self) -> Iterator[CodeType]:
        """Those that have run so far."""
        return self._ran()

    def lambdas(self) -> Iterator[CodeType]:
        """Functions without a name that have run so far."""
        yield from (code for code in self._all() if code.co_name == "<lambda>")

    def made_from_text(self) -> Iterator[CodeType]:
        """Functions that have run so far and stand in no file."""
        for code in (entry.code for entry in self._profile.getstats()):
            if isinstance(code, CodeType) and code.co_filename.startswith("<") and not _has_source(code):
                yield code

    def careless(self, texts: bool) -> list[str]:
        """What of them catches what only a symbol may raise (`handlers`), a line each; `texts`: may a message that is
        caught be one?"""
        ran = [(code.co_qualname, careless(code, texts)) for code in self._ran()]
        return sorted(f"{name} {said}" for name, said in ran if said)

    def _ran(self) -> Iterator[CodeType]:
        return (code for code in self._all() if not _is_no_function(code))

    def _all(self) -> Iterator[CodeType]:
        for code in (entry.code for entry in self._profile.getstats()):
            if isinstance(code, CodeType) and code.co_filename in self._files:
                yield code


def _has_source(code: CodeType) -> bool:
    return code.co_filename in linecache.cache or code.co_filename.startswith("<frozen ")


def _is_no_function(code: CodeType) -> bool:
    return code.co_name.startswith("<") or code.co_qualname == "__getattr__"


@cache
def _hash(path: str, code: CodeType) -> str:
    """The same, looked up once: code of two files may be equal, but not in its annotations."""
    return source_hash(code)


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
