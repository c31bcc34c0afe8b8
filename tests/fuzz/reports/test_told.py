"""A finding that was kept is told alike in all forms of a report: shrunk, first, with the command that repeats it."""

from collections import Counter
from dataclasses import replace
from xml.etree import ElementTree

import msgspec
import pytest
from blockproof.fuzz.findings.finding import Finding, Trace
from blockproof.fuzz.findings.oracle_names import CONTRACT, MODEL_FREE
from blockproof.fuzz.reports.cases import ResultCase
from blockproof.fuzz.reports.corpus import CorpusDocument
from blockproof.fuzz.reports.difference import CompareRow, DifferenceDocument, SituationRow
from blockproof.fuzz.reports.formats import junit, markdown, plain
from blockproof.fuzz.reports.run import RunDocument, RunFound
from blockproof.fuzz.reports.scheduler import SchedulerDocument, StoryFound
from blockproof.fuzz.reports.summary import Found, Summary
from blockproof.model.ops import Done, Free

LONG = Finding("S1", Free("r12"), 40, Done(), Done(), detail="long", oracle=CONTRACT)
SHORT = replace(LONG, operation=Free("a"), step=2, detail="short")
COMMAND = "blockproof replay findings/s1_free_1.json --target mine:make"
FOUND = RunFound.of(Found(SHORT, Trace(None, ()), attention=Counter(full=1)))
FOUND.more = ["", "trace:  s1.json", f"repeat: {COMMAND}"]


def kept(*told):
    attention = Counter(full=2, mamba=1)
    summary = Summary("mine:make", "random", 1, 3, 50, 0.5, attention, finding=LONG, finding_attention="full")
    document = RunDocument.of(replace(summary, oracles=MODEL_FREE))
    document.findings = list(told)
    return document


def test_the_shrunk_finding_comes_before_the_tables():
    for text in (plain(kept(FOUND)), markdown(kept(FOUND))):
        assert (
            text.index("S1 is violated at operation 2: Free a") < text.index(COMMAND) < text.index("Runs by attention")
        )
        assert "r12" not in text
    assert plain(kept()).count("operation 40: Free r12") == 1  # what could not be kept is told as it was found


def test_junit_names_the_oracles_that_judged_and_the_command():
    suite = ElementTree.fromstring(junit(kept(FOUND)))
    cases = {case.get("name"): case for case in suite.findall("testcase")}
    assert cases["full"].get("classname") == cases["mamba"].get("classname") == "shadow+contract+liveness"
    failure = cases["full"].find("failure")
    assert failure is not None
    assert failure.text is not None
    assert failure.text.splitlines()[0] == "contract: S1 is violated at operation 2: Free a"
    assert COMMAND in failure.text
    assert cases["mamba"].find("failure") is None
    assert "contract+" in junit(kept(FOUND))


def test_several_findings_are_numbered_and_each_fails_its_own_case():
    other = msgspec.structs.replace(FOUND, severity="lost efficiency", observable="S14", attention={"mamba": 1})
    lines = kept(FOUND, other).found_lines()
    assert [line for line in lines if line[:2] in ("1.", "2.")] == [f"1. {FOUND.headline()}", f"2. {other.headline()}"]
    suite = ElementTree.fromstring(junit(kept(FOUND, other)))
    failed = {case.get("name"): case.find("failure") for case in suite.findall("testcase")}
    assert failed["full"].get("message") == FOUND.headline()
    assert failed["mamba"].get("message") == other.headline()
    assert suite.get("failures") == "2"


SIMULATED = SchedulerDocument("mine:make", [], steps=9)
STORY = StoryFound("new: memory: M2", "memory", "M2", "block 3 is another's", file="s.json")
DIFFERS = SituationRow("a hit is longer", "Lookup", 1, 2, "second found 4 tokens")
WRONG = {
    "a finding": (msgspec.structs.replace(SIMULATED, found=[STORY]), "memory: block 3 is another's", "replay s.json"),
    "a floor": (
        msgspec.structs.replace(SIMULATED, floors_unmet=["hits: 0"]),
        "nothing was found, but 1 floor",
        "hits: 0",
    ),
    "lost": (msgspec.structs.replace(SIMULATED, lost="status 9"), "the process of mine:make was lost", "status 9"),
    "no step": (SchedulerDocument("mine:make", [], not_built={"no GPU": 2}), "no step ran: no GPU", "no GPU"),
    "a corpus": (
        CorpusDocument("corpus x", ("trace", "traces"), [ResultCase("corpus", "old", [("it is back", "all of it")])]),
        "it is back",
        "all of it",
    ),
    "a difference": (
        DifferenceDocument("a", "b", [], [CompareRow("hits", 1, 5, 1.0, [DIFFERS])]),
        "a hit is longer",
        "second found 4 tokens",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_every_document_that_says_that_something_is_wrong_fails_in_junit_and_tells_it_in_markdown(what):
    document, message, text = WRONG[what]
    suite = ElementTree.fromstring(junit(document))
    (failure,) = suite.iter("failure")
    assert failure.get("message").startswith(message)
    assert text in failure.text
    assert suite.get("failures") == "1"
    assert text in markdown(document)
    assert document.lead().conclusion in markdown(document)


def test_what_is_right_passes():
    suite = ElementTree.fromstring(junit(SIMULATED))
    assert (suite.get("tests"), suite.get("failures")) == ("1", "0")
    assert markdown(SIMULATED).startswith("## blockproof: nothing was found on mine:make\n")
