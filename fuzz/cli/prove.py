"""`blockproof prove`: theorems about the functions that run, settled by Z3 and confirmed by cvc5."""

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from textwrap import indent, wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..adapters import forms
from ..findings.writing import write_file
from .options import JsonOption, jobs_option, known_or_usage, seed_or_drawn
from .outputs import tagged, to_folder

if TYPE_CHECKING:
    from ...proofs.campaign import Campaign, Interpreter, Result, Task
    from ...proofs.expectations import Expectations
    from ...proofs.pages import Record
    from ...proofs.theorem import Statement

OURS = ("model", "impl")
"""What is settled where nothing is named; packages of ours, too."""
TODAY = "impl-today"


def prove(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="T1 takes T1.full with it.")] = None,
    target: Annotated[
        list[str] | None, typer.Option(help=f"model, impl, {TODAY}, {forms()}, your.module:core; repeatable.")
    ] = None,
    cross_check: Annotated[
        bool,
        typer.Option("--cross-check/--no-cross-check", help="Let cvc5 confirm every answer; the result says if not."),
    ] = True,
    seconds: Annotated[float, typer.Option(min=0.1, help="For each question, about: steps are counted.")] = 10.0,
    jobs: Annotated[int, jobs_option("Processes", 256)] = 0,
    export: Annotated[Path | None, to_folder("Write every obligation to this folder, as SMT-LIB 2.")] = None,
    out: Annotated[Path, to_folder("Folder for obligations that a solver could not settle.")] = Path("unsettled"),
    write: Annotated[Path | None, to_folder("Write the theorems up as Markdown pages in this folder.")] = None,
    check: Annotated[
        Path | None, typer.Option(help="Fail where the record in this folder says otherwise: result, paths, functions.")
    ] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Settle only what runs a function that has changed since the record.")
    ] = False,
    write_expected: Annotated[
        Path | None, to_folder("Write what each theorem came to to this folder: proofs/expected of a checkout.")
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Only name the theorems.")] = False,
    fuzz: Annotated[
        int, typer.Option(min=0, help="Attack the prover itself with so many claims about random programs.")
    ] = 0,
    seed: Annotated[int | None, typer.Option(help="With --fuzz: same seed, same programs; drawn by default.")] = None,
    first: Annotated[int, typer.Option(min=0, help="With --fuzz: begin at this program of the seed.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Prove or refute the theorems for the model, our core, or a real release; refute their negative controls.

    What each must come to is declared for model, our core, that of today (impl-today) and vLLM 0.23.0. Exits with 0
    if each did, 1 if one did not, a solver could not say, or the solvers disagree; for another core, 1 if one is
    refuted. 3 without cvc5, unless --no-cross-check is given; 130 if Ctrl-C ended it before all were settled. With
    --fuzz, 1 if an answer is wrong, or too many programs come to no end.
    """
    if list_only:
        return _list(ids or [], as_json)
    _require_solvers(cross_check and not fuzz)
    if fuzz:
        raise typer.Exit(_attack(fuzz, seed_or_drawn(seed), first, as_json))
    from ...proofs import judgement, pages
    from ...proofs.campaign import Campaign

    chosen = _chosen(ids or [])
    record = _record(check) if check else None
    campaign = Campaign(jobs or os.cpu_count() or 1, seconds, cross_check)

    def tell(result: "Result") -> None:
        if not as_json and not ids:
            print(_line(result, cross_check), flush=True)

    results, interrupted = _settled(campaign, judgement.longest_first(chosen), target or list(OURS), changed, tell)
    results = judgement.in_order(results, chosen)
    expected = _expected(results, None if interrupted else write_expected)
    problems = judgement.problems(results, expected) + (pages.stale(record, results) if record else [])
    left = [f"left behind: {path}" for path in judgement.keep_unsettled(results, out, write_file)]
    if export is not None:
        left.append(f"questions written to {export}: {judgement.export(results, export, write_file)}")
    if write is not None and not interrupted:
        pages.write(write, chosen, pages.recorded(results, cross_check), write_file)
    if as_json:
        _print_json(results, cross_check, problems)
    else:
        asked = [line for theorem in chosen if ids for line in _written_out(theorem, results, cross_check)]
        said = [*asked, *_summary(results, cross_check), *judgement.unsaid(results, expected), *left, *problems]
        print("\n".join(said or ["no function under the theorems has changed since the record"]))
    raise typer.Exit(_code(bool(problems), interrupted))


def _print_json(results: "list[Result]", checked: bool, problems: list[str]) -> None:
    from ...proofs import trust
    from ..reports.theorems import Settled, TheoremsDocument, Trusted, TrustedPart

    settled = [Settled(**_plain(result)) for result in results]
    parts = [TrustedPart(what, trust.lines(files)) for what, files in trust.parts()]
    trusted = Trusted(trust.lines(trust.trusted()), parts)
    print(TheoremsDocument(settled, checked, problems, trusted).text())


def _record(folder: Path) -> "Record":
    """The record in this folder; a usage error if there is none."""
    from ...proofs import pages

    try:
        return pages.read((folder / pages.RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise typer.BadParameter(f"--check: no record of theorems in {folder}: {error}") from None


def _code(wrong: bool, interrupted: bool) -> int:
    """The exit code, after a line if it was interrupted."""
    if interrupted:
        print("interrupted: what is not listed was not settled", file=sys.stderr)
    return 1 if wrong else 130 if interrupted else 0


def _attack(claims: int, seed: int, first: int, as_json: bool) -> int:
    """Attack the prover, say what came of it, and return the exit code."""
    from ...proofs.fuzzing.attack import LOST_MOST, attack, loses_too_much
    from ...proofs.fuzzing.trial import Tally
    from ..reports.progress import steps

    tally, interrupted = Tally(), False
    with attack(claims, seed, first) as tallies, steps(claims, "claim") as show:
        try:
            for tally in tallies:
                show(min(tally.cases, claims), f"seed {seed}")
        except KeyboardInterrupt:
            interrupted = True
    counts = {status: tally.statuses[status] for status in ("proved", "refuted", "undecided")}
    wrong, too_many = [str(one) for one in tally.wrong], loses_too_much(tally)
    if as_json:
        told = {str(number): how for number, how in tally.lost.items()}
        plain = {"seed": seed, "claims": tally.cases, **counts, "lost": told, "wrong": wrong}
        print(tagged("attack", plain))
    else:
        again = f"again: blockproof prove --fuzz 1 --seed {seed} --first"
        lines = [*wrong, *([f"{again} {tally.program}"] if wrong else [])]
        lines += [f"program {number}: {how}; {again} {number}" for number, how in tally.lost.items()]
        lines += [f"more than {LOST_MOST:.0%} of the claims were lost so"] if too_many else []
        said = ", ".join(f"{number:,} {status}" for status, number in counts.items())
        lost = f" ({tally.lost_claims:,} of them lost)" if tally.lost else ""
        print("\n".join([*lines, f"seed {seed}: {tally.cases:,} claims: {said}{lost}; {len(wrong)} wrong"]))
    return _code(bool(wrong) or too_many, interrupted)


def _list(ids: list[str], as_json: bool) -> None:
    """Name the theorems; where there is no solver, as their pages have them."""
    from ...proofs import requirements

    if not requirements.z3_installed():
        return print_theorems(ids, as_json)
    fields = ("id", "sentence", "stated")
    return print_list([{name: getattr(theorem, name) for name in fields} for theorem in _chosen(ids)], as_json)


def _chosen(ids: list[str]) -> "list[Statement]":
    """The theorems of these names, all without any; a usage error for a name that none has."""
    from ...proofs import judgement
    from ...proofs.theorems import THEOREMS

    names = {name: None for theorem in THEOREMS for name in (theorem.id.partition(".")[0], theorem.id)}
    known_or_usage("no theorem", ids, names, "see blockproof prove --list")
    return judgement.chosen(THEOREMS, ids)


def _expected(results: "list[Result]", write: Path | None) -> "Expectations":
    """What each theorem must come to; written to a folder first, if one is given."""
    from ...proofs import expectations
    from ...proofs.theorems import THEOREMS

    if write is not None:
        expectations.write(write, results, [theorem.id for theorem in THEOREMS], write_file)
    return expectations.read([result.verdict.subject for result in results], write or expectations.FOLDER)


def _require_solvers(both: bool) -> None:
    """Exit with 3, and one line, if a solver is missing."""
    from ...proofs import requirements

    missing = ""
    if not requirements.z3_installed():
        missing = f"prove needs the solver z3, which is not installed; {requirements.REMEDY}"
    elif both and not requirements.cvc5_installed():
        missing = f"cvc5, which confirms every answer, is not installed; {requirements.REMEDY}, or add --no-cross-check"
    if missing:
        print(f"blockproof: {missing}", file=sys.stderr)
        raise typer.Exit(3)


def _settled(
    campaign: "Campaign",
    theorems: "list[Statement]",
    targets: list[str],
    changed: bool,
    tell: "Callable[[Result], None]",
) -> "tuple[list[Result], bool]":
    """The results in the order in which they came, each told at once, and whether Ctrl-C ended it."""
    from ..reports.progress import steps

    results: list[Result] = []
    with _interpreters(targets) as places:
        tasks = _tasks(theorems, places, changed)
        with steps(sum(len(task.places) for task in tasks), "answer") as show:

            def done(result: "Result") -> None:
                results.append(result)
                show(len(results), result.verdict.theorem)
                tell(result)

            try:
                campaign.run(tasks, done)
            except KeyboardInterrupt:
                return results, True
    return results, False


def _tasks(theorems: "list[Statement]", places: "list[Interpreter]", changed: bool) -> "list[Task]":
    """What is to be settled where; with `changed`, only what runs a function that is not as the record has it."""
    from ...proofs.campaign import Task
    from ...proofs.changes import stale
    from ..releases.verify_proofs import RECORD

    wanted = {place.subject: stale(RECORD, place) if changed else None for place in places}
    tasks = []
    for theorem in theorems:
        there = [place for place in places if (names := wanted[place.subject]) is None or theorem.id in names]
        tasks += [Task(theorem.id, tuple(there))] if there else []
    return tasks


@contextmanager
def _interpreters(targets: list[str]) -> "Iterator[list[Interpreter]]":
    """Where the theorems about each target are settled."""
    from ...proofs.campaign import Interpreter
    from ..opening.child import environment_of
    from ..opening.names import FORMS, is_own_code
    from ..opening.targets import interpreter_of

    with tempfile.TemporaryDirectory() as folder:
        places = []
        for number, target in enumerate(dict.fromkeys(targets)):
            modules = Path(folder) / str(number)
            modules.mkdir()
            if target in (*OURS, TODAY):
                places.append(Interpreter(target, environment=environment_of(None, modules)))
                continue
            if is_own_code(target):
                places.append(_own(target, environment_of(None, modules)))
                continue
            try:
                name, place = interpreter_of(target)
            except ValueError:
                raise typer.BadParameter(f"--target: {target!r}: write model, impl, {forms()}, {FORMS}") from None
            environment = environment_of(place, modules, (*OURS, "proofs")) | {"VLLM_LOGGING_LEVEL": "ERROR"}
            z3 = find_spec("z3")
            behind = () if place is None or z3 is None or z3.origin is None else (str(Path(z3.origin).parents[1]),)
            places.append(Interpreter(name, str(place.python if place else sys.executable), environment, behind))
        yield places


def _own(target: str, environment: dict[str, str]) -> "Interpreter":
    """Where theorems about a user's own core are settled: here, with its folder on the import path."""
    from ...proofs.campaign import Interpreter

    place, _, name = target.rpartition(":")
    folder, module = os.getcwd(), place
    if place.endswith(".py"):
        folder, module = str(Path(place).expanduser().resolve().parent), Path(place).stem
    path = os.pathsep.join([environment["PYTHONPATH"], folder])
    return Interpreter(f"{module}:{name}", environment=environment | {"PYTHONPATH": path})


def _line(result: "Result", checked: bool) -> str:
    verdict = result.verdict
    from ...proofs.expectations import outcome

    head = f"{verdict.theorem:16} {verdict.subject:13} {outcome(verdict):16}"
    if verdict.status in ("unavailable", "undecided"):
        return f"{head} {verdict.message}"
    refuted = sum(status == "refuted" for status in verdict.controls.values())
    controls = f", {refuted} of {len(verdict.controls)} negative controls refuted" if verdict.controls else ""
    opinion = f", cvc5 agrees on {result.confirmed} of {result.confirmed + len(result.disputed)}" if checked else ""
    at = f", at {_values(verdict.counterexample)}" if verdict.counterexample is not None else ""
    settled = f"{verdict.paths:6,} paths, {len(verdict.smtlib):4} obligations, {verdict.replays:,} replays"
    return f"{head} {settled}, {verdict.seconds:5.2f} s{opinion}{controls}{at}"


def _written_out(theorem: "Statement", results: "list[Result]", checked: bool) -> list[str]:
    """A theorem in words and as a formula, and what came out for each core."""
    lines = [f"{theorem.id}: {theorem.sentence}", *indent(theorem.stated, "  ").splitlines()]
    lines += _wrapped("not symbolic", theorem.bounded) + _wrapped("for a user", theorem.meaning)
    for result in results:
        if result.verdict.theorem == theorem.id:
            lines.append(f"  {_line(result, checked).removeprefix(theorem.id).lstrip()}")
            lines += _wrapped("as declared", theorem.refuted_on.get(result.verdict.subject, ""))
    return [*lines, ""]


def _wrapped(name: str, text: str) -> list[str]:
    """A named text, indented; nothing for an empty one."""
    return [indent(line, "  ") for line in wrap(f"{name}: {text}", 110, subsequent_indent="  ")] if text else []


def _values(counterexample: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in counterexample.items())


def _summary(results: "list[Result]", checked: bool) -> list[str]:
    from ...proofs.expectations import outcome

    lines = []
    for subject in dict.fromkeys(result.verdict.subject for result in results):
        mine = [result for result in results if result.verdict.subject == subject]
        outcomes = [outcome(result.verdict) for result in mine]
        said = ", ".join(f"{outcomes.count(one)} {one}" for one in sorted(set(outcomes)))
        z3, cvc5 = sum(r.verdict.seconds for r in mine), sum(r.opinion_seconds for r in mine)
        second = f", cvc5 {cvc5:.1f} s" if checked else "; not confirmed by cvc5 (--no-cross-check)"
        obligations = sum(len(result.verdict.smtlib) for result in mine)
        replays = [result.verdict.replays for result in mine if result.verdict.status == "proved"]
        runs = f"; {sum(replays):,} runs on plain numbers, {min(replays):,} at least" if replays else ""
        lines.append(f"{subject}: {said}; {obligations:,} obligations{runs}; Z3 {z3:.1f} s{second}")
    return lines + _rests_on(results)


def _rests_on(results: "list[Result]") -> list[str]:
    """How many lines of this program are trusted; nothing where nothing is proved."""
    from ...proofs import trust

    under = {trust.lines_under(one.verdict): one.verdict.theorem for one in results if one.verdict.status == "proved"}
    if not under:
        return []
    least, most = min(under), max(under)
    said = f"{least:,} lines ({under[least]}) to {most:,} ({under[most]})" if least < most else f"{least:,} lines"
    return [f"rests on: the solvers, and {said} of blockproof.proofs, of {trust.lines(trust.trusted()):,} in all"]


def _plain(result: "Result") -> dict[str, Any]:
    from ...proofs import trust
    from ...proofs.expectations import come_to

    verdict = asdict(result.verdict)
    came_to = come_to(result.verdict)
    verdict |= {"outcome": came_to.outcome, "witness": came_to.witness}
    verdict["obligations"] = len(verdict.pop("smtlib"))
    del verdict["satisfiable"], verdict["needed"], verdict["roles"]
    verdict["trusted_lines"] = trust.lines_under(result.verdict)
    return verdict | {"confirmed": result.confirmed, "disputed": [said for _, said in result.disputed]}


PAGES = Path("docs/reference/theorems")
_THEOREM = re.compile(
    r"^## (?P<id>[A-Z]\d\S*)\n\n(?P<sentence>.+?)\n\n(```python\n(?P<code>.*?)\n```|(?P<words>.+?)\n\n)", re.M | re.S
)


def print_theorems(ids: Sequence[str], as_json: bool) -> None:
    """List the theorems of these names, all without any, from their pages. BadParameter for a name that none has."""
    from ..planning.shipped import shipped

    pages = (path.read_text(encoding="utf-8") for path in sorted(shipped(PAGES).glob("*.md")))
    every = [_read(match) for text in pages for match in _THEOREM.finditer(text)]
    every.sort(key=lambda one: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", one["id"])])
    names = {name: None for one in every for name in (one["id"].partition(".")[0], one["id"])}
    known_or_usage("no theorem", ids, names, "see blockproof prove --list")
    chosen = [one for one in every if not ids or one["id"] in ids or one["id"].partition(".")[0] in ids]
    print_list(chosen, as_json)


def _read(match: re.Match[str]) -> dict[str, str]:
    """A theorem as its page has it: its name, its sentence, and what it states."""
    stated = match["code"] or " ".join(match["words"].split())
    return {"id": match["id"], "sentence": " ".join(match["sentence"].split()), "stated": stated}


def print_list(theorems: Sequence[Mapping[str, str]], as_json: bool) -> None:
    """Print their names and sentences; as JSON with what they state."""
    if as_json:
        print(json.dumps(theorems, indent=2))
        return
    for theorem in theorems:
        print(f"{theorem['id']:16} {theorem['sentence']}")
