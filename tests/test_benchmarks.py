"""The benchmarks still run, and write what docs/evidence/numbers.md and docs/evidence/slot-mapping.md consist of."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from blockproof.model import ops
from blockproof.model.ops import Group

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
    assert len(kept) == 7
    assert rows(page) == [name for name in kept if find_spec("torch") or "tensors" not in name]


def test_a_short_run_of_slot_mappings_writes_what_the_page_has(tmp_path):
    written = tmp_path / "slot-mapping.md"
    words = [sys.executable, "benchmarks/slot_mapping.py", "--seconds", "0", "--rounds", "1", "--write", str(written)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    row = re.compile(r"## Slots.*|\| (?:`|Python).* \| (?=[\d,.]+ \| [\d,.]+ to [\d,.]+ \| [\d,.]+ \|)")
    kept = row.findall((EVIDENCE / "slot-mapping.md").read_text(encoding="utf-8"))
    assert len(kept) == 3 * (1 + 4)
    assert row.findall(written.read_text(encoding="utf-8")) == kept


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


def replayed(folder, layout, block):
    """What our core finds of two prompts of 1,100 tokens, the second of which goes on from the first."""
    rows = [(1_100, [1, 2, 3]), (2_100, [1, 2, 4, 5, 6])]
    lines = [json.dumps({"input_length": length, "output_length": 5, "hash_ids": ids}) for length, ids in rows]
    trace = folder / "trace.jsonl"
    trace.write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "benchmarks/hits_replay.py", "impl"],
        cwd=ROOT,
        input=json.dumps([str(trace), 10, layout, block, 1 << 14]) + "\n",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_traffic_hits_what_requests_share(tmp_path):
    counts = replayed(tmp_path, "full", 16)
    assert (counts["requests"], counts["asked"], counts["hit"], counts["unsafe"]) == (2, 3_200, 1_024, 0)


def test_traffic_with_drafts_keeps_a_block_behind_the_hit(tmp_path):
    counts = replayed(tmp_path, "full, eagle", 16)
    assert (counts["hit"], counts["unsafe"]) == (1_024 - 16, 0)


@pytest.mark.parametrize(
    ("kind", "missing", "is_there"),
    [("full", 0, False), ("full", 3, False), ("sliding", 0, True), ("sliding", 3, False), ("mamba", 2, True)],
)
def test_a_hit_counts_if_what_is_read_is_there(kind, missing, is_there, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    replay = import_module("hits_replay")
    group = Group(kind, 16, window=17 if kind == "sliding" else 0)
    request = replay.Request(0, 80, 1, [b"%d" % index for index in range(5)], 16)
    blocks = [SimpleNamespace(block_hash=name + bytes(4)) for name in request.block_hashes[:4]]
    layout = replay.Layout((group,))
    assert replay.can_be_read(layout, request, SimpleNamespace(blocks=(blocks,)), 64)
    blocks[missing].block_hash = None
    assert replay.can_be_read(layout, request, SimpleNamespace(blocks=(blocks,)), 64) is is_there


@pytest.mark.slow
def test_a_short_replay_writes_the_rows_that_the_page_has(tmp_path):
    replayed(tmp_path, "full", 512)
    written = tmp_path / "hits.md"
    words = [sys.executable, "benchmarks/hits.py", "--traces", str(tmp_path), "--target", "vllm==0.0.1"]
    done = subprocess.run([*words, "--write", str(written)], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "vllm==0.0.1 is not installed and is left out" in done.stderr
    row = re.compile(r"\| ([^|]+) \| ([\d,]+) \| .+ \| (?:[\d.]+|-) \|")
    kept = [
        match.groups() for match in map(row.fullmatch, (EVIDENCE / "hits.md").read_text("utf-8").splitlines()) if match
    ]
    rows_written = [match.groups() for match in map(row.fullmatch, written.read_text("utf-8").splitlines()) if match]
    recorded, made = rows_written[: 2 * (8 + 5)], rows_written[2 * (8 + 5) :]
    assert len(made) == 3 * 4
    assert kept == recorded * 2 + made  # a table for each of two traces, and one of made-up conversations


@pytest.fixture
def pools(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return import_module("hits_pools")


def conversation(folder):
    """Two prompts, the second of which goes on from the first, and the first again."""
    rows = [(1_100, [1, 2, 3]), (2_100, [1, 2, 4, 5, 6]), (1_024, [1, 2])]
    lines = [json.dumps({"input_length": length, "output_length": 5, "hash_ids": ids}) for length, ids in rows]
    path = folder / "talk.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_no_core_finds_more_than_a_pool_without_end(pools, tmp_path):
    trace = conversation(tmp_path)
    assert pools.ideal(trace, 2) == (3_200, 1_024)
    assert pools.ideal(trace, 10) == (4_224, 1_024 + 512)  # the last token of a prompt is computed
    keys = [("impl", layout, pool) for layout in pools.LAYOUTS for pool in pools.POOLS]
    found = pools.drawn(trace, 10, dict.fromkeys(keys, pools.Counts(3, 4_224, 1_536)), {"impl": "ours"})
    assert [points[-1][1] for points in found.curves[0].lines.values()] == [found.ideal * 100] * 2
    page = pools.page("# Head\n", [found], None, None)
    assert page.count("| ours | 36.36% |") == len(pools.LAYOUTS)
    too_much = dict.fromkeys(keys, pools.Counts(3, 4_224, 1_537))
    with pytest.raises(SystemExit, match="than there is to hit"):
        pools.drawn(trace, 10, too_much, {"impl": "ours"})


def test_made_up_conversations_are_the_same_each_time_and_share_what_was_said(pools, tmp_path):
    trace = pools.made_traffic(tmp_path, 50)
    first = trace.read_text(encoding="utf-8")
    assert pools.made_traffic(tmp_path, 50).read_text(encoding="utf-8") == first
    asked, hit = pools.ideal(trace, 50)
    assert 0.3 < hit / asked < 1


def test_the_page_on_pools_has_curves_that_rise_with_the_pool(pools):
    """More room finds no less, and ours no less than the release: the figures that are written up."""
    page = (EVIDENCE / "hits-pool.md").read_text(encoding="utf-8")
    ideals = re.findall(r"a pool without end hits ([\d.]+)%", page)
    for part, ideal in zip(page.split("\n## ")[1:], ideals, strict=True):
        rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| (.*) \|$", part, re.MULTILINE)
        cores = {
            (layout, core): [float(cell.rstrip("%")) for cell in cells.split(" | ")]
            for layout, core, cells in rows
            if layout in pools.LAYOUTS
        }
        assert len(cores) == 2 * len(pools.LAYOUTS)
        for (layout, core), shares in cores.items():
            assert shares == sorted(shares)
            assert len(shares) == len(pools.POOLS)
            assert shares[-1] <= float(ideal)
            if core == "ours":
                assert all(ours >= theirs for ours, theirs in zip(shares, cores[layout, "vllm==0.23.0"], strict=True))
        assert (EVIDENCE / "hits" / f"hits-{part.partition(chr(10))[0]}.svg").is_file()


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
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    harness = import_module("harness")
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


def test_a_ratio_is_of_operations_in_time_of_the_processor(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    harness = import_module("harness")
    slow = {"operations": 100, "ns": 4_000_000, "met": {"hits": 5}}
    turn = [slow, {"operations": 50, "ns": 1_000_000, "met": {"hits": 5}}]
    cases = {("drawn", "lockstep"): [turn, turn[::-1]]}
    assert harness.ratio(turn) == 2
    assert harness.table(cases)[2:] == ["| drawn | lockstep | 37,500 | 37,500 | 1.25 | 0.50 to 2.00 |"]
    assert harness.met_lines({("drawn", "lockstep"): [turn]})[2:] == ["| hits | 50 | 100 |"]


def test_a_few_malformed_documents_and_a_kill_keep_the_promises():
    for script, counts in {
        "hostile.py": ["--traces", "5", "--replies", "5", "--configurations", "5", "--arguments", "5"],
        "kills.py": ["--kills", "1", "--only", "explore"],
    }.items():
        words = [sys.executable, f"benchmarks/{script}", *counts]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("malformed") == 4 * (script == "hostile.py")
    assert "\n1 kills, 0 broken promises; " in done.stdout


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
