"""A run, its planted faults and its theorems in one page."""

import json

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.page.files import joined
from blockproof.fuzz.page.html import PageError
from blockproof.fuzz.reports.campaign import CampaignDocument, CampaignRow
from blockproof.fuzz.reports.document import Cell, FoundCard
from blockproof.fuzz.reports.run import RunDocument

from .drawing import TWICE, shown

RUN = {"document": "run", "target": "impl", "runs": 2, "operations": 50, "engine": "random", "seed": 1}
FAULTS = [{"fault": "one", "found": True, "observable": "S1", "operation": "Free"}, {"fault": "two", "found": False}]
HUNT = {"document": "faults", "faults": FAULTS}
PROVED = {"document": "theorems", "results": [{"theorem": "T1", "status": "proved"}], "cross_checked": True}


def campaign():
    run = RunDocument("impl", 1, 5, oracles=["contract"])
    return CampaignDocument([CampaignRow("one", True, cells={"full": run})]).report("a campaign")


@pytest.fixture
def files(tmp_path):
    """Paths of a run, a hunt and theorems."""
    for name, document in (("run", RUN), ("mutants", HUNT), ("prove", PROVED)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    return [tmp_path / f"{name}.json" for name in ("run", "mutants", "prove")]


def test_the_page_of_a_run_shows_planted_faults_and_theorems(files, capsys):
    run, hunt, proved = map(str, files)
    assert main(["report", run, "--with", hunt, "--with", proved, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    titles = [table["title"] for table in document["tables"]]
    assert titles[-3:] == ["Planted faults", "Faults by what has seen them", "Theorems"]
    assert document["tables"][-3]["rows"][0][:2] == ["two", "not found"]
    assert document["mood"] == "bad"
    assert document["verdict"] == "no difference in 50 operations; mutants.json: 1 fault missed"
    assert document["notes"][-1].startswith("proofs: prove.json: 1 of 1 theorem proved")
    assert main(["report", run, "--with", proved, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["mood"], document["verdict"]) == ("good", "no difference in 50 operations")


def test_cards_lead_to_their_own_traces_and_cells_to_their_own_cards():
    first, second = RunDocument("impl", 1, 1).report("run"), campaign()
    for document in (first, second):
        document.traces = [shown(TWICE, title=document.title)]
        document.cards = [FoundCard("there", "", trace=0), FoundCard("not there", "")]
    second.matrix.cells[0][0][0] = Cell("found", ["S1"], [1])
    both = joined(first, [second])
    assert [card.trace for card in both.cards] == [0, -1, 1, -1]
    assert both.traces[both.cards[2].trace].title == "a campaign"
    assert both.cards[both.matrix.cells[0][0][0].cards[0]].headline == "not there"


def test_what_is_no_report_is_refused(files, tmp_path, capsys):
    trace = shown(TWICE)
    for first, more in ((trace, campaign()), (campaign(), trace), (campaign(), campaign())):
        with pytest.raises(PageError, match="--with: "):
            joined(first, [more])
    assert main(["report", str(files[0]), "--with", str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
