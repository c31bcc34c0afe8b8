"""How a run went on, as charts; a history that cannot be one is refused in one line."""

import json
from itertools import pairwise

import msgspec
import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.reports.campaign import CampaignDocument, CampaignRow
from blockproof.fuzz.reports.charts import MOST_LINES, NO_LOOKUPS, ChartError, HistoryLines, chained, history_charts
from blockproof.fuzz.reports.run import RunDocument

GONE_ON = HistoryLines([0, 1, 2, 4], [0, 100, 300, 400], [0, 0, 10, 20], [0, 0, 5, 6], {"hit": 1.5, "gate": 0.5}, [3.0])


def lines(charts):
    return {chart.title: [list(zip(line.xs, line.ys, strict=True)) for line in chart.series] for chart in charts}


def test_rates_are_of_the_time_between_two_samples():
    shown = lines(history_charts({"impl": GONE_ON}))
    assert shown["Throughput over time"] == [[(0, 100), (1, 200), (2, 50), (4, 50)]]
    assert shown["Lookups that hit"] == [[(1, 50), (2, 10), (4, 10)]]
    assert shown["Situations reached over time"] == [[(0, 0), (0.5, 1), (1.5, 2), (4, 2)]]
    assert shown["Findings over time"] == [[(0, 0), (3, 1), (4, 1)]]


def test_rates_of_many_samples_are_taken_over_longer_times():
    end = range(201)
    shown = lines(history_charts({"impl": HistoryLines(list(end), [n * n for n in end], [0] * 201, [0] * 201)}))
    (rates,) = shown["Throughput over time"]
    assert len(rates) <= 61
    assert (rates[0][0], rates[-1][0]) == (0, 200)
    assert sum((end - begin) * rate for (begin, rate), (end, _) in pairwise(rates)) == 200 * 200


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"seconds": [0, 1, 2]}, "3 places, and 4 values"),
        ({"seconds": [0, 2, 1, 4]}, "do not increase"),
        ({"seconds": [-1, 1, 2, 4]}, "when it was not running"),
        ({"operations": [0, 100, 90, 400]}, "operations go down"),
        ({"hits": [0, 0, 11, 11]}, "more hits than lookups"),
        ({"findings": [5.0]}, "when it was not running"),
        ({"situations": {"hit": -1.0}}, "when it was not running"),
    ],
)
def test_a_history_that_cannot_be_one_is_refused(change, why, tmp_path, capsys):
    run = msgspec.to_builtins(RunDocument("impl", 1, 400, history=GONE_ON))
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run))
    assert main(["report", str(path), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["charts"]) == 4
    path.write_text(json.dumps(run | {"history": run["history"] | change}))
    assert main(["report", str(path)]) == 2
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1


def test_an_empty_run_has_empty_charts_and_one_without_history_none():
    nothing = RunDocument("impl", 0, 0, history=HistoryLines([0], [0], [0], [0])).report("run")
    assert [line.xs for chart in nothing.charts for line in chart.series] == [[]] * 4
    assert nothing.charts[-1].note == NO_LOOKUPS
    assert RunDocument("impl", 1, 5).report("run").charts == []


def test_cells_of_a_campaign_follow_one_another():
    whole = chained([GONE_ON, HistoryLines([0, 2], [0, 7], [0, 1], [0, 1], {"hit": 0.5, "reset": 1.0}, [1.0])])
    assert whole.seconds == [0, 1, 2, 4, 6]
    assert whole.operations == [0, 100, 300, 400, 407]
    assert whole.hits == [0, 0, 5, 6, 7]
    assert whole.situations == {"hit": 1.5, "gate": 0.5, "reset": 5.0}
    assert whole.findings == [3.0, 5.0]
    with pytest.raises(ChartError, match="operations go down"):
        chained([GONE_ON, HistoryLines([0, 1], [1, 0], [0, 0], [0, 0])])


def test_a_campaign_has_a_line_for_each_target_up_to_some():
    run = RunDocument("impl", 1, 400, history=GONE_ON)
    rows = [CampaignRow(str(number), cells={"full": run, "mamba": run}) for number in range(MOST_LINES + 2)]
    charts = CampaignDocument(rows).report("campaign").charts
    assert [len(chart.series) for chart in charts] == [MOST_LINES] * 4
    assert charts[0].note == "Attention types follow one another. 2 more are left out."
    assert charts[0].series[0].xs == [0, 1, 2, 4, 5, 6, 8]
    assert CampaignDocument([CampaignRow("one")]).report("campaign").charts == []


def test_a_run_tells_its_history(capsys, tmp_path):
    run = ["fuzz", "--target", "fault:free-order-reversed", "--operations", "400", "--seed", "3", "--keep-going"]
    assert main([*run, "--json", "--out", str(tmp_path)]) == 1
    told = json.loads(capsys.readouterr().out)
    history = msgspec.convert(told["history"], HistoryLines)
    assert (history.seconds[0], history.operations[0], history.operations[-1]) == (0, 0, told["operations"])
    reached = {name for name, times in told["reached"].items() if times}
    assert set(history.situations) == {name for name in reached if not name.startswith("shape refused: ")}
    assert len(history.findings) == len(told["findings"])
    assert history_charts({"it": history})
