"""Random mutants of a release's modules, and refactorings of them, each put over the release as a patch.

python benchmarks/patches.py [--mutants 40] [--seed 1] [--operations 2000] [--only refactorings] [--write FILE]

`verify` has to call introduced what lockstep finds of the same patch with the same seed; a refactoring, and the release
itself, must show nothing. Exits with 1 if one is called otherwise, or takes longer than it may.
"""

import ast
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.oracle_names import LOCKSTEP, MODEL_FREE
from blockproof.fuzz.mutation.places import draw_mutants
from blockproof.fuzz.mutation.subject import subject_of
from blockproof.fuzz.opening.patches import Patch
from blockproof.fuzz.opening.targets import home_of, open_target
from blockproof.fuzz.releases import verify as verifying
from blockproof.fuzz.releases.verify_effects import Where
from blockproof.fuzz.releases.verify_report import differences
from blockproof.fuzz.releases.verify_sides import VerifiedSide
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.targets.base import TargetUnavailableError, close_target
from written import command, machine_lines, parser, put, table

RELEASE = "vllm==0.23.0"
SECONDS = 120.0
"""For `verify` on one patch at most, what it shrinks included."""
LATE = 30.0
"""Seconds more that it may take: for a call that is under way, and for what is started again after it was lost."""
ATTENTION = ("full", "sliding", "full+sliding", "mamba", "full+mamba", "chunked")
PATCH = '''"""{title}"""

import sys
from importlib.abc import InspectLoader
from importlib.util import spec_from_loader

MODULE = {module!r}
SOURCE = {source!r}


class Changed(InspectLoader):
    def find_spec(self, name, path=None, target=None):
        return spec_from_loader(name, self, origin=__file__) if name == MODULE else None

    def get_source(self, name):
        return SOURCE


sys.meta_path.insert(0, Changed())
'''


class _Refactored(ast.NodeTransformer):
    """Another program that does the same."""

    def __init__(self, how: str) -> None:
        self._how = how

    def visit_If(self, node: ast.If) -> ast.AST:
        """Exchange both branches, with the condition negated."""
        self.generic_visit(node)
        if self._how == "branches exchanged" and node.orelse:
            node.test, node.body, node.orelse = ast.UnaryOp(ast.Not(), node.test), node.orelse, node.body
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """`a < b` as `b > a`."""
        self.generic_visit(node)
        turned = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE, ast.Eq: ast.Eq}
        kind = type(node.ops[0])
        if self._how == "comparisons turned" and len(node.ops) == 1 and kind in turned:
            node.left, node.comparators, node.ops = node.comparators[0], [node.left], [turned[kind]()]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Rename what a function assigns and nobody else sees; or put its body into one inside."""
        self.generic_visit(node)
        if self._how == "locals renamed":
            shared = {
                name for one in ast.walk(node) if isinstance(one, ast.Global | ast.Nonlocal) for name in one.names
            }
            nested = any(isinstance(one, ast.FunctionDef | ast.Lambda) for one in ast.walk(node) if one is not node)
            own = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
            arguments = {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
            for one in ast.walk(node) if not nested else ():
                if isinstance(one, ast.Name) and one.id in own - shared - arguments:
                    one.id = f"{one.id}_renamed"
        return node


REFACTORINGS = ("written anew", "branches exchanged", "comparisons turned", "locals renamed")


def refactorings(sources: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Module, what was done to it, and its source; 20 of them."""
    modules = [name for name in sources if name.startswith("vllm.v1.core.")][:5]
    for module in modules:
        for how in REFACTORINGS:
            tree = _Refactored(how).visit(ast.parse(sources[module]))
            yield module, how, ast.unparse(ast.fix_missing_locations(tree))


def mutants(sources: dict[str, str], count: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """The same of random mutants that are not only about a text for people."""
    for one in draw_mutants(sources, count, seed):
        if not one.text:
            yield one.module, f"{one.function}: {one.before[:60]} -> {one.after[:60]}", one.source


def judged(old: VerifiedSide, patch: Path, plan: Plan) -> tuple[str, str, float]:
    """What lockstep says, what `verify` says, and the seconds of the latter."""
    spec = Patch((str(patch),)).over(RELEASE)
    target = open_target(spec, isolate=True)
    begin = time.monotonic()
    try:
        # Blocks of the pool on purpose as few as `verify` has, and the same seed.
        alone = Summary(spec, "random", plan.seed, oracles=(LOCKSTEP,))
        run_random(target, replace(plan, oracles=(LOCKSTEP,)), alone)
        by_lockstep = "nothing" if alone.finding is None else f"{' at '.join(alone.finding.kind)}"
        begin = time.monotonic()
        new = VerifiedSide(patch.stem, spec, target, home_of(spec), old.oracles, old.like)
        done = verifying.verify(
            old, new, replace(plan, operations=3 * (plan.operations or 0), seconds=SECONDS), lambda line: None
        )
        rows = differences(done)
        counts = {where: sum(row.where is where for row in rows) for where in Where}
        said = "; ".join(f"{count} {where}" for where, count in counts.items() if count) or "nothing"
    except TargetUnavailableError as error:
        return "cannot be started", f"cannot be started: {str(error)[:80]}", time.monotonic() - begin
    finally:
        close_target(target)
    return by_lockstep, said, time.monotonic() - begin


def main() -> int:
    """Judge each, and write the page."""
    given = parser(__doc__)
    given.add_argument("--mutants", type=int, default=40)
    given.add_argument("--seed", type=int, default=1)
    given.add_argument("--operations", type=int, default=2_000)
    given.add_argument("--only", choices=("mutants", "refactorings", "itself"))
    asked = given.parse_args()
    setattr(verifying, "compare_speed", lambda *ignored: "not timed")  # noqa: B010 - nothing is timed
    sources = subject_of(RELEASE).sources()
    kinds = {
        "itself": [("", "nothing", "")],
        "refactorings": list(refactorings(sources)),
        "mutants": list(mutants(sources, asked.mutants, asked.seed)) if asked.only in (None, "mutants") else [],
    }
    plan = Plan(asked.seed, operations=asked.operations, attention=ATTENTION)
    rows, wrong = [], 0
    target = open_target(RELEASE, isolate=True)
    old = VerifiedSide(RELEASE, RELEASE, target, home_of(RELEASE), (LOCKSTEP, *MODEL_FREE), RELEASE)
    with TemporaryDirectory(prefix="blockproof-patches-") as folder:
        for kind, ones in kinds.items():
            for number, (module, what, source) in enumerate(ones if asked.only in (None, kind) else ()):
                path = Path(folder, f"{kind}{number}.py")
                path.write_text(PATCH.format(title=kind, module=module, source=source), encoding="utf-8")
                lockstep, said, seconds = judged(old, path, plan)
                introduced = str(Where.NEW) in said or str(Where.WRONG) in said or said.startswith("cannot")
                right = introduced if lockstep != "nothing" else kind == "mutants" or said == "nothing"
                right &= seconds <= SECONDS + LATE
                wrong += not right
                rows.append(
                    (kind, module, what.replace("|", "\\|"), lockstep, said, f"{seconds:.0f}", "" if right else "!")
                )
                print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    close_target(target)
    page = ["# Patches", "", f"`{command()}`", "", *machine_lines(0.0)]
    page += ["", *table("kind | module | what | lockstep | verify | seconds: | wrong", rows)]
    put("\n".join([*page, "", f"{len(rows)} patches, {wrong} called otherwise than they must be", ""]), asked.write)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
