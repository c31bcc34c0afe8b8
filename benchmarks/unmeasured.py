"""Finds the tests that coverage can leave out: they run hardly a line that no shorter one runs.

python benchmarks/unmeasured.py [--quick] [--write tests/unmeasured.txt]

Runs the quick tests with coverage, and notes which lines and branches each of them runs, its child processes included.
Those are left out first that take longest for each line or branch that they hold alone, and as long as few are lost in
all (`SLOW`, `QUICK`); what only those left out before have held counts as held by nobody. Those that take seconds are
slow tests from then on; the others go to `unmeasured_quick.txt` beside the list, and stay quick tests. With `--quick`
only the list of these is written anew. A test with parameters is one test. Printed: what they took, and how much of all
is lost.
"""

import base64
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Set
from contextlib import closing
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest
from written import parser

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "unmeasured.txt"
QUICK_LIST = "unmeasured_quick.txt"
"""The list of quick tests, in the folder of the other."""
CONFIGURATION = "COVERAGE_PROCESS_CONFIG"
"""By which coverage.py tells child processes what to do."""


class Bounds(NamedTuple):
    """How few lines and branches tests may hold alone to be left out."""

    seconds: float
    """Shorter tests are not looked at."""
    per_second: float
    """So many for each second that a test takes."""
    share: float
    """And all together this share of those that any test runs."""


SLOW, QUICK = Bounds(2.0, 6.0, 0.002), Bounds(0.1, 100.0, 0.002)
Place: TypeAlias = tuple[int, int, int]
"""A file, and a step from one line to another in it."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid: str) -> None:
    """In a worker of the tests, as their plugin: what is measured from now on is this test's."""
    coverage = sys.modules.get("coverage")
    measuring = coverage.Coverage.current() if coverage else None
    if measuring is None or CONFIGURATION not in os.environ:
        return
    name = nodeid.partition("[")[0]
    measuring.switch_context(name)
    told = json.loads(base64.b64decode(os.environ[CONFIGURATION]))
    os.environ[CONFIGURATION] = base64.b64encode(json.dumps(told | {"context": name}).encode()).decode()


def main() -> int:
    """Run the tests and write the lists. What the tests come to does not matter here."""
    options = parser(__doc__, "the list")
    options.add_argument("--quick", action="store_true", help="leave the slow tests as they are")
    asked = options.parse_args()
    lists = {LIST.with_name(QUICK_LIST): QUICK} if asked.quick else {LIST: SLOW, LIST.with_name(QUICK_LIST): QUICK}
    with tempfile.TemporaryDirectory(prefix="unmeasured-") as folder:
        run_tests(Path(folder), lists)
        seconds, held = read_seconds(Path(folder) / "tests.xml"), read_held(Path(folder) / "coverage")
    every = len(set().union(*held.values()))
    for path, bounds in lists.items():
        left_out, lost = choose(seconds, held, bounds)
        took = sum(seconds[name] for name in left_out)
        print(f"{path.name}: {len(left_out)} of {len(seconds)} tests, {took:,.0f} of {sum(seconds.values()):,.0f} s")
        print(f"lost: {lost:,} of {every:,} lines and branches")
        for name in left_out:
            del seconds[name]
            held.pop(name, None)
        if asked.write:
            text = "".join(f"{name}\n" for name in sorted(left_out))
            asked.write.with_name(path.name).write_text(text, encoding="utf-8")
    return 0


def run_tests(folder: Path, lists: Iterable[Path]) -> None:
    """Of all tests that are quick but for these lists: how long they took into `tests.xml` there, what they ran into
    `coverage`."""
    environment = dict(os.environ, ROOT=str(ROOT), PYTHONPATH=str(Path(__file__).parent))
    environment["COVERAGE_FILE"] = str(folder / "part")
    coverage = [sys.executable, "-m", "coverage"]
    tests = [
        "-m",
        "pytest",
        "-n",
        "auto",
        "-m",
        "not slow",
        "-p",
        Path(__file__).stem,
        f"--junitxml={folder}/tests.xml",
    ]
    aside = {path: path.with_suffix(".aside") for path in lists if path.exists()}
    for path, place in aside.items():
        path.rename(place)
    try:
        subprocess.run([*coverage, "run", *tests], cwd=ROOT, env=environment, check=False)
    finally:
        for path, place in aside.items():
            place.rename(path)
    parts = [str(part) for part in folder.glob("part.*")]
    subprocess.run([*coverage, "combine", "--quiet", f"--data-file={folder}/coverage", *parts], cwd=ROOT, check=True)


def read_seconds(path: Path) -> dict[str, float]:
    """Of each test, all its cases together."""
    found: defaultdict[str, float] = defaultdict(float)
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        module = str(case.get("classname")).replace(".", "/")
        found[f"{module}.py::{str(case.get('name')).partition('[')[0]}"] += float(str(case.get("time")))
    return dict(found)


def read_held(path: Path) -> dict[str, set[Place]]:
    """Where each test has been; under "" what was run outside of tests."""
    with closing(sqlite3.connect(path)) as database:
        names = dict(database.execute("select id, context from context"))
        found: defaultdict[str, set[Place]] = defaultdict(set)
        for file, context, start, end in database.execute("select file_id, context_id, fromno, tono from arc"):
            found[names[context]].add((file, start, end))
    return dict(found)


def choose(seconds: Mapping[str, float], held: Mapping[str, Set[Place]], bounds: Bounds) -> tuple[list[str], int]:
    """The tests to be left out, and how many lines and branches nobody holds then."""
    names = list(held)
    count, of_whom = Counter[Place](), Counter[Place]()  # how many hold it, and the sum of their numbers
    for number, name in enumerate(names):
        count.update(held[name])
        of_whom.update(dict.fromkeys(held[name], number))
    alone = Counter(dict.fromkeys(seconds, 0))
    alone.update(names[of_whom[place]] for place, holders in count.items() if holders == 1)
    queue = [(alone[name] / took, -took, name) for name, took in seconds.items() if took >= bounds.seconds]
    heapify(queue)
    lost, left_out = 0, list[str]()
    while queue and queue[0][0] <= bounds.per_second:
        before, negative, name = heappop(queue)
        if before < (now := alone[name] / -negative):
            heappush(queue, (now, negative, name))
        elif lost + alone[name] <= bounds.share * len(count):
            left_out.append(name)
            lost += alone[name]
            number = names.index(name) if name in held else 0
            for place in held.get(name, ()):
                count[place] -= 1
                of_whom[place] -= number
                if count[place] == 1:
                    alone[names[of_whom[place]]] += 1
    return left_out, lost


if __name__ == "__main__":
    sys.exit(main())
