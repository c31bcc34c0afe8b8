"""The picture of a plan: its figures are those of the text and of the JSON, whatever length is looked at."""

import json
import re
import sys
from pathlib import Path

import msgspec
import pytest
from blockproof.fuzz.cli import main as cli
from blockproof.fuzz.page.html import page
from blockproof.fuzz.reports.document import PlanDocument

from .test_browser import AXE, NASTY

EXAMPLES = Path(__file__).parents[3] / "examples"
PADDED = {
    "name": NASTY,
    "max_model_len": 64,
    "layers": [
        {"name": "full.{}", "type": "FullAttentionSpec", "num_kv_heads": 2, "head_size": 64, "count": 3},
        {"name": "state", "type": "MambaSpec", "shapes": [[3, 8]], "dtypes": ["bf16"], "page_size_padded": 8192},
    ],
}


def planned(capsys, folder, model, *options):
    """The document of the page, and of `--json`, of one and the same command."""
    path = folder / "plan.html"
    code = cli.main(["plan", str(model), *map(str, options), "--html", str(path), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (code, told["page"]) == (0 if told["ok"] else 1, str(path))
    held = re.search(r'<script type="application/json" id="document">(.*?)</script>', path.read_text(), re.DOTALL)
    return msgspec.json.decode(held[1], type=PlanDocument), told


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("gemma-3-27b", ["--memory", "60GiB"]),
        ("jamba-v0.1", ["--memory", "9GiB", "--tensor-parallel", 2, "--pipeline-parallel", 2]),
        ("llama-3.1-8b", ["--memory", "1GiB", "--max-model-len", "auto"]),
        ("llama-4-scout", ["--memory", "2GiB"]),
    ],
)
def test_the_page_has_the_figures_of_the_json(model, options, capsys, tmp_path):
    shown, told = planned(capsys, tmp_path, EXAMPLES / f"{model}.json", *options)
    at = shown.planned
    assert shown.lengths[at] == told["max_model_len_tokens"]
    assert shown.blocks[at] == [group["request_blocks"] for group in told["groups"]]
    assert shown.at_once[at] == told["concurrency"]
    assert (shown.num_blocks, shown.block_bytes) == (told["num_blocks"], told["block_bytes"])
    assert [group.waste_bytes for group in shown.groups] == [group["block_waste_bytes"] for group in told["groups"]]
    wasted = sum(held * group.waste_bytes for held, group in zip(shown.blocks[at], shown.groups, strict=True))
    assert wasted == told["request_waste_bytes"]
    for group in told["groups"]:
        layers = [layer for layer in shown.layers if layer.group == group["group"]]
        assert sorted(layer.name for layer in layers) == sorted(group["layers"])
        assert {layer.page_bytes for layer in layers} == {group["page_bytes"]}
        assert {layer.page_bytes - layer.held_bytes for layer in layers} == {group["page_padding_bytes"]}
        assert told["block_bytes"] - sum(layer.held_bytes for layer in layers) == group["block_waste_bytes"]
    assert [layer.stage for layer in shown.layers] == sorted(layer.stage for layer in shown.layers)
    assert sum(worker["memory_bytes"] for worker in told["workers"][::2]) == sum(
        one.memory_bytes for one in shown.workers
    )


@pytest.mark.parametrize("model", ["gemma-3-27b", "bamba-9b", "whisper-large-v3"])
def test_every_length_has_the_figures_of_a_plan_for_that_length(model, capsys, tmp_path):
    path = EXAMPLES / f"{model}.json"
    shown, _ = planned(capsys, tmp_path, path, "--memory", "8GiB")
    for at in range(0, len(shown.lengths), 23):
        _, told = planned(capsys, tmp_path, path, "--memory", "8GiB", "--max-model-len", shown.lengths[at])
        assert shown.blocks[at] == [group["request_blocks"] for group in told["groups"]]
        assert shown.at_once[at] == told["concurrency"]


