"""The curves of explorations and of hunts for planted faults."""

import json

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.reports.faults import FaultsDocument, HuntRow


def document_of(path, raw, capsys):
    path.write_text(json.dumps(raw))
    assert main(["report", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_an_exploration_has_its_frontier_by_depth(capsys, tmp_path):
    assert main(["explore", "sink", "full-uncached", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    for scope in done["scopes"]:
        assert sum(scope["levels"]) == scope["states"]
        assert (len(scope["levels"]), scope["levels"][0]) == (scope["depth"] + 1, 1)
    document = document_of(tmp_path / "explore.json", done, capsys)
    assert (document["mood"], document["verdict"]) == ("good", "every property holds in every state of 2 scopes")
    frontier, known = document["charts"]
    assert [line["name"] for line in frontier["series"]] == ["sink", "full-uncached"]
    assert frontier["series"][0]["ys"] == done["scopes"][0]["levels"]
    assert known["series"][0]["ys"][-1] == done["scopes"][0]["states"]
    done["scopes"][0]["levels"][3] += 1
    (tmp_path / "explore.json").write_text(json.dumps(done))
    assert main(["report", str(tmp_path / "explore.json")]) == 2
    error = capsys.readouterr().err
    assert "scope sink: its depths have 2551 states of 2550" in error
    assert error.count("\n") == 1


def test_what_an_exploration_has_found_opens_as_a_trace(capsys, tmp_path):
    assert main(["explore", "--fault", "one-block-too-many", "--json", "--out", str(tmp_path)]) == 1
    document = document_of(tmp_path / "explore.json", json.loads(capsys.readouterr().out), capsys)
    assert (document["mood"], document["cards"][0]["trace"]) == ("bad", 0)
    assert document["cards"][0]["headline"] == "crowded: L1"


def test_an_exploration_that_was_broken_off_says_so(capsys, tmp_path):
    assert main(["explore", "sink", "--max-states", "300", "--json"]) == 1
    document = document_of(tmp_path / "explore.json", json.loads(capsys.readouterr().out), capsys)
    assert (document["mood"], document["verdict"]) == ("note", "nothing was found, but not all was seen of sink")
    assert document["charts"][0]["note"].endswith("Broken off, the last depth in part: sink.")
    assert (
        document_of(tmp_path / "explore.json", {"document": "exploration", "scopes": []}, capsys).get("charts") is None
    )


def test_faults_are_found_by_operations_and_by_time():
    rows = [
        HuntRow("a", True, operations=30, seconds=0.0, oracle="lockstep"),
        HuntRow("b", True, operations=10, seconds=0.2, oracle="contract"),
        HuntRow("c", True, operations=30, seconds=0.5, oracle="lockstep"),
        HuntRow("d", False, operations=900, seconds=9.0),
    ]
    operations, seconds = FaultsDocument(rows).report("hunt").charts
    lines = {line.name: (line.xs, line.ys) for line in operations.series}
    assert lines == {
        "all": ([10, 30, 900], [25, 75, 75]),
        "by contract": ([10, 900], [25, 25]),
        "by lockstep": ([30, 900], [50, 50]),
    }
    assert seconds.series[0].xs == [0.01, 0.2, 0.5, 9.0]
    assert operations.note == "1 fault missed: the line of all ends below 100 %."


@pytest.mark.parametrize("rows", [[], [HuntRow("d", False, operations=900)]])
def test_a_hunt_without_a_find_draws_nothing(rows):
    assert [line.xs for line in FaultsDocument(rows).report("hunt").charts[0].series] == [[]]


def test_a_hunt_tells_which_oracle_has_found_the_fault(capsys):
    assert main(["mutants", "--only", "eviction-does-nothing", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["faults"]
    assert found["oracle"] == "contract"
