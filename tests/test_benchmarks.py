"""The benchmarks still run, and write what docs/evidence/numbers.md and docs/evidence/slot-mapping.md consist of."""

import json
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from blockproof.model.ops import Group

ROOT = Path(__file__).parents[1]
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
    assert len(rows_written) == 2 * (7 + 4)
    assert kept == rows_written * 2  # a table for each of two traces


def test_a_few_malformed_documents_and_a_kill_keep_the_promises():
    for script, counts in {
        "hostile.py": ["--traces", "5", "--replies", "5", "--configurations", "5", "--arguments", "5"],
        "kills.py": ["--kills", "1", "--only", "explore"],
    }.items():
        words = [sys.executable, f"benchmarks/{script}", *counts]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("malformed") == 4 * (script == "hostile.py")
    assert done.stdout.endswith("1 kills, 0 broken promises\n")
