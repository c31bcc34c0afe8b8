"""From which folder a user's code was found: a test that a finding leaves has to find it again, from any folder."""

import importlib
import importlib.util
import os
import shlex
import sys
import sysconfig
from pathlib import Path

from .names import PROGRAM, OwnCode, Program, parsed_or_none


def folder_of(spec: str) -> Path | None:
    """The folder that has to be known to find what `spec` names; None if it means the same in every folder.

    For a path that is relative, to a file or a program, the current folder; for a module that is not installed the
    folder that its name counts from.
    """
    named = parsed_or_none(spec)
    if isinstance(named, Program):
        word = named.command[0]
        return Path.cwd() if os.sep in word and not os.path.isabs(word) else None
    if not isinstance(named, OwnCode):
        return None
    if named.file is not None:
        return None if named.file.is_absolute() else Path.cwd()
    top = named.place.partition(".")[0]
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
    named = parsed_or_none(spec)
    if isinstance(named, Program):
        first, *rest = named.command
        there = folder / first
        return PROGRAM + shlex.join([str(there.resolve()), *rest]) if os.sep in first and there.is_file() else spec
    if not isinstance(named, OwnCode):
        return spec
    if named.file is not None:
        there = folder / named.file
        return f"{there.resolve()}:{named.factory}" if there.is_file() else spec
    here = str(folder.resolve())
    sys.path.insert(0, here)
    try:
        importlib.import_module(named.place)
    except (Exception, SystemExit):  # said with its remedy when the target is opened
        importlib.invalidate_caches()
    finally:
        sys.path.remove(here)
        if here not in sys.path:
            sys.path.append(here)
    return spec
