"""The theorems written up: an index, a page for each family, and what was settled as data.

Sentences, formulas and meanings come from the theorems themselves, everything else from the record of a run
(`recorded`, kept as `functions.json`). So a test can make the pages anew, without a solver, and compare.
"""

import inspect
import json
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from importlib.metadata import version
from pathlib import Path
from textwrap import wrap
from types import CodeType, ModuleType
from typing import Any

from ..model import arith
from .campaign import Result
from .coverage import source_hash
from .expectations import BOUNDED, NONE_RAN, WriteText
from .theorem import Statement, Theorem
from .theorems import BY_ID, FAMILIES, windows

RECORD = "functions.json"
INDEX = "README.md"
WIDTH = 110
"""Most characters of a line of prose. Rows of tables cannot be broken."""
EXAMPLES = (
    # name, window, tokens per block, layers with that window, KV heads, head size, bytes per number
    ("Gemma 3 27B", 1024, 16, 52, 16, 128, 2),
    ("gpt-oss 20B", 128, 16, 12, 8, 64, 2),
    ("gpt-oss 120B", 128, 16, 18, 8, 64, 2),
)
BUDGETS = (2048, 8192)
MAX_LENS = (2048, 8192, 131_072)


@dataclass(frozen=True)
class Settled:
    """What came out for one theorem and one core, as far as the pages tell it."""

    status: str
    paths: int = 0
    obligations: int = 0
    confirmed: int = 0
    """Questions to which cvc5 gave the same answer."""
    counterexample: Mapping[str, int] = field(default_factory=dict)
    message: str = ""
    """How a counterexample failed on the real code; what is missing or was not settled."""
    controls: Mapping[str, str] = field(default_factory=dict)
    """Status of each negative control; empty for all cores but the first that has the functions."""
    functions: Mapping[str, str] = field(default_factory=dict)
    """Functions of the core that ran, `module:name`, with `source_hash` of each."""


@dataclass(frozen=True)
class Record:
    """What a run settled, and with what."""

    date: str
    made_with: str
    """Python and the solvers."""
    subjects: tuple[str, ...]
    settled: Mapping[str, Mapping[str, Settled]]
    """By theorem, then by core."""


def _ordered(subjects: Iterable[str]) -> tuple[str, ...]:
    """Each core once, the model first."""
    return tuple(sorted(set(subjects), key=lambda name: (name != "model", name)))


def recorded(results: Sequence[Result], checked: bool) -> Record:
    """The record of a run; `checked`: was cvc5 asked, too?"""
    solvers = f"Z3 {version('z3-solver')}" + (f", cvc5 {version('cvc5')}" if checked else ", not cross-checked")
    subjects = _ordered(result.verdict.subject for result in results)
    settled: dict[str, dict[str, Settled]] = {}
    for result in results:
        verdict = result.verdict
        settled.setdefault(verdict.theorem, {})[verdict.subject] = Settled(
            verdict.status,
            verdict.paths,
            len(verdict.smtlib),
            result.confirmed,
            verdict.counterexample or {},
            verdict.message,
            verdict.controls,
            dict(sorted(verdict.covered.items())),
        )
    made_with = f"{platform.machine()}, Python {platform.python_version()}, {solvers}"
    return Record(date.today().isoformat(), made_with, subjects, settled)


def written(record: Record) -> str:
    """The record as JSON, without what is empty."""

    def short(settled: Settled) -> dict[str, Any]:
        return {name: value for name, value in asdict(settled).items() if value}

    theorems = {
        name: {subject: short(settled) for subject, settled in of.items()} for name, of in record.settled.items()
    }
    document = {"date": record.date, "made_with": record.made_with, "subjects": record.subjects, "theorems": theorems}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def read(text: str) -> Record:
    """The record that `written` has written."""
    document = json.loads(text)
    settled = {
        name: {subject: Settled(**fields) for subject, fields in of.items()}
        for name, of in document["theorems"].items()
    }
    return Record(document["date"], document["made_with"], tuple(document["subjects"]), settled)


def pages(statements: Sequence[Statement], record: Record) -> dict[str, str]:
    """Every file of the folder by its name: index, families, record. For the theorems that the record knows."""
    known = {statement.id: statement for statement in statements if statement.id in record.settled}
    families = [
        (family, [known[theorem.id] for theorem in family.THEOREMS if theorem.id in known]) for family in FAMILIES
    ]
    families = sorted(((family, members) for family, members in families if members), key=_first_number)
    texts = {INDEX: _lines(_index(families, record))}
    texts |= {_file(family): _lines(_family(family, members, record)) for family, members in families}
    return texts | {RECORD: written(record)}


def write(folder: Path, statements: Sequence[Statement], record: Record, to: WriteText) -> None:
    """Write `pages` to a folder, which is made if need be. What its record says of other theorems and cores stays."""
    if (folder / RECORD).exists():
        record = updated(read((folder / RECORD).read_text(encoding="utf-8")), record)
    for name, text in pages(statements, record).items():
        to(folder / name, text)


