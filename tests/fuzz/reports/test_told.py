"""A finding that was kept is told alike in all forms of a report: shrunk, first, with the command that repeats it."""

from collections import Counter
from dataclasses import replace
from xml.etree import ElementTree

from blockproof.fuzz.findings.finding import Finding
from blockproof.fuzz.findings.oracle_names import CONTRACT, MODEL_FREE
from blockproof.fuzz.reports.formats import as_json, junit, markdown, plain
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.reports.told import Told, told_lines
from blockproof.model.ops import Done, Free

LONG = Finding("S1", Free("r12"), 40, Done(), Done(), detail="long", oracle=CONTRACT)
SHORT = replace(LONG, operation=Free("a"), step=2, detail="short")
COMMAND = "blockproof replay findings/s1_free_1.json --target mine:make"
TOLD = Told(SHORT, "leak: contract, S1", "full", ("", "trace:  s1.json", f"repeat: {COMMAND}"), COMMAND, "s1.json")


def kept(*told):
    attention = Counter(full=2, mamba=1)
    summary = Summary("mine:make", "random", 1, 3, 50, 0.5, attention, finding=LONG, finding_attention="full")
    return replace(summary, oracles=MODEL_FREE, told=list(told))


def test_the_shrunk_finding_comes_before_the_tables():
    for text in (plain(kept(TOLD)), markdown(kept(TOLD))):
        assert (
            text.index("S1 is violated at operation 2: Free a") < text.index(COMMAND) < text.index("Runs by attention")
        )
        assert "r12" not in text
    assert plain(kept()).count("operation 40: Free r12") == 1  # what could not be kept is told as it was found


def test_json_has_the_shrunk_finding_and_its_command():
    found = as_json(kept(TOLD))["finding"]
    assert isinstance(found, dict)
    assert (found["step"], found["command"], found["trace"]) == (2, COMMAND, "s1.json")
    assert found["identity"] == ["contract", "S1", "Free"]


def test_junit_names_the_oracles_that_judged_and_the_command():
    suite = ElementTree.fromstring(junit(kept(TOLD), []))
    cases = {case.get("name"): case for case in suite.findall("testcase")}
    assert cases["full"].get("classname") == cases["mamba"].get("classname") == "shadow+contract+liveness"
    failure = cases["full"].find("failure")
    assert failure is not None
    assert failure.text is not None
    assert failure.text.splitlines()[0] == "contract: S1 is violated at operation 2: Free a"
    assert COMMAND in failure.text
    assert cases["mamba"].find("failure") is None
    assert "contract+" in junit(kept(TOLD), [])


def test_several_findings_are_numbered_and_each_fails_its_own_case():
    other = TOLD._replace(headline="lost efficiency: contract, S14", attention="mamba")
    lines = told_lines([TOLD, other])
    assert [line for line in lines if line[:2] in ("1.", "2.")] == [f"1. {TOLD.headline}", f"2. {other.headline}"]
    suite = ElementTree.fromstring(junit(kept(TOLD, other), []))
    failed = {case.get("name"): case.find("failure") for case in suite.findall("testcase")}
    assert failed["full"].get("message") == TOLD.headline
    assert failed["mamba"].get("message") == other.headline
    assert suite.get("failures") == "2"
