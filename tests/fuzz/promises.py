"""What every finding promises, and what breaks such a promise.

The traces that it leaves, shrunk and not, replay to the same finding and can be shown; shrinking stays with the cause
and with shapes of which the model has a core; the pytest files fail from any folder.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

from blockproof.fuzz.cli import main as cli
from blockproof.fuzz.engines.fuzzing import FuzzTask, fuzz
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.findings.oracle_names import MODEL_FREE
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.oracles.liveness import is_script
from blockproof.fuzz.targets.base import adapted_shape, block_sizes_of, lacking
from blockproof.fuzz.traces.trace_file import TraceFile, read_trace
from blockproof.model.core import Model
from blockproof.model.ops import Done

OPERATIONS = 5_000
"""After so many without a finding a seed is given up."""
TEST_SECONDS = 600.0


@dataclass(frozen=True)
class Left:
    """What a finding has left."""

    spec: str
    seed: int
    shrunk: Path
    whole: Path
    complete: bool
    """False if shrinking gave up."""
    tries: int


def left_by(spec: str, seed: int, folder: Path, seconds: float) -> Left | None:
    """Fuzz without a model until something is found, and shrink it for so many seconds. None if nothing is found."""
    target = open_target(spec)
    plan = Plan(seed, operations=OPERATIONS, attention=("full",), oracles=MODEL_FREE)
    outcome = fuzz(
        FuzzTask(spec, "random", replace(plan, shrink_seconds=seconds)), target, folder, {}, lambda line: None
    )
    if outcome.kept is None:
        return None
    shrunk = outcome.kept.shrunk
    assert shrunk is not None, f"{spec}, seed {seed}: the finding did not show again"
    return Left(spec, seed, outcome.kept.files.trace, outcome.kept.whole, shrunk.complete, shrunk.candidates)


def broken_by(left: Left) -> Iterator[str]:
    """What is wrong with the traces of a finding, a line each."""
    files = {path: read_trace(path) for path in (left.whole, left.shrunk)}
    for path, file in files.items():
        yield from (f"{path}: {problem}" for problem in _replayed_badly(path, file, left.spec))
    whole, shrunk = (file.finding for file in files.values())
    whole_key, shrunk_key = ((one.identity, one.manner) if one else None for one in (whole, shrunk))
    if whole_key is None or whole_key != shrunk_key:
        yield f"{left.shrunk}: shrunk from {whole_key} to {shrunk_key}"
    shape = files[left.shrunk].trace.shape
    if not isinstance(Model(shape).construction, Done):
        yield f"{left.shrunk}: the model has no core of the shape"
    target = open_target(left.spec)
    sizes = {*block_sizes_of(target)} or {group.block_size for group in shape.groups}
    if adapted_shape(shape, lacking(target)) != shape or not sizes.issuperset(g.block_size for g in shape.groups):
        yield f"{left.shrunk}: the shape is none that the target declares"


def _replayed_badly(path: Path, file: TraceFile, spec: str) -> Iterator[str]:
    code, text = _command("replay", str(path), "--target", spec, "--show", "--json")
    if code != 1:
        yield f"replay ended with {code}: {text[:200]}"
        return
    document = json.loads(text)
    if file.finding is None or tuple(document["finding"]["identity"]) != file.finding.identity:
        yield f"replay shows {document['finding']['identity']}"
    if len(document["steps"]) != len(file.trace.operations) and not is_script(file.trace):
        yield f"replay shows {len(document['steps'])} of {len(file.trace.operations)} steps"
    code, text = _command("replay", str(path), "--target", spec, "--show")
    if code != 1 or "judged by shadow, contract, liveness (as the trace says)" not in text:
        yield f"replay --show ended with {code}: {text[-200:]}"


def _command(*arguments: str) -> tuple[int, str]:
    out = StringIO()
    with redirect_stdout(out):
        code = cli.main([*arguments])
    return code, out.getvalue()


def passing_of(folders: Iterable[Path], elsewhere: Path) -> tuple[int, list[str]]:
    """Run all pytest files below the folders in one process that stands in another folder.

    Returns how many tests there were, and what does not fail with its finding.
    """
    report = elsewhere / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib"]
    command += [f"--rootdir={elsewhere}", f"--junitxml={report}", *map(str, folders)]
    subprocess.run(command, cwd=elsewhere, capture_output=True, timeout=TEST_SECONDS, check=False)
    cases = [*ElementTree.parse(report).iter("testcase")]
    wrong = []
    for case in cases:
        failure = case.find("failure")
        said = "" if failure is None else failure.get("message", "")
        if not said.startswith("AssertionError: \n") or " at " not in said:
            wrong.append(f"{case.get('classname')}.{case.get('name')}: {said[:300] or 'did not fail'}")
    return len(cases), wrong
