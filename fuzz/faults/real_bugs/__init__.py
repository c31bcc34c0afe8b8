"""The catalogue of real bugs: what went wrong in paged KV-cache managers, and the fault that plants the same mistake.

One TOML file for each subject lies in this folder. An entry is a table that is named after it:

    [V01]
    link = "https://github.com/..."     # the thread it was found in
    also = ["https://github.com/..."]   # others, where there are
    title = "..."
    wrong = "..."                       # the rule as it was
    right = "..."                       # the rule as it must be
    faults = ["name-of-a-fault"]        # or, instead of faults: not_planted = "why our core cannot have it"

Several faults stand for several mistakes that one thread is about.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RealBug:
    """One entry of the catalogue."""

    link: str
    title: str
    wrong: str
    right: str
    also: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    not_planted: str = ""
    """Why there is no fault; empty if there is one."""

    def __post_init__(self) -> None:
        if bool(self.faults) == bool(self.not_planted):
            raise ValueError(f"{self.link}: an entry has faults, or says why it has none")


@cache
def real_bugs() -> Mapping[str, RealBug]:
    """All entries by their ids, in the order of the ids. ValueError for a file that does not say what it must."""
    found: dict[str, RealBug] = {}
    for file in files(__name__).iterdir():
        if file.name.endswith(".toml"):
            entries = {bug_id: bug_of(one) for bug_id, one in tomllib.loads(file.read_text(encoding="utf-8")).items()}
            if twice := found.keys() & entries.keys():
                raise ValueError(f"{file.name}: {', '.join(sorted(twice))} is in another file, too")
            found.update(entries)
    return dict(sorted(found.items(), key=_in_order))


def bug_of(entry: Mapping[str, Any]) -> RealBug:
    """An entry as a record. Only the standard library is used: children of other environments read this, too."""
    fields: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in entry.items()}
    try:
        return RealBug(**fields)
    except TypeError as error:
        raise ValueError(f"an entry of the catalogue is wrong: {error}") from None


def planted_bugs() -> Iterator[tuple[str, RealBug, str]]:
    """The id, the entry and the name of the fault, for each fault of the catalogue."""
    for bug_id, bug in real_bugs().items():
        for name in bug.faults:
            yield bug_id, bug, name


def _in_order(entry: tuple[str, RealBug]) -> tuple[bool, str, int]:
    """V before the other letters, then by letter and number."""
    letter = entry[0][0]
    return letter != "V", letter, int("".join(filter(str.isdigit, entry[0])))
