"""Applies a patch to an engine before anybody imports it: the `sitecustomize` of a child's interpreter.

It runs at the start of every Python process of a patched release, and needs nothing but the standard library. The first
import of the engine applies the patch; if that fails this import, and every later one, raises `PatchError`.
"""

import json
import os
import re
import sys
import traceback
from collections.abc import Iterable
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

_MISSING = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'|module '([\w.]+)' has no attribute '(\w+)'")
_OURS = (
    __file__,
    os.path.realpath(__file__),
    "<frozen importlib._bootstrap>",
    "<frozen importlib._bootstrap_external>",
)
VARIABLE = "BLOCKPROOF_CHILD_PATCH"


SAID: dict[str, set[Any]] = {"HIDES": set(), "LACKS": set(), "DESIGNS": set(), "BLOCK_SIZES": set()}
"""What the sources of the patch say of the patched engine, in constants of these names."""
CALLS: set[str] = set()
"""Calls that can be made to fail: of the constant `REFUSES` of the sources, and of `--refuse`."""


class PatchError(ImportError):
    """The patch cannot be applied; the text says why, where, and what to do."""


class _StoodIn(type):
    """The class of what stands in for anything: it has every attribute, may be called, subclassed, or used as a
    decorator, and is false and empty."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _stand_in(f"{cls.__qualname__}.{name}")

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        if cls.__dict__.get("stands_in") is not True:
            return super().__call__(*arguments, **named)  # somebody's class that is derived from one
        is_decorator = len(arguments) == 1 and not named and callable(arguments[0])
        return arguments[0] if is_decorator else cls

    def __bool__(cls) -> bool:
        return False

    def __len__(cls) -> int:
        return 0

    def __iter__(cls) -> Any:
        return iter(())

    def __enter__(cls) -> Any:
        return cls

    def __exit__(cls, *_: object) -> None:
        return None


def _stand_in(name: str) -> Any:
    return _StoodIn(name, (), {"stands_in": True, "__module__": "stood_in"})


class _StoodInModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _stand_in(f"{self.__name__}.{name}")


class _StandInLoader(Loader):
    """Makes the modules that are stood in for."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """See `Loader`."""
        return _StoodInModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """See `Loader`."""
        module.__path__ = []


class _Loaded(Loader):
    """Gives the engine that the patch has imported to the import that has caused it."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """See `Loader`."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """See `Loader`."""
        module.__spec__ = self._spec


def _loaded(module: ModuleType) -> ModuleSpec:
    """With this the import that goes on takes the module as it is; else it would run it again. The importer reads the
    spec off the module."""
    spec = ModuleSpec(module.__name__, _Loaded(module), is_package=True)
    module.__spec__ = spec
    return spec


class Hook(MetaPathFinder):
    """Stands in for modules, and applies the sources of a patch before the engine is imported."""

    def __init__(
        self, engine: str, sources: list[str], without: list[str], folders: list[str], refuses: list[str]
    ) -> None:
        """`folders`: where the files of the patch lie, for messages; `refuses`: calls that can be made to fail, those
        without a module in the last source."""
        self._engine, self._sources, self._without, self._folders = engine, sources, without, folders
        self._refuses, self._last = refuses, ""
        self._begun = False
        self._problem = ""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """See `MetaPathFinder`. PatchError for the engine if the patch cannot be applied."""
        if any(name == one or name.startswith(f"{one}.") for one in self._without):
            return ModuleSpec(name, _StandInLoader(), is_package=True)
        if name.partition(".")[0] != self._engine:
            return None
        if not self._begun:
            self._begun = True
            self._hang_in()
            for source in self._sources:
                self._apply(source)
            self._name_calls(self._refuses)
            if self._problem:  # what has been imported meanwhile is not to be had either
                for loaded in [one for one in sys.modules if one.partition(".")[0] == self._engine]:
                    del sys.modules[loaded]
        if self._problem:
            raise PatchError(self._problem, name=name)
        return _loaded(sys.modules[name]) if name in sys.modules else None

    def _hang_in(self) -> None:
        """What is asked for as an attribute of a package that is there, such as `torch.npu`, and is never imported."""
        own = {self._engine, *(source.partition(".")[0] for source in self._sources)}
        for name in self._without:
            parent, _, last = name.rpartition(".")
            if parent and parent.partition(".")[0] not in own:
                try:
                    setattr(import_module(parent), last, _StoodInModule(name))
                except ImportError:
                    continue  # whoever imports the parent will say so

    def _name_calls(self, calls: Iterable[str]) -> None:
        """Note that these can be made to fail; one without a module is one of the source that came last."""
        CALLS.update(call if ":" in call else f"{self._last}:{call}" for call in calls)

    def _apply(self, source: str) -> None:
        if self._problem:
            return
        try:
            name, _, function = (source, "", "") if source.endswith(".py") else source.partition(":")
            module = _module_of(source) if source.endswith(".py") else import_module(name)
            changes = getattr(module, function or "patch", None)
            if function and changes is None:
                raise AttributeError(f"{name} has no function {function!r}")
            if callable(changes):
                changes()
            for said, names in SAID.items():
                names.update(getattr(module, said, ()))
            self._last = module.__name__
            self._name_calls(getattr(module, "REFUSES", ()))
        except BaseException as error:  # somebody's code may end in any way
            self._problem = _told(source, error, self._folders)


def _module_of(path: str) -> ModuleType:
    """The module in this file; its neighbours can be imported."""
    name = f"blockproof_patch_{Path(path).stem}"
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.path.append(str(Path(path).parent))
    sys.modules[name] = module = module_from_spec(spec)  # before it runs, as dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _told(source: str, error: BaseException, folders: list[str]) -> str:
    """Why a source cannot be applied, in one line: where it ended, and the remedy."""
    place = ""
    if isinstance(error, SyntaxError) and error.filename:
        place = f" ({error.filename}, line {error.lineno})"
    elif frames := [one for one in traceback.extract_tb(error.__traceback__) if one.filename not in _OURS]:
        own = [one for one in frames if one.filename.startswith(tuple(folders) or "\0")] or frames
        place = f" ({own[-1].filename}, line {own[-1].lineno})"
    what = " ".join(f"{type(error).__name__}: {error}".split())
    remedy, name = remedy_for(error), getattr(error, "name", None) or ""
    if isinstance(error, ModuleNotFoundError) and name and source.partition(":")[0].startswith(name):
        remedy = "; is the name right, and its package named with --with, or its folder with --path?"
    return f"the patch {source} cannot be applied: {what}{place}{remedy}"


def remedy_for(error: BaseException) -> str:
    """What to add to the command for what cannot be imported, behind a semicolon; empty if that is not known."""
    missing = ""
    if isinstance(error, ModuleNotFoundError) and error.name:
        top, missing = error.name.partition(".")[0], error.name
        if top == missing or top not in sys.modules:
            return f"; put {top} beside it with --with or --path, or stand in for it with --without {top}"
    elif type(error) in (ImportError, AttributeError) and (found := _MISSING.search(str(error))):
        missing = f"{found[2]}.{found[1]}" if found[1] else f"{found[3]}.{found[4]}"
    if not missing:
        return ""
    built = f"if that is there only once it is built, or on a device, add --without {missing}"
    return f"; {built}; else it is the name in another release"


def begin() -> None:
    """Put the hook in place, if this process has a patch."""
    if text := os.environ.get(VARIABLE):
        sys.meta_path.insert(0, Hook(**json.loads(text)))


if __name__ == "sitecustomize":
    begin()
