"""What the world refuses: a target whose pages may run out, done right and wrong in several ways, and what is said."""

from collections.abc import Callable

import pytest
from blockproof.fuzz.adapters.impl import open_changed_impl
from blockproof.fuzz.adapters.vllm.style import VllmStyleTarget
from blockproof.fuzz.engines.fuzzing import FuzzOutcome
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.findings.ops_json import operation_from_json, to_json
from blockproof.fuzz.findings.oracle_names import LOCKSTEP, MODEL_FREE
from blockproof.fuzz.findings.starved import Starved
from blockproof.fuzz.findings.words import operation_text
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.page.words import operation_words
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.reports.vacuity import vacuity
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.runs.open_run import open_run
from blockproof.fuzz.runs.run import SERVED_AGAIN, STARVED_REFUSED
from blockproof.fuzz.targets.base import left_out_for
from blockproof.fuzz.targets.refusing import Refusals
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.shrink import shrink
from blockproof.fuzz.traces.steps import model_steps
from blockproof.fuzz.traces.trace_file import TraceFile, dump_trace, load_trace
from blockproof.model.ops import Advance, Allocate, Done, Free, Group, Lookup, Refused, Shape, Submit

ATTENTION = ("full", "sliding", "full+sliding", "mamba")
SHAPE = Shape((Group("full", 1),), 9, 8, 1, 1, 8)
JUDGES = ((LOCKSTEP,), MODEL_FREE)


class PagesAreGoneError(Exception):
    """No page for blocks."""


class Pages:
    """The memory below the blocks: it never runs out by itself."""

    @staticmethod
    def take(count):
        return range(count)

    @staticmethod
    def grab(count):
        return range(count)


def careful(manager):
    """Asks for pages before anything else."""
    allocate = manager.allocate_slots
    manager.allocate_slots = lambda *args, **named: allocate(*args, **named) if Pages.take(1) else None


def tries_again(manager):
    """Asks a second time, so that one refusal makes no difference."""
    allocate = manager.allocate_slots
    manager.allocate_slots = lambda *args, **named: allocate(*args, **named) if Pages.take(1) or Pages.take(1) else None


def half_done(manager):
    """Asks for pages whenever it takes blocks, and leaves what it has done until then."""
    allocate, take = manager.allocate_slots, manager.block_pool.get_new_blocks

    def taking(count):
        if count and not Pages.take(count):
            raise PagesAreGoneError
        return take(count)

    def allocating(*args, **named):
        try:
            return allocate(*args, **named)
        except PagesAreGoneError:
            return None

    manager.block_pool.get_new_blocks, manager.allocate_slots = taking, allocating


def fails_later(manager):
    """Refuses, and takes the next try for a mistake of its caller."""
    allocate, waiting = manager.allocate_slots, set()

    def allocating(request, *args, **named):
        if not Pages.take(1):
            waiting.add(request.request_id)
            return None
        assert request.request_id not in waiting
        return allocate(request, *args, **named)

    manager.allocate_slots = allocating


def refuses_for_ever(manager):
    """Refuses, and counts what it was refused as taken."""
    allocate, lost = manager.allocate_slots, [0]

    def allocating(*args, **named):
        lost[0] += not Pages.take(1)
        return allocate(*args, **named) if not lost[0] else None

    manager.allocate_slots = allocating


def loses_blocks(manager):
    """Takes a block before it asks, and forgets about it."""
    allocate, pool = manager.allocate_slots, manager.block_pool

    def allocating(*args, **named):
        if Pages.take(1):
            return allocate(*args, **named)
        if pool.get_num_free_blocks():
            pool.get_new_blocks(1)
        return None

    manager.allocate_slots = allocating


def never_asks(manager):
    """Asks for no page at all."""


def opened(core: Callable[..., None], call: str = "take") -> VllmStyleTarget:
    target = open_changed_impl(core.__name__, core)
    assert isinstance(target, VllmStyleTarget)
    target.declare(refuses={f"{__name__}:Pages.{call}"})
    return target


def fuzzed(target: VllmStyleTarget, oracles: tuple[str, ...], operations: int = 4_000) -> Summary:
    done = Summary("mine", "random", 1, oracles=oracles)
    return run_random(target, Plan(1, operations=operations, attention=ATTENTION, oracles=oracles), done)


@pytest.mark.parametrize("oracles", JUDGES, ids=["lockstep", "model-free"])
@pytest.mark.parametrize("core", [careful, tries_again])
def test_a_refusal_that_changes_nothing_is_allowed(core, oracles) -> None:
    done = fuzzed(opened(core), oracles)
    assert done.finding is None
    assert vacuity(done).problem is None
    assert done.reached[STARVED_REFUSED] > 20
    assert done.reached[SERVED_AGAIN] > 10
    assert done.outcomes["Starved", "Done"] > 20


