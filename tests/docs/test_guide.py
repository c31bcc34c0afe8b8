"""The example of the guide is a target that runs, and finds a mistake."""

import re
import sys

import pytest
from blockproof.fuzz.cli.main import main

from .pages import DOCS, ROOT

EXAMPLE = ROOT / "examples" / "my-engine"
PAGE = (DOCS / "guide" / "your-own-core.md").read_text(encoding="utf-8")
FORGETS = """        block, _ = self.free.popitem(last=False)
        self.forget(block)
"""


@pytest.fixture
def fuzz(tmp_path, monkeypatch):
    """Runs the two files as they stand on the page, in a folder of their own, as the page says."""
    for name, code in zip(
        ("my_engine", "my_target"), re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S), strict=False
    ):
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("my_engine", "my_target"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    words = "fuzz --target my_target:make_target --attention full --oracle shadow,contract,liveness --seed 1"

    def run(operations):
        return main([*words.split(), "--operations", str(operations)])

    yield run
    for name in ("my_engine", "my_target"):
        sys.modules.pop(name, None)


def test_the_page_shows_the_files_of_the_example():
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
    assert blocks[:2] == [(EXAMPLE / f"{name}.py").read_text(encoding="utf-8") for name in ("my_engine", "my_target")]


def test_the_example_runs_and_nothing_is_found(fuzz, capsys):
    assert fuzz(2000) == 0
    out = capsys.readouterr().out
    assert "no difference in" in out
    assert all(f"contract: {situation}" in out for situation in ("hit", "S2 checked", "S7 checked", "S8 checked"))


def test_the_mistake_of_the_page_is_found_and_shrunk_to_the_trace_on_it(fuzz, tmp_path, capsys):
    core = tmp_path / "my_engine.py"
    text = core.read_text(encoding="utf-8")
    assert text.count(FORGETS) == 1
    core.write_text(text.replace(FORGETS, FORGETS.replace("        self.forget(block)\n", "")), encoding="utf-8")
    assert fuzz(20_000) == 1
    told = capsys.readouterr().out.partition("FOUND: ")[2]
    steps = re.findall(r"^ +\d+  [A-Z].*$", told, re.MULTILINE)
    assert steps
    assert all(line in PAGE for line in (*steps, "FOUND: " + told.splitlines()[0]))


def test_every_field_of_a_snapshot_has_its_empty_value_on_the_page():
    from blockproof.fuzz.targets.answers import problem_with_answer
    from blockproof.model.ops import Done
    from blockproof.model.snapshot import Snapshot

    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (?:`([^`]+)`|wanted)[^|]*\|$", PAGE, re.MULTILINE)
    assert [name for name, _ in rows] == list(Snapshot._fields)
    empty = {name: eval(value, {}) if value else [{}] for name, value in rows}
    assert problem_with_answer(Done(), Snapshot(**empty), 1) is None


def test_the_names_of_shapes_that_lacks_honours_are_on_the_page():
    import inspect

    from blockproof.fuzz.targets.base import adapted_shape

    honoured = set(re.findall(r'"((?:Shape|Group)\.\w+)" in lacks', inspect.getsource(adapted_shape)))
    assert honoured
    assert set(re.findall(r'`"((?:Shape|Group)\.\w+)"`', PAGE)) == honoured
