"""What the generated pages about theorems, exploration and mutations say is what their sources say today."""

import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from blockproof.fuzz.exploration.faults import FAULTS
from blockproof.fuzz.exploration.properties import MEANING
from blockproof.fuzz.exploration.scopes import SCOPES
from blockproof.fuzz.findings.writing import write_file
from blockproof.fuzz.opening.targets import interpreter_of
from blockproof.fuzz.targets.base import TargetUnavailableError
from blockproof.proofs import pages
from blockproof.proofs.theorems import BY_ID, THEOREMS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference" / "theorems"
RELEASE = "vllm==0.23.0"
OURS = ("model", "impl", "impl-today")
AGAIN = f"run: blockproof prove --target {' --target '.join((*OURS, RELEASE))} --write docs/reference/theorems"


def kept(name):
    return (ROOT / "docs" / "evidence" / name).read_text(encoding="utf-8")


def benchmark(name):
    """A script of `benchmarks`, as a module."""
    folder = str(ROOT / "benchmarks")
    sys.path += [] if folder in sys.path else [folder]  # the scripts import each other
    return import_module(name)


# Theorems. That each comes out again as the record says is tested where it is settled, in test_theorems.


@pytest.fixture(scope="module")
def record():
    return pages.read((FOLDER / pages.RECORD).read_text(encoding="utf-8"))


def test_the_pages_are_those_that_the_theorems_and_the_record_make_today(record):
    made = pages.pages(THEOREMS, record)
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(made)
    for name, text in made.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, f"{name} is stale; {AGAIN}"


def test_every_theorem_came_out_for_every_core_as_it_is_declared(record):
    assert set(record.settled) == set(BY_ID)
    assert set(record.subjects) == {*OURS, RELEASE}
    for name, settled in record.settled.items():
        assert set(settled) == set(record.subjects)
        for subject, one in settled.items():
            declared = subject in BY_ID[name].refuted_on
            assert one.status in (("refuted",) if declared else ("proved", "unavailable")), (name, subject)
            assert bool(one.counterexample) == declared


def assert_unchanged(record, subject, file_of):
    """The functions of a core that ran have the same source today; `file_of` finds the file of a module."""
    today = {}
    ran = {item for settled in record.settled.values() for item in settled[subject].functions.items()}
    for place, digest in sorted(ran):
        module, _, name = place.partition(":")
        if module not in today:
            today[module] = pages.hashes_today(file_of(module))
        assert digest in today[module].get(name, ()), f"{place} has changed since the theorems were settled; {AGAIN}"
    assert len(ran) > 50


@pytest.mark.parametrize("subject", OURS)
def test_the_functions_that_ran_have_not_changed_since(record, subject):
    assert_unchanged(record, subject, lambda module: Path(import_module(module).__file__))


def test_the_functions_of_the_release_that_ran_are_those_of_its_package(record):
    try:
        _, place = interpreter_of(RELEASE)
    except TargetUnavailableError as error:
        pytest.skip(str(error))
    (layer,) = place.layers
    assert_unchanged(record, RELEASE, lambda module: layer / f"{module.replace('.', '/')}.py")


def test_what_is_settled_again_takes_its_place_in_the_record_and_all_else_stays(tmp_path, record):
    again = {"impl": replace(record.settled["T4"]["impl"], paths=77)}
    pages.write(tmp_path, THEOREMS, record, write_file)
    pages.write(tmp_path, THEOREMS, pages.Record("2030-01-01", "another machine", ("impl",), {"T4": again}), write_file)
    now = pages.read((tmp_path / pages.RECORD).read_text(encoding="utf-8"))
    assert (now.date, now.subjects) == ("2030-01-01", record.subjects)
    assert now.settled["T4"]["impl"].paths == 77
    assert {**now.settled, "T4": None} == {n: of for n, of in record.settled.items() if n in BY_ID} | {"T4": None}
    assert now.settled["T4"]["model"] == record.settled["T4"]["model"]
    assert "proved; 77 paths" in (tmp_path / "windows.md").read_text(encoding="utf-8")


def test_prose_is_wrapped():
    """What stands between fences is the source of claims, which test_formula holds to its own width."""
    for path in FOLDER.glob("*.md"):
        prose = re.sub(r"^```python$.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
        for line in prose.splitlines():
            assert len(line) <= pages.WIDTH or line.startswith(("|", "#")) or " " not in line.strip(), path.name


# Exploration.

COUNTS = re.compile(r"\| (\S+) \| .+ \| \d+ \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| (\d+) \| [\d.]+ \| [\d,]+ \|")


def counts(page):
    """States, at rest, transitions and depth, by scope."""
    return {match[1]: match.groups()[1:] for line in page.splitlines() if (match := COUNTS.fullmatch(line))}


def faults(page):
    return sorted({name for name in re.findall(r"`([a-z-]+)`", page) if name in FAULTS})


def test_the_page_of_the_exploration_has_every_scope_property_and_fault():
    page = kept("exploration.md")
    assert set(counts(page)) == set(SCOPES)
    assert sum(int(states.replace(",", "")) for states, *_ in counts(page).values()) >= 1_000_000
    assert faults(page) == sorted(FAULTS)
    assert "NOT FOUND" not in page
    for name, meaning in MEANING.items():
        assert f"| {name} | {meaning} | " in page
    text = benchmark("exploration")
    for part in (text.INTRODUCTION, text.MEANINGS, text.LIMITS):
        assert part in page


@pytest.mark.slow
def test_the_counts_on_the_page_of_the_exploration_are_those_of_a_run(tmp_path):
    written = tmp_path / "exploration.md"
    words = [sys.executable, "benchmarks/exploration.py", "--scopes", "sink,full-eagle", "--write", str(written)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    page = written.read_text(encoding="utf-8")
    assert counts(page) == {name: counts(kept("exploration.md"))[name] for name in ("sink", "full-eagle")}
    assert "NOT FOUND" not in page
    assert faults(page) == sorted(FAULTS)


# Mutations.


def test_the_page_of_the_mutations_is_about_the_functions_as_they_are():
    mutation, page = benchmark("mutation"), kept("mutation.md")
    assert f"`{mutation.digest()}`" in page, "run benchmarks/mutation.py again: the arithmetic has changed"
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (.*) \|$", page, re.M)
    functions = {name for module in mutation.MODULES.values() for name, one in vars(module).items() if callable(one)}
    assert {name for name, *_ in rows} <= functions
    for name, *numbers, theorems in rows:
        every, refuted, undecided, survived = map(int, numbers)
        assert every == refuted + undecided + survived, name
        assert set(theorems.split(", ")) <= set(BY_ID)
    survivors = re.findall(r"^\| `(\w+)` \| `(.+)` \| (.+) \|$", page, re.M)
    assert {(name, line): reason for name, line, reason in survivors} == mutation.EQUIVALENT
    assert sum(int(survived) for *_, survived, _ in rows) == len(survivors)
