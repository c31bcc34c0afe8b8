"""The page of the architecture says what the imports say."""

import re

import pytest

from ..import_graph import circles, import_graph
from .pages import DOCS, ROOT

PAGE = (DOCS / "architecture.md").read_text(encoding="utf-8")
TABLE = {name: int(floor) for name, floor in re.findall(r"^\| `(\w+)` \| (\d+) \|", PAGE, re.MULTILINE)}


@pytest.fixture(scope="module")
def arrows():
    """Which folder of `fuzz` imports from which other ones."""
    found = {name: set() for name in TABLE}
    for module, imported in import_graph(ROOT / "fuzz").items():
        home = [*module.split("."), "", ""][2]
        for name in imported if home in TABLE else ():
            found[home].add(name.split(".")[2])
    return {name: others - {name} for name, others in found.items()}


def test_the_table_has_every_folder():
    assert set(TABLE) == {path.name for path in (ROOT / "fuzz").iterdir() if (path / "__init__.py").exists()}


def test_no_import_runs_up_the_table(arrows):
    order = list(TABLE)
    late = [
        (home, other) for home, others in arrows.items() for other in others if order.index(other) > order.index(home)
    ]
    assert late == []


def test_the_floors_are_those_of_the_imports(arrows):
    floors = {}
    for name in TABLE:
        floors[name] = 1 + max((floors[other] for other in arrows[name]), default=0)
    assert floors == TABLE


def test_the_figures_are_those_of_the_imports(arrows):
    rows = re.findall(r"^\| ([^|`]+) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    after = {what: int(now) for what, _, now in rows}
    assert after == {
        "rooms": len(TABLE),
        "rooms that import each other in a circle": sum(map(len, circles(arrows))),
        "floors, a circle counted as one": max(TABLE.values()),
        "imports that run back up": 0,
        "circles of modules": len(circles(import_graph(ROOT / "fuzz"))),
    }
