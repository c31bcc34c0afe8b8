"""`blockproof prove`: theorems about the functions that run, settled by Z3 and confirmed by cvc5."""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from textwrap import indent, wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..adapters import forms
from .options import JsonOption, known_or_usage

if TYPE_CHECKING:
    from ...proofs.campaign import Campaign, Interpreter, Result
    from ...proofs.theorem import Statement

OURS = ("model", "impl")


def prove(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="T1 takes T1.full with it.")] = None,
    target: Annotated[list[str] | None, typer.Option(help=f"model, impl, {forms()}; repeatable.")] = None,
    cross_check: Annotated[
        bool | None, typer.Option("--cross-check/--no-cross-check", help="Ask cvc5 too; by default if it is installed.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="For each question to a solver.")] = 10.0,
    jobs: Annotated[int, typer.Option(min=0, max=256, help="Processes; 0 takes as many as there are cores.")] = 0,
    export: Annotated[Path | None, typer.Option(help="Write every obligation to this folder, as SMT-LIB 2.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for obligations that a solver could not settle.")] = Path(
        "unsettled"
    ),
    write: Annotated[Path | None, typer.Option(help="Write the theorems up as Markdown pages in this folder.")] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Only name the theorems.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Prove or refute the theorems for the model, our core, or a real release; refute their negative controls.

    Exits with 0 if each came out as declared, 1 if one did not, or a solver could not say, or the solvers disagree,
    130 if Ctrl-C ended it before all were settled.
    """
    from ...proofs import installed

    if not installed.z3_installed():
        print(f"blockproof: prove needs the solver z3, which is not installed; {installed.REMEDY}", file=sys.stderr)
        raise typer.Exit(3)
    from ...proofs import judgement, pages
    from ...proofs.campaign import Campaign
    from ...proofs.theorems import THEOREMS
    from ..findings.words import plural

    names = {name: None for theorem in THEOREMS for name in (theorem.id.partition(".")[0], theorem.id)}
    known_or_usage("no theorem", ids or [], names, "see blockproof prove --list")
    chosen = judgement.chosen(THEOREMS, ids or [])
    if list_only:
        _print_list(chosen, as_json)
        return
    if cross_check and not installed.cvc5_installed():
        raise typer.BadParameter(f"--cross-check: cvc5 is not installed; {installed.REMEDY}")
    checked = installed.cvc5_installed() if cross_check is None else cross_check
    campaign = Campaign(jobs or os.cpu_count() or 1, seconds, checked)

    def tell(result: "Result") -> None:
        if not as_json and not ids:
            print(_line(result, checked), flush=True)

    results, interrupted = _settled(campaign, judgement.longest_first(chosen), target or list(OURS), tell)
    results = judgement.in_order(results, chosen)
    problems = judgement.problems(results, chosen)
    left = [f"left behind: {path}" for path in judgement.keep_unsettled(results, out)]
    if export is not None:
        left.append(f"{plural(judgement.export(results, export), 'question')} written to {export}")
    if write is not None and not interrupted:
        pages.write(write, chosen, pages.recorded(results, checked))
    if as_json:
        print(json.dumps({"results": [_plain(result) for result in results], "problems": problems}, indent=2))
    else:
        asked = [line for theorem in chosen if ids for line in _written_out(theorem, results, checked)]
        print("\n".join([*asked, *_summary(results, checked), *left, *problems]))
    if interrupted:
        print("interrupted: what is not listed was not settled", file=sys.stderr)
    raise typer.Exit(1 if problems else 130 if interrupted else 0)


def _settled(
    campaign: "Campaign", theorems: "list[Statement]", targets: list[str], tell: "Callable[[Result], None]"
) -> "tuple[list[Result], bool]":
    """The results in the order in which they came, each told at once, and whether Ctrl-C ended it."""
    from ...proofs.campaign import Task
    from ..reports.progress import steps

    results: list[Result] = []
    with _interpreters(targets) as places, steps(len(theorems) * len(places), "answer") as show:

        def done(result: "Result") -> None:
            results.append(result)
            show(len(results), result.verdict.theorem)
            tell(result)

        try:
            campaign.run([Task(theorem.id, tuple(places)) for theorem in theorems], done)
        except KeyboardInterrupt:
            return results, True
    return results, False


@contextmanager
def _interpreters(targets: list[str]) -> "Iterator[list[Interpreter]]":
    """Where the theorems about each target are settled."""
    from ...proofs.campaign import Interpreter
    from ..opening.child import environment_of
    from ..opening.targets import interpreter_of

    with tempfile.TemporaryDirectory() as folder:
        places = []
        for number, target in enumerate(dict.fromkeys(targets)):
            modules = Path(folder) / str(number)
            modules.mkdir()
            if target in OURS:
                places.append(Interpreter(target, environment=environment_of(None, modules)))
                continue
            try:
                name, place = interpreter_of(target)
            except ValueError:
                raise typer.BadParameter(f"--target: {target!r}: write model, impl, {forms()}") from None
            environment = environment_of(place, modules, (*OURS, "proofs")) | {"VLLM_LOGGING_LEVEL": "ERROR"}
            z3 = find_spec("z3")
            behind = () if place is None or z3 is None or z3.origin is None else (str(Path(z3.origin).parents[1]),)
            places.append(Interpreter(name, str(place.python if place else sys.executable), environment, behind))
        yield places


def _line(result: "Result", checked: bool) -> str:
    verdict = result.verdict
    head = f"{verdict.theorem:16} {verdict.subject:13} {verdict.status:11}"
    if verdict.status in ("unavailable", "undecided"):
        return f"{head} {verdict.message}"
    refuted = sum(status == "refuted" for status in verdict.controls.values())
    controls = f", {refuted} of {len(verdict.controls)} negative controls refuted" if verdict.controls else ""
    opinion = f", cvc5 agrees on {result.confirmed} of {result.confirmed + len(result.disputed)}" if checked else ""
    at = f", at {_values(verdict.counterexample)}" if verdict.counterexample is not None else ""
    settled = f"{verdict.paths:6,} paths, {len(verdict.smtlib):4} obligations"
    return f"{head} {settled}, {verdict.seconds:5.2f} s{opinion}{controls}{at}"


def _written_out(theorem: "Statement", results: "list[Result]", checked: bool) -> list[str]:
    """A theorem in words and as a formula, and what came out for each core."""
    lines = [f"{theorem.id}: {theorem.sentence}", *_wrapped("formula", theorem.formal)]
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
    lines = []
    for subject in dict.fromkeys(result.verdict.subject for result in results):
        mine = [result for result in results if result.verdict.subject == subject]
        counts = {status: sum(r.verdict.status == status for r in mine) for status in _STATUSES}
        said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        z3, cvc5 = sum(r.verdict.seconds for r in mine), sum(r.opinion_seconds for r in mine)
        second = f", cvc5 {cvc5:.1f} s" if checked else "; not cross-checked: cvc5 is not installed or not asked"
        obligations = sum(len(result.verdict.smtlib) for result in mine)
        lines.append(f"{subject}: {said}; {obligations:,} obligations; Z3 {z3:.1f} s{second}")
    return lines


_STATUSES = ("proved", "refuted", "undecided", "unavailable")


def _plain(result: "Result") -> dict[str, object]:
    verdict = asdict(result.verdict)
    verdict["obligations"] = len(verdict.pop("smtlib"))
    del verdict["satisfiable"]
    return verdict | {"confirmed": result.confirmed, "disputed": [said for _, said in result.disputed]}


def _print_list(theorems: "list[Statement]", as_json: bool) -> None:
    if as_json:
        fields = ("id", "sentence", "formal")
        print(json.dumps([{name: getattr(theorem, name) for name in fields} for theorem in theorems], indent=2))
        return
    for theorem in theorems:
        print(f"{theorem.id:16} {theorem.sentence}")
