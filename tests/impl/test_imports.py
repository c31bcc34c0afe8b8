"""No file of our core imports itself through others, at the top, late, for types alone, or by `import_module`."""

from pathlib import Path

import pytest

from ..import_graph import circles, import_graph

IMPL = Path(__file__).parents[2] / "impl"


def test_our_core_has_no_circle() -> None:
    graph = import_graph(IMPL)
    assert circles(graph) == []
    assert "blockproof.impl.kv_cache_tensors" in graph["blockproof.impl"]  # imported late
    assert "blockproof.impl.kv_cache_block" in graph["blockproof.impl.block_pool"]


def test_one_arrow_from_the_specs_to_the_managers_would_close_a_circle() -> None:
    graph = import_graph(IMPL)
    graph["blockproof.impl.spec_base"].add("blockproof.impl.manager_base")
    (circle,) = circles(graph)
    assert {"blockproof.impl.spec_base", "blockproof.impl.manager_base"} < set(circle)


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
