"""S13 and the device: nobody is given a block that a step uses which has not landed (`Landed`)."""

from dataclasses import replace
from pathlib import Path

import pytest
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.findings.ops_json import operation_from_json, to_json
from blockproof.fuzz.findings.oracle_names import CONTRACT, LANDED, LOCKSTEP, MODEL_FREE, SHADOW
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.open_run import open_run
from blockproof.fuzz.runs.pair import Pair
from blockproof.fuzz.traces.judges import Judges
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.replayed import replayed
from blockproof.fuzz.traces.shrink import shrink
from blockproof.fuzz.traces.trace_file import TraceFile, read_trace
from blockproof.model.ops import (
    Advance,
    Allocate,
    Arrive,
    Done,
    Evict,
    Free,
    Group,
    Landed,
    Lookup,
    Preempt,
    Reject,
    Release,
    RemoveSkipped,
    Shape,
    Submit,
    Take,
    Touch,
)

from ..runs.test_model_free import Changed
from .test_contract_played import BUT_TABLES, Play

STRICTLY = Judging((CONTRACT, LANDED))
FULL = Shape((Group("full", 1),), 5, 8, 1, 1, 8)
WINDOW = Shape((Group("sliding", 1, window=2),), 7, 16, 1, 1, 16)


class HoldsBack:
    """Our core, with a reference to each block of a request that goes while its steps run, until they have landed."""

    name = "holds back"
    hides = frozenset({"held_back"})

    def __init__(self, *, forgets=False):
        self._core, self._forgets = open_target("impl"), forgets

    def start(self, shape):
        self._running, self._kept, self._tables, self.told = {}, {}, [], []
        outcome, shown = self._core.start(shape)
        self._tables = shown.tables
        return outcome, shown

    def step(self, operation):
        self.told.append(operation)
        name = getattr(operation, "request", "")
        if isinstance(operation, Landed):
            self._running[name] = max(0, self._running.get(name, 0) - 1)
            return Done(), self._give_back(name)
        if isinstance(operation, Free | Preempt) and self._running.get(name) and not self._forgets:
            blocks = tuple(block for tables in self._tables for block in tables.get(name, ()) if block)
            self._core.step(Touch(blocks))
            self._kept.setdefault(name, []).extend(blocks)
        outcome, shown = self._core.step(operation)
        if isinstance(operation, Allocate) and isinstance(outcome, Done):
            self._running[name] = self._running.get(name, 0) + 1
        if isinstance(operation, Advance) and operation.sampled:
            self._running[name] = 0
            shown = self._give_back(name)
        self._tables = shown.tables
        return outcome, shown

    def _give_back(self, name):
        blocks = () if self._running.get(name) else tuple(self._kept.pop(name, ()))
        return self._core.step(Release(blocks))[1]

    def close(self):
        self._core.close()


def told(target, shape, operations, judging):
    """The finding, and the run."""
    run = open_run(target, judging)
    assert run.start(shape) is None
    assert run.built
    for operation in operations:
        if finding := run.step(operation):
            return finding, run
    return None, run


FREED = (Submit("a", (0, 1)), Allocate("a", 2), Free("a"))
PREEMPTED = (Submit("a", (0, 1)), Allocate("a", 2), Preempt("a"))
LOADS = (Submit("b", (5, 6, 7, 8)), Allocate("b", 1, external=3))
COMPUTES = (Submit("b", (5, 6, 7, 8)), Allocate("b", 4))
PROMPT = (Submit("a", (0, 1, 2, 3, 4, 5)), Allocate("a", 6), Advance("a"))
SKIPPED = (*PROMPT, RemoveSkipped("a"))
"""The window leaves blocks behind that the step over the prompt reads, while that step runs."""
TAKES = (Take(4),)
LOADING = (Submit("a", (0, 1, 2)), Allocate("a", 0, external=3, delay=True))
"""The request waits for its tokens: a connector writes into three blocks."""


