"""The pages of the concepts: pictures that are what the model says, examples that print what stands on the page."""

import contextlib
import io
import re
import shlex
import sys
import xml.etree.ElementTree as ET
from copy import deepcopy
from dataclasses import replace
from importlib import import_module

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.faults import FAULTS
from blockproof.fuzz.traces.trace_file import load_trace
from blockproof.model.core import Model
from blockproof.model.ops import Allocate, Submit

from .pages import DOCS, ROOT

CONCEPTS = DOCS / "concepts"
INDEX = CONCEPTS / "README.md"
PAGES = sorted(set(CONCEPTS.glob("*.md")) - {INDEX})
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def drawing():
    """The program that draws the pictures, and its parts."""
    sys.path.insert(0, str(DOCS))
    try:
        yield tuple(map(import_module, ("pictures", "picture_scenes", "picture_states")))
    finally:
        sys.path.remove(str(DOCS))


@pytest.fixture(scope="module")
def kept():
    """The pictures in the folder, read as XML, by their names."""
    return {path.stem: ET.parse(path).getroot() for path in (CONCEPTS / "pictures").glob("*.svg")}


# Pictures.


def test_pictures_and_traces_are_what_would_be_written(drawing):
    pictures, *_ = drawing
    assert pictures.stale(CONCEPTS) == [], "write them again: python docs/pictures.py --write"


def test_a_changed_a_missing_and_a_foreign_file_are_noticed(drawing, tmp_path):
    pictures, *_ = drawing
    for name, text in pictures.files().items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert pictures.stale(tmp_path) == []
    gate = tmp_path / "pictures" / "gate.svg"
    gate.write_text(
        gate.read_text(encoding="utf-8").replace('data-block="5">5<', 'data-block="5">4<', 1), encoding="utf-8"
    )
    (tmp_path / "traces" / "gate.json").unlink()
    (tmp_path / "pictures" / "more.svg").write_text("<svg/>")
    assert pictures.stale(tmp_path) == ["pictures/gate.svg", "pictures/more.svg", "traces/gate.json"]


def drawn(picture, kind):
    """The blocks in every row of this kind, as a reader sees them."""
    for row in picture.iter(f"{SVG}g"):
        if row.get("class") == kind:
            yield [0 if one.text == "∅" else int(one.text) for one in row.iter() if one.get("data-block")]


def is_right(scene, picture):
    """Are tables and queues of a picture those of a model? Behind them stands what a target shows."""
    model, tables, queues = Model(scene.shape), [], []
    for frame in scene.frames:
        for operation in frame.operations:
            model.step(operation)
        if "tables" in frame.show:
            held = (in_group.get(name) for name in model.requests for in_group in model.state.tables)
            tables += [table.copy() for table in held if table]
        if "queue" in frame.show:
            queues.append(model.state.queue())
    assert len(tables) + len(queues) > 0
    found = [*drawn(picture, "table")][: len(tables)], [*drawn(picture, "queue")][: len(queues)]
    return found == (tables, queues)


def test_what_is_drawn_is_what_the_model_shows(drawing, kept):
    """Read back from the file, beside a model that the drawing has nothing to do with."""
    _, scenes, _ = drawing
    assert [scene.name for scene in scenes.SCENES if not is_right(scene, kept[scene.name])] == []


@pytest.mark.parametrize("kind", ["table", "queue"])
def test_a_block_that_is_drawn_in_a_wrong_place_is_noticed(drawing, kept, kind):
    _, scenes, _ = drawing
    (scene,) = (one for one in scenes.SCENES if one.name == "groups")
    picture = deepcopy(kept["groups"])
    row = next(row for row in picture.iter(f"{SVG}g") if row.get("class") == kind)
    first, second, *_ = (one for one in row.iter() if one.get("data-block"))
    first.text, second.text = second.text, first.text
    assert is_right(scene, kept["groups"])
    assert not is_right(scene, picture)


def test_a_picture_of_another_state_is_another_picture(drawing):
    pictures, scenes, states = drawing
    (scene,) = (one for one in scenes.SCENES if one.name == "blocks")
    other = replace(scene, frames=(replace(scene.frames[0], operations=(Submit("a", (1,)), Allocate("a", 1))),))
    assert pictures.svg(scene.title, states.panels(scene)) != pictures.svg(scene.title, states.panels(other))


