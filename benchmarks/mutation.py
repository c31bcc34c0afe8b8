"""Checks that every line of the model's arithmetic matters to some theorem: each mutation of it must make one fail.

python benchmarks/mutation.py [--only cdiv] [--seconds 3] [--jobs 2] [--write docs/evidence/mutation.md]

The mutations are those of cosmic-ray (extra `mutation`), and `min` for `max` and the reverse, of `model/arith.py`: no
theorem is about `model/config/arith.py`, which tests/fuzz/configuration compares with our core. One counts as killed
if a theorem that was proved is refuted with a replayed counterexample, or cannot be proved any more. What survives
must be declared in EQUIVALENT with a reason. Which theorems run a function is known from
`proofs/expected/model.json`.
"""

import ast
import difflib
import hashlib
import multiprocessing
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from textwrap import wrap
from types import CodeType, ModuleType

from blockproof.model import arith
from blockproof.proofs import expectations, roles
from blockproof.proofs.theorems import BY_ID
from written import command, parser, put, table

MODULES: dict[str, ModuleType] = {"model/arith.py": arith}
ENOUGH_S = 10.0
"""A mutation for which no theorem is refuted in so many seconds counts as one after which a theorem is not proved any
more, if there is such a theorem; else all theorems are tried."""
EQUIVALENT: dict[tuple[str, str], str] = {
    (
        "attends_chunked",
        "return t <= q and t // k >= q // k",
    ): "`t <= q` gives `t // k <= q // k`, so greater or equal is equal",
    (
        "usage",
        "return 1.0 - num_free / (num_blocks - 1) if num_blocks != 1 else 0.0",
    ): "differs for pools of less than one block, which cannot be built: the null block is one",
}
"""(function, mutated line): why the mutation changes nothing that anybody could see."""


@dataclass(frozen=True)
class Mutant:
    """One changed function."""

    module: str
    """A key of MODULES."""
    function: str
    line: str
    """The line as it reads now."""
    code: CodeType


@dataclass
class Fate:
    """What became of it."""

    function: str
    line: str
    status: str
    """`refuted`, `undecided` or `survived`."""
    theorem: str = ""
    seconds: float = 0.0


def mutants(only: str | None) -> Iterator[Mutant]:
    """Every mutation of a function body, once each."""
    for module in MODULES:
        source, seen = _source(module), set[str]()
        for changed in _changes(source):
            yield from _mutant(module, source, changed, seen, only)


