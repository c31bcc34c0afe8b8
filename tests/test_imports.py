"""Who imports whom: no circle in any of the four packages, and one way only between the folders of `fuzz`.

Imports at the top, late ones, those for types alone and `import_module` all count.
"""

import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from .import_graph import circles, import_graph

ROOT = Path(__file__).parents[1]
PACKAGES = ("model", "impl", "fuzz", "proofs")
FLOORS = [
    *(
        "kinds",
        "findings",
        "workload",
        "targets",
        "simulation",
        "adapters",
        "oracles",
        "planning",
        "exploration",
        "faults",
        "opening",
        "runs",
    ),
    *(
        "reports",
        "traces",
        "page",
        "configuration",
        "engines",
        "campaign",
        "detection",
        "mutation",
        "testing",
        "traffic",
    ),
    *("releases", "bench", "compat", "cli"),
]
"""Folders of `fuzz`: each may import from those before it, never from those behind it."""


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    return import_graph(*(ROOT / package for package in PACKAGES))


def arrows_up(graph: Mapping[str, Collection[str]]) -> Iterator[tuple[str, str]]:
    """Imports between folders of `fuzz` that lead to a higher floor, or to the package that all of them lie in."""
    for module, imported in graph.items():
        for other in imported:
            if floor(other) > floor(module):
                yield module, other


def floor(module: str) -> int:
    """From 0; -1 outside `fuzz`; the package `fuzz` itself is above all. ValueError for a folder without a floor."""
    match module.split("."):
        case [_, "fuzz"]:
            return len(FLOORS)
        case [_, "fuzz", folder, *_]:
            return FLOORS.index(folder)
    return -1


def test_no_module_imports_itself_through_others(graph: dict[str, set[str]]) -> None:
    assert circles(graph) == []
    assert len(graph) > 150
    assert "blockproof.impl.tensors.kv_cache_tensors" in graph["blockproof.impl"]  # imported late
    assert "blockproof.impl.pool.block" in graph["blockproof.impl.pool.block_pool"]


@pytest.mark.parametrize(
    ("module", "other"),
    [
        ("impl.specs.base", "impl.managers.base"),
        ("model.ops", "model.core"),
        ("fuzz.findings.finding", "fuzz.runs.lockstep"),
        ("fuzz.targets.base", "fuzz.opening.child"),
        ("proofs.theorem", "proofs.theorems"),
    ],
)
def test_one_more_arrow_would_close_a_circle(graph: dict[str, set[str]], module: str, other: str) -> None:
    wrong = {**graph, f"blockproof.{module}": graph[f"blockproof.{module}"] | {f"blockproof.{other}"}}
    (circle,) = circles(wrong)
    assert {f"blockproof.{module}", f"blockproof.{other}"} <= set(circle)


def test_imports_between_folders_of_the_harness_lead_down(graph: dict[str, set[str]]) -> None:
    assert list(arrows_up(graph)) == []
    assert {path.parent.name for path in (ROOT / "fuzz").glob("*/__init__.py")} == set(FLOORS)


@pytest.mark.parametrize(
    ("module", "other"),
    [
        ("fuzz.targets.base", "fuzz.adapters.impl"),
        ("fuzz.runs.lockstep", "fuzz.traces.shrink"),
        ("fuzz.oracles.shadow", "fuzz.runs"),
        ("fuzz.findings.finding", "fuzz.workload.draw"),
        ("fuzz.releases.diff", "fuzz.cli.main"),
        ("fuzz.runs.run", "fuzz"),
    ],
)
def test_an_arrow_up_is_noticed(module: str, other: str) -> None:
    arrow = (f"blockproof.{module}", f"blockproof.{other}")
    assert list(arrows_up({arrow[0]: {arrow[1]}})) == [arrow]


@pytest.mark.parametrize(
    ("module", "other"),
    [
        ("fuzz.adapters.impl", "fuzz.targets.base"),
        ("fuzz.cli.main", "fuzz.releases.diff"),
        ("fuzz.runs.lockstep", "fuzz.runs.run"),
        ("fuzz.runs.lockstep", "model.core"),
        ("fuzz.cli.prove", "proofs.theorems"),
    ],
)
def test_an_arrow_down_or_along_is_not(module: str, other: str) -> None:
    assert list(arrows_up({f"blockproof.{module}": {f"blockproof.{other}"}})) == []


