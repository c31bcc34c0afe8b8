"""Two mistakes that lead to one sentence at one operation are two findings; one mistake is one."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.smallest import form_of
from blockproof.fuzz.findings.finding import Finding, Trace
from blockproof.fuzz.findings.oracle_names import CONTRACT
from blockproof.fuzz.reports.summary import FIRST_SAMPLES, MOST_SAMPLES, Found, Summary
from blockproof.model.ops import Allocate, Done, Free, Group, Lookup, Preempt, Shape, Submit

ENGINE = '''
from blockproof.fuzz.adapters.impl import open_impl
from dataclasses import replace


class Forgets:
    """Our core, which is not told of some of what names the content of a request."""

    name = "forgets"

    def __init__(self, *names):
        self.core, self.names = open_impl(), names
        self.lacks = {"Submit.adapter_version", "Submit.items", "Submit.embeds", "Reset", "Evict", "Touch", "Take"}

    def start(self, shape):
        return self.core.start(shape)

    def step(self, operation):
        if type(operation).__name__ == "Submit":
            operation = replace(operation, **dict.fromkeys(self.names, None))
        return self.core.step(operation)

    def close(self):
        self.core.close()


def make_both():
    return Forgets("adapter", "salt")


def make_one():
    return Forgets("salt")
'''


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    path = tmp_path_factory.mktemp("engine") / "forgets.py"
    path.write_text(ENGINE)
    return path


def uses(spec, tmp_path, capsys):
    """Which fields of a request the smallest traces of S7 at a lookup have, one set for each finding that is kept."""
    words = ["fuzz", "--target", spec, "--oracle", "contract,no-S14", "--attention", "full", "--seed", "0"]
    words += ["--operations", "12000", "--keep-going", "--out", str(tmp_path), "--json"]
    assert main(words) == 1
    told = json.loads(capsys.readouterr().out)
    found = [one for one in told["findings"] if (one["observable"], one["operation"]) == ("S7", "Lookup")]
    return [
        {name for line in open(one["reproduction"]["trace"]) for name in ("adapter", "salt") if f'"{name}"' in line}
        for one in found
    ]


def test_two_causes_with_one_sentence_at_one_operation_are_two_findings(engine, tmp_path, capsys):
    assert sorted(map(sorted, uses(f"{engine}:make_both", tmp_path, capsys))) == [["adapter"], ["salt"]]


def test_one_cause_is_one_finding(engine, tmp_path, capsys):
    assert uses(f"{engine}:make_one", tmp_path, capsys) == [{"salt"}]


SHAPE = Shape((Group("full", 1),), 4, 3, hash_block_size=1, scheduler_block_size=1, max_num_batched_tokens=3)
BEGUN = (Submit("a", (0,)), Allocate("a", 1))


def found(*operations, shape=SHAPE, said="another content"):
    finding = Finding("S7", Lookup("a"), len(operations), Done(), Done(), oracle=CONTRACT, said=said)
    return Found(finding, Trace(shape, (*BEGUN, *operations)), attention=Counter(["full"]))


def test_how_a_request_gives_its_blocks_back_parts_nothing():
    assert form_of(found(Free("a")).trace) == form_of(found(Preempt("a")).trace)
    assert form_of(found(Free("a")).trace) != form_of(found(Submit("b", (0,), salt="x")).trace)


def test_findings_that_say_something_else_are_two_from_the_start():
    done = Summary("x", "random", 0)
    for said in ("another content", "no block", "another content"):
        done.add_found(found(said=said))
    assert sorted(one.times for one in done.found.values()) == [1, 2]


def test_some_of_many_are_kept_and_one_of_each_kind_of_groups():
    first = found(Free("a"), Free("b"))
    for _ in range(10):
        first.add(found(Free("a")))
    assert len(first.samples) == FIRST_SAMPLES
    assert first.times == 11
    assert len(first.trace.operations) == 3
    assert len(first.samples[0].trace.operations) == 4  # what it was before the shorter one came
    for kind in ("mla", "full", "sink", "mamba", "chunked", "sliding", "cross", "mla"):
        first.add(found(shape=replace(SHAPE, groups=(Group(kind, 1, window=1, chunk=1),))))
    assert FIRST_SAMPLES < len(first.samples) <= MOST_SAMPLES
    assert len({one.trace.shape.groups[0].kind for one in first.samples}) > 4


def test_a_plan_that_ends_at_the_first_finding_parts_nothing(engine, tmp_path, capsys):
    assert not Plan(0).keep_going
    words = ["fuzz", "--target", f"{engine}:make_both", "--oracle", "contract,no-S14", "--attention", "full"]
    assert main([*words, "--seed", "0", "--operations", "12000", "--out", str(tmp_path), "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["findings"]) == 1
