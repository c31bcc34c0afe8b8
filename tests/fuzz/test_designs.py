"""What a target does by design is no mistake, under any oracle; what is wrong beside it is found."""

import json
import re
import sys
from collections.abc import Collection

import pytest
from blockproof.fuzz.cli.main import main
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.oracle_names import LOCKSTEP, MODEL_FREE
from blockproof.fuzz.opening.new_target import write_target
from blockproof.fuzz.opening.oracles import oracles_named, suited_and_why
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.oracles.shadow import Corruption, Shadow
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.reports.vacuity import vacuity
from blockproof.fuzz.runs.conformance import check_target
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.targets.base import TargetUnavailableError, check_declarations, designs_of, lacking, lacking_in
from blockproof.fuzz.testing.stateful import kv_cache_machine
from blockproof.fuzz.traces.replay import replay
from blockproof.fuzz.traces.shrink import shrink
from blockproof.model.ops import Advance, Allocate, Done, Group, Operation, Shape, Submit
from blockproof.model.snapshot import Snapshot
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from .designed import Designed

LABELS, NO_TABLES = frozenset({"labels"}), frozenset({"tables", "ref_cnt", "labels"})
DESIGNS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("merges",), ("exchanges",)),
    (("merges", "keeps one"), ("exchanges",)),
    (("merges when it allocates",), ("exchanges",)),
    (("evicts all",), ("evicts_more",)),
    (("evicts nodes",), ("evicts_more",)),
    (("evicts all at every call",), ("evicts_more",)),
    (("evicts all when refused",), ("evicts_more",)),
    (("evicts all at the end", "keeps one"), ("evicts_more",)),
    (("forgets the preempted",), ("forgets_preempted",)),
    (("publishes at the end",), ("publishes_at_end",)),
    (("publishes at the end only",), ("publishes_at_end",)),
    (("publishes at the end only", "evicts nodes", "keeps one"), ("publishes_at_end", "evicts_more")),
    (("merges", "forgets the preempted", "evicts all"), ("exchanges", "forgets_preempted", "evicts_more")),
)
"""What an engine does, and what it has to say of it."""


def run(
    target: Designed, operations: int = 3_000, seed: int = 1, attention: Collection[str] = ("full",), **more: object
) -> Summary:
    done = Summary("designed", "random", seed, oracles=MODEL_FREE)
    plan = Plan(seed, operations=operations, oracles=MODEL_FREE, attention=tuple(attention), **more)  # type: ignore[arg-type]
    return run_random(target, plan, done)


def found(target: Designed, **more: object) -> str | None:
    """What is found first."""
    finding = run(target, **more).finding  # type: ignore[arg-type]
    return None if finding is None else finding.observable


def test_an_engine_without_designs_is_right():
    for hides in ((), LABELS, NO_TABLES):
        assert found(Designed(hides=hides)) is None


@pytest.mark.few_are_quick
@pytest.mark.parametrize("hides", [frozenset(), LABELS, frozenset({"ref_cnt", "free"})], ids=["all", "labels", "free"])
@pytest.mark.parametrize(("does", "designs"), DESIGNS, ids=lambda words: "+".join(words))
def test_what_is_declared_is_no_mistake(does, designs, hides):
    done = run(Designed(does, designs, hides=hides))
    assert done.finding is None, done.finding
    assert done.reached["contract: hit"] > 20


@pytest.mark.parametrize(("does", "designs"), DESIGNS, ids=lambda words: "+".join(words))
def test_the_events_of_such_an_engine_are_right(does, designs):
    done = run(Designed(does, designs, tells=True), operations=2_000)
    assert done.finding is None, done.finding
    assert done.reached["contract: S11 checked"] > 20