def _changes(source: str) -> Iterator[str]:
    """The source with one change each."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    for name in operator_names():
        if "ariable" in name:
            continue  # needs to be told which variables; all others take no arguments
        operator = get_operator(name)()
        for occurrence in range(10_000):
            changed = mutate_code(source, operator, occurrence)
            if changed is None:
                break
            yield changed
    for place in re.finditer(r"\b(?:min|max)\(", source):
        other = "max(" if place[0] == "min(" else "min("
        yield source[: place.start()] + other + source[place.end() :]


def _mutant(module: str, source: str, changed: str, seen: set[str], only: str | None) -> Iterator[Mutant]:
    try:
        before, after = _bodies(source), _bodies(changed)
    except SyntaxError:
        return
    for function, body in after.items():
        if body != before[function] and only in (None, function) and function + body not in seen:
            seen.add(function + body)
            compiled = compile(changed, f"<mutant of {module}>", "exec").co_consts
            code = next(one for one in compiled if isinstance(one, CodeType) and one.co_name == function)
            lines = difflib.ndiff(source.splitlines(), changed.splitlines())
            line = " / ".join(line[2:].strip() for line in lines if line.startswith("+ "))
            yield Mutant(module, function, line, code)


def _source(module: str) -> str:
    return Path(str(MODULES[module].__file__)).read_text(encoding="utf-8")


def _bodies(source: str) -> dict[str, str]:
    """What each function does, without its annotations and docstring."""
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return {node.name: "\n".join(map(ast.unparse, node.body[1:])) for node in functions}


def digest() -> str:
    """What all functions do, without annotations and docstrings: the first 12 digits of a SHA-256."""
    bodies = [item for module in MODULES for item in sorted(_bodies(_source(module)).items())]
    text = "\n".join(f"{name}: {body}" for name, body in bodies)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


TASKS: list[tuple[Mutant, tuple[str, ...], float]] = []
"""Each mutant with the theorems that cover its function, and the seconds for each question to the solver."""


def fate(task: int) -> Fate:
    """Plant one mutation in this process and try the theorems that cover the function, quick ones first."""
    mutant, theorems, seconds = TASKS[task]
    function, line = mutant.function, mutant.line
    start = time.perf_counter()
    vars(MODULES[mutant.module])[function].__code__ = mutant.code
    undecided = ""
    for name in theorems:
        status = BY_ID[name].settle(roles.model(), seconds, with_controls=False).status
        if status == "refuted":
            return Fate(function, line, "refuted", name, time.perf_counter() - start)
        undecided = undecided or (name if status == "undecided" else "")
        if undecided and time.perf_counter() - start > ENOUGH_S:
            break
    left = "undecided" if undecided else "survived"
    return Fate(function, line, left, undecided, time.perf_counter() - start)


def covering() -> dict[str, tuple[str, ...]]:
    """For each function of MODULES, the proved theorems that run it, quick ones first."""
    covered: dict[str, list[str]] = {}
    for name, expected in expectations.read(["model"])["model"].items():
        for place in expected.ran if expected.outcome in ("proved", expectations.BOUNDED) else ():
            module, _, function = place.partition(":")
            if module in [one.__name__ for one in MODULES.values()]:
                covered.setdefault(function, []).append(name)
    return {name: tuple(sorted(ids, key=lambda one: BY_ID[one].weight)) for name, ids in covered.items()}


def page(fates: list[Fate], bare: list[str]) -> str:
    """The result as Markdown."""
    counts = Counter(fate.status for fate in fates)
    told = [
        f"`{command()}`, {date.today()}: {len(fates)} mutations of",
        f"{' and '.join(f'`{module}`' for module in MODULES)} (cosmic-ray, and `min` for `max`),",
        f"{counts['refuted']} refuted by a theorem with a counterexample that was run, {counts['undecided']} after",
        f"which a theorem can no longer be proved, {counts['survived']} survivors.",
    ]
    lines = [
        "# Mutations of the model's arithmetic",
        "",
        *wrap(" ".join(told), 110),
        "",
        f"The functions had the digest `{digest()}`; a test compares it with that of the functions as they are now.",
        "",
    ]
    rows = []
    for function in sorted({fate.function for fate in fates}):
        mine = [fate for fate in fates if fate.function == function]
        kinds = Counter(fate.status for fate in mine)
        killers = ", ".join(sorted({fate.theorem for fate in mine if fate.status == "refuted"}))
        rows.append(
            [f"`{function}`", len(mine), *(kinds[one] for one in ("refuted", "undecided", "survived")), killers]
        )
    counted = "mutations: | refuted: | not proved any more: | survived:"
    lines += table(f"function | {counted} | theorems that refute", rows)
    if bare:
        lines += ["", f"No theorem runs: {', '.join(bare)}."]
    alive = [one for one in fates if one.status == "survived"]
    reasons = (EQUIVALENT.get((one.function, one.line), "**not argued**") for one in alive)
    survivors = ([f"`{one.function}`", f"`{one.line}`", reason] for one, reason in zip(alive, reasons, strict=True))
    if alive:
        lines += ["", "## Survivors", "", *table("function | reads now | why nobody can see it", survivors)]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run all; 1 if a mutation survives without a reason, or a declared reason is stale."""
    asked = parser(__doc__)
    asked.add_argument("--only", help="Only this function.")
    asked.add_argument("--seconds", type=float, default=3.0, help="For each question to the solver.")
    asked.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = asked.parse_args()
    theorems = covering()
    every = list(mutants(arguments.only))
    bare = sorted({mutant.function for mutant in every} - theorems.keys())
    TASKS.extend((mutant, theorems.get(mutant.function, ()), arguments.seconds) for mutant in every)
    fates: list[Fate] = []
    context = multiprocessing.get_context("fork")  # a fresh process for each, with solver and tasks loaded
    with context.Pool(arguments.jobs, maxtasksperchild=1) as pool:
        for one in pool.imap_unordered(fate, range(len(TASKS)), chunksize=1):
            fates.append(one)
            print(f"{one.function:18} {one.status:10} {one.theorem:14} {one.seconds:5.1f} s  {one.line}", flush=True)
    put(page(fates, bare), arguments.write)
    survived = {(one.function, one.line) for one in fates if one.status == "survived"}
    stale = EQUIVALENT.keys() - survived if arguments.only is None else set()
    for function, line in sorted(stale):
        print(f"declared as equivalent, but it is killed or gone: {function}: {line}", file=sys.stderr)
    return 1 if survived - EQUIVALENT.keys() or stale else 0


if __name__ == "__main__":
    sys.exit(main())
