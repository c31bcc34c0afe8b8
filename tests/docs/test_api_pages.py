"""The pages of the API: every public name is on one of them, and is documented where it is defined."""

import inspect
import re
import shutil
from importlib import import_module
from pathlib import Path

import blockproof.fuzz
import blockproof.impl
import pytest
from blockproof.fuzz.traces.trace_file import read_trace
from blockproof.model import ops, snapshot

from .pages import DOCS

STABILITY = (DOCS / "reference" / "stability.md").read_text(encoding="utf-8")
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted((DOCS / "api").glob("*.md"))}
TARGETS = import_module("blockproof.fuzz.targets.base")
DIRECTIVE = re.compile(r"^\.\. (currentmodule|automodule|auto\w+|data):: ([\w.]+)$", re.MULTILINE)
DESCRIBED = ("BlockHash", "BlockHashList", "BlockHashWithGroupId", "ExternalBlockHash")
"""Types without a docstring that Python would keep: the page says what they are."""


def names_on(text):
    """The full names that a page lists, with those in a module of which it lists all."""
    found, module = set(), ""
    for kind, name in DIRECTIVE.findall(text):
        if kind == "currentmodule":
            module = name
        elif kind == "automodule":
            here = vars(import_module(name))
            mine = [one for one, value in here.items() if getattr(value, "__module__", None) == name and one[0] != "_"]
            found |= {f"{name}.{one}" for one in mine}
        else:
            found.add(name if "." in name else f"{module}.{name}")
    return found


def public():
    """Every name that the page of what is stable promises."""
    (row,) = re.findall(r"^\| \*\*Python names\*\* \| (.*?) of `(blockproof\.\w+)`", STABILITY, re.MULTILINE)
    names = {f"{row[1]}.{name}" for name in re.findall(r"`(\w+)`", row[0])}
    names |= {f"blockproof.impl.{name}" for name in blockproof.impl.__all__}
    names |= {f"{module.__name__}.{kind.__name__}" for module in (ops, snapshot) for kind in classes_of(module)}
    return names | {f"{TARGETS.__name__}.{kind.__name__}" for kind in classes_of(TARGETS)}


def classes_of(module):
    mine = [value for value in vars(module).values() if inspect.isclass(value) and value.__module__ == module.__name__]
    return [kind for kind in mine if not kind.__name__.startswith("_")]


def found_by(name):
    """The object of a full name."""
    module, _, last = name.rpartition(".")
    return getattr(import_module(module), last)


def undocumented(value, name):
    """What has no docstring of its own: this, and the public methods and properties that a class defines."""
    members = vars(value).items() if inspect.isclass(value) else ()
    parts = [(f"{name}.{one}", part) for one, part in members if not one.startswith("_") and is_code(part)]
    return [one for one, part in [(name, value), *parts] if not (inspect.getdoc(part) or "").strip()]


def is_code(part):
    return inspect.isfunction(part) or isinstance(part, property | classmethod | staticmethod)


def missing(pages):
    return sorted(public() - set().union(*map(names_on, pages.values())))


def test_every_public_name_is_on_a_page():
    assert missing(PAGES) == []
    assert {name.rpartition(".")[2] for name in public() if name.startswith("blockproof.fuzz.")} >= set(
        blockproof.fuzz.__all__
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_name_on_a_page_is_there_and_documented(page):
    names = [name for name in names_on(PAGES[page]) if name.rpartition(".")[2] not in DESCRIBED]
    assert names
    assert [one for name in names for one in undocumented(found_by(name), name)] == []


@pytest.mark.parametrize(
    ("page", "line", "name"),
    [
        ("core-manager.md", ".. autoclass:: KVCacheManager\n", "blockproof.impl.KVCacheManager"),
        ("testing.md", ".. autofunction:: replay_text\n", "blockproof.fuzz.replay_text"),
        ("targets.md", ".. autoclass:: Target\n", "blockproof.fuzz.targets.base.Target"),
    ],
)
def test_a_public_name_that_no_page_has_is_noticed(page, line, name):
    assert line in PAGES[page]
    assert missing({**PAGES, page: PAGES[page].replace(line, "")}) == [name]


def test_the_example_of_the_page_runs(tmp_path, monkeypatch, capsys):
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGES["traces.md"], re.MULTILINE | re.DOTALL)
    shutil.copy(DOCS / "evidence" / "deviations" / "hit-not-cut.json", tmp_path / "trace.json")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "traces.md", "exec"), {})
    assert capsys.readouterr().out == f"nothing in {len(read_trace(Path('trace.json')).trace.operations)} operations\n"
    assert "What should happen" in Path("trace.html").read_text(encoding="utf-8")


def test_what_has_no_docstring_is_noticed():
    class Bare:
        def told(self):
            """Said."""

        def untold(self):
            pass

        @property
        def silent(self):
            return 1

    assert undocumented(Bare, "Bare") == ["Bare", "Bare.untold", "Bare.silent"]
