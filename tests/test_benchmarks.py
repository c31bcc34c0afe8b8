"""The benchmarks still run, and write what docs/evidence/numbers.md and docs/evidence/slot-mapping.md consist of."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

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
