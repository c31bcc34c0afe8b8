"""`blockproof deviations`: what a release is known to do differently, with the traces that show it."""

import json
import shlex
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..adapters import described, references
from ..findings.writing import write_file
from .completion import release_names
from .options import JsonOption
from .outputs import tagged, to_file, to_folder

if TYPE_CHECKING:
    from ..targets.deviations import Deviation


def deviations(
    target: Annotated[str, typer.Option(help="The release.", autocompletion=release_names)] = references()[0],
    keep: Annotated[Path | None, to_folder("Find the smallest trace of each and keep it in this folder.")] = None,
    check: Annotated[Path | None, typer.Option(help="Replay the traces that lie there.")] = None,
    also: Annotated[
        str | None,
        typer.Option(help="With --check: what this release does in the traces.", autocompletion=release_names),
    ] = None,
    write: Annotated[Path | None, to_file("Write them up as a Markdown page.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to look for each.")] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """List the known deviations of a release, find their smallest traces, or check the traces there are.

    Those of the configuration arithmetic (S-.., C-..) have no traces: `blockproof fuzz-config` counts them.

    Exits with 1 if one of them has no trace, or its trace shows something else.
    """
    from ..opening.known_deviations import known_of
    from ..opening.targets import open_target
    from ..releases.deviations import check_traces, find_traces, pages_elsewhere
    from ..releases.deviations import page as page_of

    known = known_of(target)
    if known is None:
        raise typer.BadParameter(
            f"--target: no deviations of {target!r} are declared; there are {', '.join(described())}"
        )
    declared = known.deviations
    if keep is None and check is None and also is None:
        if write is not None:
            raise typer.BadParameter("--write needs the traces: add --check DIR or --keep DIR")
        _print_list([*declared, *known.configuration_deviations], as_json)
        return

    if also is not None:
        if check is None:
            raise typer.BadParameter("--also needs the traces: add --check DIR")
        _look_elsewhere(target, also, check, write, as_json)
        return

    def say(line: str) -> None:
        if not as_json:
            print(line, flush=True)

    with closing(open_target(target)) as core:
        if keep is not None:
            shown = find_traces(declared, keep, core, seconds, say)
        else:
            shown = check_traces(declared, check or Path(), core, say)
    if write is not None:
        write_file(write, page_of(target, shown.traces, pages_elsewhere(write), str(keep or check)))
    if as_json:
        print(tagged("deviations", {"shown": sorted(shown.traces), "problems": shown.problems}))
    else:
        print("\n".join([*shown.problems, f"{len(shown.traces)} traces show the {len(declared)} deviations"]))
    raise typer.Exit(1 if shown.problems else 0)


def _print_list(declared: "list[Deviation]", as_json: bool) -> None:
    if as_json:
        print(json.dumps([{"id": d.id, "condition": d.condition, "reason": d.reason} for d in declared], indent=2))
        return
    for deviation in declared:
        print(f"{deviation.id}\n  when: {deviation.condition}\n  what: {deviation.reason}")


def _look_elsewhere(target: str, also: str, folder: Path, page: Path | None, as_json: bool) -> None:
    """What another release does in the traces of the reference's deviations."""
    from ..opening.known_deviations import declared_for
    from ..opening.targets import open_target
    from ..releases.deviations import look_elsewhere, page_elsewhere

    with closing(open_target(target)) as reference, closing(open_target(also)) as other:
        found = look_elsewhere(declared_for(target), folder, reference, other)
    if page is not None:
        words = ["blockproof", "deviations", "--target", target, "--check", str(folder), "--also", also]
        command = shlex.join([*words, "--write", str(page)])
        write_file(page, page_elsewhere(found, target, also, command))
    if as_json:
        print(json.dumps([{"id": one.id, "verdict": one.verdict, "text": one.text()} for one in found], indent=2))
    else:
        print("\n".join(f"{one.id:34} {one.text()}" for one in found))