@pytest.mark.parametrize(
    ("does", "observable"),
    [
        (("merges",), "S5"),
        (("merges when it allocates",), "S8"),
        (("evicts all",), "S10"),
        (("evicts nodes",), "S10"),
        (("evicts all at every call",), "S10"),
        (("evicts all when refused",), "S8"),
        (("evicts all at the end",), "S10"),
        (("forgets the preempted",), "S10"),
        (("publishes at the end",), "S14"),
        (("publishes at the end only",), "S14"),
    ],
)
def test_what_is_not_declared_is_found(does, observable):
    assert found(Designed(does)) == observable


@pytest.mark.parametrize(
    ("does", "mistake", "designs", "hides", "observable"),
    [
        (("merges",), "merges other content", ("exchanges",), (), "corruption"),
        (("merges",), "merges other content", ("exchanges",), LABELS, "corruption"),
        (("merges when it allocates",), "merges other content", ("exchanges",), (), "corruption"),
        (("merges",), "merge leaks", ("exchanges",), (), "S1"),
        (("merges",), "merges what stays free", ("exchanges",), (), "S1"),
        (("merges",), "forgets the end", ("exchanges",), (), "S10"),
        (("merges",), "publishes a block too many", ("exchanges",), (), "S10"),
        (("evicts nodes",), "evicts what is held", ("evicts_more",), (), "S10"),
        (("evicts all",), "hits a block too few", ("evicts_more",), (), "S14"),
        (("evicts all",), "hits a block too many", ("evicts_more",), LABELS, "S7"),
        (("evicts all",), "a block leaks", ("evicts_more",), LABELS, "S1"),
        (("forgets the preempted",), "forgets others with the preempted", ("forgets_preempted",), (), "S10"),
        (("forgets the preempted",), "forgets what is shared with the preempted", ("forgets_preempted",), (), "S10"),
        (("forgets the preempted",), "forgets the end", ("forgets_preempted",), (), "S10"),
        (("forgets the preempted",), "forgets the end", ("forgets_preempted",), LABELS, "S14"),
        (("publishes at the end",), "publishes never", ("publishes_at_end",), (), "S14"),
        (("publishes at the end",), "publishes never", ("publishes_at_end",), LABELS, "S14"),
        (("publishes at the end",), "publishes a block too many", ("publishes_at_end",), (), "S10"),
        (("publishes at the end",), "publishes a block too many", ("publishes_at_end",), LABELS, "S7"),
        (("publishes at the end",), "hits a block too few", ("publishes_at_end",), (), "S14"),
        (("publishes at the end",), "evicts what is held", ("publishes_at_end", "evicts_more"), (), "S10"),
    ],
)
def test_only_what_is_declared_is_forgiven(does, mistake, designs, hides, observable):
    assert found(Designed((*does, mistake), designs, hides=hides), operations=8_000) == observable


def states(exchanged_at: str, designs: Collection[str], other: int = 1) -> None:
    """Two requests compute one state each, the same; the second one's block is exchanged. Corruption if it is lost."""
    shape = Shape((Group("mamba", 2, mamba_mode="align"),), 9, 12, 2, 2, 16)
    shadow, tables = Shadow(shape, designs=designs), dict[str, list[int]]()

    def ask(operation: Operation, **changed: list[int]) -> None:
        tables.update(changed)
        counts = [sum(block in table for table in tables.values()) for block in range(shape.num_blocks)]
        held = [{name: list(table) for name, table in tables.items()}]
        shadow.step(operation, Done(), Snapshot([], 0, 0.0, [0, *counts[1:]], held, [{}], [], [], 0, (), [[]], None))

    for name, block in (("a", 1), ("b", 2)):
        ask(Submit(name, (0, 1) if other == 1 or name == "a" else (0, 2)))
        ask(Allocate(name, 2), **{name: [block]})
        if name == "a":
            ask(Advance(name, (7,)))
    ask(Advance("b", (7,)), b=[1] if exchanged_at == "Advance" else [2])
    ask(Allocate("b", 1), b=[1, 3])


def test_states_go_on_from_the_block_that_stands_in_the_table_now():
    for exchanged_at in ("Advance", "Allocate"):
        states(exchanged_at, ["exchanges"])
        with pytest.raises(Corruption, match="is not held"):
            states(exchanged_at, [])
        with pytest.raises(Corruption, match="is not held"):
            states(exchanged_at, ["exchanges"], other=2)


