"""What CONTRIBUTING says of files is true, and what is written down twice agrees."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PATH = re.compile(r"`((?:\.ci|model|impl|fuzz|proofs|tests|docs|examples|benchmarks)/[^`\s]+)`")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_file_that_contributing_names_is_there():
    named = [path for path in PATH.findall((ROOT / "CONTRIBUTING.md").read_text()) if "NAME" not in path]
    assert len(named) > 50
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("start", "touched"),
    [
        ("### An attention type", r"[Cc]hunked|kinds_missing|\.kind in"),
        ("### An operation", r"\bReject\b|\[operations\]|drafts"),
    ],
)
def test_the_lists_name_files_that_the_example_touches(start, touched):
    """A file that no longer knows of the example has no place in the list of what the next one touches."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text[text.index(start) : text.index("\n### ", text.index(start) + 4)]
    files = [path for path in PATH.findall(section) if "NAME" not in path]
    assert len(files) > 10
    assert [path for path in files if not re.search(touched, (ROOT / path).read_text())] == []


def test_versions_agree():
    citation = (ROOT / "CITATION.cff").read_text()
    cited = re.findall(r"^version: (.+)$", citation, re.MULTILINE)
    assert cited == [PROJECT["version"]] == [version("blockproof")]


def test_every_tested_python_is_said():
    said = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)}
    (tested,) = re.findall(r"for version in ([\d. ]+);", (ROOT / ".ci/pythons").read_text())
    assert said == set(tested.split()) == {"3.11", "3.12", "3.13"}


def test_the_floor_of_coverage_is_a_little_below_the_figure_that_is_written_down():
    """Else one of the two was forgotten: run `make coverage`, and write the page with the command that it names."""
    (floor,) = re.findall(r"^floor=(\d+)$", (ROOT / ".ci/coverage").read_text(), re.MULTILINE)
    page = (ROOT / "docs/evidence/coverage.md").read_text()
    (figure,) = re.findall(r"\*\*all\*\* .* ([\d.]+)% \|$", page, re.MULTILINE)
    assert 0 < float(figure) - int(floor) < 5


def test_extras_are_pinned_where_the_tests_ran():
    """So that `make` on another day installs what was tested."""
    pinned = {_name(line) for line in (ROOT / "constraints.txt").read_text().splitlines()}
    extras = PROJECT["optional-dependencies"].values()
    wanted = {_name(requirement) for group in [PROJECT["dependencies"], *extras] for requirement in group}
    assert wanted - {"blockproof"} <= pinned


def _name(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[<>=\[]", requirement)[0].strip().lower())
