"""The file of known findings: what is read, what is refused in one line, what is written."""

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.findings.finding import Finding, Trace
from blockproof.fuzz.findings.known import KnownFinding, uses_of
from blockproof.fuzz.findings.oracle_names import CONTRACT, LOCKSTEP
from blockproof.fuzz.findings.severity import Severity, severity
from blockproof.fuzz.oracles.contract import PROPERTIES
from blockproof.fuzz.oracles.liveness import PROPERTIES as LIVENESS_PROPERTIES
from blockproof.fuzz.traces.files import TraceError
from blockproof.fuzz.traces.known_file import add_known, read_known
from blockproof.model.ops import Allocate, Done, Failed, Free, Group, Lookup, Refused, Shape, Submit
from blockproof.model.snapshot import Snapshot

SHAPE = Shape((Group("full", 1), Group("mamba", 1)), 3, 2, 1, 1, 1)
TRACE = Trace(SHAPE, (Submit("a", (0,)), Allocate("a", 1, hit=True), Free("a"), Allocate("b", 1)))
FINDING = Finding("S14", Lookup("a"), 4, Done(), Done(), oracle=CONTRACT)
ENTRY = KnownFinding(
    "lost-hit",
    'says "why"\\ \x7f\n and more',
    "S14",
    "Lookup",
    CONTRACT,
    "KeyError",
    ("full", "mamba"),
    (("Allocate", "Allocate.hit", "Free", "Submit"), ("Submit",)),
)
GOOD = """[[known]]
id = "a"
reason = "b"
property = "S14"
operation = "Lookup"
oracle = "contract"
attention = ["full"]
uses = [["Submit", "Lookup"]]
"""


def test_what_is_written_is_read_again(tmp_path):
    path = tmp_path / "new" / "known.toml"
    assert add_known(path, [(ENTRY, "one"), (ENTRY, "two\nlines")]) == ["lost-hit", "lost-hit-2"]
    assert add_known(path, [(ENTRY, "three")]) == ["lost-hit-3"]
    first, second, _ = read_known(path)
    assert first == ENTRY
    assert second.id == "lost-hit-2"
    assert "# two lines\n" in path.read_text()


def test_comments_of_a_file_without_entries_stay(tmp_path):
    path = tmp_path / "known.toml"
    path.write_text("# ours\n")
    add_known(path, [(ENTRY, "one")])
    assert path.read_text().startswith("# ours\n")


def test_the_shape_of_a_trace_is_what_it_uses():
    assert uses_of(TRACE) == ("Allocate", "Allocate.hit", "Free", "Submit")
    assert KnownFinding.of(FINDING, TRACE, "x").matches(FINDING, TRACE)
    assert not KnownFinding.of(FINDING, TRACE, "x").matches(FINDING, Trace(SHAPE, TRACE.operations[:1]))
    assert not KnownFinding.of(FINDING, TRACE, "x").matches(Finding("S7", Lookup("a"), 4, Done(), Done()), TRACE)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (("", "x = 1\n"), "known.toml: Object contains unknown field `x`; `blockproof fuzz --write-known FILE`"),
        (('"a"', '"a b"'), "known[0] (a b): id: letters"),
        (('"b"', '" "'), "known[0] (a): reason: is empty; write why"),
        (('"contract"', '"contrct"'), "oracle: 'contrct' is unknown; did you mean 'contract'?"),
        (('"Lookup"\n', '"Lokup"\n'), "operation: 'Lokup' is unknown; did you mean 'Lookup'?"),
        (('[["Submit", "Lookup"]]', "[]"), "uses: is empty"),
        (('"Submit", ', '"Submit.salted", '), "uses: 'Submit.salted' is no operation and no field of one"),
        (('["full"]', "3"), "known[0].attention: Expected `array`, got `int`"),
        (("reason = ", "raison = "), "known[0]: Object contains unknown field `raison`"),
        (('operation = "Lookup"\n', ""), "known[0]: Object missing required field `operation`"),
        (("[[known]]", "[[known]"), "is no TOML: "),
        (("", GOOD), "known[1] (a): id: another entry has the same"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(changed, says, tmp_path, capsys):
    path = tmp_path / "known.toml"
    old, new = changed
    path.write_text(new + GOOD if not old else GOOD.replace(old, new, 1))
    with pytest.raises(TraceError) as refused:
        read_known(path)
    assert str(refused.value).startswith(str(path))
    assert says in str(refused.value)
    assert main(["fuzz", "--known", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(TraceError, match="no such file"):
        read_known(tmp_path / "none.toml")


def found(observable, oracle=CONTRACT, expected=None, actual=None):
    return Finding(observable, Free("a"), 0, expected or Done(), actual or Done(), oracle=oracle)


def test_every_property_has_a_severity_of_its_own_choice():
    chosen = {name: severity(found(name)) for name in (*PROPERTIES, *LIVENESS_PROPERTIES)}
    assert Severity.OTHER_BEHAVIOUR not in chosen.values()
    assert chosen["S7"] < chosen["S1"] < chosen["S8"] < chosen["S14"] < chosen["S11"]
    assert severity(found("corruption", "shadow")) is Severity.WRONG_CONTENT


def test_lockstep_says_what_it_can():
    raised = found("outcome", LOCKSTEP, Done(), Failed("KeyError"))
    assert severity(raised) is Severity.CRASH
    assert severity(found("outcome", LOCKSTEP, Failed("KeyError"), Done())) is Severity.OTHER_BEHAVIOUR
    assert severity(found("outcome", LOCKSTEP, Done(), Refused())) is Severity.OTHER_BEHAVIOUR
    by_field = {name: severity(found(name, LOCKSTEP)) for name in Snapshot._fields}
    assert by_field["stats"] is Severity.REPORTING
    assert by_field["num_free"] is Severity.OTHER_BEHAVIOUR
    assert by_field["tables"] is Severity.OTHER_BEHAVIOUR
