"""The benchmarks still run, and write what the pages consist of."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from blockproof.fuzz.mutation.hunting import Hunted
from blockproof.fuzz.mutation.places import Mutant
from blockproof.fuzz.mutation.report import HuntAsked, MutantsDone, kept_text
from blockproof.fuzz.mutation.subject import subject_of
from blockproof.model import ops

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))
tricks, tricks_list = import_module("tricks"), import_module("tricks_list")
real_bugs = import_module("real_bugs")
EVIDENCE = ROOT / "docs" / "evidence"
ROW = re.compile(r"\| (.+) \| [\d,]+ \| [\d,]+ to [\d,]+ \| \d+\.\d\d \|")


def rows(page: str) -> list[str]:
    """The lines of the throughput table, by what they measure."""
    return [match[1] for line in page.splitlines() if (match := ROW.fullmatch(line))]


def test_a_short_run_writes_a_line_for_each_thing_measured(tmp_path):
    written = tmp_path / "numbers.md"
    words = [sys.executable, "benchmarks/throughput.py", "--seconds", "0.02", "--rounds", "1"]
    words += ["--target", "vllm==0.0.1", "--write", str(written)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "vllm==0.0.1 is not installed and is left out" in done.stderr
    page = written.read_text(encoding="utf-8")
    assert page.startswith("# Numbers\n")
    written_up = (EVIDENCE / "numbers.md").read_text(encoding="utf-8")
    kept = [name for name in rows(written_up) if "vllm" not in name]
    assert len(kept) == 6
    assert rows(page) == [name for name in kept if find_spec("torch") or "tensors" not in name]


def test_the_page_of_real_bugs_says_what_was_measured():
    kept = json.loads((EVIDENCE / "real-bugs.json").read_text(encoding="utf-8"))
    page = real_bugs.page_of(kept["rows"], kept["command"], kept["processor"])
    assert page == (EVIDENCE / "real-bugs.md").read_text(encoding="utf-8")


def test_one_real_bug_is_measured_anew_and_the_others_stay(tmp_path):
    page, traces = tmp_path / "page.md", tmp_path / "traces"
    page.with_suffix(".json").write_text((EVIDENCE / "real-bugs.json").read_text(encoding="utf-8"), encoding="utf-8")
    words = [sys.executable, "benchmarks/real_bugs.py", "--only", "claimed-hit-reset", "--seeds", "1"]
    words += ["--operations", "400", "--write", str(page), "--traces", str(traces)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "1 of 1 found"
    assert [path.name for path in traces.iterdir()] == ["V13-claimed-hit-reset.json"]
    before = json.loads((EVIDENCE / "real-bugs.json").read_text(encoding="utf-8"))["rows"]
    after = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))["rows"]
    assert [row["fault"] for row in after] == [row["fault"] for row in before]
    assert [row["fault"] for old, row in zip(before, after, strict=True) if row != old] == ["claimed-hit-reset"]
    assert page.read_text(encoding="utf-8").startswith("# Real bugs\n")


# What each trick of the core brings.


def small(trick):
    """The trick with work that takes a moment."""
    sizes = {"tokens": 16, "shared": 16, "pool": 4, "running": 32}
    return replace(trick, params={name: _less(value, sizes.get(name, 1)) for name, value in trick.params.items()})


def _less(value, share):
    return value // share if isinstance(value, int) else value


@pytest.mark.parametrize("trick", tricks_list.TRICKS, ids=lambda trick: trick.name)
def test_a_core_without_a_trick_does_the_same_in_the_other_way(trick):
    if not all(map(find_spec, trick.packages)):
        pytest.skip("needs an optional package")
    assert len(tricks.measure(small(trick), 1).ratios) == 1  # ends the program unless it is so


def test_what_switches_nothing_is_refused():
    (events,) = [trick for trick in tricks_list.TRICKS if trick.name == "events"]
    with pytest.raises(SystemExit, match="not switched"):
        tricks.measure(small(replace(events, replaced=())), 1)


def test_a_way_that_does_other_work_is_refused():
    (chains,) = [trick for trick in tricks_list.TRICKS if trick.name == "chains"]
    where, _, without = chains.replaced[0]
    definition = where.hash_block_tokens
    other = (where, "hash_block_tokens", lambda hashing, parent, tokens, *keys: definition(hashing, parent, tokens[:1]))
    with pytest.raises(SystemExit, match="differ"):
        tricks.measure(small(replace(chains, replaced=((where, "chain_of", without), other))), 1)


def test_the_guide_tells_the_figures_of_the_page():
    page = (EVIDENCE / "tricks.md").read_text(encoding="utf-8")
    measured = re.findall(r"^\| `([a-z-]+)` \|.* \| ([\d.]+) \[", page, re.MULTILINE)
    by_name = {trick.name: trick for trick in tricks_list.TRICKS}
    gains = [tricks.Gain(by_name[name], 0.0, 0.0, (float(times),)) for name, times in measured]
    guide = (ROOT / "docs" / "guide" / "speed.md").read_text(encoding="utf-8")
    assert re.findall(r"[\d.,]+ \(`([a-z-]+)`\)", guide) == [name for name, _ in measured] == list(by_name)
    assert tricks.quote(gains, guide) == guide
    assert tricks.quote([gains[0]._replace(ratios=(1234.5,))], guide) == guide.replace(gains[0].quoted, "1,234", 1)


def test_a_run_is_replayed_on_another_side_only_if_it_is_legal_there_and_nothing_is_found(monkeypatch):
    harness = import_module("harness_side")
    side = harness.Side()
    monkeypatch.setattr(side.names, "RECORDED_RUNS", 3)
    (shape, first), *others = json.loads(json.dumps(side.record()))
    assert [harness._plain(harness._made(ops, one)) for one in first] == side.record()[0][1]
    illegal = [*first, {"": "Arrive", "request": "nobody"}]
    assert side.take([[shape, first], [shape, illegal], *others]) == [0, 2, 3]
    side.keep([0])
    assert side.recorded(("lockstep", "shadow"), 0, 0)["operations"] == len(first)
    monkeypatch.setattr(side.target, "glance", side.target._apply)
    assert side.recorded(("lockstep",), 0, 0)["operations"] < len(first)


def test_a_side_counts_in_a_child_process_and_goes_on_itself():
    harness = import_module("harness_side")
    side = harness.Side()
    (first, begun), (last, done) = side.counted("drawn", ("lockstep",), 1, 200)
    assert 1 <= begun["operations"] < 200 <= done["operations"]
    assert len({first, last, os.getpid()}) == 3


def test_instructions_are_those_of_the_child_that_works_less_those_of_one_that_begins(tmp_path):
    harness = import_module("harness")
    other = harness.Other.__new__(harness.Other)
    other.log = tmp_path / "log"
    other.log.write_text("==7== I   refs:      2,000\n==9== I   refs:      5,500\n==1== I   refs: 9\n")
    begun, done = {"operations": 2, "met": {}}, {"operations": 9, "met": {"hits": 1}}
    other.answer = lambda: [[7, begun], [9, done]]
    assert other.counted() == {"operations": 7, "cost": 3_500, "met": {"hits": 1}}


def test_counting_without_valgrind_is_told_in_a_line(monkeypatch, capsys):
    harness = import_module("harness")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "argv", ["harness.py", "HEAD", "--instructions"])
    with pytest.raises(SystemExit, match="2"):
        harness.main()
    assert "--instructions needs valgrind: install it, or measure time" in capsys.readouterr().err


def test_a_ratio_is_of_operations_in_time_of_the_processor():
    harness = import_module("harness")
    slow = {"operations": 100, "cost": 4_000_000, "met": {"hits": 5}}
    turn = [slow, {"operations": 50, "cost": 1_000_000, "met": {"hits": 5}}]
    cases = {("drawn", "lockstep"): [turn, turn[::-1]]}
    assert harness.ratio(turn) == 2
    assert harness.ratio_table(cases, "s")[2:] == ["| drawn | lockstep | 37,500 | 37,500 | 1.250 | 0.500 to 2.000 |"]
    assert harness.met_table({("drawn", "lockstep"): [turn]})[2:] == ["| hits | 50 | 100 |"]


def test_a_few_malformed_documents_keep_the_promises():
    kinds = ("--traces", "--replies", "--configurations", "--arguments")
    words = [sys.executable, "benchmarks/hostile.py", *(word for kind in kinds for word in (kind, "5"))]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("malformed") == len(kinds)


def test_the_page_of_random_mutants_counts_by_module_and_by_seed(tmp_path, capsys, monkeypatch):
    pages = import_module("random_mutants")
    module = "blockproof.impl.pool.block_pool"
    mutants = [Mutant(module, "f", line, "", "a", "b", (line, line), False, "") for line in range(4)]
    files = []
    for seed, found in ((1, 3), (2, 4)):
        fates = ["killed"] * found + ["survived"] * (4 - found)
        hunted = [Hunted(one, fate, "lockstep", "", 9, 0, 1.0) for one, fate in zip(mutants, fates, strict=True)]
        files.append(tmp_path / f"{seed}.json")
        told = MutantsDone(HuntAsked("impl", 4, seed, 100, 10), subject_of("impl"), mutants, hunted)
        files[-1].write_text(kept_text(told), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["benchmarks/random_mutants.py", *map(str, files)])
    assert pages.main() == 1, "a survivor is not judged"
    lines = capsys.readouterr().out.splitlines()
    assert f"| `{module}` | 7 | 8 | 0 | 0 | 1 | 87.5 % |  |" in lines
    assert "| seed 1 | 3 | 4 | 0 | 0 | 1 | 75.0 % |  |" in lines
    assert "| seed 2 | 4 | 4 | 0 | 0 | 0 | 100.0 % |  |" in lines
    assert "| 1 | block_pool.py:3 in f | <code>a</code> → <code>b</code> | **not judged** |  |" in lines
    files[1].write_text(files[1].read_text().replace('"operations": 100', '"operations": 200', 1))
    with pytest.raises(SystemExit):
        pages.main()
    assert "of different runs" in capsys.readouterr().err


def test_the_guides_show_the_pictures_that_shots_makes(tmp_path):
    shots = import_module("shots")
    guide = ROOT / "docs" / "guide"
    shown = re.findall(
        r"!\[([^\]]{40,})\]\(pictures/([a-z]+)\.png\)", "\n".join(one.read_text() for one in guide.glob("*.md"))
    )
    pictures = {path.stem: path.stat().st_size for path in (guide / "pictures").iterdir()}
    assert {name for _, name in shown} == pictures.keys() == {shot.name for shot in shots.SHOTS if shot.guide}
    assert max(pictures.values()) < 150_000
    plan = next(shot for shot in shots.SHOTS if shot.name == "plan")
    assert "PlanView" in shots.page_of(plan, tmp_path).read_text()
    with pytest.raises(SystemExit, match="ended with 2"):
        shots.run(("plan", "no-such-model"), 1, tmp_path)


@pytest.mark.slow
def test_shrinking_stays_with_the_cause_in_our_core_and_in_toy_engines():
    words = [sys.executable, "benchmarks/shrinking.py", "--findings", "15", "--candidates", "1500", "--seed", "3"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken promises" in done.stdout
    rows = re.findall(r"^\| ((?:one|two) in [\w -]+) \| (\d+) ", done.stdout, re.MULTILINE)
    assert len(rows) == 5
    assert all(int(times) for _, times in rows), "each kind of subject was shrunk"


@pytest.mark.skipif(find_spec("torch") is None, reason="make tensors")
def test_the_page_of_the_device_is_written_without_one(tmp_path):
    written = tmp_path / "device.md"
    words = [sys.executable, "benchmarks/device.py", "--device", "cpu", "--quick", "--only", "shadow"]
    done = subprocess.run([*words, "--write", str(written)], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    page = written.read_text(encoding="utf-8")
    assert page.startswith("# On the device\n")
    assert "| cpu |" in page
    said = subprocess.run([*words, "--code"], cwd=ROOT, capture_output=True, text=True, timeout=200).stdout
    assert f"* of the code `{said.split()[1].rstrip(',')}`" in page
    assert re.search("^\\* of the code `[0-9a-f]{12}`", (ROOT / "docs/evidence/device.md").read_text(), re.MULTILINE)
    if not import_module("torch").cuda.is_available():
        words[3] = "cuda"
        done = subprocess.run([*words, "--write", str(written)], cwd=ROOT, capture_output=True, text=True, timeout=200)
        assert (done.returncode, done.stdout.partition(" here: ")[0].split()[-3:]) == (3, ["sees", "no", "GPU"])
        assert written.read_text(encoding="utf-8") == page


@pytest.mark.skipif(find_spec("torch") is None, reason="make tensors")
def test_steps_can_be_measured():
    speed = import_module("device_speed")
    for work in speed.WORKS[2::4]:
        steps = [speed.ours(work, 2, "cpu", captured=lists, lists=lists) for lists in (True, False)]
        assert all(0 < times.host <= times.whole for times in speed.measured(steps, speed.waiting("cpu"), 1, 1))