def test_operations_that_make_no_sense_are_refused(drawing):
    _, scenes, states = drawing
    scene = replace(scenes.SCENES[0], frames=(states.Frame((Allocate("a", 1),)),))
    with pytest.raises(ValueError, match="makes no sense here"):
        states.panels(scene)


def test_the_traces_are_read_and_have_the_operations_of_their_pictures(drawing):
    _, scenes, _ = drawing
    for scene in scenes.SCENES:
        file = load_trace((CONCEPTS / "traces" / f"{scene.name}.json").read_text(encoding="utf-8"))
        assert (file.trace.shape, file.trace.operations) == (scene.shape, scene.operations)


def test_pictures_say_themselves_what_they_show_and_load_nothing(kept):
    for name, picture in kept.items():
        title, description = picture.find(f"{SVG}title"), picture.find(f"{SVG}desc")
        assert len(title.text) > 20, name
        assert len(description.text) > 100, name
        assert picture.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}", name
        text = (CONCEPTS / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
        assert not re.search(r"href|url\(|@import|<script|http(?!://www\.w3\.org/2000/svg\")", text), name


def test_nothing_is_drawn_beside_the_paper(kept):
    """Words are measured with a generous width for each character."""
    for name, picture in kept.items():
        _, _, width, height = map(float, picture.get("viewBox").split())
        for one in picture.iter():
            if one.tag == f"{SVG}rect":
                x, y, w, h = (float(one.get(side)) for side in ("x", "y", "width", "height"))
                assert min(x, y, width - x - w, height - y - h) >= 0, name
            elif one.tag == f"{SVG}text" and one.get("text-anchor") is None:
                size = 5.9 if "small" in one.get("class", "") else 6.9
                assert float(one.get("x")) + size * len(one.text) <= width, (name, one.text)


def test_every_picture_stands_on_a_page_with_words_for_those_who_do_not_see_it(kept):
    shown = dict(
        re.findall(r"^!\[(.+)\]\(pictures/([\w-]+)\.svg\)$", "\n".join(map(text_of, [INDEX, *PAGES])), re.MULTILINE)
    )
    assert {name for words, name in shown.items()} == set(kept)
    assert min(map(len, shown)) > 50


# Pages.


def text_of(page):
    return page.read_text(encoding="utf-8")


def examples(text):
    """The Python blocks of a page, each with the output that follows it."""
    return re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def printed_by(code):
    """What a program prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "example", "exec"), {})
    return out.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_print_what_the_page_says(page):
    text = text_of(page)
    assert len(examples(text)) == text.count("```python\n") == 1
    assert [printed_by(code) for code, _ in examples(text)] == [output for _, output in examples(text)]


def commands(text):
    """The commands of a page, each with the lines that are shown of its output."""
    for block in re.findall(r"^```\n(\$ .*?)^```$", text, re.MULTILINE | re.DOTALL):
        for command in block.split("$ ")[1:]:
            line, *output = command.splitlines()
            yield shlex.split(line)[1:], output


def test_commands_print_what_the_page_says(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    shown = list(commands(text_of(CONCEPTS / "harness.md")))
    assert len(shown) == 4
    for words, output in shown:
        assert main(words) == 1
        assert capsys.readouterr().out.splitlines()[: len(output)] == output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_rule_picture_numbers_and_what_goes_wrong(page):
    text = text_of(page)
    for heading in ("**The rule.**", "](pictures/", "## With numbers", "## When it is broken", "## Where it lives"):
        assert heading in text
    assert page.stem == "harness" or "../evidence/findings.md#" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_names_of_the_model_on_a_page_are_there(page):
    """Functions and classes that `Where it lives` names stand in the file that it names beside them."""
    for name in re.findall(r"`((?:[A-Z]\w+\.)?[a-z_A-Z]\w+)`", text_of(page).partition("## Where it lives")[2]):
        files = ("arith", "attention", "core", "identity", "lookup", "state", "tables", "ops")
        sources = "\n".join(text_of(ROOT / "model" / f"{file}.py") for file in files)
        last = name.rpartition(".")[2]
        assert re.search(rf"(?:def|class) {last}\b|\b{last}: |self\.{last}\b", sources), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_planted_faults_that_a_page_names_are_there(page):
    assert set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", text_of(page))) <= FAULTS.keys()
