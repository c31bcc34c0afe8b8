"""What a target's name says, parsed once: our core, a release, a planted fault, a user's own code, or a program.

And from which folder a user's code was found: a test that a finding leaves has to find it again, from any folder.
"""

import importlib
import importlib.util
import os
import re
import shlex
import sys
import sysconfig
from dataclasses import dataclass
from os.path import expanduser
from pathlib import Path
from typing import TypeAlias

from ..adapters import families, family_of, forms
from ..findings.words import did_you_mean
from ..targets.family import Family, pair_in, unpatched
from .patches import Patch, patch_of

FAULT, PROGRAM = "fault:", "program:"
FORMS = "package.module:factory, path/file.py:factory"
"""The forms of the name of a user's own code, for messages."""
_IN_FILE = re.compile(r"(?P<place>.+\.py):(?P<factory>[A-Za-z_]\w*)", re.DOTALL)
_IN_MODULE = re.compile(r"(?P<place>[A-Za-z_][\w.]*):(?P<factory>[A-Za-z_]\w*)")


@dataclass(frozen=True)
class OurCore:
    """Our core, in one of its `CORES`."""

    spec: str


@dataclass(frozen=True)
class ReleaseName:
    """A release of a family."""

    spec: str
    family: Family
    version: str
    """Empty for the one that is here, or the only one that is installed."""
    patch: Patch | None = None
    """What is put over it."""
    pair: str = ""
    """Two of its engines with this between them; empty for one alone."""

    @property
    def release(self) -> str:
        """Its name without the patch and the pair."""
        return unpatched(self.spec)


@dataclass(frozen=True)
class PlantedFault:
    """Our core with a fault."""

    spec: str
    core: str
    """One of `CORES`."""


@dataclass(frozen=True)
class OwnCode:
    """A function of a user's that makes a target."""

    spec: str
    place: str
    """The name of its module, or the path of its file."""
    factory: str

    @property
    def file(self) -> Path | None:
        """Its file, if it is named by that."""
        return Path(self.place).expanduser() if self.place.endswith(".py") else None


@dataclass(frozen=True)
class Program:
    """A program in any language."""

    spec: str
    command: tuple[str, ...]
    """At least one word."""


TargetName: TypeAlias = OurCore | ReleaseName | PlantedFault | OwnCode | Program


def parsed(spec: str) -> TargetName:
    """What the name says. ValueError, with what to write instead, for what has no known form; whether there is such a
    release, fault, function or program turns out when it is opened."""
    from ..adapters.impl import CORES  # the whole binding, which messages about names alone need not pay for

    if spec.startswith(FAULT):
        core = spec.partition("@")[2] or next(iter(CORES))
        if core not in CORES:
            raise ValueError(f"{spec}: there is no core {core!r} to plant it into; write one of {', '.join(CORES)}")
        return PlantedFault(spec, core)
    if spec.startswith(PROGRAM):
        return Program(spec, _command_in(spec))
    if spec in CORES:
        return OurCore(spec)
    family = family_of(spec)
    if family is None and (code := _IN_FILE.fullmatch(spec) or _IN_MODULE.fullmatch(spec)):
        return OwnCode(spec, code["place"], code["factory"])
    if family is not None:
        release = unpatched(spec)
        version = "" if release == family.name else family.version_in(release)
        if (pair := pair_in(spec)) and pair not in family.pairs:
            known = ", ".join(f"{release}/{name}" for name in family.pairs)
            raise ValueError(f"{spec}: there is no pair {pair!r}; " + (f"write {known}" if known else "it has none"))
        return ReleaseName(spec, family, version, patch_of(spec), pair)
    if spec.endswith(".py"):
        raise ValueError(f"{spec}: name the function that makes the target, too, as in {spec}:make_target")
    close = did_you_mean(spec.partition("==")[0], (*CORES, *families()))
    every = f"{', '.join(CORES)}, {forms()}, {FORMS}, program:COMMAND, fault:NAME"
    raise ValueError(f"unknown target {spec!r}; {close if close.endswith('?') else f'write one of {every}'}")


def parsed_or_none(spec: str) -> TargetName | None:
    """The same for a name that a file or a target gives: None if it has no known form."""
    try:
        return parsed(spec)
    except ValueError:
        return None


def is_own_code(spec: str) -> bool:
    """True if the name stands for a user's own code."""
    return isinstance(parsed_or_none(spec), OwnCode)


def runs_code(spec: str) -> bool:
    """True if opening it runs what only a user can trust: own code, a program, a patch."""
    named = parsed_or_none(spec)
    return isinstance(named, OwnCode | Program) or (isinstance(named, ReleaseName) and named.patch is not None)


def _command_in(spec: str) -> tuple[str, ...]:
    """The words of the command, split as a shell would. ValueError, with what to write instead, if there are none."""
    try:
        words = shlex.split(spec.removeprefix(PROGRAM))
    except ValueError as error:
        raise ValueError(f"{spec!r}: the command cannot be split into words: {error}") from None
    if not words:
        raise ValueError(f"{spec!r}: the command is missing; write, for example, program:./my_target")
    return expanduser(words[0]), *words[1:]


def folder_of(spec: str) -> Path | None:
    """The folder that has to be known to find what `spec` names; None if it means the same in every folder.

    For a path that is relative, to a file or a program, the current folder; for a module that is not installed the
    folder that its name counts from.
    """
    named = parsed_or_none(spec)
    if isinstance(named, Program):
        word = named.command[0]
        return Path.cwd() if os.sep in word and not os.path.isabs(word) else None
    if isinstance(named, ReleaseName) and named.patch is not None:
        return Path.cwd() if named.patch.is_relative else None
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
    if isinstance(named, ReleaseName) and named.patch is not None:
        return f"{spec.partition('+')[0]}+{named.patch.seen_from(folder)}"
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
