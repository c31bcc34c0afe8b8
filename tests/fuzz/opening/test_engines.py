"""Engines to be simulated: opened by name, also as programs in any language."""

import json
import sys
from pathlib import Path

import pytest
from blockproof.fuzz.findings.ops_json import shape_from_json
from blockproof.fuzz.opening import program_engine as module
from blockproof.fuzz.opening.engines import is_engine, open_engine_here
from blockproof.fuzz.opening.names import parsed
from blockproof.fuzz.opening.program_engine import (
    EngineProgramError,
    ProgramEngine,
    answer_of,
    batch_of,
    complete_fields,
)
from blockproof.fuzz.simulation.judges import FATE, MEMORY
from blockproof.fuzz.simulation.protocol import (
    ClientRequest,
    EngineShape,
    EngineView,
    Scheduled,
    ScheduledBatch,
    Slots,
    SlotTransfer,
)
from blockproof.fuzz.simulation.run import SimulatedRun
from blockproof.fuzz.simulation.tiers import LowerTier, TierEvent
from blockproof.fuzz.simulation.traffic import draw_simulation, facts_of
from blockproof.fuzz.targets.base import TargetUnavailableError
from blockproof.fuzz.workload.draw import SeededDraw

DOCS = Path(__file__).parents[3] / "docs"
PROGRAM = f"program:{sys.executable} {Path(__file__).with_name('engine_program.py')}"


@pytest.fixture
def program():
    made: list[ProgramEngine] = []

    def opened(mistake: str = "") -> ProgramEngine:
        named = parsed(f"{PROGRAM} {mistake}")
        made.append(ProgramEngine(named))  # type: ignore[arg-type]  # it is a program's
        return made[-1]

    yield opened
    for engine in made:
        engine.close()


def stories(engine: ProgramEngine, many: int):
    facts = facts_of(engine)
    return [draw_simulation(SeededDraw(f"1/{number}"), facts) for number in range(many)]


def test_a_program_that_ends_is_a_finding_and_is_started_again(program):
    engine = program("ends")
    for story in stories(engine, 3):
        (one,) = SimulatedRun(engine, story).run(3000)
        assert one.judge == FATE
        assert "update raises TargetLostError: crash: exit status 7" in one.what


def test_a_program_is_simulated_like_any_engine(program):
    engine = program()
    facts = facts_of(engine)
    assert (sorted(facts.methods), facts.block_sizes) == (["close", "look"], (2, 4))
    for story in stories(engine, 6):
        run = SimulatedRun(engine, story)
        assert run.run(3000) == []
        assert run.reached["looks at an idle engine"]


@pytest.mark.parametrize(
    ("mistake", "judge", "said"),
    [
        ("table", MEMORY, "reads position"),
        ("error", FATE, "update raises EngineProgramError: ValueError: planted"),
        ("ends", FATE, "crash: exit status 7"),
        ("nonsense", FATE, "protocol: no answer can be read: a line that is no JSON: 'nonsense'"),
    ],
)
def test_what_a_program_does_wrong_is_found(program, mistake, judge, said):
    engine = program(mistake)
    found = next(found for story in stories(engine, 20) if (found := SimulatedRun(engine, story).run(3000)))
    assert found[0].judge == judge
    assert said in found[0].what


def test_a_program_with_a_wrong_first_line(program):
    with pytest.raises(TargetUnavailableError, match="`methods` has 'fly'; it may have reset, reweigh"):
        program("hello")
    with pytest.raises(TargetUnavailableError, match="of an engine to be simulated"):
        open_engine_here("program:echo {}")


def test_a_batch_as_json():
    raw = {
        "parts": [{"request": "a", "first": 0, "count": 2, "drafts": [4], "slots": [{"at": {"0": 17, "1": 18}}]}],
        "transfers": [{"id": "t", "kind": "load", "group": 0, "device": [1, 2], "other": [3, 4]}],
    }
    part = Scheduled("a", 0, 2, (4,), (Slots(at={0: 17, 1: 18}),))
    load = SlotTransfer("t", "load", 0, (1, 2), other=(3, 4))
    assert batch_of(raw, 5) == ScheduledBatch((part,), transfers=(load,), own=5)
    assert batch_of(raw | {"cleared": [2], "awaited": ["t"]}, 5).awaited == ("t",)
    with pytest.raises(EngineProgramError, match=r"no batch can be read: .*'speed'"):
        batch_of({"parts": [{"request": "a", "speed": 3}]}, 1)


def test_what_a_program_says_of_a_lower_tier():
    raw = {"tiers": {"host": {"blocks": 8, "policy": "lru", "keeps": ["ended"]}}}
    assert answer_of("tiers", raw) == {"host": LowerTier(8, "lru", frozenset({"ended"}))}
    events = {"events": [{"what": "reserved", "places": [3], "request": "a", "first": 0}]}
    assert answer_of("tier_events", events) == (TierEvent("reserved", "host", (3,), "a"),)
    assert answer_of("look", {"free": 4, "tiers": {"host": 2}}) == EngineView(4, tiers={"host": 2})
    for name, wrong in (("tiers", {"tiers": {"host": {"size": 8}}}), ("tier_events", {"events": ["stored"]})):
        with pytest.raises(EngineProgramError, match=f"no answer to {name} can be read"):
            answer_of(name, wrong)


@pytest.mark.parametrize("spec", ["impl", "fault:hits-stale"])
def test_what_is_no_engine(spec):
    with pytest.raises(ValueError, match=r"is no engine to be simulated; write path/file\.py:make_engine"):
        open_engine_here(spec)


def test_what_a_factory_makes_must_have_the_methods(tmp_path):
    (tmp_path / "mine.py").write_text("class E:\n    def start(self, shape): ...\ndef make_engine(): return E()\n")
    said = "a E without 'add'; see blockproof.fuzz.simulation.protocol.Engine"
    with pytest.raises(TargetUnavailableError, match=said):
        open_engine_here(f"{tmp_path / 'mine.py'}:make_engine")


def test_the_lines_on_the_page_are_spoken():
    _, _, page = (DOCS / "reference" / "pipe-protocol.md").read_text(encoding="utf-8").partition("## An engine to be")
    asked = [json.loads(line[2:]) for line in page.splitlines() if line.startswith("> ")]
    answers = [line[2:].encode() for line in page.splitlines() if line.startswith("< ")]
    assert module.hello_of_engine(answers[0])["depth"] == 2
    start, add, *others = asked
    shape = shape_from_json(dict(start["start"]["core"]))
    assert complete_fields(EngineShape(shape, start["start"]["max_requests"])) == start["start"]
    request = ClientRequest(**{**add["add"], "prompt": (1, 2, 3, 4, 5), "stop": (), "items": ()})
    assert complete_fields(request) == add["add"]
    assert [next(iter(one)) for one in others] == ["schedule", "update", "cancel", "idle", "look"]
    assert batch_of(json.loads(answers[3])["batch"], 1).parts[0].slots == (Slots((3, 4)),)


@pytest.mark.parametrize(
    ("name", "said", "engine"),
    [
        ("transformers==5.24.0", False, True),
        ("vllm==0.33.0", False, False),
        ("vllm==0.33.0", True, True),
        ("engine.py:make_engine", False, False),
        ("engine.py:make_engine", True, True),
    ],
)
def test_a_release_that_is_only_simulated_needs_no_word_for_it(name, said, engine):
    assert is_engine(name, said) is engine
