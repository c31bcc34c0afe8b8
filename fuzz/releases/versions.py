"""Versions of an engine: their order, ranges as a user writes them, and what the package index has."""

import re
import sys
from collections.abc import Iterable, Sequence

from ..adapters import example, families, family_of, forms
from ..opening.commands import run
from ..opening.environments import release_in
from ..targets.family import Family
from .bisect import BisectError, one_line

_VERSION = re.compile(r"(\d+(?:\.\d+)*)(?:(\.dev|a|b|rc|\.post)(\d+))?")
_PHASES = {".dev": -4, "a": -3, "b": -2, "rc": -1, None: 0, ".post": 1}
_INDEX_S = 120.0
"""How long the package index may take to list the versions."""


def version_key(version: str) -> tuple[tuple[int, ...], int, int]:
    """Sorts versions by age: 0.9 before 0.10, a release after its candidates; 0.20 and 0.20.0 are the same.

    ValueError for what is no version.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        raise ValueError(f"{version!r} is no version")
    numbers = [int(part) for part in match[1].split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers), _PHASES[match[2]], int(match[3] or 0)


def is_final(version: str) -> bool:
    """False for a candidate and the like. ValueError for what is no version."""
    return version_key(version)[1] >= 0


def releases_between(text: str) -> list[str]:
    """The targets in `NAME` (all releases that are known to work) or `NAME==FIRST..LAST`, oldest first.

    Both ends are taken, even if they are not among the known ones. ValueError, with what to write instead.
    """
    name, _, span = text.partition("==")
    family = family_of(name)
    if family is None or (span and ".." not in span):
        raise ValueError(f"{text!r} names no releases; write NAME or NAME==FIRST..LAST with one of {forms()}")
    if not span:
        return [family.spec(version) for version in family.releases]
    first, _, last = span.partition("..")
    for version in (first, last):
        family.version_in(family.spec(version))
    if version_key(first) > version_key(last):
        raise ValueError(f"{first} is newer than {last}; write the older release first")
    return [family.spec(version) for version in candidates(family, first, last)]


def named_targets(targets: Sequence[str], releases: str | None) -> list[str]:
    """These targets and those that `releases` stands for (`releases_between`), each once. ValueError as from there."""
    return list(dict.fromkeys([*targets, *(releases_between(releases) if releases else ())]))


def releases_to_install(names: Sequence[str], every: bool) -> list[str]:
    """The releases with these names, each once; with `every` a name may be that of an engine, for all known releases
    of it, and no name at all stands for every engine. ValueError, with what to write instead, if there are none.
    """
    known = families()
    specs = list(names)
    if every:
        whole = [name for name in names or known if name in known]
        specs = [name for name in names if name not in known]
        specs += [known[name].spec(version) for name in whole for version in known[name].releases]
    for spec in specs:
        release_in(spec)
    if not specs:
        raise ValueError(f"no release is named; write NAME==VERSION, for example {example()}, or --all ({forms()})")
    return list(dict.fromkeys(specs))


def range_in(text: str, family_name: str | None, trace_target: str) -> tuple[Family, str, str]:
    """Family, first and last version in `A..B` or `NAME==A..B`.

    The family is the one written there, else `family_name`, else that of the trace's target. BisectError (2) for
    anything else.
    """
    name, named, versions = text.rpartition("==")
    family = _family(name if named else family_name, trace_target)
    first, _, last = versions.partition("..")
    try:
        family.version_in(family.spec(first))
        family.version_in(family.spec(last))
    except ValueError:
        example = f"{family.releases[0]}..{family.releases[-1]}"
        raise BisectError(f"--releases: {text!r} is no range; write A..B, as in {example}", 2) from None
    if version_key(first) >= version_key(last):
        raise BisectError(f"--releases: {first} is not older than {last}; write the older one first", 2)
    return family, first, last


def _family(name: str | None, trace_target: str) -> Family:
    known = ", ".join(families())
    if name is not None:
        if name not in families():
            raise BisectError(f"there is no family {name!r} of releases; write one of {known}", 2)
        return families()[name]
    family = family_of(trace_target)
    if family is None:
        raise BisectError(f"the trace was made with {trace_target!r}, no release; add --family and one of {known}", 2)
    return family


def candidates(family: Family, first: str, last: str, more: Iterable[str] = ()) -> tuple[str, ...]:
    """The versions to try, oldest first: both ends, what the family knows between them, and of `more` the same."""
    low, high = version_key(first), version_key(last)
    between = {version_key(version): version for version in (*more, *family.releases)}
    inner = {key: version for key, version in between.items() if low < key < high}
    return tuple(version for _, version in sorted({**inner, low: first, high: last}.items()))


def published(family: Family) -> tuple[str, ...]:
    """Every final version of the family that pip finds on its package index. BisectError (3) if it cannot ask."""
    command = [sys.executable, "-P", "-m", "pip", "index", "versions", family.distribution]
    command += ["--disable-pip-version-check", "--no-input", "--retries", "1"]
    advice = "leave out --patches to try the known releases only"
    try:
        done = run(command, seconds=_INDEX_S)
    except OSError as error:
        raise BisectError(f"--patches: pip cannot be asked ({one_line(str(error))}); {advice}", 3) from None
    if done.status is None:
        raise BisectError(f"--patches: pip cannot be asked (no end within {_INDEX_S:g} s); {advice}", 3)
    listed = re.search(r"^Available versions: (.*)$", done.output, re.MULTILINE)
    if done.status or listed is None:
        said = [line for line in done.errors.splitlines() if line.startswith("ERROR")] or done.errors.splitlines()
        why = one_line(said[0]) if said else "it listed none"
        raise BisectError(f"--patches: pip cannot list the versions of {family.distribution} ({why}); {advice}", 3)
    return tuple(version for version in listed[1].split(", ") if _VERSION.fullmatch(version))
