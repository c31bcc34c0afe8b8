"""`blockproof bisect`: since which release, or which commit, a trace fails."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..traces.files import STORY, other_form
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
    from ..releases.bisect import BisectQuestion
    from ..releases.bisect_story import StoryQuestion


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
    """Tell the first release, or commit, in which a trace or a story of an engine fails, or in which it no longer does.

    Where it ends in a finding of another kind, or the target cannot be started or built, or only a part of the trace
    can be applied, nothing is concluded. Exits with 0 if it was told (with --all: if something could be observed), 1 if
    both ends do the same, 3 if no two could be observed.
    """
    from ..findings.oracle_names import MODEL_FREE
    from ..opening.oracles import suited_to
    from ..releases.bisect import BisectError
    from ..releases.bisect_git import Located, bisect_commits
    from ..releases.bisect_releases import BisectedReleases, Range, bisect_releases

    recorded, question = _asked(trace, any_finding, oracle)
    if (releases is None) == (git is None):
        raise typer.BadParameter("write either --releases A..B or --git GOOD..BAD")
    found: BisectedReleases | Located
    try:
        if releases is not None:
            wanted = Range(releases, family, every, patches, install, jobs, over)
            # All are judged alike, the release that the model describes, too: else it would seem to differ from others.
            found = bisect_releases(recorded, question(MODEL_FREE), wanted, timed_teller())
        else:
            wanted_target = commit_target_or_usage(target, path, adapter)
            judges = suited_to(wanted_target.target)
            found = bisect_commits(repo, git or "", wanted_target, question(judges), timed_teller())
    except BisectError as error:
        print(f"blockproof: {error}", file=sys.stderr)
        raise typer.Exit(error.code) from None
    except KeyboardInterrupt:
        print("blockproof: interrupted", file=sys.stderr)
        raise typer.Exit(130) from None
    print(tagged("bisection", found.as_json()) if as_json else "\n".join(found.lines()))
    raise typer.Exit(found.code)


def _asked(
    path: Path, any_finding: bool, oracle: list[str] | None
) -> "tuple[str, Callable[[tuple[str, ...]], BisectQuestion | StoryQuestion]]":
    """The target that a file names, and what is asked of it, by the oracles that judge where the file says nothing.
    BadParameter if that cannot be asked."""
    from ..engines.story_fuzzing import read_story
    from ..releases.bisect import question_about
    from ..releases.bisect_story import question_of_story
    from ..traces.trace_file import read_trace

    if other_form(path) == STORY:
        if not is_auto(oracle):
            raise typer.BadParameter(f"--oracle: {path} is a story, which is judged by what its clients get")
        stored = read_story(path)
        return stored.target, lambda default: question_of_story(stored, any_finding)
    file = read_trace(path)
    if file.finding is None and not any_finding:
        raise typer.BadParameter(f"{path} does not say what it shows; add --any, and any finding counts")
    judges = None if is_auto(oracle) else oracles_or_usage(oracle, file.target)
    return file.target, lambda default: question_about(file, any_finding, judges, default)