@pytest.mark.parametrize(
    ("shape", "before", "after", "said"),
    [
        (FULL, FREED, LOADS, "block 2 was freed and handed out to somebody who writes beside"),
        (FULL, PREEMPTED, LOADS, "block 2 was preempted"),
        (FULL, FREED, TAKES, "block 1 was freed"),
        (WINDOW, SKIPPED, (Take(2),), "block 3 was skipped"),
        (FULL, (*LOADING, Free("a")), LOADS, "block 1 was freed and handed out to a later step, while tokens 0 to 3"),
        (FULL, (*LOADING, Free("a")), COMPUTES, "later step, while tokens 0 to 3 of a are still loaded into it"),
        (FULL, (*LOADING, Preempt("a")), COMPUTES, "block 1 was preempted and handed out to a later step"),
        (FULL, (*LOADING, Preempt("a")), (Allocate("a", 0, external=3, delay=True),), "block 2 was preempted"),
        (FULL, (*LOADING, Free("a")), TAKES, "are still loaded into it"),
    ],
)
def test_a_block_is_written_beside_the_queue_while_its_step_runs(shape, before, after, said):
    finding, run = told(open_target("impl"), shape, (*before, *after), STRICTLY)
    assert finding is not None
    assert finding.kind == ("S13", type(after[-1]).__name__)
    assert said in finding.detail
    for waits in ((Landed("a"),), (Landed("a"), Landed("a"))):
        finding, run = told(open_target("impl"), shape, (*before, *waits, *after), STRICTLY)
        assert finding is None
        assert run.reached()["contract: landed"] == 1
    assert told(open_target("impl"), shape, (*before, *after), Judging((CONTRACT,)))[0] is None


INPUT = Path(__file__).parents[4] / "shared" / "inputs" / "freed-while-loading.json"


@pytest.mark.skipif(not INPUT.exists(), reason="the inputs are not here")
def test_the_load_of_a_request_that_is_freed_meanwhile_is_found_as_it_was_reported():
    found = replayed(read_trace(INPUT), open_target("impl"), Judges((CONTRACT, LANDED), "here"))
    assert found.finding is not None
    assert (found.finding.observable, found.finding.said) == ("S13", "freed while it was loaded and handed out")


def test_a_load_ends_with_the_arrival_of_its_tokens_and_not_with_that_of_a_later_one():
    """One queue in order: what `b` computes comes behind the step of `a`."""
    for then in (COMPUTES, (Take(4),)):
        assert told(open_target("impl"), FULL, (*LOADING, Arrive("a"), Free("a"), *then), STRICTLY)[0] is None
    again = (*LOADING, Preempt("a"), Take(3), Allocate("a", 0, external=1, delay=True), Arrive("a"), Free("a"))
    two = told(open_target("impl"), FULL, again, STRICTLY)[0]
    assert two is not None
    assert isinstance(two.operation, Take)
    apart = Shape(FULL.groups, 9, 8, 1, 1, 8)
    others = (*LOADING, Preempt("a"), Allocate("a", 0, external=1, delay=True), Arrive("a"), Free("a"), Take(6))
    finding, _ = told(open_target("impl"), apart, others, STRICTLY)
    assert finding is not None
    assert "tokens 0 to 3 of a" in finding.detail
    assert told(open_target("impl"), apart, (*others[:-1], Landed("a"), others[-1]), STRICTLY)[0] is None


@pytest.mark.parametrize("before", [FREED, PREEMPTED, (*LOADING, Free("a")), (*LOADING, Preempt("a"))])
def test_a_core_that_holds_blocks_back_is_judged_by_every_later_owner(before):
    usual = Judging((CONTRACT,))
    for after in (COMPUTES, LOADS):
        finding, _ = told(HoldsBack(forgets=True), FULL, (*before, *after), usual)
        assert finding is not None
        assert finding.kind == ("S13", "Allocate")
        faithful = HoldsBack()
        finding, run = told(faithful, FULL, (*before, *after, Landed("a"), after[-1]), usual)
        assert finding is None
        assert [type(outcome).__name__ for outcome in run.outcomes[-3:]] == ["Refused", "Done", "Done"]
        assert Landed("a") in faithful.told


@pytest.mark.parametrize("operations", [COMPUTES, LOADS])
def test_one_queue_in_order_makes_later_steps_harmless(operations):
    judging = STRICTLY if operations is COMPUTES else Judging((CONTRACT,))
    finding, run = told(open_target("impl"), FULL, (*FREED, *operations), judging)
    assert finding is None
    to = "a later step" if operations is COMPUTES else "a second writer"
    assert run.reached()[f"contract: freed and handed out to {to} before landing"] == (
        2 if operations is COMPUTES else 1
    )


