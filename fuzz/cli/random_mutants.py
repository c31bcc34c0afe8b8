"""`blockproof mutants --of`: random mutants of a core's own modules."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from .options import usage
from .outputs import tagged

if TYPE_CHECKING:
    from ..mutation.hunting import Hunted
    from ..mutation.report import MutantsDone


MOST_KEPT = 1 << 28
"""Bytes of a file that mutants are kept in."""


def random_mutants(of: str, drawn: tuple[int, int, int, int], jobs: int, keep: Path | None, as_json: bool) -> None:
    """Draw, hunt and report; ends the program with its exit code. `drawn`: how many, of which seed, and for each how
    many operations and configurations."""
    from ..findings.words import plural
    from ..mutation.hunting import hunt_all
    from ..mutation.places import draw_mutants
    from ..mutation.report import HuntAsked, MutantsDone, kept_text
    from ..mutation.subject import subject_of
    from ..reports.progress import steps
    from ..targets.base import TargetLostError

    asked = HuntAsked(of, *drawn)
    with usage("--of"):
        subject = subject_of(asked.of)
    try:
        mutants = draw_mutants(subject.sources(), asked.random, asked.seed)
    except ImportError:
        raise typer.BadParameter("--of needs the extra mutation: pip install '/path/to/blockproof[mutation]'") from None
    told = MutantsDone(asked, subject, mutants)
    _go_on(told, keep)
    interrupted = ""
    left = [mutant for mutant in mutants if mutant.place not in {one.mutant.place for one in told.hunted}]
    with steps(len(mutants), "mutant") as show:
        show(len(told.hunted), "")
        try:
            for one in hunt_all(subject, left, asked.seed, asked.budget, jobs):
                told.hunted.append(one)
                show(len(told.hunted), one.mutant.function)
                if not as_json:
                    print(_line(one), flush=True)
                _write(keep, kept_text(told))
        except KeyboardInterrupt:
            interrupted = f"interrupted: {plural(len(mutants) - len(told.hunted), 'mutant')} not tried"
        except TargetLostError as lost:
            print(f"blockproof: {asked.of}: {' '.join(str(lost).split())}", file=sys.stderr)
            raise typer.Exit(3) from None
    document: dict[str, Any] = told.as_json()
    print(tagged("mutants", document) if as_json else "\n".join(told.lines()))
    if interrupted:
        print(interrupted, file=sys.stderr)
    raise typer.Exit(told.exit_code or (130 if interrupted else 0))


def _go_on(told: "MutantsDone", keep: Path | None) -> None:
    """Take over what the file has already. BadParameter if it is of another run."""
    from ..findings.reading import read_bytes
    from ..mutation.report import from_kept

    if keep is None or not keep.exists():
        return
    with usage(f"--keep: {keep}"):
        text = read_bytes(keep, "kept mutants", MOST_KEPT).decode()
        told.hunted += from_kept(text, told.asked, told.mutants)


def _write(keep: Path | None, text: str) -> None:
    from ..findings.writing import write_file

    if keep is not None:
        write_file(keep, text)


def _line(one: "Hunted") -> str:
    from ..mutation.report import place

    what = {"survived": "survived", "import": "killed when imported"}.get(one.status, f"killed by {one.by}")
    cost = f"{one.operations:7,} operations  {one.cases:4,} configurations  {one.seconds:6.2f} s"
    return f"{what:40} {cost}  {place(one.mutant)}"
