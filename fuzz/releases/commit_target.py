"""The target, or the engine, of a commit: a child process whose import path begins with the files of a worktree.

The same adapter can be used for every commit (`--adapter`): it is copied, so that it is found before whatever the
commit has under its name, and so that nothing else of where it lies is taken for the commit's. Behind the commit's
files come the places where modules are found anyway, without the user's checkout, which is no commit.
"""

import json
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Self, cast

from ...model.ops import Outcome, Shape
from ...model.snapshot import Snapshot
from ..opening.child import ChildTarget, PythonPlace
from ..opening.engines import open_engine_here
from ..opening.targets import Home, open_here
from ..simulation.protocol import Engine
from ..targets.base import Target, TargetUnavailableError, lacking
from .bisect import BisectError

_PLACE = "blockproof-commit.json"
_ORIGINS = "origins.json"
_ROOT = (__package__ or "").split(".")[0]
_OPENED = f"{__package__}.commit_target:open_commit"
_ENGINE_OPENED = f"{_OPENED}_engine"
_FAILED = re.compile(rf"^{re.escape(_OPENED)}(_engine)?: the factory failed: {TargetUnavailableError.__name__}: ")
"""What our own factory puts before an error of the user's."""
_REMEDY = "if not every commit has it, name it with --adapter, and all use what you have now"
_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".git", ".venv", "venv", "node_modules")
_FILE = re.compile(r"(.+\.py):([A-Za-z_]\w*)")


@dataclass(frozen=True)
class Wanted:
    """The target as the user names it for every commit."""

    target: str
    """`package.module:factory` or `path/file.py:factory`."""
    folder: str = "."
    """The folder of a commit in which modules are."""
    adapter: Path | None = None
    """A file or a folder that every commit is to use as it is now, in place of its own; None if each has its own."""


@dataclass(frozen=True)
class CommitPlace:
    """Where the target of a worktree is found."""

    spec: str
    """What the child opens."""
    front: str
    """Folder with what comes before the commit's files, and for what comes of it."""
    tree: str
    """The worktree."""
    folder: str
    """The folder of the worktree in which modules are."""
    checkout: str
    """The user's checkout, from which nothing may be imported."""
    back: tuple[str, ...]
    """Where modules are looked for last."""

    @property
    def layers(self) -> tuple[Path, ...]:
        """The import path of the child."""
        return (Path(self.front), Path(self.tree, self.folder), *map(Path, self.back))

    @classmethod
    def read(cls, path: Path) -> "CommitPlace":
        """The place that was written to this file."""
        return cls.of_json(json.loads(path.read_text(encoding="utf-8")))

    @classmethod
    def of_json(cls, raw: dict[str, Any]) -> "CommitPlace":
        """The place in JSON data that was made with `asdict`."""
        return cls(**raw | {"back": tuple(raw["back"])})


def place_for(wanted: Wanted, tree: Path, checkout: str, front: Path) -> CommitPlace:
    """Where the target is found in a worktree; the adapter is copied to `front`, a folder that is made.

    A file that `wanted.target` names is the adapter if it lies outside the checkout. BisectError (2) if the adapter is
    missing.
    """
    front.mkdir()
    in_file = _FILE.fullmatch(wanted.target)
    named = _named_file(in_file[1], checkout) if in_file else None
    adapter = wanted.adapter
    if adapter is None and named is not None and not _is_below(named, checkout):
        adapter = named
    neighbours: list[str] = []
    if adapter is not None:
        _copy(adapter, front)
        neighbours = [os.path.realpath(adapter.parent if adapter.is_file() else adapter)]
    spec = wanted.target
    if in_file and named is not None:
        spec = f"{_where(named, adapter, front, tree, checkout)}:{in_file[2]}"
    found_anyway = [os.path.realpath(entry or os.getcwd()) for entry in (*sys.path, os.getcwd())]
    back = [path for path in (*neighbours, *found_anyway) if not in_checkout(path, checkout)]
    place = CommitPlace(spec, str(front), str(tree), wanted.folder, checkout, tuple(dict.fromkeys(back)))
    (front / _PLACE).write_text(json.dumps(asdict(place)), encoding="utf-8")
    return place


def _named_file(text: str, checkout: str) -> Path:
    """The file that a target's name means: from the current folder, else from the top of the checkout."""
    here = Path(text).expanduser()
    return here.resolve() if here.exists() or here.is_absolute() else Path(checkout, text).resolve()


def _copy(adapter: Path, front: Path) -> None:
    """Copy a file, a package or what lies in a folder."""
    if adapter.is_file():
        shutil.copy(adapter, front)
    elif (adapter / "__init__.py").is_file():
        shutil.copytree(adapter, front / adapter.resolve().name, ignore=_LEFT_OUT)
    elif adapter.is_dir():
        shutil.copytree(adapter, front, ignore=_LEFT_OUT, dirs_exist_ok=True)
    else:
        raise BisectError(f"--adapter: there is no {adapter}; name a file or a folder", 2)


def _where(named: Path, adapter: Path | None, front: Path, tree: Path, checkout: str) -> Path:
    """The file that stands for this one in a worktree: a copy if it is of the adapter, else the commit's own."""
    if adapter is not None:
        base = adapter.resolve()
        if named == base:
            return front / named.name
        if named.is_relative_to(base):
            return front / named.relative_to(base.parent if (base / "__init__.py").is_file() else base)
    return tree / named.relative_to(checkout) if _is_below(named, checkout) else named