@pytest.mark.parametrize(
    "news",
    [
        (Advance("a", (7,)),),
        (Advance("a"), Advance("a", (7,))),
        (Advance("a", (7,)), Allocate("a", 1), Advance("a", (8,))),
    ],
)
def test_a_sampled_token_says_that_its_step_has_landed(news):
    """And so have all before it."""
    operations = (Submit("a", (0, 1)), Allocate("a", 1), Advance("a"), Allocate("a", 1), *news, Free("a"), Take(4))
    assert told(open_target("impl"), FULL, operations, STRICTLY)[0] is None
    unknown = tuple(operation for operation in operations if not getattr(operation, "sampled", ()))
    assert told(open_target("impl"), FULL, unknown, STRICTLY)[0] is not None


@pytest.mark.parametrize(("sampled", "lands"), [((7, 8), True), ((), False)])
def test_a_step_with_drafts_has_landed_with_the_first_token_behind_those_known_when_it_began(sampled, lands):
    """Of two drafts one was right: the step has told two tokens at once."""
    operations = (Submit("a", (0,)), Allocate("a", 3), Advance("a", sampled, rejected=1), Free("a"), Take(4))
    assert (told(open_target("impl"), FULL, operations, STRICTLY)[0] is None) == lands


def test_a_step_without_its_news_runs_on_and_only_what_it_writes_matters():
    first = (Submit("a", (0,)), Allocate("a", 1), Advance("a", (1,)), Allocate("a", 3))
    ahead = (*first, Advance("a"), Free("a"))
    finding, _ = told(open_target("impl"), FULL, (*ahead, Evict((1,)), Take(4)), STRICTLY)
    assert finding is not None
    assert "block 2 was freed" in finding.detail, "block 1 is read only, by a step whose output nobody uses"
    rejected = (*first, Advance("a"), Reject("a", 2), Advance("a", (7,)), Free("a"), Take(4))
    assert told(open_target("impl"), FULL, rejected, STRICTLY)[0] is None


def test_blocks_in_place_of_a_hit_are_not_said_to_be_loaded_into():
    """A connector loads behind the hit. Who is given another block for a part of the hit is accused of that alone."""

    def exchanged(operation, outcome, shown):
        if operation == loads:
            shown = shown._replace(tables=[{"b": [1, running, *shown.tables[0]["b"][2:]]}])
        return outcome, shown and shown._replace(free=[], ref_cnt=[])

    running, loads = 4, Allocate("b", 1, hit=True, external=1)
    stored = (Submit("c", (0, 1, 2)), Allocate("c", 3), Advance("c", (3,)), Free("c"))
    freed = (Submit("a", (9,)), Allocate("a", 1), Free("a"))
    operations = (*stored, *freed, Submit("b", (0, 1, 5, 6)), Lookup("b"), loads)
    shape = Shape((Group("full", 1),), 9, 8, 1, 1, 8)
    target = Changed(exchanged, hides=frozenset({"free", "num_free", "ref_cnt"}))
    finding, run = told(target, shape, operations, STRICTLY)
    assert finding is not None
    assert finding.kind == ("S7", "Allocate")
    assert run.reached()["contract: freed and handed out to a later step before landing"] == 1


PAIRS = Shape((Group("full", 2),), 8, 16, 2, 2, 16)
WIDE_WINDOW = Shape((Group("sliding", 1, window=3),), 10, 16, 1, 1, 16)
PAIR_AND_WINDOW = Shape((Group("full", 2), Group("sliding", 1, window=3)), 16, 16, 1, 2, 16)


def waits_for(shape, operations, blocks):
    """Which of the blocks nobody may be given now, by a core that should hold them back: each is taken alone."""
    waiting = []
    for block in blocks:
        play = Play(shape, BUT_TABLES | {"held_back"})
        for operation, *tables in operations:
            assert play.step(operation, *tables) is None, (operation, play.what)
        if (id := play.step(Take(1), outcome=Done((block,)))) is not None:
            assert id == "S13"
            waiting.append(block)
    return waiting


