"""Drawn configurations: what is drawn, what judges them, and what is left of a finding."""

import json
import pickle
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pytest
from blockproof.fuzz.adapters import references
from blockproof.fuzz.adapters.vllm.configuration.configuration_deviations import CONFIGURATION_DEVIATIONS, Reference0230
from blockproof.fuzz.configuration import check
from blockproof.fuzz.configuration.check import CheckLimits, Judge, draw_case, run
from blockproof.fuzz.configuration.draw import configuration_of
from blockproof.fuzz.configuration.findings import finding_text, read_finding, write_finding
from blockproof.fuzz.configuration.invariants import INVARIANTS
from blockproof.fuzz.configuration.pieces import PARENTS
from blockproof.fuzz.configuration.questions import Question
from blockproof.fuzz.configuration.reach import Reach
from blockproof.fuzz.configuration.shrink import ask_again, shrink_finding
from blockproof.fuzz.faults import MADE_UP, Part
from blockproof.fuzz.opening.targets import open_calculator
from blockproof.fuzz.targets.configuration_answers import QUESTIONS, answer
from blockproof.fuzz.traces.files import TraceError
from blockproof.fuzz.workload.draw import ByteDraw, SeededDraw
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

CONFIGURATION_FAULTS = {name: fault for name, fault in MADE_UP.items() if fault.part == Part.CONFIGURATION}
FAULT_CASES = 120
SEEN_CASES = 80
"""Enough for every invariant that a fault breaks to see it."""
"""Configurations of seed 0 in which a fault must show."""
SPEC = {"type": "FullAttentionSpec", "block_size": 16, "num_kv_heads": 1, "head_size": 8, "dtype": {"itemsize": 2}}

(REFERENCE,) = references()


@pytest.fixture(autouse=True)
def calculators_importable(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1])


def modelled(*arguments):
    """A calculator that answers as a model does."""
    return import_module("calculators").Modelled(*arguments)


@cache
def drawn(seed):
    return pickle.dumps(draw_case(SeededDraw(seed)))


@pytest.fixture
def drawn_once(monkeypatch):
    """What is drawn of a seed is drawn once for all faults, each of which is given a copy of its own."""
    monkeypatch.setattr(check, "SeededDraw", lambda seed: seed)
    monkeypatch.setattr(check, "draw_case", lambda seed, reference: pickle.loads(drawn(seed)))


def checked(calculator, cases, oracle="all", findings=1, seed=0):
    reach = Reach(calculator.name, seed)
    run(calculator, reach, CheckLimits(cases, None, findings), oracle)
    return reach


@cache
def hunted(name):
    calculator = open_calculator(f"fault:{name}")
    reach = checked(calculator, FAULT_CASES)
    assert reach.findings, f"not found: blockproof fuzz-config --target fault:{name} --cases {FAULT_CASES} --seed 0"
    return reach.findings[0], shrink_finding(reach.findings[0], Judge(calculator))


# What is drawn


def test_a_seed_gives_the_same_configuration_and_questions_every_time():
    for index in range(50):
        assert draw_case(SeededDraw(f"1/{index}")) == draw_case(SeededDraw(f"1/{index}"))
    assert draw_case(SeededDraw("1/0")) != draw_case(SeededDraw("1/1"))


def test_a_configuration_is_plain_json_and_survives_the_way_there_and_back():
    for index in range(100):
        configuration, questions = draw_case(SeededDraw(f"json/{index}"))
        assert json.loads(json.dumps(questions)) == [[op, inputs] for op, inputs in questions]
        assert configuration_of(json.loads(json.dumps(configuration.about_workers()))) == configuration


@pytest.mark.slow
def test_every_kind_of_spec_setting_and_op_comes_up_and_ends_in_outputs_and_in_errors():
    reach = checked(modelled(), 800, "lockstep")
    assert reach.specs.keys() >= {
        "FullAttentionSpec", "TQFullAttentionSpec", "MLAAttentionSpec", "HiddenStateCacheSpec", "SinkFullAttentionSpec",
        "ChunkedLocalAttentionSpec", "SlidingWindowSpec", "SlidingWindowMLASpec", "MambaSpec", "CrossAttentionSpec",
        "EncoderOnlyAttentionSpec", "AttentionSpec", "NVFP4", "INT8_PER_TOKEN_HEAD", "FP8_PER_TENSOR",
    }  # fmt: skip
    assert {op for op in reach.ops if reach.answers[f"{op}: output"] == 0} == set()
    assert len(reach.ops) == len(QUESTIONS) == 49
    ways = ("none", "one spec", "one type", "two", "three to five", "more", "several types", "padded", "hidden states")
    assert {way for way in ways if not reach.situations[f"groups: {way}"]} == set()
    assert reach.situations["groups: eagle mark"]
    assert reach.situations["a worker without layers"]
    assert min(reach.answers[f"configs: {end}"] for end in ("output", "ValueError", "AssertionError")) > 10


