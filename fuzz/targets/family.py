"""The record in which an adapter describes its family of engines: how to name, install and open a release.

An adapter is a package in `fuzz/adapters` with a `FAMILY` in it. It is also imported in the Python environments of
targets, so importing it must need nothing but the standard library; what needs the engine is imported when a target is
opened.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .base import Calculator, Target

if TYPE_CHECKING:
    from .deviations import DeviatingRules, Deviation, PolicyOf, ReactionTo

_VERSION = r"\d+(?:\.\d+)+(?:(?:a|b|rc|\.post|\.dev)\d+)?"


def unpatched(spec: str) -> str:
    """A release's name without the patch and the pair that it may have; other names are no use here."""
    return spec.partition("+")[0].partition("/")[0]


def pair_in(spec: str) -> str:
    """Of which pair of engines a release's name speaks, as in `NAME==VERSION/PAIR`; empty for none."""
    return spec.partition("+")[0].partition("/")[2]


def patch_in(spec: str) -> str:
    """The patch in a release's name, as `opening.patches` reads it; empty for none."""
    return spec.partition("+")[2]


@dataclass(frozen=True)
class Known:
    """Known deviations of a release that the model describes: where it differs."""

    deviations: "tuple[Deviation, ...]"
    """Deviations of the core."""
    policy_of: "PolicyOf"
    """What a core with these deviations decides."""
    configuration_deviations: "tuple[Deviation, ...]" = ()
    """Deviations of the arithmetic of configurations."""
    rules: "Callable[[], DeviatingRules] | None" = None
    """Makes the rules of that arithmetic with these deviations in them; None where the model has none for it."""
    elsewhere: "tuple[Deviation, ...]" = ()
    """Deviations of other releases than the reference, which `policy_of` knows as well: what findings are put down
    to there (`engines.root_causes`). Lockstep takes none of them into account."""
    traces: str = "docs/evidence/deviations"
    """Folder with the smallest trace of each deviation of the core."""
    reaction_to: "ReactionTo" = lambda model, operation, before: None
    """What the reference does where a precondition is broken."""


@dataclass(frozen=True)
class OwnTests:
    """The tests that come with the source distribution of the reference release, and what they need to run here."""

    suites: Mapping[str, tuple[str, ...]]
    """Name of a suite to its files and folders, below the folder of the distribution."""
    unpacked: tuple[str, ...]
    """What is unpacked of the distribution: beginnings of paths below its folder."""
    roots: str
    """Folder below which conftest.py files are read."""
    plugin: str
    """A module that pytest loads as a plugin in the release's interpreter."""
    build_needs: tuple[str, ...]
    """Requirements of the build that makes the metadata of a source distribution."""
    test_needs: tuple[str, ...]
    """Requirements of the tests."""
    build_environment: Mapping[str, str]
    """Environment variables of that build."""
    files: Mapping[str, str]
    """Files that the tests look for in the folder in which they run: path to text."""
    outcomes_variable: str
    """Environment variable with the file to which the plugin writes what each test came to, as JSON."""
    over_ours_variable: str
    """Environment variable that tells the plugin to put our core in place of the release's."""
    declared: Mapping[str, str]
    """Test to the deviation or reason for which it passes over the release's core and not over ours."""


@dataclass(frozen=True)
class Mutable:
    """What random mutants of the reference release change (`mutation`)."""

    modules: tuple[str, ...]
    """Import names of the modules that may be changed, of those that a release has."""
    package: str
    """The package below which other modules may hold what comes from these."""
    forget: Callable[[], None]
    """Makes the adapter bind the release anew when it is opened next."""
    own_tests: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """How many mutants of a module the release's own tests kill, and of how many; of other mutants than these."""
    survivors: str = ""
    """Those that nothing finds, and why: the text of a file as `mutation.report` reads it."""


@dataclass(frozen=True)
class Family:
    """Releases of one engine that one adapter serves. Users write `NAME`, or `NAME==VERSION` for one release."""

    name: str
    """The name that users write, in lower case."""
    open_target: Callable[[], Target] | None = None
    """Makes a target of the release in this interpreter; None if it is only simulated. Any exception means that the
    release cannot be imported."""
    open_calculator: Callable[[], Calculator] | None = None
    """The same for a calculator; None if the family has no configuration arithmetic to test."""
    open_engine: Callable[[], Any] | None = None
    """Makes an engine to be simulated (`simulation.protocol.Engine`) in this interpreter; None if it has none."""
    pairs: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    """By name, makes two engines as a pair (`simulation.pair`), also to be simulated."""
    package: str = ""
    """Name of the distribution on the package index; `name` if empty."""
    module: str = ""
    """The module whose presence says that a release is installed; `name` if empty."""
    keeps: tuple[str, ...] = ("*.py",)
    """Patterns of the names of files that are kept of a release; without a GPU few are needed."""
    requirements: str = ""
    """Text of a requirements file, all pinned: what a release needs besides torch to be imported without a GPU."""
    torch: str = "torch==2.13.0"
    """The requirement for torch, empty for none. The releases themselves ask for GPU builds of several versions; this
    version works with all of them. pip takes a CPU build if the configured index offers one; else it downloads some
    gigabytes."""
    releases: tuple[str, ...] = ()
    """Versions that are known to work, oldest first: the last patch release of each minor version."""
    reference: str | None = None
    """The version by whose rules our core goes, too: one of `exact`; None if there is none."""
    exact: "Mapping[str, Callable[[], Known]]" = field(default_factory=dict)
    """By version that the model describes exactly, so that lockstep holds: returns its known deviations."""
    scheduler: str = ""
    """Module that runs a release's own scheduler, in its interpreter (`scheduler_cases`); empty for none."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """By version whose core one of ours can stand in for: the name of that, without what says that it is compiled."""
    own_tests: "Callable[[str], OwnTests] | None" = None
    """The tests of a release of `replaced`, by its version; None if they cannot be run."""
    mixes: str = ""
    """Module that runs random requests through the release's scheduler, in its interpreter; empty for none."""
    mutable: "Callable[[], Mutable] | None" = None
    """What random mutants of the reference release change; None if they cannot be made."""
    new_patch: Mapping[str, str] = field(default_factory=dict)
    """What somebody with a patch of a release begins with (`targets new --like`): names of files, with `{module}` in
    them, to their texts; empty if there is nothing."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables to set before a process imports the engine."""

    @property
    def distribution(self) -> str:
        """Name of the distribution on the package index."""
        return self.package or self.name

    @property
    def example(self) -> str:
        """Full name of a release, as an example in messages."""
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
        """True if this text names a release of this family, or tries to, such as `NAME`, `NAME==VERSION`, `NAME=1`."""
        release = unpatched(spec)
        return re.split(r"[^\w-]", release, maxsplit=1)[0] == self.name and ":" not in release

    def version_in(self, spec: str) -> str:
        """The version in `NAME==VERSION`. ValueError, with what to write instead, for anything else."""
        match = self._pattern.fullmatch(spec)
        if match is None:
            raise ValueError(f"{spec!r} names no release; write {self.name}==VERSION, for example {self.example}")
        return match[1]