@pytest.mark.parametrize(("landed", "waiting"), [(0, [1, 2, 3]), (1, [3]), (2, [])])
def test_steps_land_one_after_the_other_and_each_frees_what_no_later_one_writes(landed, waiting):
    steps = [
        *((Submit("a", (0, 1, 2, 3)),), (Allocate("a", 4), {"a": [1, 2]}), (Advance("a"),)),
        (Allocate("a", 2), {"a": [1, 2, 3]}),
    ]
    assert waits_for(PAIRS, [*steps, *[(Landed("a"),)] * landed, (Free("a"), {})], range(1, 4)) == waiting
    assert waits_for(PAIRS, [*steps, (Free("a"), {}), *[(Landed("a"),)] * landed], range(1, 4)) == waiting


def test_a_step_of_a_request_that_has_gone_does_not_land_with_the_tokens_of_its_successor():
    """Another request of the same name knows more tokens at once."""
    steps = [
        *((Submit("a", (0, 1, 2, 3)),), (Allocate("a", 4), {"a": [1, 2]}), (Advance("a"),), (Free("a"), {})),
        *((Submit("a", (0, 1, 2, 3, 4, 5)),), (RemoveSkipped("a"),)),
    ]
    assert waits_for(PAIRS, steps, range(1, 3)) == [1, 2]


@pytest.mark.parametrize(("landed", "skipped", "freed"), [(0, [2, 3], [4, 5, 6]), (1, [], [])])
def test_what_a_running_step_reads_matters_while_its_request_goes_on(landed, skipped, freed):
    """The chunk before it is over at once. It begins at token 3, whose window begins at token 1. What it has read
    nobody uses once all is freed."""
    steps = [
        *((Submit("a", (0, 1, 2, 3, 4, 5)),), (Allocate("a", 3), {"a": [1, 2, 3]}), (Advance("a"),)),
        *((Allocate("a", 3), {"a": [1, 2, 3, 4, 5, 6]}), (Advance("a"),), *[(Landed("a"),)] * landed),
    ]
    assert waits_for(WIDE_WINDOW, [*steps, (RemoveSkipped("a"), {"a": [0, 0, 0, 4, 5, 6]})], range(1, 4)) == skipped
    assert waits_for(WIDE_WINDOW, [*steps, (Free("a"), {})], range(1, 7)) == freed


@pytest.mark.parametrize(("sampled", "waiting"), [((), [1, 2, 3]), ((7,), [3]), ((7, 8), [])])
@pytest.mark.parametrize("at_once", [True, False])
def test_each_of_two_steps_lands_with_its_own_token(sampled, waiting, at_once):
    """Both count as computed before the first token is known."""
    steps = [
        *((Submit("a", (0, 1, 2, 3)),), (Allocate("a", 4), {"a": [1, 2]}), (Advance("a"),)),
        *((Allocate("a", 1), {"a": [1, 2, 3]}), (Advance("a"),)),
        *((Advance("a", tokens),) for tokens in ([sampled] if at_once and sampled else [(one,) for one in sampled])),
    ]
    assert waits_for(PAIRS, [*steps, (Free("a"), {})], range(1, 4)) == waiting


def test_each_group_has_blocks_of_its_own_that_a_step_uses():
    rows = {"a": [1, 2]}, {"a": [3, 4, 5, 6]}
    steps = [
        *((Submit("a", (0, 1, 2, 3)),), (Allocate("a", 2), {"a": [1]}, {"a": [3, 4]}), (Advance("a"),), (Landed("a"),)),
        *((Allocate("a", 2), *rows), (Free("a"), {}, {})),
    ]
    assert waits_for(PAIR_AND_WINDOW, steps, range(1, 7)) == [2, 5, 6]


def test_what_a_step_reads_of_the_encoder_matters_to_nobody_once_its_request_is_freed():
    shape = Shape((Group("full", 2), Group("cross", 2)), 8, 16, 2, 2, 16)
    steps = [
        (Submit("a", (0, 1)),),
        (Allocate("a", 2, encoder_tokens=4), {"a": [1]}, {"a": [4, 5]}),
        (Free("a"), {}, {}),
    ]
    assert waits_for(shape, steps, (1, 4, 5)) == [1]