def test_the_page_has_the_words_of_the_text(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    arguments = [str(EXAMPLES / "gemma-3-27b.json"), "--memory", "60GiB", "--max-model-len", "131072"]
    assert cli.main(["plan", *arguments, "--html", str(tmp_path / "plan.html")]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown, _ = planned(capsys, tmp_path, *arguments)
    assert lines[:2] == [shown.title, shown.headline]
    assert lines[-2:] == [shown.verdict, f"page: {tmp_path / 'plan.html'}"]
    texts = [" ".join(line.split()) for line in lines]
    for row in (*shown.figures, *shown.tables[0].rows):
        assert " ".join(row) in texts
    growth = dict(zip(shown.lengths, shown.tables[1].rows, strict=True))
    assert growth[131072] == ["131,072", "4.22", "11,654", "577", "577", "8,192"]
    assert shown.command == f"blockproof plan {' '.join(arguments)} --json --html {tmp_path / 'plan.html'}"


def test_what_does_not_fit_is_marked(capsys, tmp_path):
    shown, told = planned(capsys, tmp_path, EXAMPLES / "llama-4-scout.json", "--memory", "2GiB")
    assert (shown.mood, told["ok"]) == ("bad", False)
    for length, times, mark in zip(shown.lengths, shown.at_once, shown.tables[1].marks, strict=True):
        assert (times < 1) == (length > told["longest_fit_tokens"]) == (mark == "bad")


def test_a_page_that_cannot_be_written_is_said_in_a_line(capsys, tmp_path, monkeypatch):
    arguments = ["plan", str(EXAMPLES / "llama-3.1-8b.json"), "--memory", "1GiB"]
    assert cli.main([*arguments, "--open"]) == 2
    assert "no page to show without --html FILE" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert cli.main([*arguments, "--html", str(tmp_path / "plan.html")]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", "blockproof: the page needs jinja2: pip install '/path/to/blockproof[report]'\n")


def test_only_the_page_of_a_plan_has_what_draws_plans(capsys, tmp_path):
    shown, _ = planned(capsys, tmp_path, EXAMPLES / "qwen3-8b.json", "--memory", "8GiB")
    assert "function PlanView" in page(shown)
    assert shown.verdict in page(shown).partition("</noscript>")[0]


@pytest.fixture
def drawn(capsys, tmp_path):
    """The document of a plan with padding, several groups, and markup in the name of the model."""
    path = tmp_path / "model.json"
    path.write_text(json.dumps(PADDED))
    return planned(capsys, tmp_path, path, "--memory", "1MiB", "--block-size", 16)[0]


def test_the_slider_shows_the_figures_of_its_length(opened, capsys, tmp_path):
    shown, _ = planned(capsys, tmp_path, EXAMPLES / "gemma-3-27b.json", "--memory", "60GiB")
    at = len(shown.lengths) // 2
    view = opened(shown, f"#length={shown.lengths[at]}")
    slider = view.page.get_by_label("Length of a request")
    slider.focus()
    for key, moved in (("Home", 0), ("End", len(shown.lengths) - 1), ("ArrowLeft", len(shown.lengths) - 2)):
        view.press(key)
        at = moved
        tokens = f"{shown.lengths[at]:,} tokens"
        assert view.page.locator("output").inner_text() == tokens
        assert view.page.locator(".big b").inner_text() == f"{shown.at_once[at]:,.2f}"
        rows = view.page.locator("table").first.locator("tbody tr")
        blocks = [rows.nth(i).locator("td").nth(1).inner_text() for i in range(len(shown.groups))]
        assert blocks == [f"{held:,}" for held in shown.blocks[at]]
    assert view.page.evaluate("location.hash") == f"#length={shown.lengths[at]}"
    drawn = view.page.locator(".whole-request").count()
    assert drawn == int(shown.at_once[at])
    view.click(view.page.get_by_text("0: window 1,024", exact=False).first)
    assert view.page.locator(".layer.chosen").count() == shown.groups[0].layers


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_a_plan_is_accessible_and_its_markup_stays_text(opened, drawn, width, scheme):
    view = opened(drawn, color_scheme=scheme, viewport={"width": width, "height": 800})
    assert view.page.locator("img").count() == 0
    assert "<img src=x onerror=alert(1)>" in view.page.locator("h1").inner_text()
    assert view.page.locator(".page .empty").count() == 1
    view.page.evaluate(f"() => {{ {AXE} }}")
    found = view.page.evaluate(
        "async () => (await axe.run()).violations.map((one) => [one.id, one.nodes.map((n) => n.html)])"
    )
    assert found == []
    assert view.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
