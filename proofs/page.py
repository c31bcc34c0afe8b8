"""The theorems as a page: what holds for which core, how it was settled, and what it means for a user."""

import platform
from collections.abc import Iterator, Sequence
from datetime import date
from importlib.metadata import version
from itertools import product

from ..model import arith
from .campaign import Result
from .theorem import Statement
from .theorems.windows import exact_sliding

EXAMPLES = (
    # name, window, tokens per block, layers with that window, KV heads, head size, bytes per number
    ("Gemma 3 27B", 1024, 16, 52, 16, 128, 2),
    ("gpt-oss 20B", 128, 16, 12, 8, 64, 2),
    ("gpt-oss 120B", 128, 16, 18, 8, 64, 2),
)
BUDGETS = (2048, 8192)
MAX_LENS = (2048, 8192, 131_072)


def page(statements: Sequence[Statement], results: Sequence[Result], checked: bool) -> str:
    """Markdown for these statements, from the results there are."""
    return "\n".join(
        [
            "# Theorems",
            "",
            *_introduction(results, checked),
            "",
            *_table(statements, results),
            "",
            *_worked_example(),
            "",
            *(line for statement in statements for line in _section(statement, results)),
        ]
    )


def _introduction(results: Sequence[Result], checked: bool) -> Iterator[str]:
    yield "Written by `blockproof prove --write docs/theorems.md` with a `--target` for each column;"
    solvers = f"Z3 {version('z3-solver')}" + (f", cvc5 {version('cvc5')}" if checked else ", not cross-checked")
    yield f"{date.today()}, {platform.machine()}, Python {platform.python_version()}, {solvers}."
    yield ""
    yield "A theorem is about the functions that run: they are executed unmodified on symbolic integers, every path of"
    yield "them (proofs/symbolic.py), and what follows is left to the solver. *Proved* is meant for all integers,"
    yield "unless *bounded* says otherwise. *Refuted* means that a counterexample was found and run on the real code."
    yield "*Unavailable* means that the core has no such function, which is not proved. Every theorem has wrong twins,"
    yield "which it must refute."
    for subject in _subjects(results):
        mine = [result for result in results if result.verdict.subject == subject]
        counts = {
            status: sum(r.verdict.status == status for r in mine) for status in ("proved", "refuted", "unavailable")
        }
        confirmed = sum(result.confirmed for result in mine)
        said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        seconds = sum(result.verdict.seconds for result in mine)
        asked = f"; cvc5 gives the same answer to {confirmed:,} questions" if checked else ""
        yield ""
        yield f"* `{subject}`: {said}; {seconds:.0f} s of one core for Z3{asked}"


def _subjects(results: Sequence[Result]) -> list[str]:
    return sorted({result.verdict.subject for result in results}, key=lambda name: (name != "model", name))


def _table(statements: Sequence[Statement], results: Sequence[Result]) -> Iterator[str]:
    subjects = _subjects(results)
    yield f"| theorem | says | {' | '.join(subjects)} | paths | obligations | twins | seconds |"
    yield "|---|---|" + "---|" * (len(subjects) + 4)
    for statement in statements:
        mine = {result.verdict.subject: result.verdict for result in results if result.verdict.theorem == statement.id}
        if not mine:
            continue
        marks = " | ".join(_mark(mine[subject].status) if subject in mine else "" for subject in subjects)
        first = next((verdict for verdict in mine.values() if verdict.status != "unavailable"), None)
        if first is None:
            continue
        twins = next((verdict.twins for verdict in mine.values() if verdict.twins), {})
        refuted = f"{sum(status == 'refuted' for status in twins.values())} of {len(twins)}"
        yield (
            f"| [{statement.id}](#{_anchor(statement.id)}) | {statement.sentence} | {marks} | {first.paths:,} | "
            f"{len(first.smtlib)} | {refuted} | {first.seconds:.1f} |"
        )


def _mark(status: str) -> str:
    return f"**{status}**" if status in ("refuted", "undecided") else status


def _anchor(name: str) -> str:
    return name.lower().replace(".", "")


def _section(statement: Statement, results: Sequence[Result]) -> Iterator[str]:
    verdicts = [result.verdict for result in results if result.verdict.theorem == statement.id]
    yield f"## {statement.id}"
    yield ""
    yield statement.sentence
    yield ""
    yield f"    {statement.formal}"
    yield ""
    if statement.meaning:
        yield f"For a user: {statement.meaning}"
        yield ""
    if statement.bounded:
        yield f"Bounded: {statement.bounded}."
        yield ""
    for verdict in verdicts:
        covered = ", ".join(f"`{place}` {digest}" for place, digest in sorted(verdict.covered.items()))
        line = f"* `{verdict.subject}`: {verdict.status}"
        if verdict.status == "refuted":
            reason = statement.refuted_on.get(verdict.subject, "not expected")
            values = ", ".join(f"{name} = {value}" for name, value in (verdict.counterexample or {}).items())
            line += f": {reason}. Run on the real code: {values} ({verdict.message})"
        elif verdict.status != "proved":
            line += f": {verdict.message}"
        yield line + (f". Ran: {covered}" if covered else "")
    twins = next((verdict.twins for verdict in verdicts if verdict.twins), {})
    if twins:
        yield ""
        yield "Wrong twins refuted: " + "; ".join(name for name, status in twins.items() if status == "refuted") + "."
    yield ""


def _worked_example() -> Iterator[str]:
    """T5 in bytes, for models that people serve."""
    yield "## What the admission cap of a sliding window gives away (T5)"
    yield ""
    yield "A request holds at most `cdiv(min(w - 1 + batched + b - 1, max_len), b)` blocks of a window of `w` tokens"
    yield "(T5; attained: T5.attained); the admission gate counts `cdiv(min(w - 1 + batched, max_len), b) + 1`. Bytes"
    yield "are over all layers with the window, for each request that is admitted. While it decodes, a token a step, a"
    yield "request holds far less than either: what a long prefill needs is reserved to its end."
    yield ""
    yield "| model | window | budget of a step | max length | cap | most held | decoding | given away |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, window, block, layers, heads, size, width in EXAMPLES:
        bytes_per_block = arith.page_keys_values(block, heads, size, size, width) * layers
        for batched, max_len in product(BUDGETS, MAX_LENS):
            cap = arith.cap_sliding(window, block, batched, max_len)
            held = exact_sliding(window, block, batched, max_len)
            decoding = exact_sliding(window, block, 1, max_len)
            lost = (cap - held) * bytes_per_block
            share = f"{lost:,} bytes, {lost / (cap * bytes_per_block):.2%}" if lost else "nothing"
            yield f"| {name} | {window} | {batched:,} | {max_len:,} | {cap} | {held} | {decoding} | {share} |"