@pytest.mark.parametrize(("length", "waiting"), [(15, [1]), (16, [])])
def test_a_step_up_to_the_longest_length_tells_no_token_and_counts_as_landed(length, waiting):
    steps = [(Submit("a", (0,) * length),), (Allocate("a", length), {"a": list(range(1, length + 1))}), (Advance("a"),)]
    longest = Shape((Group("full", 1),), 20, 16, 1, 1, 16)
    assert waits_for(longest, [*steps, (Free("a"), {})], [1]) == waiting


@pytest.mark.parametrize(("rejected", "waiting"), [(1, [3, 4]), (2, [2, 3, 4])])
def test_what_comes_behind_rejected_drafts_is_written_as_much_earlier(rejected, waiting):
    steps = [
        *((Submit("a", (0,)),), (Allocate("a", 3), {"a": [1, 2, 3]}), (Advance("a"),)),
        *((Allocate("a", 1), {"a": [1, 2, 3, 4]}), (Reject("a", rejected),), (Free("a"), {})),
    ]
    assert waits_for(WIDE_WINDOW, steps, range(1, 5)) == waiting


@pytest.mark.parametrize(
    ("hit", "external", "delay", "loaded"),
    [
        (0, 3, False, [1, 2]),
        (0, 3, True, [1, 2]),
        (0, 2, False, [1]),
        (0, 5, False, [1, 2, 3]),
        (2, 3, False, [2, 3]),
        (2, 2, True, [2]),
    ],
)
def test_a_connector_loads_into_the_blocks_behind_the_hit_alone(hit, external, delay, loaded):
    """Blocks 1 to 4 were freed while a step runs. The step of the request itself comes later in the device's queue."""
    said = []
    for block in range(1 + hit // 2, 5):
        play = Play(replace(PAIRS, num_blocks=12), landed=True)
        play.compute("c", (9, 9), [5])
        play.compute("a", (0, 1, 2, 3, 4, 5, 6, 7), [1, 2, 3, 4])
        assert play.step(Free("a"), {"c": [5]}) is None
        assert play.look_up("b", (9,) * 10, (hit, ((5,)[: hit // 2],))) is None
        table = [block if entry == block - 1 else 5 if entry < hit // 2 else entry + 6 for entry in range(5)]
        load = Allocate("b", 0 if delay else 10 - hit - external, hit > 0, external=external, delay=delay)
        if (id := play.step(load, {"c": [5], "b": table})) is not None:
            assert id == "S13"
            said.append(block)
    assert said == loaded


def noted(target):
    """What a target is asked from now on."""
    asked, step = [], target.step

    def noting(operation):
        asked.append(operation)
        return step(operation)

    target.step = noting
    return asked


def test_no_target_is_told_unless_it_holds_blocks_back():
    operations = (*SKIPPED, Landed("a"), RemoveSkipped("a"), Free("a"), Landed("a"), Landed("nobody"))
    for judging in (Judging((LOCKSTEP, SHADOW)), Judging(MODEL_FREE)):
        target = open_target("impl")
        asked = noted(target)
        finding, run = told(target, WINDOW, operations, judging)
        assert finding is None
        assert len(run.outcomes) == len(operations)
        assert not any(isinstance(operation, Landed) for operation in asked)
    pair = Pair(open_target("impl"), HoldsBack())
    assert told(pair, WINDOW, operations[:-3], Judging(()))[0] is None


def test_a_trace_with_landings_is_replayed_and_reduced_to_what_matters():
    noise = (Submit("c", (3,)), Allocate("c", 1), Landed("c"), Advance("c", (3,)), Free("c"), Landed("nobody"))
    trace = Trace(FULL, (*noise, *FREED, Landed("c"), *LOADS))
    assert all(operation_from_json(to_json(operation)) == operation for operation in trace.operations)
    finding, applied = replay(trace, open_target("impl"), STRICTLY)
    assert finding is not None
    assert applied == trace
    shrunk = shrink(trace, finding.kind, open_target("impl"), STRICTLY)
    assert not any(isinstance(operation, Landed) for operation in shrunk.trace.operations)
    assert shrunk.finding.observable == "S13"
    shown = replayed(TraceFile(trace), open_target("impl"), Judges((CONTRACT, LANDED), "given"))
    assert shown.seen is not None
    assert [step.operation for step in shown.seen] == list(trace.operations)
    assert [step.number for step in shown.seen] == list(range(len(trace.operations)))
