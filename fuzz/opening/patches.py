"""What somebody puts over a release: files and modules that change it, packages, folders, and what is stood in for.

A patched release is a target whose name says all of that, so that it opens again wherever the name goes:
`NAME==VERSION+path=sources+without=torch_npu+my_patch.py@3fa9c1d2`. What stands behind the `@` is a digest of the files
as they were when somebody wrote the name.
"""

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from ..targets.base import TargetUnavailableError
from ..targets.family import patch_in

_ROOT = __name__.partition(".")[0]
VARIABLE = "BLOCKPROOF_CHILD_PATCH"
"""The environment variable in which a child finds what to apply (`patch_hook`)."""
PROBLEM = "PatchError"
"""The class of the error with which a child refuses to import an engine whose patch cannot be applied."""
_OPTIONS = {"paths": "path", "packages": "with", "without": "without", "refuses": "refuse"}
"""Fields of a `Patch` to the words before them in a name, which are the options of commands, too."""
_SAFE = "/~.,:=-_ "
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*)?")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(==[A-Za-z0-9][A-Za-z0-9.]*)?")
_CALL = re.compile(r"([A-Za-z_][\w.]*:)?[A-Za-z_][\w.]*(=[A-Za-z_][\w.]*)?")
_DIGITS = 8
_SAID: set[tuple[str, str]] = set()
"""Which changes of a patch were told already."""


class PatchPlace(NamedTuple):
    """What a child gets of a patch."""

    folders: tuple[Path, ...]
    """They come before all others on the import path."""
    document: str
    """JSON for `patch_hook`."""
    ours: tuple[str, ...] = ()
    """Packages of ours that its modules lie in, such as `impl`."""


