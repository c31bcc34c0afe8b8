"""`blockproof bisect`: since when does a trace fail?"""

import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .fuzz import JsonOption, OracleOption, oracles_or_usage
from .traces import TraceArgument

if TYPE_CHECKING:
    from ..releases.bisect import Answer, Change, Question
    from ..releases.bisect_git import Commit, Located
    from ..traces.trace_file import TraceFile

_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def bisect(
    trace: TraceArgument,
    releases: Annotated[
        str | None, typer.Option(metavar="A..B", help="Versions of an engine, A the older one; also NAME==A..B.")
    ] = None,
    family: Annotated[str | None, typer.Option(help="NAME of the engine; that of the trace by default.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Try every release between, not only what it takes.")] = False,
    patches: Annotated[bool, typer.Option("--patches", help="All versions that the package index has.")] = False,
    install: Annotated[bool, typer.Option("--install/--no-install", help="Install what is missing.")] = True,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Releases tried at a time.")] = 2,
    git: Annotated[
        str | None, typer.Option("--git", metavar="GOOD..BAD", help="Commits of a repository instead of releases.")
    ] = None,
    repo: Annotated[Path, typer.Option(help="With --git: the repository; nothing in it is touched.")] = Path(),
    target: Annotated[
        str | None, typer.Option(metavar="MODULE:FACTORY", help="With --git: the target, as each commit has it.")
    ] = None,
    path: Annotated[str, typer.Option(help="With --git: the folder in it where modules are, such as src.")] = ".",
    any_finding: Annotated[bool, typer.Option("--any", help="Any finding counts, not only the trace's own.")] = False,
    oracle: OracleOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Tell the first release, or the first commit, in which a trace fails; for releases also the first in which it no
    longer does.

    Where it ends in a finding of another kind, or the target cannot be started or built, nothing is concluded. Exits
    with 0 if it was told (with --all: if something could be observed), 1 if both ends do the same, 3 if no two could be
    observed.
    """
    from ..releases.bisect import BisectError
    from ..traces.trace_file import read_trace

    file = read_trace(trace)
    if (releases is None) == (git is None):
        raise typer.BadParameter("write either --releases A..B or --git GOOD..BAD")
    if file.finding is None and not any_finding:
        raise typer.BadParameter(f"{trace} does not say what it shows; add --any, and any finding counts")
    try:
        if releases is not None:
            code = _bisect_releases(file, releases, family, oracle, any_finding, every, patches, install, jobs, as_json)
        else:
            assert git is not None
            code = _bisect_git(file, git, repo, _factory(target, path), path, oracle, any_finding, as_json)
    except BisectError as error:
        print(f"blockproof: {error}", file=sys.stderr)
        code = error.code
    except KeyboardInterrupt:
        print("blockproof: interrupted", file=sys.stderr)
        code = 130
    raise typer.Exit(code)


def _question(file: "TraceFile", any_finding: bool, oracle: str, spec: str, default: tuple[str, ...]) -> "Question":
    """`default` judges where the finding in question does not say who does, as long as the user does not."""
    from ..releases.bisect import Question, judges_of

    kind = None if any_finding or file.finding is None else (file.finding.observable, file.finding.operation)
    if oracle != "auto":
        judges = oracles_or_usage(oracle, spec)
    else:
        judges = judges_of(kind[0], default) if kind else default
    return Question(file.trace, kind, judges)


class _Say:
    """Prints a step to stderr, with the time it is at."""

    def __init__(self) -> None:
        self._begin = time.monotonic()

    def __call__(self, step: str) -> None:
        print(f"[{time.monotonic() - self._begin:5.1f} s] {step}", file=sys.stderr, flush=True)


def _bisect_releases(
    file: "TraceFile",
    span: str,
    family_name: str | None,
    oracle: str,
    any_finding: bool,
    every: bool,
    patches: bool,
    installs: bool,
    jobs: int,
    as_json: bool,
) -> int:
    from ..findings.oracle_names import MODEL_FREE
    from ..releases.bisect import changes, search
    from ..releases.bisect_releases import Releases
    from ..releases.versions import candidates, published, range_in

    family, first, last = range_in(span, family_name, file.target)
    versions = candidates(family, first, last, published(family) if patches else ())
    specs = [family.spec(version) for version in versions]
    # All are judged alike, the release that the model describes included: else it would seem to differ from the others.
    question = _question(file, any_finding, oracle, specs[0], MODEL_FREE)
    line = Releases(specs, question, _Say(), jobs=jobs, installs=installs)
    interrupted = False
    try:
        if every:
            line.look(range(len(specs)))
        else:
            search(len(specs), line.look, jobs)
    except KeyboardInterrupt:
        interrupted = True
    known = {place: answer.state.fails for place, answer in line.answers.items()}
    found = list(changes(known))
    text = "interrupted" if interrupted else verdict(specs, known, found, every)
    tried = {specs[place]: line.answers[place] for place in sorted(line.answers)}
    if as_json:
        print(json.dumps(_releases_json(question, tried, specs, found, text), indent=2))
    else:
        _print_table("release", list(tried.items()), len(file.trace.operations))
        print(text)
    if interrupted:
        return 130
    observed = sum(fails is not None for fails in known.values())
    if observed < (1 if every else 2):
        return 3
    return 0 if found or every else 1


def verdict(specs: Sequence[str], known: "dict[int, bool | None]", found: "Sequence[Change]", every: bool) -> str:
    """What the answers come to, in a sentence for each change."""
    seen = {fails for fails in known.values() if fails is not None}
    if not seen or (not every and sum(fails is not None for fails in known.values()) < 2):
        return "fewer than two releases could be observed, so nothing is told"
    if not found:
        what = "it fails" if True in seen else "it does not fail"
        if every:
            return f"{what} in any release that could be observed"
        return f"{what} at either end, so there is no first release to tell; --all tries every release between"
    lines = [_change_text(specs, change) for change in found]
    if len(found) > 1:
        lines.insert(0, f"it changes {len(found)} times:")
    return "\n".join(lines)


def _change_text(specs: Sequence[str], change: "Change") -> str:
    before, after = specs[change.before], specs[change.after]
    if change.begins:
        text = f"first fails in {after} (the last that does not: {before})"
    else:
        text = f"first release in which it no longer fails: {after} (the last that does: {before})"
    if change.blind:
        text += f"; or in one between, where it could not be seen: {', '.join(specs[place] for place in change.blind)}"
    if change.untried:
        text += f"; not tried between them: {', '.join(specs[place] for place in change.untried)} (--all tries them)"
    return text


def _releases_json(
    question: "Question", tried: "dict[str, Answer]", specs: Sequence[str], found: "Sequence[Change]", text: str
) -> dict[str, Any]:
    return {
        "kind": question.kind,
        "oracles": question.oracles,
        "releases": [{"release": name, **_answer_json(answer)} for name, answer in tried.items()],
        "changes": [
            {
                "begins": change.begins,
                "before": specs[change.before],
                "after": specs[change.after],
                "not_observed": [specs[place] for place in change.blind],
                "not_tried": [specs[place] for place in change.untried],
            }
            for change in found
        ],
        "text": text,
    }


def _answer_json(answer: "Answer") -> dict[str, Any]:
    state, seconds = answer.state.value, round(answer.seconds, 2)
    return {"state": state, "why": answer.why, "operations": answer.operations, "seconds": seconds}


def _print_table(head: str, rows: "Sequence[tuple[str, Answer]]", operations: int) -> None:
    """One line for each, `operations` being the length of the trace."""
    cells = [(head, "trace", "operations", "seconds", "")]
    for name, answer in rows:
        count = f"{answer.operations} of {operations}"
        cells.append((name, answer.state.value, count, f"{answer.seconds:.1f}", answer.why))
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    for row in cells:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)), row[4]]).rstrip())


def _factory(target: str | None, path: str) -> str:
    if target is None or not _FACTORY.fullmatch(target):
        raise typer.BadParameter("--git needs --target package.module:factory, a target that each commit makes")
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise typer.BadParameter(f"--path: {path} is not below the repository; write it relative to that, as in src")
    return target


def _bisect_git(
    file: "TraceFile", span: str, repo: Path, target: str, path: str, oracle: str, any_finding: bool, as_json: bool
) -> int:
    from ..opening.oracles import suited_to
    from ..releases.bisect_git import bisect_commits

    question = _question(file, any_finding, oracle, target, suited_to(target))
    located = bisect_commits(repo, span, target, question, path, _Say())
    if as_json:
        print(json.dumps(_located_json(question, located), indent=2))
        return 0
    rows = [(commit.hash[:12], answer) for commit, answer in located.tried]
    _print_table("commit", rows, len(file.trace.operations))
    if len(located.suspects) == 1:
        print(f"first bad commit: {_commit_text(located.suspects[0])}")
    else:
        print("the first bad commit is one of these, of which only the last could be judged:")
        print("\n".join(f"  {_commit_text(commit)}" for commit in located.suspects))
    return 0


def _commit_text(commit: "Commit") -> str:
    return f"{commit.hash}  {commit.date}  {commit.subject}"


def _located_json(question: "Question", located: "Located") -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "kind": question.kind,
        "oracles": question.oracles,
        "commits": [{**asdict(commit), **_answer_json(answer)} for commit, answer in located.tried],
        "suspects": [asdict(commit) for commit in located.suspects],
        "exact": len(located.suspects) == 1,
    }
