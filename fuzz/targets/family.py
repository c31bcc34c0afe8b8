"""What the harness has to know of a family of engines: one record, made by the family's adapter.

An adapter is a package beside this module with a `FAMILY` in it. It is imported wherever the harness runs, the Python
environments of targets included, so importing it may need nothing but the standard library; what needs the engine is
imported when a target is opened.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from .base import Calculator, Target

if TYPE_CHECKING:
    from .deviations import ConfigurationDeviation, DeviatingRules, Deviation

_VERSION = r"\d+(?:\.\d+)+(?:(?:a|b|rc|\.post|\.dev)\d+)?"


@dataclass(frozen=True)
class Known:
    """What is known to differ in a release that the model describes otherwise exactly."""

    deviations: "tuple[type[Deviation], ...]"
    """In the core."""
    configuration_deviations: "tuple[ConfigurationDeviation, ...]"
    """In the arithmetic of configurations."""
    rules: "Callable[[], DeviatingRules]"
    """That arithmetic with its deviations."""


@dataclass(frozen=True)
class Family:
    """Releases of one engine that one adapter drives. Users write `NAME`, or `NAME==VERSION` for a certain one."""

    name: str
    """What a user calls it, in small letters."""
    open_target: Callable[[], Target]
    """A target over the release that this interpreter can import. Any exception says that it cannot be imported."""
    open_calculator: Callable[[], Calculator] | None = None
    """The same for a calculator; None if the family has no arithmetic to be asked about."""
    package: str = ""
    """Its name on the package index and among installed distributions; `name` if empty."""
    module: str = ""
    """What is imported, to see whether it is here; `name` if empty."""
    keeps: tuple[str, ...] = ("*.py",)
    """What is needed of a release's files, as patterns of their names; without a GPU that is little."""
    requirements: str = ""
    """Text of a requirements file, all pinned: what a release needs beside torch to be imported without a GPU."""
    torch: str = "torch==2.13.0"
    """The requirement that brings torch, empty for none. Pinned because the releases' own pins want a GPU build, and
    this one is known to import with them all. pip takes a CPU build where the configured index offers one; else it is
    a download of some gigabytes."""
    releases: tuple[str, ...] = ()
    """Versions that are known to work, oldest first: the latest patch of each minor release."""
    reference: str | None = None
    """The version whose behaviour the model describes exactly, so that lockstep holds; None if there is none."""
    scheduler: str = ""
    """Module that drives a release's own scheduler, run in its interpreter (`scheduler_cases`); empty for none."""
    known: Callable[[], Known] | None = None
    """What differs in the reference release; None if nothing does."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that a process with the engine in it starts with."""

    @property
    def distribution(self) -> str:
        """Name on the package index."""
        return self.package or self.name

    @property
    def example(self) -> str:
        """A release to show how one is written."""
        return self.spec(self.reference or self.releases[-1])

    @property
    def here(self) -> str | None:
        """The version that this interpreter can import, or None."""
        try:
            return version(self.distribution) if find_spec(self.module or self.name) is not None else None
        except PackageNotFoundError:
            return None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(rf"{re.escape(self.name)}==({_VERSION})")

    def spec(self, release: str) -> str:
        """The full name of a release."""
        return f"{self.name}=={release}"

    def claims(self, spec: str) -> bool:
        """Does this text name, or try to name, a release of this family?"""
        return re.split(r"[^\w-]", spec, maxsplit=1)[0] == self.name and ":" not in spec

    def version_in(self, spec: str) -> str:
        """The version in `NAME==VERSION`. ValueError, with what to write instead, for anything else."""
        match = self._pattern.fullmatch(spec)
        if match is None:
            raise ValueError(f"{spec!r} names no release; write {self.name}==VERSION, for example {self.example}")
        return match[1]