def updated(old: Record, new: Record) -> Record:
    """The old record with what the new one says in its place, without theorems that there are no more."""
    subjects = _ordered((*old.subjects, *new.subjects))
    names = [name for name in dict.fromkeys((*old.settled, *new.settled)) if name in BY_ID]
    settled = {name: {**old.settled.get(name, {}), **new.settled.get(name, {})} for name in names}
    return Record(new.date, new.made_with, subjects, settled)


def stale(old: Record, results: Sequence[Result]) -> list[str]:
    """What the record says otherwise than these results, a line for each theorem and core: result, paths, functions."""
    now = recorded(results, checked=True).settled
    lines = []
    for name, of in now.items():
        for subject, new in of.items():
            said = old.settled.get(name, {}).get(subject, Settled("not recorded"))
            if (said.status, said.paths, set(said.functions)) != (new.status, new.paths, set(new.functions)):
                told = f"{new.status}, {new.paths} paths, {len(new.functions)} functions"
                was = f"{said.status}, {said.paths}, {len(said.functions)}"
                lines.append(f"{name} on {subject}: {told}; recorded: {was}; write the record anew with --write")
    return lines


def hashes_today(path: Path) -> dict[str, set[str]]:
    """Names of all functions in a file, as `Settled.functions` has them behind the colon, and hashes of their source.

    A name stands for several functions if it is defined several times, as a property and its setter are.
    """
    found: dict[str, set[str]] = {}
    open_ = [compile(path.read_text(encoding="utf-8"), str(path), "exec")]
    while open_:
        code = open_.pop()
        open_ += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        found.setdefault(code.co_qualname, set()).add(source_hash(code))
    return found