# Windows: counted at launch, and shared for one kind of groups only.

WINDOWS = ("full", "sliding", "chunked")
NOT_SHARED = ("Lookup for sliding", "Lookup for chunked", "Allocate.gate for sliding", "Allocate.gate for chunked")


def windows(*does: str, designs: Collection[str] = (), lacks: Collection[str] = NOT_SHARED) -> Designed:
    """An engine that shares prefixes for full attention only."""
    return Designed(does, designs, kinds=WINDOWS, lacks=lacks)


def test_tokens_may_count_as_computed_at_launch():
    assert found(windows(), attention=WINDOWS) is None
    assert found(windows("counts at launch"), attention=WINDOWS) == "S13"
    assert found(windows("counts at launch", designs=["counts_at_launch"]), attention=WINDOWS) is None
    early = ("counts at launch", "publishes when it allocates")
    assert found(windows(*early, designs=["counts_at_launch"]), attention=WINDOWS) is None
    for mistake in ("counts drafts", "counts a token too many"):
        wrong = windows("counts at launch", mistake, designs=["counts_at_launch"])
        assert found(wrong, attention=WINDOWS) in ("S13", "S6", "corruption")


def test_a_name_with_a_kind_holds_for_cores_with_such_groups_only():
    target = windows()
    full, sliding = (Shape((group,), 9, 9, 1, 1, 9) for group in (Group("full", 1), Group("sliding", 1, window=2)))
    assert "Lookup" not in lacking(target)
    assert "Lookup" not in lacking_in(target, full)
    assert {"Lookup", "Allocate.hit", "Allocate.gate"} <= lacking_in(target, sliding)
    by_kind = {kind: run(windows(), operations=1_500, attention=[kind]) for kind in WINDOWS}
    assert by_kind["full"].operation_counts["Lookup"] > 50
    assert by_kind["full"].reached["contract: hit"] > 5
    for kind in ("sliding", "chunked"):
        assert not by_kind[kind].operation_counts["Lookup"]
        assert by_kind[kind].operation_counts["Allocate"] > 100
    shared = windows(lacks=("Allocate.gate for sliding", "Allocate.gate for chunked"))
    assert found(shared, attention=WINDOWS) == "S14"  # it does not find what a window needs


def test_a_trace_is_replayed_without_what_is_lacking_for_its_kind():
    target = windows(lacks=("Allocate.gate for sliding", "Allocate.gate for chunked"))
    done = run(target, attention=["sliding"])
    (one,) = done.found.values()
    shown, applied = replay(one.trace, windows(), Judging(MODEL_FREE))
    assert shown is None
    assert not any(type(operation).__name__ == "Lookup" for operation in applied.operations)


# What is wrong stays the same while it is made smaller, and designs stay forgiven.


def test_shrinking_forgives_what_is_declared():
    target = Designed(("evicts nodes", "evicts what is held"), ("evicts_more",))
    done = run(target, operations=8_000)
    assert done.finding is not None
    (one,) = done.found.values()
    small = shrink(one.trace, one.finding.kind, target, Judging(MODEL_FREE), max_candidates=300)
    assert len(small.trace.operations) < 30
    right = Designed(("evicts nodes",), ("evicts_more",))
    assert replay(small.trace, right, Judging(MODEL_FREE))[0] is None


# Tables that are hidden.


