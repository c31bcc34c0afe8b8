"""From which folder a user's code was found: a test that a finding leaves has to find it again, from any folder."""

import importlib
import importlib.util
import os
import shlex
import sys
import sysconfig
from pathlib import Path

from .own_code import is_factory
from .program import PREFIX, command_in, is_program


def folder_of(spec: str) -> Path | None:
    """The folder that has to be known to find what `spec` names; None if it means the same in every folder.

    For a path that is relative, to a file or a program, the current folder; for a module that is not installed the
    folder that its name counts from.
    """
    if is_program(spec):
        word = command_in(spec)[0]
        return Path.cwd() if os.sep in word and not os.path.isabs(word) else None
    if not _is_code(spec):
        return None
    place = spec.rpartition(":")[0]
    if place.endswith(".py"):
        return None if Path(place).expanduser().is_absolute() else Path.cwd()
    top = place.partition(".")[0]
    if top == __name__.partition(".")[0]:
        return None  # our own adapters
    try:
        found = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        found = None
    places = [] if found is None else [*(found.submodule_search_locations or ()), *([found.origin or ""])]
    root = next((Path(path).resolve().parent for path in places if os.path.exists(path)), Path.cwd())
    if root.name == top and (root / "__init__.py").is_file():
        root = root.parent
    installed = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")]
    return None if any(root == one or one in root.parents for one in installed) else root


def seen_from(spec: str, folder: Path) -> str:
    """The name with which this process finds what `spec` names in a folder; a module is imported from there."""
    if is_program(spec):
        first, *rest = command_in(spec)
        there = folder / first
        return PREFIX + shlex.join([str(there.resolve()), *rest]) if os.sep in first and there.is_file() else spec
    if not _is_code(spec):
        return spec
    place, _, factory = spec.rpartition(":")
    if place.endswith(".py"):
        there = folder / Path(place).expanduser()
        return f"{there.resolve()}:{factory}" if there.is_file() else spec
    here = str(folder.resolve())
    sys.path.insert(0, here)
    try:
        importlib.import_module(place)
    except (Exception, SystemExit):  # said with its remedy when the target is opened
        importlib.invalidate_caches()
    finally:
        sys.path.remove(here)
        if here not in sys.path:
            sys.path.append(here)
    return spec


def _is_code(spec: str) -> bool:
    return is_factory(spec) and not spec.startswith("fault:")