def test_memory_is_drawn_on_both_sides_of_what_is_needed():
    counts = Counter()
    for index in range(400):
        configuration, _ = draw_case(SeededDraw(f"memory/{index}"))
        about = configuration.about_layers(vllm_config=configuration.vllm_config)
        needed: Any = answer("needed", about).get("output")
        if needed and len(configuration.workers) == 1 and configuration.available_memory:
            spare = configuration.one_memory - needed["from_groups"]
            counts[{0: "exactly", -1: "a byte short"}.get(spare, "more" if spare > 0 else "less")] += 1
    assert min(counts[spare] for spare in ("exactly", "a byte short", "more", "less")) > 5, counts


def test_pages_are_asked_about_packed_as_well_and_a_model_without_memory_over_ranks():
    packed, checks, conflicts = set(), [], set()
    for index in range(200):
        for op, asked in draw_case(SeededDraw(f"besides/{index}"))[1]:
            inputs: Any = asked
            if op == "page" and inputs["spec"].get("kv_quant_mode") == "NVFP4":
                packed.add(inputs["spec"]["type"])
            elif op == "check_memory" and inputs["available_memory"] == -1:
                checks.append(inputs["vllm_config"].get("decode_context_parallel_size"))
            elif op == "register":
                conflicts |= {step[1] for step in inputs["steps"] if step[0] == "register" and step[1] in PARENTS}
    assert packed >= {"FullAttentionSpec", "SlidingWindowSpec", "SlidingWindowMLASpec", "ChunkedLocalAttentionSpec"}
    assert checks.count(2) > 50
    assert conflicts == set(PARENTS)


def test_no_bytes_draw_the_simplest_configuration():
    configuration, questions = draw_case(ByteDraw(b""))
    assert len(configuration.specs) <= 2
    assert len(configuration.workers) == 1
    assert Judge(modelled()).check(configuration, questions) is None


# Who checks the checker?


@pytest.mark.each_is_measured
@pytest.mark.usefixtures("drawn_once")
@pytest.mark.parametrize("name", CONFIGURATION_FAULTS)
def test_a_planted_fault_is_found_shrunk_to_a_few_layers_and_shows_again(name):
    finding, smaller = hunted(name)
    assert finding.oracle == "lockstep"
    assert smaller.complete
    assert smaller.finding.kind == finding.kind
    inputs = smaller.finding.inputs
    layers = [*inputs.get("layers", []), *(layer for worker in inputs.get("workers", []) for layer in worker)]
    assert len(layers) <= 6
    assert len(inputs.get("specs", [])) <= 3
    assert len(inputs.get("vllm_config", {})) <= 1
    assert ask_again(smaller.finding, Judge(open_calculator(f"fault:{name}"))).kind == smaller.finding.kind


@pytest.mark.usefixtures("drawn_once")
@pytest.mark.parametrize("name", CONFIGURATION_FAULTS)
def test_exactly_the_invariants_that_a_fault_breaks_see_it_without_the_model(name):
    reach = checked(open_calculator(f"fault:{name}"), SEEN_CASES, "invariants", findings=len(INVARIANTS))
    assert {finding.oracle for finding in reach.findings} == set(CONFIGURATION_FAULTS[name].observables)


def test_every_invariant_is_alone_in_seeing_some_fault():
    """I14 is about cores that place layers in one allocation, which ours does not: test_configuration_today."""
    seen = {fault.observables for fault in CONFIGURATION_FAULTS.values()}
    assert seen >= {(name,) for name in INVARIANTS if name != "I14"}


@pytest.mark.slow
def test_our_core_agrees_with_the_model_and_keeps_every_invariant():
    reach = checked(open_calculator("impl"), 400, seed=7)
    assert not reach.findings, f"{finding_text(reach.findings[0])}\nblockproof fuzz-config --seed 7 --cases 400"
    assert reach.configurations == 400
    assert set(reach.invariants) == set(INVARIANTS)


def test_the_model_keeps_every_invariant():
    assert not checked(modelled(), 400, "invariants", seed=8).findings


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=600))
def test_hypothesis_finds_no_configuration_on_which_core_and_model_differ(data):
    assert Judge(open_calculator("impl")).check(*draw_case(ByteDraw(data))) is None


