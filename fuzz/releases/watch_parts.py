"""What a watch of a release is made of: the sides, the commands that are run, and what one of them has come to."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..adapters import family_of
from ..opening.engines import is_engine

ROOT = (__package__ or "").split(".")[0]


@dataclass(frozen=True)
class Sides:
    """What is judged, against what, and where traces are kept."""

    new: str
    old: str
    out: Path
    minutes: float
    seen: dict[str, dict[str, str]] = field(default_factory=dict)
    """What one part has seen of the old release and tells the next, by what it is about."""
    reference: str = ""
    """The release whose deviations are known; empty if there is none, or if this is no release of a family."""
    engine: bool = False
    """Both are engines, which are simulated and nothing else."""

    @classmethod
    def of(cls, new: str, old: str, out: Path, minutes: float, engine: bool = False) -> "Sides":
        """With the reference of the family. ValueError for a name of no known form."""
        family = family_of(new)
        reference = family.spec(family.reference) if family is not None and family.reference else ""
        return cls(new, old, out, minutes, reference=reference, engine=is_engine(new, engine))


@dataclass(frozen=True)
class Unexplained:
    """A finding on the new release of no known flaw, or of one that did not come up on the old release."""

    text: str
    trace: str
    kind: tuple[str, str]
    """Observable and operation, as of `Finding.kind`."""


@dataclass
class PartNews:
    """What a part has come to; each list a line a thing."""

    figures: str = ""
    new: list[str] = field(default_factory=list)
    """What the new release does wrong and the old one did not, or what no known flaw explains."""
    fixed: list[str] = field(default_factory=list)
    still: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    """What could not be judged."""
    begin: list[str] = field(default_factory=list)
    """With what somebody begins who brings the model to the new release."""
    unexplained: list[Unexplained] = field(default_factory=list)
    """It is new unless the old release shows the same in its trace."""


@dataclass(frozen=True)
class WatchPart:
    """One command."""

    name: str
    words: tuple[str, ...]
    """Its words behind `blockproof`."""
    read: Callable[[Any, Sides], PartNews]
    """Makes of its JSON what it has come to. Any error means that it has not come to its end."""
    codes: tuple[int, ...] = (0, 1)
    """Exit codes with which it has come to its end."""
    module: str = "fuzz.cli"
    """What runs it."""
    plain: bool = False
    """True if it prints text instead of JSON."""

    @property
    def command(self) -> str:
        """As a person would write it."""
        program = "blockproof" if self.module == "fuzz.cli" else f"python -m {ROOT}.{self.module}"
        return " ".join([program, *self.words])
