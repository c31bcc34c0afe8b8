"""Checks that every line of model/arith.py matters to some theorem: each mutation of it must make one fail.

python benchmarks/mutation.py [--only cdiv] [--seconds 5] [--jobs 2] [--write docs/evidence/mutation.md]

The mutations are those of cosmic-ray (extra `mutation`), and `min` for `max` and the reverse. One counts as killed if
a theorem that was proved is refuted with a replayed counterexample, or cannot be proved any more. What survives must be
declared in EQUIVALENT with a reason.
"""

import argparse
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
from types import CodeType

from blockproof.model import arith
from blockproof.proofs import roles
from blockproof.proofs.theorem import Statement
from blockproof.proofs.theorems import BY_ID, THEOREMS

SOURCE = Path(arith.__file__)
_BEYOND = "a unit above every value pads each of them by more than the largest value does, so it is never chosen"
EQUIVALENT: dict[tuple[str, str], str] = {
    ("approximate_gcd", "units = range(lower_bound, max(values) << 1)"): _BEYOND,
    ("approximate_gcd", "units = range(lower_bound, max(values) + 2)"): _BEYOND,
    (
        "approximate_gcd",
        "return min(units, key=lambda unit: (padding(values, unit), ~unit), default=lower_bound)",
    ): "`~unit` is `-unit - 1`, which orders units alike",
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
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    source = SOURCE.read_text(encoding="utf-8")
    seen: set[str] = set()
    for name in operator_names():
        if "ariable" in name:
            continue  # needs to be told which variables; all others take no arguments
        operator = get_operator(name)()
        for occurrence in range(10_000):
            changed = mutate_code(source, operator, occurrence)
            if changed is None:
                break
            yield from _mutant(source, changed, seen, only)
    for place in re.finditer(r"\b(?:min|max)\(", source):
        other = "max(" if place[0] == "min(" else "min("
        yield from _mutant(source, source[: place.start()] + other + source[place.end() :], seen, only)


def _mutant(source: str, changed: str, seen: set[str], only: str | None) -> Iterator[Mutant]:
    try:
        before, after = _bodies(source), _bodies(changed)
    except SyntaxError:
        return
    for function, body in after.items():
        if body != before[function] and only in (None, function) and function + body not in seen:
            seen.add(function + body)
            namespace: dict[str, object] = {}
            exec(compile(changed, f"<mutant of {SOURCE.name}>", "exec"), namespace)
            lines = difflib.ndiff(source.splitlines(), changed.splitlines())
            line = " / ".join(line[2:].strip() for line in lines if line.startswith("+ "))
            yield Mutant(function, line, namespace[function].__code__)  # type: ignore[attr-defined]


def _bodies(source: str) -> dict[str, str]:
    """What each function does, without its annotations and docstring."""
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return {node.name: "\n".join(map(ast.unparse, node.body[1:])) for node in functions}


def digest() -> str:
    """What all functions do, without annotations and docstrings: the first 12 digits of a SHA-256."""
    text = "\n".join(f"{name}: {body}" for name, body in sorted(_bodies(SOURCE.read_text(encoding="utf-8")).items()))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


TASKS: list[tuple[Mutant, tuple[str, ...], float]] = []
"""Each mutant with the theorems that cover its function, and the seconds for each question to the solver."""


def fate(task: int) -> Fate:
    """Plant one mutation in this process and try the theorems that cover the function, quick ones first."""
    mutant, theorems, seconds = TASKS[task]
    function, line = mutant.function, mutant.line
    start = time.perf_counter()
    vars(arith)[function].__code__ = mutant.code
    undecided = ""
    for name in theorems:
        status = _status(BY_ID[name], seconds)
        if status == "refuted":
            return Fate(function, line, "refuted", name, time.perf_counter() - start)
        undecided = undecided or (name if status == "undecided" else "")
    status = "undecided" if undecided else "survived"
    return Fate(function, line, status, undecided, time.perf_counter() - start)


def _status(statement: Statement, seconds: float) -> str:
    return statement.settle(roles.model(), seconds, with_controls=False).status


def covering(seconds: float) -> dict[str, tuple[str, ...]]:
    """For each function of model/arith.py, the proved theorems that run it, quick ones first."""
    times: dict[str, float] = {}
    covered: dict[str, list[str]] = {}
    for theorem in THEOREMS:
        start = time.perf_counter()
        verdict = theorem.settle(roles.model(), seconds, with_controls=False)
        times[theorem.id] = time.perf_counter() - start
        for place in verdict.covered if verdict.status == "proved" else ():
            module, _, name = place.partition(":")
            if module == arith.__name__:
                covered.setdefault(name, []).append(theorem.id)
    return {name: tuple(sorted(ids, key=times.__getitem__)) for name, ids in covered.items()}


def page(fates: list[Fate], bare: list[str]) -> str:
    """The result as Markdown."""
    counts = Counter(fate.status for fate in fates)
    lines = [
        "# Mutations of model/arith.py",
        "",
        f"`python benchmarks/mutation.py --write docs/evidence/mutation.md`, {date.today()}: {len(fates)} mutations",
        f"(cosmic-ray, and `min` for `max`), {counts['refuted']} refuted by a theorem with a counterexample that was",
        f"run, {counts['undecided']} after which a theorem can no longer be proved, {counts['survived']} survivors.",
        "",
        f"The functions had the digest `{digest()}`; a test compares it with that of the functions as they are now.",
        "",
        "| function | mutations | refuted | not proved any more | survived | theorems that refute |",
        "|---|---|---|---|---|---|",
    ]
    for function in sorted({fate.function for fate in fates}):
        mine = [fate for fate in fates if fate.function == function]
        kinds = Counter(fate.status for fate in mine)
        killers = ", ".join(sorted({fate.theorem for fate in mine if fate.status == "refuted"}))
        numbers = " | ".join(str(kinds[status]) for status in ("refuted", "undecided", "survived"))
        lines.append(f"| `{function}` | {len(mine)} | {numbers} | {killers} |")
    if bare:
        lines += ["", f"No theorem runs: {', '.join(bare)}."]
    survivors = [fate for fate in fates if fate.status == "survived"]
    if survivors:
        lines += ["", "## Survivors", "", "| function | reads now | why nobody can see it |", "|---|---|---|"]
        for one in survivors:
            reason = EQUIVALENT.get((one.function, one.line), "**not argued**")
            lines.append(f"| `{one.function}` | `{one.line}` | {reason} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run all; 1 if a mutation survives without a reason, or a declared reason is stale."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="Only this function.")
    parser.add_argument("--seconds", type=float, default=3.0, help="For each question to the solver.")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", type=Path, help="Write the result as Markdown.")
    arguments = parser.parse_args()
    theorems = covering(arguments.seconds)
    every = list(mutants(arguments.only))
    bare = sorted({mutant.function for mutant in every} - theorems.keys())
    TASKS.extend((mutant, theorems.get(mutant.function, ()), arguments.seconds) for mutant in every)
    fates: list[Fate] = []
    context = multiprocessing.get_context("fork")  # a fresh process for each, with solver and tasks loaded
    with context.Pool(arguments.jobs, maxtasksperchild=1) as pool:
        for one in pool.imap_unordered(fate, range(len(TASKS)), chunksize=1):
            fates.append(one)
            print(f"{one.function:18} {one.status:10} {one.theorem:14} {one.seconds:5.1f} s  {one.line}", flush=True)
    text = page(fates, bare)
    if arguments.write:
        arguments.write.write_text(text, encoding="utf-8")
    print(text)
    survived = {(one.function, one.line) for one in fates if one.status == "survived"}
    stale = EQUIVALENT.keys() - survived if arguments.only is None else set()
    for function, line in sorted(stale):
        print(f"declared as equivalent, but it is killed or gone: {function}: {line}", file=sys.stderr)
    return 1 if survived - EQUIVALENT.keys() or stale else 0


if __name__ == "__main__":
    sys.exit(main())
