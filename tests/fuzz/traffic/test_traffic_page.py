"""The script that serves recorded traffic in full, on a small log."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_what_was_run_is_kept_and_not_run_again(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 0, "input_length": 1_000 + 512 * number, "output_length": 9, "hash_ids": [*range(number + 2)]}
        for number in range(3)
    ]
    (tmp_path / "mooncake_small_trace.jsonl").write_text("\n".join(map(json.dumps, rows)))
    kept, page = tmp_path / "kept.json", tmp_path / "page.md"
    words = [sys.executable, "benchmarks/traffic.py", "--traces", str(tmp_path), "--target", "impl"]
    words += ["--block-size", "512", "--kept", str(kept), "--write", str(page)]
    first = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert first.returncode == 0, first.stderr
    assert first.stderr.split() == [f"mooncake_small_trace/{how}" for how in ("512/impl/whole", "16/impl/divided")]
    written = page.read_text()
    assert "| small | 512 | impl | lockstep | 3 |" in written
    assert "| nothing |" in written
    again = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (again.returncode, again.stderr, page.read_text()) == (0, "", written)