@pytest.mark.parametrize("oracles", JUDGES, ids=["lockstep", "model-free"])
@pytest.mark.parametrize(
    ("core", "found", "longest"),
    [
        (half_done, {"S8", "num_free", "tables", "ref_cnt", "outcome", "free"}, 5),
        (fails_later, {"S8", "outcome"}, 3),
        (refuses_for_ever, {"S17", "outcome"}, 9),
        (loses_blocks, {"S8", "free", "num_free"}, 2),
    ],
)
def test_a_refusal_that_changes_something_is_found_and_shrunk(core, found, longest, oracles) -> None:
    target, judging = opened(core), Judging(oracles)
    done = fuzzed(target, oracles)
    assert done.finding is not None
    assert done.finding.observable in found, done.finding.text()
    assert done.trace is not None
    small = shrink(done.trace, done.finding.kind, target, judging).trace
    assert any(isinstance(operation, Starved) for operation in small.operations)
    assert len(small.operations) <= longest, small
    text = dump_trace(TraceFile(small, core.__name__, oracles=oracles))
    again, _ = replay(load_trace(text).trace, target, judging)
    assert again is not None
    assert again.kind == done.finding.kind
    plain, applied = replay(small, open_target("impl"), judging)  # there nothing can be refused
    assert plain is None
    assert not any(isinstance(operation, Starved) for operation in applied.operations)


@pytest.mark.parametrize("oracles", JUDGES, ids=["lockstep", "model-free"])
def test_a_run_in_which_nothing_could_be_refused_tested_nothing(oracles) -> None:
    done = fuzzed(opened(never_asks), oracles, 1_500)
    assert done.finding is None
    assert "calls were to be refused, and none was" in (vacuity(done).problem or "")
    assert FuzzOutcome(done, [], "").exit_code == 3


def test_our_core_is_not_asked() -> None:
    assert "Starved" in left_out_for(open_target("impl"))
    done = Summary("mine", "random", 1)
    run_random(open_target("impl"), Plan(1, operations=1_000, attention=ATTENTION), done)
    assert "Starved" not in done.operation_counts
    assert not done.reached[STARVED_REFUSED]


def test_what_a_served_and_a_refused_one_come_to() -> None:
    target = opened(careful)
    run = open_run(target, Judging((LOCKSTEP,)))
    assert run.start(SHAPE) is None
    asked = (
        (Submit("a", (1, 2, 3)), Done(3)),
        (Lookup("a"), Done((0, ((),)))),
        (Starved("a", 2), Refused()),
        (Starved("a", 2, served=1), Done(((1, 2),))),
        (Advance("a"), Done(3)),
        (Starved("a", 1, served=0), Refused()),
        (Allocate("a", 1), Done(((3,),))),
        (Free("a"), Done()),
    )
    for operation, outcome in asked:
        assert run.step(operation) is None
        assert run.outcomes[-1] == outcome
    assert (run.seen[STARVED_REFUSED], run.seen[SERVED_AGAIN]) == (2, 1)
    model = list(model_steps(Trace(SHAPE, (asked[0][0], Starved("a", 2), Allocate("a", 2))), "impl"))
    assert [step.outcome for step in model[1:]] == [Refused(), Done(((1, 2),))]
    assert not model[1].changes


def test_its_words_and_its_json() -> None:
    operation = Starved("a", 3, hit=True, served=1)
    assert operation.allocation == Allocate("a", 3, hit=True)
    assert to_json(operation) == {"op": "Starved", "request": "a", "new_tokens": 3, "hit": True, "served": 1}
    assert operation_from_json(to_json(operation)) == operation
    assert operation_text(operation) == "Starved a, new_tokens=3, hit, served=1"
    assert operation_words(operation) == (
        "Request a asks for room for 3 tokens, using the hit of its lookup, while the world answers the first 1 call "
        "of those that may fail."
    )
    assert operation_words(Starved("a", 1)).endswith("while the world answers none of those that may fail.")


def raising(count: int) -> int:
    return count


def test_calls_are_answered_and_refused_as_said() -> None:
    refusals = Refusals({f"{__name__}:Pages.grab", f"{__name__}:raising={__name__}.PagesAreGoneError"})
    assert (Pages.grab(2), raising(2)) == (range(2), 2)
    with refusals.after(2):
        assert (Pages.grab(1), raising(3)) == (range(1), 3)
        assert Pages.grab(1) is None
        with pytest.raises(PagesAreGoneError, match="raising is refused, since that was asked for"):
            raising(1)
    assert (Pages.grab(2), raising(2)) == (range(2), 2)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("Pages.take", "it names no call of a module"),
        ("no_such_module:take", "No module named 'no_such_module'"),
        (f"{__name__}:Pages.none", "has no attribute 'none'"),
        (f"{__name__}:SHAPE", "SHAPE is a Shape"),
        (f"{__name__}:Pages.take=int", "int is no exception"),
        (f"{__name__}:Pages.take=Nothing", "has no attribute 'Nothing'"),
    ],
)
def test_a_name_that_leads_nowhere_is_said(call: str, why: str) -> None:
    with pytest.raises(ValueError, match="--refuse: ") as raised:
        Refusals({call})
    assert why in str(raised.value)
    assert repr(call) in str(raised.value)