@pytest.mark.parametrize("hides", [NO_TABLES, NO_TABLES | {"free"}, frozenset({"tables"})])
@pytest.mark.parametrize("does", [(), ("names no blocks",)], ids=["blocks", "no blocks"])
def test_tables_may_be_hidden(hides, does):
    done = run(Designed(does, hides=hides))
    assert done.finding is None, done.finding
    unseen = {name for name, _ in done.unobserved}
    assert ("S2" in unseen) == ("S3" in unseen) == bool(does)
    for words, designs in DESIGNS[::3]:
        assert found(Designed((*words, *does), designs, hides=hides)) is None
    for mistake, observable in (
        ("a block leaks", "S1"),
        ("hits a block too many", "S7"),
        ("hits the last token", "S7"),
        ("hits a block too few", "S14"),
    ):
        assert found(Designed((mistake, *does), hides=hides)) == observable
    merged = ("merges", "merge leaks", *does)
    assert found(Designed(merged, ("exchanges",), hides=hides)) == "S1"


def test_a_shadow_memory_without_tables_is_no_success():
    oracles = ("shadow",)
    done = Summary("designed", "random", 1, oracles=oracles)
    run_random(
        Designed(["names no blocks"], hides=NO_TABLES),
        Plan(1, operations=500, oracles=oracles, attention=("full",)),
        done,
    )
    assert "saw no block tables" in (vacuity(done).problem or "")


# A target that never preempts.


def test_a_target_that_never_preempts_is_not_accused_and_what_never_fits_is_still_found():
    lacks = {"Preempt"}
    for seed in (1, 2):
        done = Summary("designed", "random", seed, oracles=("liveness",))
        plan = Plan(seed, operations=6_000, oracles=("liveness",), attention=("full",), keep_going=True)
        assert run_random(Designed(lacks=lacks), plan, done).found == {}
        assert done.reached["liveness: waits, as nobody can be preempted for it"] > 20
        assert done.reached["liveness: request finished"] > 100
        assert not done.operation_counts["Preempt"]
    done = Summary("designed", "random", 1, oracles=("liveness",))
    plan = Plan(1, operations=6_000, oracles=("liveness",), attention=("full",))
    assert run_random(Designed(["a block leaks"], lacks=lacks), plan, done).finding is not None


# The check, declarations, and programs.


@pytest.mark.few_are_quick
@pytest.mark.parametrize("hides", [frozenset(), LABELS, NO_TABLES], ids=["all", "labels", "tables"])
@pytest.mark.parametrize(("does", "designs"), DESIGNS, ids=lambda words: "+".join(words))
def test_the_check_of_a_target_obeys_designs(does, designs, hides):
    report = check_target(Designed(does, designs, hides=hides), MODEL_FREE)
    assert report.mistakes == []


def test_the_check_asks_the_oracles_that_are_named(capsys):
    assert check_target(Designed(["a block leaks"]), ("shadow", "no-S1")).mistakes != []  # what is free does not add up
    leaks = Designed(["evicts what is held", "publishes never"], hides=LABELS)
    assert check_target(leaks, ("contract",)).code == check_target(leaks, ("shadow",)).code == 0
    with_scripts = check_target(Designed(), MODEL_FREE)
    assert any(line.asked.endswith("scripts of requests") for line in with_scripts.of("ok"))
    assert check_target(Designed()).asked < with_scripts.asked
    assert main(["targets", "check", "impl", "--oracle", "shadow,liveness"]) == 0
    assert "all of them finish" in capsys.readouterr().out
    assert main(["targets", "check", "impl", "--oracle", "shadow,contact"]) == 2
    assert "did you mean 'contract'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("attribute", "names", "said"),
    [
        ("designs", {"evict_more"}, "did you mean 'evicts_more'?"),
        ("designs", {"append_only"}, "a name of hides; move it there"),
        ("hides", {"exchanges"}, "a name of designs; move it there"),
        ("designs", "evicts_more", "designs is the text 'evicts_more'"),
        ("lacks", {"Lookup for slidng"}, "did you mean 'sliding'?"),
        ("lacks", {"Lokup for sliding"}, "did you mean 'Lookup'?"),
        ("lacks", {"hybrids for sliding"}, "'hybrids' holds for all groups or none"),
        ("designs", {"evicts_more for full attention"}, "of a kind that is unknown"),
    ],
)
def test_a_wrong_name_is_told_with_what_was_meant(attribute, names, said):
    target = Designed()
    setattr(target, attribute, names)
    with pytest.raises(TargetUnavailableError) as caught:
        check_declarations(target)
    assert said in str(caught.value)


