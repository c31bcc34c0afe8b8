"""A campaign held against an older one."""

import json

import pytest
from blockproof.fuzz.cli.main import main


def row(target, *found, seconds=10.0, cells=("full", "mamba")):
    """A target that was judged by the contract on some attention types; found: property and attention type."""
    run = {"target": target, "runs": 5, "operations": 50, "oracles": ["contract"]}
    findings = [
        {"severity": "leak", "oracle": "contract", "observable": what, "operation": "Free", "attention": attention}
        for what, attention in found
    ]
    facts = {"target": target, "done": True, "operations": 1000, "seconds": seconds, "findings": findings}
    return facts | {"cells": dict.fromkeys(cells, run)}


def campaign_text(rows):
    """The JSON of a campaign of these targets."""
    return json.dumps({"document": "campaign", "targets": rows})


@pytest.fixture
def compared(tmp_path, capsys):
    """The tables of the page of one campaign held against another, by title."""

    def compare(now, before):
        folder = tmp_path / "now"
        folder.mkdir()
        (folder / "campaign.json").write_text(campaign_text(now))
        (tmp_path / "old.json").write_text(campaign_text(before))
        assert main(["report", str(folder), "--before", str(tmp_path / "old.json"), "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        return {table["title"]: table for table in document["tables"]} | {"notes": document.get("notes", [])}

    return compare


def test_what_changed_stands_in_tables(compared):
    now = [row("one", ("S1", "full"), seconds=20.0), row("two"), row("three", ("S2", "full"))]
    tables = compared(now, [row("one"), row("two", ("S9", "mamba")), row("four", ("S3", "full"))])
    assert tables["notes"] == ["Not in the last campaign: three", "In the last campaign only: four"]
    changed = tables["Cells that changed since the last campaign"]
    assert changed["rows"] == [
        ["one", "full", "contract", "clean", "S1"],
        ["two", "mamba", "contract", "S9", "clean"],
    ]
    assert changed["marks"] == ["bad", ""]
    assert tables["Findings that came and went"]["rows"] == [
        ["one", "full", "S1", "Free", "contract", "new"],
        ["two", "mamba", "S9", "Free", "contract", "gone"],
    ]
    assert tables["Operations a second against the last campaign"]["rows"] == [
        ["one", "100", "50", "0.50"],
        ["two", "100", "100", "1.00"],
    ]


def test_where_nothing_changed_there_is_nothing_to_say(compared):
    same = [row("one", ("S1", "full"))]
    assert not {"Cells that changed since the last campaign", "Findings that came and went"} & set(compared(same, same))


def test_only_campaigns_are_held_against_one_another(tmp_path, capsys):
    campaign, run = tmp_path / "campaign.json", tmp_path / "run.json"
    campaign.write_text(campaign_text([row("one")]))
    run.write_text(json.dumps({"document": "run", "target": "impl", "runs": 1, "operations": 5}))
    for new, old, said in (
        (run, campaign, "is no campaign"),
        (campaign, run, "is no campaign"),
        (campaign, tmp_path / "none", "none"),
    ):
        assert main(["report", str(new), "--before", str(old)]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
