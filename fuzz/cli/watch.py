"""`blockproof watch`: a release that has just come out, judged against the one before, on one page."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..adapters import example
from .completion import target_names
from .engines import EngineOption
from .options import seconds_option, timed_teller, usage
from .outputs import to_file, to_folder

if TYPE_CHECKING:
    from ..targets.family import Family

SECONDS = 1_800.0


def watch(
    release: Annotated[
        str,
        typer.Argument(
            metavar="FAMILY|TARGET",
            help="An engine, for its newest release, or NAME==VERSION.",
            autocompletion=target_names,
        ),
    ] = example().partition("==")[0],
    against: Annotated[
        str | None, typer.Option(metavar="OLDER", help="Another target than the release before.")
    ] = None,
    write: Annotated[Path, to_file("Where the page is written, as Markdown.")] = Path("watch.md"),
    seconds: Annotated[float, seconds_option("For everything together")] = SECONDS,
    out: Annotated[Path, to_folder("Folder for the traces of what is found.")] = Path("watched"),
    engine: EngineOption = False,
) -> None:
    """Install the newest release of an engine, judge it and the one before, and write one page: what is new, fixed and
    changed, and what could not be judged.

    A part that fails costs only itself. Exits with 0 if nothing is new, 1 if something is, 3 if a part could not be
    judged, 130 if Ctrl-C ended it; the page is written whatever happens.
    """
    from ..findings.writing import write_file
    from ..opening.targets import check_spec
    from ..releases.watch import page, parts_of, verdict
    from ..releases.watch import watch as run
    from ..releases.watch_parts import Sides

    with usage():
        new, old = _sides(release, against)
        check_spec(new)
        check_spec(old)
    sides = Sides.of(new, old, out, seconds / 60, engine)
    words = ["blockproof", "watch", new, "--against", old, "--write", str(write), "--seconds", f"{seconds:g}"]
    command = shlex.join([*words, *(["--engine"] if engine else [])])
    watched = run(sides, parts_of(sides), timed_teller(), lambda so_far: write_file(write, page(so_far, command)))
    print(f"{new} against {old}: {verdict(watched)}; the page: {write}")
    raise typer.Exit(watched.code)


def _sides(release: str, against: str | None) -> tuple[str, str]:
    """The new target and the old one. ValueError if one of them is not to be known; exit 3 if the package index cannot
    be asked for the newest release."""
    from ..adapters import families, family_of

    family = family_of(release)
    if family is None:
        if against is None:
            raise ValueError(f"{release} is no release of an engine: add --against and what to hold it against")
        return release, against
    new = _newest(family) if release in families() else family.version_in(release)
    return family.spec(new), against or family.spec(_before(family, new))


def _newest(family: "Family") -> str:
    """The newest release that the package index has."""
    from ..releases.bisect import BisectError
    from ..releases.versions import is_final, published, version_key
    from ..targets.base import TargetUnavailableError

    try:
        found = [version for version in published(family) if is_final(version)]
    except BisectError as error:
        raise TargetUnavailableError(str(error).removeprefix("--patches: ").partition("; leave out")[0]) from None
    return max(found, key=version_key)


def _before(family: "Family", version: str) -> str:
    """The newest known release that is older. ValueError if there is none."""
    from ..releases.versions import version_key

    older = [known for known in family.releases if version_key(known) < version_key(version)]
    if not older:
        raise ValueError(f"no release before {family.spec(version)} is known: add --against")
    return max(older, key=version_key)
