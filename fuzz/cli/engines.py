"""What commands do where the targets that they are given are engines (`--engine`)."""

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from .options import document_alone, seed_or_drawn, timed_teller, usage
from .outputs import folder_or_usage, written

if TYPE_CHECKING:
    from ..releases.commit_target import Wanted
    from ..releases.verify_engines import ComparedEngines

EngineOption = Annotated[bool, typer.Option("--engine", help="The targets are engines to be simulated (`simulate`).")]


@dataclass(frozen=True)
class EnginesAsked:
    """What two engines are compared in."""

    targets: list[str]
    seed: int | None
    seconds: float | None
    steps: int | None
    attention: str
    out: Path
    as_json: bool
    commits: "tuple[Path, str, Callable[[], Wanted]] | None" = None
    """Repository, BASE..HEAD, and the target of each commit; None for two targets by their names."""

    def compare(self) -> "ComparedEngines":
        """Compare them, and keep the smallest story of each difference. Exits, in one line, if that is not possible."""
        from ..releases.bisect import BisectError
        from ..releases.engine_sides import commit_engines, named_engines
        from ..releases.verify_engines import EnginePlan, compare_engines

        kinds = tuple(kind for kind in self.attention.split(",") if kind and self.attention != "all")
        plan = EnginePlan(seed_or_drawn(self.seed), self.seconds, self.steps, kinds)
        out = folder_or_usage(self.out)
        try:
            with usage("--target"), document_alone(self.as_json), ExitStack() as stack:
                if self.commits is not None:
                    repository, span, wanted = self.commits
                    sides = commit_engines(repository, span, wanted())
                else:
                    sides = named_engines(*_two(self.targets))
                old, new = stack.enter_context(sides)
                done = compare_engines(old, new, plan, timed_teller())
        except BisectError as error:
            print(f"blockproof: {error}", file=sys.stderr)
            raise typer.Exit(error.code) from None
        done.write(out)
        return done


def _two(targets: list[str]) -> list[str]:
    if len(targets) != 2:
        raise ValueError(f"name two engines to compare, not {len(targets)}")
    return targets


def are_engines(targets: Sequence[str], said: bool) -> bool:
    """True if the targets are to be simulated. BadParameter for a name of no known form."""
    from ..opening.engines import is_engine

    with usage("--target"):
        return any(is_engine(one, said) for one in targets)


def not_with_engine(**options: Any) -> None:
    """BadParameter for an option that was given, and means nothing for an engine."""
    for name, value in options.items():
        if value:
            what = "an engine is judged by what its clients get and its device reads; leave it out"
            raise typer.BadParameter(f"--{name.replace('_', '-')} does not go with --engine: {what}")


def verify_engines(asked: EnginesAsked, write: Path | None) -> NoReturn:
    """Tell what a change to an engine changes, and exit."""
    from ..findings.writing import write_file
    from ..releases import verify_engines_report as report

    done = asked.compare()

    def tell() -> None:
        print(report.document(done).text() if asked.as_json else "\n".join(report.lines(done)))

    def page() -> None:
        if write is not None:
            write_file(write, report.comment(done))

    raise typer.Exit(written(done.code, (tell, page)))


def diff_engines(asked: EnginesAsked) -> NoReturn:
    """Tell how two engines differ, and exit."""
    from ..releases import verify_engines_report as report
    from ..reports.formats import show

    done = asked.compare()
    document = report.difference_document(done)
    if asked.as_json:
        print(document.text())
    else:
        show(document)
        for one in document.situations:
            print(f"\n{one.text}")
    raise typer.Exit(done.code)
