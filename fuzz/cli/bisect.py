"""`blockproof bisect`: since which release, or which commit, a trace fails."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import (
    AdapterOption,
    JsonOption,
    OracleOption,
    PathOption,
    TraceArgument,
    commit_target_or_usage,
    is_auto,
    jobs_option,
    oracles_or_usage,
    timed_teller,
)
from .outputs import tagged

if TYPE_CHECKING:
    from ..opening.patches import Patch


def bisect(
    trace: TraceArgument,
    releases: Annotated[
        str | None, typer.Option(metavar="A..B", help="Versions of an engine, A the older one; also NAME==A..B.")
    ] = None,
    family: Annotated[str | None, typer.Option(help="NAME of the engine; that of the trace by default.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Try every release between, not only what it takes.")] = False,
    patches: Annotated[bool, typer.Option("--patches", help="All versions that the package index has.")] = False,
    install: Annotated[bool, typer.Option("--install/--no-install", help="Install what is missing.")] = True,
    jobs: Annotated[int, jobs_option("Releases tried at a time", 64)] = 2,
    git: Annotated[
        str | None,
        typer.Option("--git", metavar="GOOD..BAD", help="Commits of a repository instead of releases, in any order."),
    ] = None,
    repo: Annotated[Path, typer.Option(help="With --git: the repository; nothing in it is touched.")] = Path(),
    target: Annotated[
        str | None, typer.Option(metavar="FACTORY", help="With --git: package.module:factory or path/file.py:factory.")
    ] = None,
    adapter: AdapterOption = None,
    path: PathOption = None,
    any_finding: Annotated[bool, typer.Option("--any", help="Any finding counts, not only the trace's own.")] = False,
    oracle: OracleOption = None,
    as_json: JsonOption = False,
    over: "Patch | None" = None,
) -> None:
    """Tell the first release, or the first commit, in which a trace fails, or in which it no longer does.

    Where it ends in a finding of another kind, or the target cannot be started or built, or only a part of the trace
    can be applied, nothing is concluded. Exits with 0 if it was told (with --all: if something could be observed), 1 if
    both ends do the same, 3 if no two could be observed.
    """
    from ..opening.oracles import suited_to
    from ..releases.bisect import BisectError, question_about
    from ..releases.bisect_git import Located, bisect_commits
    from ..releases.bisect_releases import BisectedReleases, Range, bisect_releases
    from ..traces.trace_file import read_trace

    file = read_trace(trace)
    if (releases is None) == (git is None):
        raise typer.BadParameter("write either --releases A..B or --git GOOD..BAD")
    if file.finding is None and not any_finding:
        raise typer.BadParameter(f"{trace} does not say what it shows; add --any, and any finding counts")
    judges = None if is_auto(oracle) else oracles_or_usage(oracle, file.target)
    found: BisectedReleases | Located
    try:
        if releases is not None:
            wanted = Range(releases, family, every, patches, install, jobs, over)
            found = bisect_releases(file, wanted, any_finding, judges, timed_teller())
        else:
            wanted_target = commit_target_or_usage(target, path, adapter)
            question = question_about(file, any_finding, judges, suited_to(wanted_target.target))
            found = bisect_commits(repo, git or "", wanted_target, question, timed_teller())
    except BisectError as error:
        print(f"blockproof: {error}", file=sys.stderr)
        raise typer.Exit(error.code) from None
    except KeyboardInterrupt:
        print("blockproof: interrupted", file=sys.stderr)
        raise typer.Exit(130) from None
    print(tagged("bisection", found.as_json()) if as_json else "\n".join(found.lines()))
    raise typer.Exit(found.code)