@dataclass(frozen=True)
class Patch:
    """What is put over a release, as it was written: paths count from the current folder."""

    sources: tuple[str, ...] = ()
    """Python files, or modules, each also with the function to be called, as in `package.module:function`; in their
    order. Without one the function `patch` is called, if there is one."""
    packages: tuple[str, ...] = ()
    """Packages of the index that are put beside the release, `NAME` or `NAME==VERSION`."""
    paths: tuple[str, ...] = ()
    """Folders on the import path."""
    without: tuple[str, ...] = ()
    """Modules that are stood in for, since they cannot be imported here."""
    refuses: tuple[str, ...] = ()
    """Calls that can be made to fail (`targets.refusing`)."""
    recorded: str = ""
    """The digest that a name gives; empty if it gives none."""

    def __bool__(self) -> bool:
        return bool(self.sources or self.packages or self.paths or self.without or self.refuses)

    @property
    def label(self) -> str:
        """One word for it: that of the last source, by its file or its package; else the first package or folder."""
        if self.sources:
            file = self.sources[-1]
            return Path(file).stem if is_file(file) else file.partition(":")[0].partition(".")[0]
        first = (*self.packages, *self.paths, *self.without, *self.refuses)[0]
        return Path(first.partition("==")[0]).name

    @property
    def text(self) -> str:
        """What stands behind the `+` in a name, the digest left out."""
        named = [f"{word}={quote(one, _SAFE)}" for name, word in _OPTIONS.items() for one in getattr(self, name)]
        return "+".join([*named, *(quote(source, _SAFE) for source in self.sources)])

    @property
    def is_relative(self) -> bool:
        """True if a path in it counts from the current folder."""
        files = (*(source for source in self.sources if is_file(source)), *self.paths)
        return any(not Path(name).expanduser().is_absolute() for name in files)

    def seen_from(self, folder: Path) -> str:
        """What stands behind the `+` in a name for a process that runs elsewhere; paths count from this folder."""

        def there(name: str) -> str:
            return str((folder / Path(name).expanduser()).resolve())

        sources = tuple(there(source) if is_file(source) else source for source in self.sources)
        moved = replace(self, sources=sources, paths=tuple(map(there, self.paths)))
        return moved.text + (f"@{self.recorded}" if self.recorded else "")

    def check(self) -> None:
        """ValueError, with the option and what to write instead, for what has no known form or is not there."""
        for source in self.sources:
            if is_file(source) and not Path(source).expanduser().is_file():
                raise ValueError(
                    f"--patch: there is no file {source}; the path counts from {Path.cwd()}, and a module is named "
                    "by its dotted name"
                )
            if not is_file(source) and not _MODULE.fullmatch(source):
                raise ValueError(f"--patch: {source!r} is no file.py, and no package.module or package.module:function")
        for name in self.paths:
            if not Path(name).expanduser().is_dir():
                raise ValueError(f"--path: there is no folder {name}; the path counts from {Path.cwd()}")
        for name in self.packages:
            if not _PACKAGE.fullmatch(name):
                raise ValueError(f"--with: {name!r} is no package; write NAME or NAME==VERSION")
        for name in self.without:
            if not _MODULE.fullmatch(name) or ":" in name:
                raise ValueError(f"--without: {name!r} is no module's name, such as torch_npu")
        for call in self.refuses:
            if not _CALL.fullmatch(call) or not (self.sources or ":" in call):
                raise ValueError(
                    f"--refuse: {call!r} is no call; write MODULE:CLASS.METHOD or MODULE:FUNCTION, or without its "
                    "module one of the last --patch, and =ERROR behind it if it raises"
                )

    def digest(self) -> str:
        """Of the files and of what else the name says: other digits, another patch. Packages count by their names."""
        modules = [one for one in self.sources if not is_file(one)]
        named = [self.packages, self.without, modules, *filter(None, [self.refuses])]
        found = sha256(json.dumps(named).encode())
        for path in self._files():
            found.update(path.name.encode() + b"\0")
            found.update(path.read_bytes())
        return found.hexdigest()[:_DIGITS]

    def _files(self) -> Iterator[Path]:
        yield from (Path(source).expanduser() for source in self.sources if is_file(source))
        for name in self.paths:
            for folder, below, names in os.walk(Path(name).expanduser()):
                below[:] = sorted(one for one in below if not one.startswith((".", "__pycache__")))
                yield from (Path(folder, one) for one in sorted(names) if one.endswith(".py"))

    def over(self, release: str) -> str:
        """The name of this release with the patch, and with the digest that the patch has now."""
        return f"{release}+{self.text}@{self.digest()}" if self else release

    def place(self, engine: str, packages: Sequence[Path]) -> PatchPlace:
        """What a child is given, in which `engine` is the module that is patched, and `packages` are where those of the
        index were unpacked. TargetUnavailableError if a file is gone."""
        try:
            self.check()
        except ValueError as error:
            raise TargetUnavailableError(str(error).partition(": ")[2]) from None
        self._tell_change()
        sources = [str(Path(one).expanduser().resolve()) if is_file(one) else one for one in self.sources]
        folders = [Path(name).expanduser().resolve() for name in self.paths]
        shown = [*map(str, (*folders, *packages)), *(source for source in sources if is_file(source))]
        told = {"engine": engine, "sources": sources, "without": list(self.without), "folders": shown}
        told["refuses"] = list(self.refuses)
        of_ours = (source.partition(":")[0].split(".") for source in sources if source.startswith(f"{_ROOT}."))
        ours = tuple(parts[1] for parts in of_ours if find_spec(f"{_ROOT}.{parts[1]}") is not None)
        return PatchPlace((*folders, *packages), json.dumps(told), ours)

    def _tell_change(self) -> None:
        now = self.digest()
        if self.recorded and self.recorded != now and (self.recorded, now) not in _SAID:
            _SAID.add((self.recorded, now))
            what = f"{self.label} has changed since it was recorded: {self.recorded} then, {now} now"
            print(f"blockproof: {what}", file=sys.stderr)


def patch_of(spec: str) -> Patch | None:
    """The patch in a target's name; None if there is none. ValueError, with what to write instead, for a malformed
    one."""
    if "+" not in spec:
        return None
    text = patch_in(spec)
    text, _, recorded = text.rpartition("@") if re.search(rf"@[0-9a-f]{{{_DIGITS}}}$", text) else (text, "", "")
    found: dict[str, list[str]] = {"sources": [], **{name: [] for name in _OPTIONS}}
    words = {word: name for name, word in _OPTIONS.items()}
    for part in text.split("+"):
        word, equals, value = part.partition("=")
        name = words.get(word, "") if equals else "sources"
        if not name or not (value if equals else word):
            raise ValueError(
                f"{spec!r}: {part!r} is no patch; write FILE.py, MODULE, path=DIR, with=PACKAGE, "
                "without=NAME, refuse=CALL"
            )
        found[name].append(unquote(value if equals else word))
    return Patch(**{name: tuple(ones) for name, ones in found.items()}, recorded=recorded)


def is_file(source: str) -> bool:
    """True if a source is a file and no module."""
    return source.endswith(".py") or "/" in source


def is_patch_problem(error: BaseException) -> bool:
    """True for the refusal of a child to import an engine whose patch cannot be applied; its text says all."""
    return type(error).__name__ == PROBLEM
