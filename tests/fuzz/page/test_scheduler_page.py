"""The page of a run of schedulers: the JSON that the stories of a fake family come to."""

import json
from collections import Counter
from types import SimpleNamespace

from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.stories import Stories, StoryTask
from blockproof.fuzz.engines.story_fuzzing import StoryOutcome


class Run:
    """A story that takes five steps; every fourth one reaches a preemption."""

    def __init__(self, number):
        self.reached = Counter(steps=5, requests=4, hits=1, preemptions=number % 4 == 3)

    def run(self, steps):
        return []


def outcome(steps):
    """What so many steps of such stories come to."""
    family = SimpleNamespace(
        draw=lambda seed, number, options, attention: SimpleNamespace(number=number, kinds="full"),
        run_of=lambda story, fault: Run(story.number),
    )
    told = Stories(family, StoryTask(steps=steps), lambda name, said: None).run()
    return StoryOutcome("vllm==0.23.0", StoryTask(steps=steps), told.as_json())


def document_of(outcome, tmp_path, capsys):
    (tmp_path / "run.json").write_text(outcome.document().text())
    assert main(["report", str(tmp_path / "run.json"), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_clean_run_has_charts_and_tables(tmp_path, capsys):
    told = outcome(100)
    history = told.document().history
    assert (history.operations[-1], history.lookups[-1], history.hits[-1]) == (100, 80, 20)
    assert set(history.situations) == {"steps", "requests", "hits", "preemptions"}
    document = document_of(told, tmp_path, capsys)
    assert (document["mood"], document["verdict"]) == ("good", "nothing was found on vllm==0.23.0")
    assert document["charts"][0]["title"] == "Throughput over time"
    assert document["charts"][0]["y"] == "scheduler steps a second"
    assert document["tables"][1]["rows"] == [["full", "20", "100", "5", "20", "0", "0", "0"]]


def test_what_was_found_or_lost_comes_first(tmp_path, capsys):
    told = outcome(10)
    told.found.append({"name": "new: x", "judge": "shadow", "rule": "r", "what": "w", "step": 3, "known": ""})
    found = document_of(told, tmp_path, capsys)
    assert (found["mood"], found["verdict"]) == ("bad", "1 finding on vllm==0.23.0, 1 of them new")
    assert found["cards"][0]["headline"] == "new: x: shadow, step 3"
    told.lost = "exit status 9"
    assert "was lost: exit status 9" in document_of(told, tmp_path, capsys)["verdict"]