def _is_below(path: Path, checkout: str) -> bool:
    return path.is_relative_to(checkout)


def in_checkout(path: str, checkout: str) -> bool:
    """True if this real path is in the user's checkout, but not in a Python environment that may lie there too."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    environment = tuple(os.path.realpath(sysconfig.get_path(name)) for name in names)
    return f"{path}{os.sep}".startswith(checkout + os.sep) and not path.startswith(environment)


class CommitTarget(ChildTarget):
    """The target of a worktree, in a child process. `start` raises TargetUnavailableError if it is not the commit's."""

    def __init__(self, place: CommitPlace, name: str) -> None:
        self.home = _home(place, _OPENED)
        """What a process opens to get it, and in which environment."""
        super().__init__(name, *self.home)
        self._where, self._called = place, name  # its own name is that of the target in the child

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """As `ChildTarget.start`."""
        answer = super().start(shape)
        if problem := _strayed(self._where, self._called):
            raise TargetUnavailableError(problem)
        return answer

    def launched(self) -> Self:
        """Itself, running. TargetUnavailableError, in the user's terms, if it cannot be imported."""
        try:
            lacking(self)  # asks the child, which is launched for it
        except TargetUnavailableError as error:
            raise TargetUnavailableError(_in_terms_of(self._where, str(error))) from None
        return self


class CommitEngine:
    """The engine of a worktree, to be simulated in a process of its own."""

    def __init__(self, place: CommitPlace, name: str) -> None:
        self.home = _home(place, _ENGINE_OPENED)
        self._where, self._called = place, name

    def problem(self, why: str = "") -> str:
        """What is wrong with what was opened: `why` it could not be, in the user's terms, or that it was not the
        commit's. Empty if nothing is."""
        if why or not Path(self._where.front, _ORIGINS).exists():
            return _in_terms_of(self._where, why)
        return _strayed(self._where, self._called)


def _home(place: CommitPlace, opened: str) -> Home:
    return Home(opened, PythonPlace(Path(sys.executable), place.layers))


def _in_terms_of(place: CommitPlace, why: str) -> str:
    """Why the target of a commit cannot be imported, in the user's terms."""
    text = _FAILED.sub("", why)
    for folder in (place.front, place.tree):
        text = text.replace(f"{folder}{os.sep}", "")
    if "there is no file" in text or "cannot import" in text:
        text = f"{text.partition(';')[0].partition(place.tree)[0].removesuffix(' in ')}; {_REMEDY}"
    return text


def _strayed(place: CommitPlace, called: str) -> str:
    """What is wrong with where the modules of the target came from; empty if nothing is."""
    own, strays = json.loads(Path(place.front, _ORIGINS).read_text(encoding="utf-8"))
    if strays:
        return f"{strays[0]} was imported from the checkout, not from the commit; keep such a module outside of both"
    if not own:
        advice = f"is it below another folder than {place.folder!r}? --path names it"
        return f"{called} imported nothing from the commit: {advice}"
    return ""


def open_commit() -> Target:
    """The target of the commit, in the child process."""
    return cast(Target, _opened_by(open_here))


def open_commit_engine() -> Engine:
    """The engine of the commit, in its process."""
    return cast(Engine, _opened_by(open_engine_here))


def _opened_by(opening: Callable[[str], Any]) -> "_Traced":
    """What is opened of the commit. Its place is found on the import path."""
    found = next(path for entry in sys.path if (path := Path(entry, _PLACE)).is_file())
    place = CommitPlace.read(found)
    # Bisection checks out one commit right after the other: two files of the same size and second look the same.
    sys.dont_write_bytecode = True
    os.chdir(place.front)  # what lies where the user stands is not of the commit
    return _Traced(opening(place.spec), place)


class _Traced:
    """A target, or an engine, that writes down where its modules came from."""

    def __init__(self, opened: Any, place: CommitPlace) -> None:
        self._opened = opened
        self._place = place
        self._known = -1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    def start(self, shape: Any) -> Any:
        answer = self._opened.start(shape)
        if len(sys.modules) != self._known:  # it is started many times, and imports at the first one
            self._known = len(sys.modules)
            text = json.dumps(origins(list(sys.modules.values()), self._place))
            Path(self._place.front, _ORIGINS).write_text(text, encoding="utf-8")
        return answer


def origins(modules: Iterable[ModuleType], place: CommitPlace) -> tuple[int, list[str]]:
    """How many modules are of the commit, and the names of those of the user's checkout, without blockproof's own."""
    own, strays = 0, []
    for module in modules:
        if not (file := getattr(module, "__file__", None)):
            continue  # it is built in, or a folder
        path = os.path.realpath(file)
        if path.startswith(place.tree + os.sep):
            own += 1
        elif in_checkout(path, place.checkout) and not _name_of(module).startswith(f"{_ROOT}."):
            strays.append(module.__name__)
    return own, sorted(strays)


def _name_of(module: ModuleType) -> str:
    """Of a module that runs as `__main__`, that in its package."""
    return module.__name__ if module.__spec__ is None else module.__spec__.name
