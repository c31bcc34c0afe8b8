"""The catalogue of public reports of 2025 and 2026: each mistake exists, and the page says what was measured."""

import json
import sys
from importlib import import_module
from pathlib import Path

from blockproof.fuzz.faults import FAULTS

from .reports_2026 import BESIDE, CLASSES, REPORTS, REPOSITORIES, SHOWN, named_mistakes

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
reports, simulation = import_module("reports"), import_module("simulation")
PAGE = ROOT / "docs" / "evidence" / "reports.md"
KEPT = json.loads(PAGE.with_suffix(".json").read_text(encoding="utf-8"))
LISTED = [report for part in REPORTS.values() for report in part]
EVERY = [*LISTED, *(report for part in BESIDE.values() for report in part)]


def test_each_report_stands_for_a_mistake_or_says_why_not():
    assert list(REPORTS) == list(CLASSES) == list(BESIDE)
    assert len({report.name for report in EVERY}) == len(EVERY)
    for report in EVERY:
        assert bool(report.mistakes) != bool(report.why), report.name
        assert report.name.partition("#")[0] in REPOSITORIES
        assert len(report.mechanism.split()) <= 25, report.name
    assert sum(bool(report.mistakes) for report in LISTED) >= 45
    assert set(SHOWN) <= {report.name for report in LISTED}


def test_each_mistake_exists_and_was_measured():
    assert set(named_mistakes()) <= {*simulation.EVERY, *FAULTS}
    assert list(KEPT["rows"]) == named_mistakes()
    in_time = [report for report in EVERY if all(reports.in_time(KEPT["rows"][name]) for name in report.mistakes)]
    assert len(in_time) >= 0.9 * len(EVERY)


def test_the_page_says_what_was_measured():
    assert PAGE.read_text(encoding="utf-8") == reports.page_of(KEPT["rows"], KEPT["command"], KEPT["processor"])