class HypothesisDraw:
    """Choices that Hypothesis makes and shrinks."""

    def __init__(self, draw):
        self.integer = lambda low, high: draw(st.integers(low, high))
        self.choose = lambda options: options[draw(st.integers(0, len(options) - 1))]


@st.composite
def cases(draw):
    return draw_case(HypothesisDraw(draw))


@pytest.mark.slow
def test_hypothesis_shrinks_a_configuration_that_shows_a_fault():
    judge = Judge(open_calculator("fault:layer-dropped"), oracle="lockstep")
    quick = settings(max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    configuration, _ = find(cases(), lambda case: judge.check(*case) is not None, settings=quick, random=Random(0))
    assert len(configuration.specs) <= 2
    assert len(configuration.layers) <= 3


# A release that is known to deviate


@pytest.mark.slow
def test_answers_of_the_deviating_model_are_no_findings_and_the_deviations_are_counted():
    reach = checked(modelled(Reference0230(), REFERENCE), 250, "lockstep")
    assert not reach.findings, finding_text(reach.findings[0])
    assert set(reach.deviations) == {deviation.id for deviation in CONFIGURATION_DEVIATIONS}
    assert sum(reach.deviations.values()) > 50
    assert set(reach.stale()) == {name for name, times in reach.deviations.items() if not times}


def test_a_release_that_follows_the_chapter_where_it_is_known_not_to_is_a_finding():
    reach = checked(modelled(None, REFERENCE), 200)
    assert reach.findings[0].sides == ("Reference0230", REFERENCE)
    assert reach.findings[0].oracle == "lockstep"


def test_models_that_differ_without_a_deviation_that_says_why_are_a_finding():
    class Silent(Reference0230):
        def answer(self, op, inputs):
            given = super().answer(op, inputs)
            self.fired.clear()
            return given

    judge = Judge(modelled(Silent(), REFERENCE))
    judge.reference = Silent()
    draws = {"draws": [[-1, 0, 0]]}
    assert judge.check_question("num_blocks", {"draws": [[3, 1000, 10]], "vllm_config": {}}) is None, draws
    differing = {"specs": {}, "layers": []}  # S-08: an empty mapping
    finding = judge.check_question("uniformity", differing)
    assert finding is not None
    assert finding.oracle == "models"


# What is left of a finding


def test_a_finding_survives_its_file_and_shows_again(tmp_path):
    finding, smaller = hunted("one-block-more")
    path = write_finding(smaller.finding, tmp_path / "new")
    assert read_finding(path) == smaller.finding
    assert ask_again(read_finding(path), Judge(open_calculator("fault:one-block-more"))).kind == finding.kind
    assert ask_again(read_finding(path), Judge(open_calculator("impl"))) is None


def test_the_text_of_a_finding_has_the_question_and_what_differs():
    text = finding_text(hunted("one-block-more")[1].finding)
    assert text.startswith("lockstep: config_from_groups\n")
    assert '  s0 = {"type": ' in text or ' = {"type": ' in text
    assert '-  "num_blocks": ' in text
    assert '+  "num_blocks": ' in text


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"blockproof_configuration": 2}', '{"op": 1', "\x00"])
def test_a_file_that_holds_no_finding_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(TraceError) as caught:
        read_finding(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_the_limits_of_a_trace_file_hold_for_a_finding_too(tmp_path):
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(2**40)  # sparse: reading it would not end
    for path, problem in ((tmp_path / "huge.json", "bytes, more than"), (tmp_path, "is a directory; name a finding")):
        with pytest.raises(TraceError, match=problem):
            read_finding(path)


def test_shrinking_keeps_what_it_has_when_the_time_is_up():
    finding, _ = hunted("one-block-more")
    cut_short = shrink_finding(finding, Judge(open_calculator("fault:one-block-more")), max_seconds=0.0)
    assert not cut_short.complete
    assert cut_short.finding == finding


def test_a_finding_of_an_invariant_is_shrunk_as_a_configuration():
    calculator = open_calculator("fault:tensor-off-by-a-page")
    finding = checked(calculator, FAULT_CASES, "invariants").findings[0]
    smaller = shrink_finding(finding, Judge(calculator, oracle="invariants"))
    assert (smaller.finding.oracle, smaller.finding.op) == ("I2", "configs")
    assert sum(len(worker) for worker in smaller.finding.inputs["workers"]) == 1


def test_questions_are_asked_once_and_compared_once():
    calculator = modelled()
    question = Question("page", {"spec": SPEC})
    configuration, _ = draw_case(ByteDraw(b""))
    Judge(calculator, oracle="lockstep").check(configuration, [question, question])
    assert calculator.asked == ["page"]
