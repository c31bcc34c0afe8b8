"""docs/exploration.md says what the command that writes it finds."""

import re
import subprocess
import sys
from pathlib import Path

from blockproof.proofs.exploration.faults import FAULTS
from blockproof.proofs.exploration.scopes import SCOPES

ROOT = Path(__file__).parents[2]
COUNTS = re.compile(r"\| (\S+) \| .+ \| \d+ \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| (\d+) \| [\d.]+ \| [\d,]+ \|")


def counts(page):
    """States, at rest, transitions and depth, by scope."""
    return {match[1]: match.groups()[1:] for line in page.splitlines() if (match := COUNTS.fullmatch(line))}


def faults(page):
    return sorted(name for name in re.findall(r"`([a-z-]+)`", page) if name in FAULTS)


def test_the_page_has_every_scope_with_the_counts_that_a_run_has(tmp_path):
    kept = (ROOT / "docs" / "exploration.md").read_text(encoding="utf-8")
    assert set(counts(kept)) == set(SCOPES)
    total = sum(int(states.replace(",", "")) for states, *_ in counts(kept).values())
    assert total >= 1_000_000
    written = tmp_path / "exploration.md"
    words = [sys.executable, "benchmarks/exploration.py", "--scopes", "sink,full-eagle", "--write", str(written)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    page = written.read_text(encoding="utf-8")
    assert counts(page) == {name: counts(kept)[name] for name in ("sink", "full-eagle")}
    assert "NOT FOUND" not in page
    assert faults(page) == faults(kept) == sorted(FAULTS)
