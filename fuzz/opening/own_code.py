"""Targets that are a user's own Python code: `package.module:factory`, or `path/file.py:factory`.

The factory takes no arguments and returns the target. A file is loaded under a name of its own, so that two files of
the same name do not stand for each other; its folder goes on the import path, so that it can import its neighbours.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from ..findings.interruption import is_from_outside
from ..targets.base import TargetUnavailableError
from ..targets.unharmed import unharmed
from .names import OwnCode

ENGINE = ("start", "add", "schedule", "update", "idle")
"""The methods by which an engine to be simulated is known."""
TARGET = ("start", "step")
"""Those of a target."""
_FOLDERS: set[str] = set()
"""Folders of the files that were loaded so far."""


def made_by(named: OwnCode, protocol: str, *methods: str) -> object:
    """The object that the factory returns; it must have these attributes and methods.

    `protocol` is where they are described, for the message. TargetUnavailableError says what is missing.
    """
    spec, factory_name, module = named.spec, named.factory, _loaded(named)
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        raise TargetUnavailableError(
            f"{spec}: {module.__file__ or module.__name__} has no function {factory_name!r}; "
            f"write def {factory_name}(): return YourTarget()"
        )
    try:
        with unharmed():
            made: object = factory()
    except BaseException as error:
        raise_if_interrupted(error)
        raise TargetUnavailableError(f"{spec}: the factory failed: {in_one_line(error)}") from error
    if missing := [name for name in methods if not hasattr(made, name)]:
        see = f"see blockproof.fuzz.{protocol}"
        if all(hasattr(made, name) for name in ENGINE):
            see = f"it is an engine: blockproof simulate --target {spec}; `targets check` and `diff` take --engine"
        elif all(hasattr(made, name) for name in TARGET):
            see = f"it is a target: blockproof fuzz --target {spec}"
        raise TargetUnavailableError(
            f"{spec}: the factory returned a {type(made).__name__} without {missing[0]!r}; {see}"
        )
    return made


def _loaded(named: OwnCode) -> ModuleType:
    if named.file is not None:
        return _module_of_file(named.spec, named.file)
    spec, module_name = named.spec, named.place
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # modules in the current directory are found, as with `python -m`
    try:
        with unharmed():
            return importlib.import_module(module_name)
    except BaseException as error:
        raise_if_interrupted(error)
        hint = ""
        if isinstance(error, ModuleNotFoundError) and error.name and module_name.startswith(error.name):
            hint = f"; is it on the import path? A file is named by its path: path/{module_name.split('.')[-1]}.py:"
            hint += named.factory
        raise TargetUnavailableError(f"{spec}: cannot import {module_name}: {in_one_line(error)}{hint}") from error


def _module_of_file(spec: str, path: Path) -> ModuleType:
    """The module in this file, loaded once for each file."""
    path = path.resolve()
    if not path.is_file():
        raise TargetUnavailableError(
            f"{spec}: there is no file {path.name} in {path.parent}; "
            "the path counts from the current folder, check both"
        )
    name = f"{path.stem}_{sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # before it runs, as dataclasses look their module up
    try:
        with _neighbours_of(path.parent), unharmed():
            found.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        raise_if_interrupted(error)
        raise TargetUnavailableError(f"{spec}: cannot import {path.name}: {in_one_line(error)}") from error
    return module


@contextmanager
def _neighbours_of(folder: Path) -> Iterator[None]:
    """Modules of this folder come first while its file is loaded, and are still found, last, when it imports later.

    Modules of the same name from the folder of another such file are forgotten, else they would be taken for these.
    """
    here = str(folder)
    for name, module in list(sys.modules.items()):
        source = getattr(module, "__file__", None)
        if source is None or "." in name or not _lies_in(source, _FOLDERS - {here}):
            continue
        if (folder / f"{name}.py").is_file() or (folder / name).is_dir():
            for part in [part for part in sys.modules if part == name or part.startswith(f"{name}.")]:
                del sys.modules[part]
    _FOLDERS.add(here)
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(here)
        if here not in sys.path:
            sys.path.append(here)


def _lies_in(source: str, folders: set[str]) -> bool:
    """True if a module's file stands in one of these folders, or is the package of a folder there."""
    path = Path(source)
    return str(path.parent) in folders or (path.name == "__init__.py" and str(path.parent.parent) in folders)


def in_one_line(error: BaseException) -> str:
    """Type and message of an exception, without line breaks."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def raise_if_interrupted(error: BaseException) -> None:
    """Raise the error again if it is somebody's wish to end the command, and none of the code that was loaded."""
    if isinstance(error, KeyboardInterrupt) and is_from_outside():
        raise error