def test_the_older_name_of_a_design_is_understood():
    assert designs_of(Designed(hides=["append_only"])) == {"exchanges"}
    assert found(Designed(["merges"], hides=["append_only"])) is None


def test_lockstep_is_not_for_a_target_with_designs():
    target = Designed(designs=["evicts_more"])
    target.hides = target.lacks = frozenset()
    assert suited_and_why("mine", target)[0] == MODEL_FREE
    assert oracles_named("all", "mine", target) == MODEL_FREE
    with pytest.raises(ValueError, match="no such design as evicts_more"):
        oracles_named("lockstep,shadow", "mine", target)
    assert LOCKSTEP in oracles_named("lockstep,shadow", "mine", Designed())


def merging() -> Designed:
    """For a child process."""
    return Designed(["merges"], ["exchanges", "evicts_more for mamba"])


def test_a_child_process_says_which_designs_it_has():
    target = open_target(f"{__name__}:merging", isolate=True)
    try:
        assert designs_of(target) == {"exchanges", "evicts_more for mamba"}
        assert found(target, operations=300) is None  # type: ignore[arg-type]
    finally:
        target.close()


def test_a_program_says_which_designs_it_has(tmp_path):
    hello = {"protocol": 1, "name": "mine", "hides": [], "lacks": ["Lookup for mamba"], "designs": ["evicts_more"]}
    program = tmp_path / "program.py"
    program.write_text(f"print({json.dumps(hello)!r}, flush=True); input()")
    target = open_target(f"program:{sys.executable} {program}")
    try:
        assert designs_of(target) == {"evicts_more"}
        assert lacking(target) == {"Lookup for mamba"}
    finally:
        target.close()
    program.write_text(f"print({json.dumps(hello | {'designs': ['evict_more']})!r}, flush=True); input()")
    wrong = open_target(f"program:{sys.executable} {program}")
    with pytest.raises(TargetUnavailableError, match="did you mean 'evicts_more'"):
        designs_of(wrong)
    wrong.close()


# The same for a target that was begun with `targets new`, and for a state machine.


def test_the_template_may_hide_tables_or_never_preempt(tmp_path, capsys):
    written = write_target("mine", tmp_path)
    text = written.target.read_text(encoding="utf-8")
    hidden = text.replace('hides = frozenset({"usage", ', 'hides = frozenset({"usage", "tables", "ref_cnt", "labels", ')
    hidden = re.sub(r"ref_cnt=\[.*\],", "ref_cnt=[],", hidden)
    hidden = re.sub(r"tables=\[.*\],", "tables=[{}],", hidden)
    hidden = re.sub(r"labels=\[None.*\],", "labels=[],", hidden)
    leaks = hidden.replace("if not self.holders[block]:", "if not self.holders[block] and len(table) < 3:")
    never = text.replace("lacks = frozenset({", 'lacks = frozenset({"Preempt",')
    assert len({text, hidden, leaks, never}) == 4
    for number, (source, code) in enumerate(((hidden, 0), (never, 0), (leaks, 1))):
        file = tmp_path / f"target_{number}.py"
        file.write_text(source, encoding="utf-8")
        spec, out = f"{file}:make_target", ["--out", str(tmp_path)]
        if not code:
            assert main(["targets", "check", spec]) == 0
        assert main(["fuzz", "--target", spec, "--seed", "1", "--operations", "3000", *out]) == code
    capsys.readouterr()


def test_a_state_machine_obeys_designs_and_what_is_lacking_for_a_kind():
    quick = settings(max_examples=25, stateful_step_count=25, database=None, derandomize=True, deadline=None)
    right = windows("merges", designs=["exchanges"], lacks=NOT_SHARED)
    run_state_machine_as_test(kv_cache_machine(right, attention=WINDOWS, folder=None), settings=quick)