def rooms(graph: Mapping[str, Collection[str]], depth: int) -> dict[str, set[str]]:
    """Which part of a package imports which: parts are folders and files that lie so deep; what lies higher is left
    out, since a package's own file may offer what is in its parts."""
    parts: dict[str, set[str]] = {}
    for module, imported in graph.items():
        here = module.split(".")[: depth + 1]
        there = (other.split(".")[: depth + 1] for other in imported)
        inside = {".".join(other) for other in there if other != here and other[:-1] == here[:-1]}
        parts.setdefault(".".join(here), set()).update(inside if len(here) > depth else ())
    return parts


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_no_part_of_a_package_imports_itself_through_others(graph: dict[str, set[str]], depth: int) -> None:
    assert circles(rooms(graph, depth)) == []


def test_an_arrow_between_parts_that_runs_back_is_noticed(graph: dict[str, set[str]]) -> None:
    below, above = "blockproof.model.state", "blockproof.model.kinds.ring"
    (circle,) = circles(rooms({**graph, below: graph[below] | {above}}, 2))
    assert {"blockproof.model.state", "blockproof.model.kinds"} <= set(circle)


# What counts as an import, and as a circle.


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, [["a", "b", "c"]]),
        ({"a": {"b", "c"}, "b": {"a"}, "c": {"d"}, "d": {"c"}}, [["a", "b"], ["c", "d"]]),
        ({"a": {"a"}, "b": {"a"}}, [["a"]]),
        ({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": {"elsewhere"}}, []),
    ],
)
def test_circles_are_reported_with_all_their_modules(graph: dict[str, set[str]], found: list[list[str]]) -> None:
    assert circles(graph) == found


ONE, TWO = "blockproof.core.one", "blockproof.core.deep.two"


@pytest.mark.parametrize(
    "source",
    [
        "from .deep import two",
        "from .deep.two import name",
        "import blockproof.core.deep.two",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .deep.two import Name",
        "def late():\n    from .deep import two",
        "from importlib import import_module\ndef late():\n    return import_module('blockproof.core.deep.two')",
        "import importlib\nimportlib.import_module('.deep.two', __package__)",
        "import importlib\nimportlib.import_module(name='blockproof.core.deep.two')",
        "import importlib\nimportlib.import_module(f'{__name__.split(\".\")[0]}.core.deep.two')",
        "import importlib\ndef late(which):\n    return importlib.import_module(f'.deep.{which}', __package__)",
    ],
)
def test_an_import_back_is_seen_whichever_way_it_is_made(source: str, tmp_path: Path) -> None:
    core = write_core(tmp_path, source)
    assert import_graph(core)[ONE] == {TWO}
    assert circles(import_graph(core)) == [[TWO, ONE]]


@pytest.mark.parametrize(
    "source",
    [
        "import numpy",
        "from .deep import name",
        "from ..elsewhere import name",
        "NAME = 'blockproof.core.deep.two'",
        "from importlib import import_module\ndef late(where, name):\n    import_module(f'{where}.{name}')",
    ],
)
def test_other_imports_make_no_circle(source: str, tmp_path: Path) -> None:
    assert circles(import_graph(write_core(tmp_path, source))) == []


def write_core(place: Path, source: str) -> Path:
    """A folder `core` of two modules: `deep.two` imports `one`, whose source is given."""
    core = place / "core"
    (core / "deep").mkdir(parents=True)
    for name, text in {
        "__init__": "",
        "one": source,
        "deep/__init__": "",
        "deep/two": "from ..one import name",
    }.items():
        (core / f"{name}.py").write_text(text)
    return core


def test_a_run_that_finds_nothing_imports_nothing_that_takes_long(tmp_path: Path) -> None:
    """Everything that starts a command pays for it: numpy alone takes as long as all of our own modules."""
    words = ["fuzz", "--target", "impl", "--operations", "20", "--seed", "1"]
    program = f"""
import sys
from blockproof.fuzz.cli.main import main
main({words})
print([name for name in ("numpy", "hypothesis", "z3", "torch", "jinja2") if name in sys.modules], file=sys.stderr)
"""
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines()[-1] == "[]", done.stderr
