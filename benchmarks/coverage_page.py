"""What `make coverage` measured, folder by folder, as a page.

make coverage && .venv/bin/python benchmarks/coverage_page.py [--write docs/evidence/coverage.md]
"""

import json
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

from written import parser, processor, put, table

FOLDERS = ("model", "impl", "fuzz", "proofs")
COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")
HEAD = """\
# Coverage

Written by `make coverage && .venv/bin/python benchmarks/coverage_page.py --write docs/evidence/coverage.md`,
{day}, on {machine}, Python {python}:
lines and branches of the four packages that the quick tests (`make test`) run. `.ci/run` measures again and
fails below the floor in `.ci/coverage`. Tests that run hardly a line that no shorter one runs are not
measured: `tests/unmeasured.txt` and `tests/unmeasured_quick.txt`, which `benchmarks/unmeasured.py` has
written; nor a test with parameters with more than ten of them, if these have no code of their own
(`each_is_measured`).

Worker processes of tests, explorations and proofs are counted, and so is the process of a target in our own
interpreter, which the tests ask to end before they kill it. What runs in the environment of a released engine
is not. So the modules for it (`fuzz/adapters/sglang`, most of `fuzz/adapters/vllm`) show less than the tests
run, those of simulated engines (`omit` in `pyproject.toml`) are left out, and what needs torch counts only
where it is installed.

A line that a test runs is not yet a line that a test checks: for that see the planted faults
(`blockproof mutants`) and [the mutations of the model's arithmetic](mutation.md).

"""


def measured() -> dict[str, Any]:
    """What coverage.py has recorded, as it writes it down."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coverage.json"
        command = [sys.executable, "-m", "coverage", "json", "--quiet", "-o", str(path)]
        if subprocess.run(command, check=False).returncode:
            sys.exit("there is nothing to write up: run make coverage first")
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return document


def by_folder(document: dict[str, Any]) -> dict[str, Counter[str]]:
    """Counts of each folder of files, and of the four packages, by path."""
    found: dict[str, Counter[str]] = {}
    for name, file in document["files"].items():
        *parts, _ = Path(name).parts
        for depth in {1, min(2, len(parts))}:
            place = found.setdefault("/".join(parts[:depth]), Counter())
            place.update({key: file["summary"][key] for key in COUNTS})
    return dict(sorted(found.items(), key=lambda item: (FOLDERS.index(item[0].partition("/")[0]), item[0])))


def cells(name: str, counts: Counter[str]) -> list[str]:
    """A row of the table."""
    statements, lines, branches, run = (counts[key] for key in COUNTS)
    shares = share(lines, statements), share(run, branches), share(lines + run, statements + branches)
    return [name, f"{statements:,}", shares[0], f"{branches:,}", *shares[1:]]


def share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def page() -> str:
    folders = by_folder(measured())
    total: Counter[str] = sum((folders[name] for name in FOLDERS if name in folders), Counter())
    rows = [cells(f"**{name}**" if name in FOLDERS else name, counts) for name, counts in folders.items()]
    head = HEAD.format(day=date.today(), machine=processor(), python=platform.python_version())
    names = "folder | statements: | lines run: | branches: | branches run: | both:"
    return head + "\n".join(table(names, [*rows, cells("**all**", total)])) + "\n"


def main() -> None:
    put(page(), parser(__doc__).parse_args().write)


if __name__ == "__main__":
    main()
