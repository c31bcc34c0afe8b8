"""`blockproof verify`: what a change to a core changes, before it ships."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .completion import target_names
from .engines import EngineOption, EnginesAsked, are_engines, not_with_engine, verify_engines
from .options import (
    AdapterOption,
    AttentionOption,
    JsonOption,
    OracleOption,
    PathOption,
    SeedOption,
    attention_names,
    commit_target_or_usage,
    document_alone,
    is_auto,
    oracles_or_usage,
    seconds_option,
    seed_or_drawn,
    timed_teller,
    usage,
)
from .outputs import folder_or_usage, to_file, to_folder, written

if TYPE_CHECKING:
    from ..releases.commit_target import Wanted
    from ..releases.verify_sides import VerifiedSide

SECONDS = 60.0
_SIDES = "With --git: the target of each commit. Else two, the old one first."
SidesOption = Annotated[list[str], typer.Option(help=_SIDES, autocompletion=target_names)]
ProofsOption = Annotated[bool, typer.Option("--proofs/--no-proofs", help="Settle theorems that the change touches.")]
WriteIntendedOption = Annotated[
    Path | None, to_file("Add an entry to this file for each change found.", "--write-intended")
]


def verify(
    target: SidesOption,
    git: Annotated[str | None, typer.Option("--git", metavar="BASE..HEAD", help="Two commits of a repository.")] = None,
    repo: Annotated[Path, typer.Option(help="With --git: the repository; nothing in it is touched.")] = Path(),
    adapter: AdapterOption = None,
    path: PathOption = None,
    seconds: Annotated[float | None, seconds_option("What all of it takes, 60 s if no limit is given")] = None,
    operations: Annotated[int | None, typer.Option(min=1, help="Stop after about so many; engines: steps.")] = None,
    seed: SeedOption = None,
    oracle: OracleOption = None,
    attention: AttentionOption = "all",
    intended: Annotated[Path | None, typer.Option(help="TOML file of changes that are intended.")] = None,
    write_intended: WriteIntendedOption = None,
    write: Annotated[Path | None, to_file("Write the page as Markdown, for a pull request.")] = None,
    out: Annotated[Path, to_folder("Folder for the smallest trace of each change.")] = Path("differences"),
    proofs: ProofsOption = True,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every trace, and what was reached.")] = False,
    as_json: JsonOption = False,
    engine: EngineOption = False,
) -> None:
    """Compare a core before and after a change on the same operations, let the oracles judge both, time them, and
    settle the theorems that the change touches.

    Exits with 0 if they behave alike or differ only as intended, 1 for a difference that is not intended, 3 if a side
    cannot be started or nothing was tested, or not all of it.
    """
    from ..engines.plan import Plan
    from ..findings.writing import write_file
    from ..releases import verify_report as report
    from ..releases.bisect import BisectError
    from ..releases.verify import verify as verify_change
    from ..releases.verify_clock import Clock
    from ..releases.verify_proofs import reprove
    from ..traces.known_file import read_known

    limit = SECONDS if seconds is None and operations is None else seconds
    if are_engines(target, engine):
        not_with_engine(oracle=not is_auto(oracle), intended=intended, write_intended=write_intended)
        commits = None if git is None else (repo, git, lambda: commit_target_or_usage(_only(target), path, adapter))
        verify_engines(EnginesAsked(target, seed, limit, operations, attention, out, as_json, commits), write)
    clock, known = Clock(), read_known(intended) if intended is not None else ()
    plan = Plan(seed_or_drawn(seed), limit, operations, attention_names(attention), known=known)
    named, say, out = git is None, timed_teller(), folder_or_usage(out)
    try:
        sides = _sides(target, git, repo, oracle, lambda: commit_target_or_usage(target[0], path, adapter))
        with document_alone(as_json), ExitStack() as stack:
            with usage("--oracle"):
                old, new = stack.enter_context(sides)
            prove = (lambda left: reprove(old.spec, new.spec, seconds=left)) if named and proofs else None
            done = verify_change(old, new, plan, say, prove, clock)
    except BisectError as error:
        print(f"blockproof: {error}", file=sys.stderr)
        raise typer.Exit(error.code) from None
    done.proofs = done.proofs if named else "there are no theorems about this engine"
    report.keep(done, out)

    def tell() -> None:
        print(report.document(done).text() if as_json else "\n".join(report.lines(done, verbose)))

    def page() -> None:
        if write is not None:
            write_file(write, report.comment(done))

    def entries() -> None:
        if write_intended is not None:
            ids = report.write_intended(done, write_intended)
            say(f"added to {write_intended}: {', '.join(ids) or 'nothing'}; write a reason for each")

    raise typer.Exit(written(done.code, (tell, page, entries)))


def _only(target: list[str]) -> str:
    """The one target. BadParameter if there are more."""
    if len(target) != 1:
        raise typer.BadParameter(f"--target: with --git name one target, not {len(target)}")
    return target[0]


def _sides(
    target: list[str], git: str | None, repo: Path, oracle: list[str] | None, wanted: "Callable[[], Wanted]"
) -> "AbstractContextManager[tuple[VerifiedSide, VerifiedSide]]":
    """Both sides, not opened yet. BadParameter, in one line, for a wrong number of targets or a wrong name."""
    from ..opening.targets import check_spec
    from ..releases.verify_sides import commit_sides, named_sides

    if git is not None:
        _only(target)
        return commit_sides(repo, git, wanted(), oracle)
    if len(target) != 2:
        raise typer.BadParameter(f"--target: name two targets to compare, or one with --git, not {len(target)}")
    with usage("--target"):
        for spec in target:
            check_spec(spec)
    if not is_auto(oracle):
        oracles_or_usage(oracle, "impl")  # said before anything is started
    return named_sides(target[0], target[1], oracle)