def _lines(lines: Iterator[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"


def _prose(text: str, indent: str = "") -> list[str]:
    """Lines of a readable length; a report, as `vllm-project/vllm#39734`, becomes a link."""
    linked = re.sub(r"\b([\w.-]+/[\w.-]+)#(\d+)\b", r"[\g<0>](https://github.com/\1/issues/\2)", text)
    return wrap(linked, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _first_number(family: tuple[ModuleType, Sequence[Statement]]) -> tuple[int, str]:
    return min(statement.number for statement in family[1])


def _file(family: ModuleType) -> str:
    return family.__name__.rpartition(".")[2].replace("_", "-") + ".md"


def _title(family: ModuleType) -> str:
    """The first paragraph of the module's docstring; the numbers of its theorems stand behind it, in brackets."""
    return " ".join((inspect.getdoc(family) or "").partition("\n\n")[0].split())


def _index(families: Sequence[tuple[ModuleType, Sequence[Statement]]], record: Record) -> Iterator[str]:
    targets = " ".join(f"--target {subject}" for subject in record.subjects)
    yield "# Theorems"
    yield ""
    yield f"Written on {record.date} ({record.made_with}) by"
    yield ""
    yield f"    blockproof prove {targets} \\\n      --write docs/reference/theorems"
    yield ""
    yield from _prose(
        "A theorem is about the functions that run: they are executed unmodified on symbolic integers, every path of "
        "them (`proofs/symbolic.py`), and what follows is left to the solver. *Proved* is meant for all integers, "
        "unless it says *bounded*: its page then says what was not symbolic. *Refuted* means that a "
        "counterexample was found and run on the real code; the page says what it means for a user. *Unavailable* "
        "means that the core has no such function, which is not proved; nor is it if none of the core's functions ran. "
        "Every theorem has negative controls, wrong variants "
        "which it must refute: one that could not would say nothing. What is proved is run on plain numbers as well "
        "([the prover](../prover.md)). The formulas are generated from the claims that "
        "were settled: `f.role` is a function of the core, `v.name` a variable; what is assumed and what is claimed "
        "is one condition or a list of them, all of which hold."
    )
    yield ""
    yield from _prose(
        f"Which functions of which core ran, with a hash of the source of each (without comments), is in "
        f"[{RECORD}]({RECORD}). Names and letters are those of [core.md](../core.md)."
    )
    yield ""
    for subject in record.subjects:
        yield from _prose(f"* `{subject}`: {_count(subject, record)}", "  ")
    for family, members in families:
        yield ""
        yield f"## [{_title(family)}]({_file(family)})"
        yield ""
        yield f"| theorem | says | {' | '.join(record.subjects)} |"
        yield "|---|---|" + "---|" * len(record.subjects)
        for statement in members:
            marks = " | ".join(_mark(statement, record, subject) for subject in record.subjects)
            yield f"| [{statement.id}]({_file(family)}#{_anchor(statement.id)}) | {statement.sentence} | {marks} |"


def _count(subject: str, record: Record) -> str:
    mine = {name: of[subject] for name, of in record.settled.items() if subject in of and name in BY_ID}
    outcomes = [_status(BY_ID[name], one) for name, one in mine.items()]
    said = ", ".join(f"{outcomes.count(one)} {one}" for one in sorted(set(outcomes)))
    confirmed = sum(one.confirmed for one in mine.values())
    return said + (f"; cvc5 gives the same answer to {confirmed:,} questions" if confirmed else "")


def _mark(statement: Statement, record: Record, subject: str) -> str:
    settled = record.settled[statement.id].get(subject)
    if settled is None:
        return ""
    status = _status(statement, settled)
    return f"**{status}**" if status in ("refuted", "undecided") else status


def _status(statement: Statement, settled: Settled) -> str:
    """The outcome, as `expectations` calls it."""
    if settled.status != "proved":
        return settled.status
    if not settled.functions:
        return NONE_RAN
    return BOUNDED if statement.bounded else settled.status


def _anchor(name: str) -> str:
    return name.lower().replace(".", "")


def _family(family: ModuleType, members: Sequence[Statement], record: Record) -> Iterator[str]:
    title, _, rest = (inspect.getdoc(family) or "").partition("\n\n")
    yield f"# {' '.join(title.split())}"
    yield ""
    yield from _prose(f"Part of the [theorems]({INDEX}), which say how this page was made and what its words mean.")
    for paragraph in filter(None, rest.split("\n\n")):
        yield ""
        yield from _prose(" ".join(paragraph.split()))
    for statement in members:
        yield ""
        yield from _section(statement, record)
    if family is windows:
        yield ""
        yield from _worked_example()


def _section(statement: Statement, record: Record) -> Iterator[str]:
    settled = record.settled[statement.id]
    yield f"## {statement.id}"
    yield ""
    yield from _prose(statement.sentence)
    yield ""
    if statement.stated:
        yield "```python"
        yield from statement.stated.splitlines()
        yield "```"
    else:
        yield "In words only: every case is tried, and there is no claim to generate a formula from."
    if isinstance(statement, Theorem):
        yield ""
        yield from _prose(
            "Where " + "; ".join(f"`{name}`: {means}" for name, means in statement.variables.items()) + "."
        )
    if statement.meaning:
        yield ""
        yield from _prose(f"For a user: {statement.meaning}")
    if statement.bounded:
        yield ""
        yield from _prose(f"Bounded: {statement.bounded.rstrip('.')}.")
    yield ""
    for subject, one in sorted(settled.items(), key=lambda item: record.subjects.index(item[0])):
        yield from _prose(f"* `{subject}`: {_outcome(statement, subject, one)}", "  ")
    controls = next((one.controls for one in settled.values() if one.controls), {})
    if controls:
        refuted = [name for name, status in controls.items() if status == "refuted"]
        yield ""
        yield from _prose(f"Negative controls refuted, {len(refuted)} of {len(controls)}: {'; '.join(refuted)}.")


def _outcome(statement: Statement, subject: str, settled: Settled) -> str:
    if settled.status == "refuted":
        values = ", ".join(f"{name} = {value}" for name, value in settled.counterexample.items())
        reason = statement.refuted_on.get(subject, "not expected")
        return f"**refuted**: {reason}. Run on the real code: {values} ({settled.message})"
    if settled.status == "proved":
        return f"{_status(statement, settled)}; {settled.paths:,} paths, {settled.obligations:,} obligations"
    return f"{settled.status}: {settled.message}"


def _worked_example() -> Iterator[str]:
    """T5 in bytes, for models that people serve."""
    yield "## What the admission cap of a sliding window gives away (T5)"
    yield ""
    yield from _prose(
        "A request holds at most `cdiv(min(w - 1 + batched + b - 1, max_len), b)` blocks of a window of `w` tokens "
        "(T5; attained: T5.attained); the admission gate counts `cdiv(min(w - 1 + batched, max_len), b) + 1`. Bytes "
        "are over all layers with the window, for each request that is admitted. While it decodes, a token a step, a "
        "request holds far less than either: what a long prefill needs is reserved to its end."
    )
    yield ""
    yield "| model | window | budget of a step | max length | cap | most held | decoding | given away |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, window, block, layers, heads, size, width in EXAMPLES:
        bytes_per_block = block * heads * (size + size) * width * layers
        for batched in BUDGETS:
            for max_len in MAX_LENS:
                cap = arith.cap_sliding(window, block, batched, max_len)
                held = windows.exact_sliding(window, block, batched, max_len)
                decoding = windows.exact_sliding(window, block, 1, max_len)
                lost = (cap - held) * bytes_per_block
                share = f"{lost:,} bytes, {lost / (cap * bytes_per_block):.2%}" if lost else "nothing"
                yield f"| {name} | {window} | {batched:,} | {max_len:,} | {cap} | {held} | {decoding} | {share} |"
