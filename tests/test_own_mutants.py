"""Mutants of this project itself: tests that run a changed line notice it; what is written up stands in the sources."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from blockproof.fuzz.mutation.drawing import Mutant
from blockproof.fuzz.mutation.hunting import Hunted
from blockproof.fuzz.mutation.planting import path_of
from blockproof.fuzz.mutation.report import Asked, Told
from blockproof.fuzz.mutation.survivors import Survivors

ROOT = Path(__file__).parents[1]
REDUCER = "blockproof.fuzz.traces.reducer"
REDUCER_TESTS = "tests/fuzz/traces/test_reducer.py"


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield import_module("own_mutants")
    sys.modules.pop("own_mutants", None)


@pytest.mark.parametrize("part", ["impl", "contract", "liveness", "shadow", "lockstep", "reducer"])
def test_every_entry_about_a_survivor_stands_in_the_sources(part: str, benchmarks: Any) -> None:
    subject = benchmarks.subject(part)
    judged = Survivors(subject.mutable.survivors)
    assert [(one.function, one.line) for one in judged.gone(subject.sources())] == []


def changed(old: str, new: str) -> Mutant:
    """The reducer with one line changed."""
    source = Path(path_of(REDUCER)).read_text(encoding="utf-8")
    assert source.count(old) == 1
    line = source[: source.index(old)].count("\n") + 1
    return Mutant(REDUCER, "", line, "", old, new, (line, line), False, source.replace(old, new))


def hunt() -> None:
    """Prints what becomes of three mutants."""
    benchmarks: Any = import_module("own_mutants")
    noticing = benchmarks.Noticing([REDUCER], [REDUCER_TESTS], ["blockproof.model", "blockproof.impl"])
    harmless = changed("self._candidates += 1", "self._candidates += 2 - 1")
    wrong = changed("self.best, self.finding = shown", "self.finding = shown[1]")
    broken = changed("MAX_CANDIDATES = 100_000", "MAX_CANDIDATES = 1 // 0")
    fates = [noticing.hunt(one) for one in (harmless, wrong, broken)]
    told = [[one.status, one.by, one.finding] for one in fates]
    counts = [len(noticing.failed), len(noticing.chosen(wrong)), len(noticing.known)]
    print(json.dumps([told, counts]))


def test_a_mutant_is_noticed_by_a_test_that_runs_it() -> None:
    """In a process of its own: one that has run other tests, or is measured itself, holds modules of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST_"))}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])
    words = [sys.executable, "-c", "from tests.test_own_mutants import hunt; hunt()"]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (harmless, wrong, broken), (failed, chosen, known) = json.loads(done.stdout.splitlines()[-1])
    assert [one[0] for one in (harmless, wrong, broken)] == ["survived", "killed", "import"]
    assert wrong[1].startswith(f"{REDUCER_TESTS}::")
    assert broken[2].startswith("ZeroDivisionError")
    assert failed == 0
    assert 0 < chosen <= known


def told(benchmarks: Any, part: str, *statuses: str) -> Told:
    """A run of mutants with these fates, one in a line."""
    subject = benchmarks.subject(part)
    module = subject.mutable.modules[0]
    mutants = [Mutant(module, "f", line, "", "a", "b", (line, line), False, "") for line in range(len(statuses))]
    hunted = [
        Hunted(one, status, "tests/test_it.py::test" if status == "killed" else "", "", 0, 0, 1.0)
        for one, status in zip(mutants, statuses, strict=True)
    ]
    return Told(Asked(part, len(mutants), 1, 0, 0), subject, mutants, hunted)


def test_the_page_says_what_was_found_before_and_after(benchmarks: Any) -> None:
    before = told(benchmarks, "reducer", "killed", "survived", "survived", "survived")
    after = told(benchmarks, "reducer", "killed", "killed", "killed", "survived")
    text = benchmarks.page(list(benchmarks.PARTS), [after], [before])
    assert "| `fuzz.traces.reducer` | 3 | 4 | 0 | 1 | 75.0 % | 25.0 % |" in text.splitlines()
    assert "| tests/test_it.py | 3 |" in text
    assert "## Our core" not in text
    assert "**not judged**" in text
    assert "| seed 1 |" not in text
    again = told(benchmarks, "reducer", "killed", "killed")
    again.asked = replace(again.asked, seed=2)
    lines = benchmarks.page(list(benchmarks.PARTS), [after, again], [before]).splitlines()
    assert "| seed 1 | 3 | 4 | 0 | 1 | 75.0 % | 25.0 % |" in lines
    assert "| seed 2 | 2 | 2 | 0 | 0 | 100.0 % |  |" in lines


def test_a_part_without_a_run_keeps_its_section_of_the_page(benchmarks: Any) -> None:
    parts = list(benchmarks.PARTS)
    runs = {part: told(benchmarks, part, "killed", "survived") for part in ("contract", "shadow", "reducer")}
    old = benchmarks.page(parts, list(runs.values()), [])
    assert benchmarks.page(parts, [], [], old) == old
    again = told(benchmarks, "shadow", "killed", "killed")
    new = benchmarks.page(parts, [again], [], old)
    assert new == benchmarks.page(parts, [runs["contract"], again, runs["reducer"]], [])
    assert new != old
    assert "## The contract" not in benchmarks.page(parts, [again], [])


@pytest.mark.skipif(find_spec("cosmic_ray") is None, reason="pip install '/path/to/blockproof[mutation]'")
def test_a_hunt_goes_on_with_the_same_mutants_after_an_edit(benchmarks: Any) -> None:
    run = Told(Asked("reducer", 12, 1, 0, 0), benchmarks.subject("reducer"), [])
    benchmarks.go_on(run)
    drawn = run.mutants
    assert len(drawn) == 12
    assert not run.hunted
    run.hunted = [Hunted(one, "killed", "test", "", 0, 0, 1.0) for one in drawn[:2]]
    benchmarks.go_on(run)
    assert run.mutants == drawn
    assert [one.mutant for one in run.hunted] == list(drawn[:2])
    run.hunted = [replace(one, mutant=replace(one.mutant, line=one.mutant.line + 1)) for one in run.hunted]
    benchmarks.go_on(run)
    assert (
        {one.place for one in run.mutants} == {one.mutant.place for one in run.hunted} == {m.place for m in drawn[:2]}
    )


def test_our_core_is_more_than_its_arithmetic(benchmarks: Any) -> None:
    page = import_module("own_mutants_page")
    modules = benchmarks.subject("impl").mutable.modules
    core = {name.removeprefix("blockproof.impl.") for name in modules if page.is_core(name)}
    assert {"request", "pool.block_pool", "managers.coordinator", "hashing.chains"} <= core
    assert not [name for name in core if name.startswith(("configuration", "specs"))]
