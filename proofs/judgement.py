"""Whether what a run settled is what is expected, and the questions that it leaves behind as files."""

import re
from collections.abc import Sequence
from pathlib import Path

from .campaign import Result
from .expectations import AGAIN, NONE_RAN, Expectations, WriteText, differences, outcome
from .theorem import Statement


def chosen(theorems: Sequence[Statement], ids: Sequence[str]) -> list[Statement]:
    """The theorems asked for: by id, or all that belong to a number; all of them for no ids.

    LookupError for an id that there is none of, with what to do.
    """
    for name in ids:
        if not any(name in (theorem.id, theorem.id.partition(".")[0]) for theorem in theorems):
            raise LookupError(f"no theorem is called {name!r}; see blockproof prove --list")
    return [t for t in theorems if not ids or t.id in ids or t.id.partition(".")[0] in ids]


def longest_first(theorems: Sequence[Statement]) -> list[Statement]:
    """Those that take long are begun first, so that no process waits for another at the end."""
    return sorted(theorems, key=lambda theorem: -theorem.weight)


def in_order(results: Sequence[Result], theorems: Sequence[Statement]) -> list[Result]:
    """The results in the order of the theorems, and by core."""
    order = {theorem.id: number for number, theorem in enumerate(theorems)}
    return sorted(results, key=lambda result: (order[result.verdict.theorem], result.verdict.subject))


def problems(results: Sequence[Result], expected: Expectations) -> list[str]:
    """What is not as it is expected, a line each; a run with any has failed.

    These are: a theorem that could not be settled; one that came to anything else than its core's file says, or that
    the file does not know; a refutation for a core without a file; a question to which the two solvers give different
    answers.
    """
    return [problem for result in results for problem in _problems(result, expected)]


def _problems(result: Result, expected: Expectations) -> list[str]:
    verdict = result.verdict
    found = [f"cvc5 says {said} to: {text.splitlines()[0]}" for text, said in result.disputed]
    if verdict.status == "undecided":
        found.append(f"undecided: {verdict.message}")
    elif verdict.subject not in expected:
        if verdict.status == "refuted":
            found.append(f"refuted by {verdict.counterexample}: {verdict.message}")
    elif verdict.theorem not in expected[verdict.subject]:
        found.append(f"{outcome(verdict)}, and nothing is declared; {AGAIN}")
    else:
        found += differences(verdict, expected[verdict.subject][verdict.theorem])
    return [f"{verdict.theorem} on {verdict.subject}: {problem}" for problem in found]


def unsaid(results: Sequence[Result], expected: Expectations) -> list[str]:
    """For each core without a file: that nothing is expected of it, and of what nothing is known."""
    lines = []
    for subject in dict.fromkeys(result.verdict.subject for result in results):
        if subject not in expected:
            mine = [result.verdict for result in results if result.verdict.subject == subject]
            silent = [verdict.theorem for verdict in mine if outcome(verdict) in ("unavailable", NONE_RAN)]
            said = f"; nothing is known of it from {', '.join(silent)}" if silent else ""
            lines.append(f"{subject}: no expected results: only a refutation fails{said}")
    return lines


def keep_unsettled(results: Sequence[Result], folder: Path, write: WriteText) -> list[Path]:
    """Write what a solver could not settle to files, as SMT-LIB 2. Returns them."""
    paths = []
    for result in results:
        texts = [text for text, _ in result.disputed]
        if result.verdict.status == "undecided":
            texts += result.verdict.smtlib[-1:]
        for number, text in enumerate(texts):
            paths.append(folder / f"{_file_name(result)}.{number}.smt2")
            write(paths[-1], text)
    return paths


def export(results: Sequence[Result], folder: Path, write: WriteText) -> int:
    """Write every question to a file, as SMT-LIB 2; those to be answered `sat` end in `.sat.smt2`. Returns how many."""
    count = 0
    folder.mkdir(parents=True, exist_ok=True)
    for result in results:
        for kind, texts in (("", result.verdict.smtlib), (".sat", result.verdict.satisfiable)):
            for number, text in enumerate(texts):
                write(folder / f"{_file_name(result)}.{number:03}{kind}.smt2", text)
                count += 1
    return count


def _file_name(result: Result) -> str:
    return f"{result.verdict.theorem}.{re.sub('[^a-z0-9.]+', '-', result.verdict.subject)}"
