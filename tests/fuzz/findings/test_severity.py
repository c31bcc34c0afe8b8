"""How bad a finding is, which of several is shown, and that every sentence of an oracle says which one it is."""

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from blockproof.fuzz.findings.difference import kind_of
from blockproof.fuzz.findings.finding import Finding
from blockproof.fuzz.findings.oracle_names import CONTRACT, LIVENESS, LOCKSTEP, SHADOW
from blockproof.fuzz.findings.severity import OF_SENTENCES, Severity, severity, worst_of
from blockproof.model.ops import Allocate, Done, Failed, Refused

ORACLES = Path(__file__).parents[3] / "fuzz" / "oracles"
KIND_AT = {
    "Break": 2,
    "break_unless_known": 3,
    "Corruption": 4,
    "Violated": 3,
    "_break_unless_known": 4,
    "_end_unless_known": 4,
}
"""At which place each way to object has the kind of its sentence."""


def found(observable: str, oracle: str = CONTRACT, said: str = "") -> Finding:
    return Finding(observable, Allocate("a", 1), 3, Done(), Done(), detail="what it is", oracle=oracle, said=said)


def test_the_worst_comes_first():
    words = ["wrong content", "leak", "crash or standstill", "lost efficiency", "other behaviour", "reporting"]
    words += ["a bug of blockproof"]
    assert [str(one) for one in sorted(Severity)] == words
    assert all(worse < less for worse, less in pairwise(Severity))


def test_what_stores_of_campaigns_keep_stays_what_it_was():
    assert {one.name: one.value for one in Severity} == {
        "WRONG_CONTENT": 0,
        "CRASH": 1,
        "LEAK": 2,
        "OTHER_BEHAVIOUR": 3,
        "EFFICIENCY": 4,
        "REPORTING": 5,
        "OUR_BUG": 6,
    }


def test_some_sentences_are_worse_than_their_property():
    assert severity(found("S1", said="free and held")) is Severity.WRONG_CONTENT
    assert severity(found("S1", said="lost")) is Severity.LEAK
    assert severity(found("S10", said="too early")) is Severity.WRONG_CONTENT
    assert severity(found("S10", said="lost identity")) is Severity.EFFICIENCY
    assert severity(found("L4", LIVENESS, "let in for ever")) is Severity.CRASH


def test_the_worst_is_shown_and_the_others_are_listed_below_it():
    lockstep, leak, content = found("free", LOCKSTEP), found("S1", said="lost"), found("corruption", SHADOW)
    lost, crash = found("S14"), Finding("outcome", Allocate("a", 1), 3, Done(), Failed("KeyError"))
    shown = worst_of([lockstep, lost, crash, leak, content])
    assert shown == content
    assert [one.observable for one in shown.every] == ["corruption", "S1", "outcome", "S14", "free"]
    assert str(shown).startswith("shadow memory: wrong content at operation 3")
    assert str(shown).splitlines()[-4:] == [
        "  also: contract: S1 is violated: what it is",
        "  also: lockstep: model and target differ in `outcome`",
        "  also: contract: S14 is violated: what it is",
        "  also: lockstep: model and target differ in `free`: what it is",
    ]
    assert [one["observable"] for one in shown.as_json()["also"]] == ["S1", "outcome", "S14", "free"]  # type: ignore[attr-defined]


def test_of_two_that_are_equally_bad_the_one_that_says_more_is_shown():
    raised = Finding("outcome", Allocate("a", 1), 3, Done(), Failed("KeyError"))
    assert worst_of([raised, found("S8", said="raised")]).observable == "S8"
    assert worst_of([found("S7"), found("corruption", SHADOW)]).oracle == SHADOW
    assert worst_of([]) is None


@pytest.mark.parametrize(
    ("field", "ours", "theirs", "kind"),
    [
        ("free", [1, 2, 3], [2, 1, 3], "order"),
        ("free", [], [1], "more"),
        ("free", [1, 2], [1, 3], "other"),
        ("num_free", 3, 2, "less"),
        ("ref_cnt", [0, 1, 2], [0, 2, 2], "more"),
        ("tables", [{"a": [1, 2]}], [{"a": [0, 2]}], "missing"),
        ("tables", [{"a": [0, 2]}], [{"a": [1, 2]}], "there"),
        ("tables", [{"a": [1, 2]}], [{"a": [1, 3]}], "other"),
        ("tables", [{"a": [1, 2]}], [{"a": [1]}], "less"),
        ("labels", [None, 4], [None, None], "missing"),
        ("outcome", (8, ((1, 2),)), (4, ((1,),)), "less"),
        ("outcome", (4, ((1,),)), (4, ((2,),)), "other"),
        ("outcome", ((1,),), ((1, 2),), "more"),
        ("stats", (1, 2), (2, 1), ""),
    ],
)
def test_a_difference_has_a_kind_whatever_its_numbers_are(field, ours, theirs, kind):
    assert kind_of(field, ours, theirs) == kind


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (found("corruption", SHADOW, "read without a block"), found("corruption", SHADOW, "written while held")),
        (found("S8"), Finding("S8", Allocate("a", 1), 3, Done(), Refused(), oracle=CONTRACT)),
        (found("free", LOCKSTEP), Finding("free", Allocate("a", 0), 3, Done(), Done(), misuse=True)),
    ],
)
def test_two_findings_that_differ_in_manner_have_two_causes(one, other):
    if one.observable == "free":
        other = Finding("free", Allocate("a", 0), 3, Done(), Done(), detail="what it is", misuse=True)
    assert one.identity == other.identity
    assert one.manner != other.manner
    assert one.key != other.key


def objections() -> Iterator[tuple[str, ast.Call]]:
    """Where the oracles object, with the call that does so."""
    for path in sorted(ORACLES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if name in KIND_AT:
                    yield f"{path.relative_to(ORACLES)}:{node.lineno}", node


def kind_in(call: ast.Call) -> ast.expr | None:
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    named = [one.value for one in call.keywords if one.arg == "kind"]
    return call.args[KIND_AT[name]] if len(call.args) > KIND_AT[name] else next(iter(named), None)


def test_every_objection_says_which_sentence_it_is():
    places = list(objections())
    assert len(places) > 60
    assert [place for place, call in places if kind_in(call) is None] == []


def test_every_sentence_with_a_severity_of_its_own_is_one_of_an_oracle():
    texts = set()
    for _, call in objections():
        texts |= {one.value for one in ast.walk(call) if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    for path in ORACLES.rglob("*.py"):  # a kind that is chosen before it is handed over
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assign) and any(getattr(one, "id", "") == "kind" for one in node.targets):
                texts |= {str(one.value) for one in ast.walk(node.value) if isinstance(one, ast.Constant)}
    for sentences in OF_SENTENCES.values():
        for _, kind in sentences:
            assert kind in texts, kind
