"""What a target says of itself is checked and obeyed: names, shapes, sizes, and what the generator draws."""

import hashlib
import json
from collections import Counter
from dataclasses import MISSING, fields, replace
from typing import Any

import pytest
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.offered import OF_TODAY
from blockproof.fuzz.findings.ops_json import to_json
from blockproof.fuzz.findings.oracle_names import MODEL_FREE
from blockproof.fuzz.findings.starved import EVERY_OPERATION
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.oracles.liveness import draw_script
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.runs.open_run import drawn_shape, open_run, usable, workload_of
from blockproof.fuzz.targets.base import (
    TargetUnavailableError,
    adapted,
    adapted_shape,
    block_sizes_of,
    check_declarations,
    hidden_fields,
    lacking,
)
from blockproof.fuzz.targets.declarations import HIDES, KINDS_OF_FEW, LACKS, OFFERS, PAGE, STARVED, with_implied
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.operations import Workload
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape, possible_attention
from blockproof.model import ops
from blockproof.model.core import Model
from blockproof.model.ops import OPERATIONS, Done, Group, Shape
from blockproof.model.snapshot import Snapshot

EVERY_CORE_HAS = {"Submit", "Allocate", "Advance", "Free", "Shape.groups", "Shape.num_blocks", "Shape.max_model_len"}
EVERY_CORE_HAS |= {"Advance.sampled", "Group.kind"}
SAYINGS = [name for name in LACKS if name.startswith(("Shape.", "Group.")) and "kind=" not in name]


class Saying:
    """A target that says something of itself; our core does the work."""

    hides: object = ()

    def __init__(self, name="mine", **said):
        self.core = open_target("impl")
        self.name = name
        vars(self).update(said)
        self.start, self.step, self.close = self.core.start, self.core.step, self.core.close


# The names.


def test_every_field_has_a_sentence_but_for_those_that_every_core_has():
    of_operations = {
        f"{name}.{one.name}" for name, kind in OPERATIONS.items() for one in fields(kind) if one.default is not MISSING
    }
    of_shapes = {f"{kind.__name__}.{one.name}" for kind in (Shape, Group) for one in fields(kind)}
    wanted = set(EVERY_OPERATION) | of_operations | of_shapes
    wanted = {name for name in wanted if not name.startswith("AllocateBatch.")}  # these are the fields of `Allocate`
    assert wanted - EVERY_CORE_HAS == {name for name in (*LACKS, *OFFERS) if "=" not in name and name[0].isupper()}
    assert not OFFERS.keys() & LACKS.keys()
    assert [*HIDES][:-4] == [*Snapshot._fields]
    assert all(sentence.endswith(".") for sentence in (*HIDES.values(), *LACKS.values(), *OFFERS.values()))


@pytest.mark.parametrize(
    ("attribute", "value", "said"),
    [
        ("lacks", {"Preemt"}, "lacks names 'Preemt', which is unknown; did you mean 'Preempt'?"),
        ("lacks", {"Allocate.gait"}, "did you mean 'Allocate.gate'?"),
        ("lacks", {"Shape.cachng"}, "did you mean 'Shape.caching'?"),
        ("lacks", ["preempt"], "did you mean 'Preempt'?"),
        ("lacks", {"events"}, "'events', which is a name of hides; move it there"),
        ("lacks", {"Allocate"}, "'Allocate', without which nothing can be tested"),
        ("lacks", "Reset", "lacks is the text 'Reset'; write a set of names: {'Reset'}"),
        ("lacks", {3}, "lacks holds 3, a int"),
        ("lacks", [["Reset"]], "lacks holds ['Reset'], a list"),
        ("lacks", 3, "lacks is a int; write a set of names"),
        ("lacks", {"Reset": True}, "lacks is a dict"),
        ("lacks", None, "lacks is a NoneType; write a set of names"),
        ("hides", 0, "hides is a int"),
        ("hides", "", "hides is the text ''"),
        ("hides", {"lables"}, "hides names 'lables', which is unknown; did you mean 'tables' or 'labels'?"),
        ("hides", "events", "hides is the text 'events'"),
        ("hides", {"Reset"}, "'Reset', which is a name of lacks"),
        ("hides", {"zzzzz"}, "which is unknown; all names are listed"),
        ("block_sizes", {0}, "block_sizes holds 0"),
        ("block_sizes", 16, "block_sizes is a int"),
        ("block_sizes", "16", "block_sizes is a str"),
        ("name", 7, "the target's name is 7, a int"),
    ],
)
def test_a_wrong_declaration_is_one_line_that_says_what_to_write(attribute, value, said):
    with pytest.raises(TargetUnavailableError) as caught:
        check_declarations(Saying(**{attribute: value}))
    line = str(caught.value)
    assert said in line
    assert "\n" not in line
    if f"{attribute} names" in line:
        assert line.endswith(f"({PAGE})")


def test_any_collection_of_legal_names_will_do_and_saying_nothing_as_well():
    for value in (set(), [], (), frozenset({"Reset"}), ["Reset"], {"Reset"}):
        check_declarations(Saying(lacks=value))
    target = Saying(lacks={"Reset"}, hides=["labels"], block_sizes=[256, 16])
    assert lacking(target) == frozenset({"Reset"})
    assert hidden_fields(target) == frozenset({"labels"})
    assert block_sizes_of(target) == (16, 256)
    assert not lacking(open_target("impl")) | hidden_fields(open_target("impl"))


def test_what_is_hidden_from_the_first_core_on_is_checked_after_its_start():
    target = Saying()

    def start(shape):
        target.hides = "events"
        return target.core.start(shape)

    target.start = start
    check_declarations(target)
    for oracles in (("lockstep",), MODEL_FREE):
        target.hides = ()
        with pytest.raises(TargetUnavailableError, match="hides is the text"):
            run_random(target, Plan(1, operations=10, oracles=oracles), Summary("mine", "random", 1, oracles=oracles))


@pytest.mark.parametrize("factory", ["lacks_typo", "hides_text_once_started"])
def test_a_child_says_the_same(factory):
    spec = f"tests.fuzz.fakes:{factory}"
    target = open_target(spec, isolate=True)
    try:
        with pytest.raises(TargetUnavailableError, match=r"did you mean 'Preempt'|hides is the text 'events'"):
            target.start(draw_shape(SeededDraw(1), ("full",)))
    finally:
        target.close()


def test_a_child_says_which_block_sizes_there_are():
    target = open_target("tests.fuzz.fakes:two_block_sizes", isolate=True)
    try:
        assert block_sizes_of(target) == (16, 256)
    finally:
        target.close()


# Shapes.


@pytest.mark.parametrize("lacks", SAYINGS)
def test_every_name_of_shapes_and_groups_changes_some_shape_into_one_that_can_be_built(lacks):
    core, changed = open_target("impl"), 0
    for index, (name, kinds) in enumerate([*ATTENTION.items()] * 4):
        shape = draw_shape(SeededDraw(f"lacking {index}"), kinds)
        if name not in possible_attention((name,), with_implied(frozenset({lacks}))):
            changed += 1
            continue
        plain = adapted_shape(shape, {lacks})
        assert adapted_shape(plain, {lacks}) == plain
        changed += plain != shape
        if isinstance(core.start(shape)[0], Done):
            assert isinstance(core.start(plain)[0], Done), plain
    assert changed


def test_the_plainer_shapes_are_what_the_page_says():
    wide = Shape(
        (Group("full", 4), Group("sliding", 8, window=5, num_heads=2)),
        9, 40, hash_block_size=4, scheduler_block_size=16, max_num_batched_tokens=4,
        eagle=True, events=True, stats=True, retention_interval=32,
    )  # fmt: skip
    assert not adapted_shape(wide, {"Shape.caching"}).caching
    assert adapted_shape(replace(wide, caching=False), {"Shape.caching=False"}).caching
    assert not adapted_shape(wide, {"Shape.eagle"}).eagle
    assert not adapted_shape(wide, {"Shape.events"}).events
    assert not adapted_shape(wide, {"Shape.stats"}).stats
    assert adapted_shape(wide, {"Shape.max_num_batched_tokens"}).max_num_batched_tokens == 40
    one_size = adapted_shape(wide, {"Shape.hash_block_size"})
    assert [group.block_size for group in one_size.groups] == [4, 4]
    assert (one_size.hash_block_size, one_size.scheduler_block_size, one_size.retention_interval) == (4, 8, 16)
    same = replace(wide, groups=(Group("sliding", 4, window=3), Group("sliding", 4, window=3, num_heads=2)))
    assert [group.window for group in adapted_shape(same, {"Group.num_heads"}).groups] == [3, 4]


def test_what_a_target_cannot_have_is_not_drawn():
    assert possible_attention(tuple(ATTENTION), ()) == tuple(ATTENTION)
    assert possible_attention(tuple(ATTENTION), with_implied(frozenset({"hybrids", "Group.window"}))) == (
        "full", "mla", "tq", "sink", "chunked", "mamba", "cross",
    )  # fmt: skip
    run = open_run(Saying(block_sizes={16, 48}, lacks={"hybrids"}))
    drawn = [drawn_shape(run, SeededDraw(f"sizes {index}"), "full") for index in range(60)]
    assert {group.block_size for shape in drawn for group in shape.groups} == {16, 48}
    assert all(shape.max_model_len > 16 for shape in drawn)
    assert all(isinstance(run.target.start(shape)[0], Done) for shape in drawn)


# Operations.

NANO_LACKS = frozenset(
    {"drafts", "hybrids", "Arrive", "CommonPrefix", "Evict", "Release", "RemoveSkipped", "Reset", "StepStart"}
    | {"TakeEvents", "TakeNewBlockIds", "TakeStats", "Submit.adapter", "Submit.salt", "Submit.items", "Submit.embeds"}
    | {"Allocate.external", "Allocate.encoder_tokens", "Allocate.reserved", "Allocate.lookahead", "Allocate.gate"}
)
"""What a small engine lacks: one that schedules prompts and single tokens only."""


def drawn_operations(lacks, *, chaos=False, attention=tuple(ATTENTION), seeds=range(3)):
    """Operations that the generator draws for such a target, over our core."""
    for seed in seeds:
        for name in attention:
            run = open_run(Saying(lacks=lacks))
            draw = SeededDraw(f"{seed}/{name}")
            shape = drawn_shape(run, draw, name)
            assert run.start(shape) is None
            workload = workload_of(run, draw, shape, chaos=chaos)
            for _ in range(150):
                operation = workload.next(run.scene)
                yield operation, run
                assert run.step(operation) is None
                if run.dead:
                    break
            for operation in () if run.dead else workload.drain(run.scene):
                yield operation, run


@pytest.mark.parametrize("chaos", [False, True])
def test_nothing_is_drawn_that_a_small_engine_lacks(chaos):
    kinds = Counter()
    for operation, run in drawn_operations(NANO_LACKS, chaos=chaos, attention=("full", "mla")):
        assert adapted(operation, run.lacks) == operation
        if isinstance(operation, ops.Allocate) and not chaos:
            request = run.scene.requests[operation.request]
            hit = request.hit[0] if operation.hit else 0
            assert request.computed + hit + operation.new_tokens <= len(request.tokens), "a draft"
        kinds[type(operation).__name__] += 1
    assert {"Submit", "Lookup", "Allocate", "Advance", "Free", "Preempt", "ReadTable"} <= set(kinds)


@pytest.mark.parametrize("name", [*(name for name in LACKS if name.split(".")[0] in OPERATIONS), "drafts"])
def test_what_is_lacking_is_not_drawn(name):
    for operation, run in drawn_operations({name}, attention=("full", "sliding+mamba", "cross"), seeds=(1,)):
        assert adapted(operation, run.lacks) == operation


def test_nothing_is_drawn_in_vain_for_the_example():
    for oracles in (MODEL_FREE, ("liveness",)):
        target = open_target("examples/my-engine/my_target.py:make_target")
        done = Summary("mine", "random", 1, oracles=oracles)
        run_random(target, Plan(1, operations=2_000, oracles=oracles, attention=("full",)), done)
        assert done.operations >= 2_000
        assert (done.finding, done.impossible, done.unbuilt.total()) == (None, {}, 0)


def test_a_run_counts_what_is_not_possible_on_the_target():
    run = open_run(Saying(lacks={"Reset", "Allocate.external"}))
    assert run.start(draw_shape(SeededDraw(3), ("full",))) is None
    assert usable(run, ops.Reset()) is None
    assert usable(run, ops.StepStart()) == ops.StepStart()
    assert run.impossible == {"Reset": 1}


# A target that lacks nothing.

AS_BEFORE = {
    (1, False): ("1c4457f9cd238d13", "132a490ef3fd97d8"),
    (1, True): ("11e0ddad50bacfc5", "2e0921460ae3b5dd"),
    (2, False): ("1edea976ae70cbc3", "d5a9ae5a2c1b693c"),
    (3, True): ("6b909a1a487c9ac2", "6850ea17e70f2cc2"),
}
"""By seed and chaos: what is drawn where nothing is lacking, as `digest` has it; and where no load may fail, as it was
before any could. A block to evict is drawn from those that the model has, so an order of free blocks that changes moves
a digest."""


def test_what_few_cores_have_is_drawn_for_those_or_known_to_all_oracles():
    known = {"AllocateBatch", "Arrive.missing", "Allocate.in_flight", STARVED}
    assert {*OFFERS} == OF_TODAY | KINDS_OF_FEW | known


def _as_before(value):
    """As JSON, without fields that were added since and are not drawn here."""
    added = {name.partition(".")[2] for name in OF_TODAY if "." in name}

    def without(document: Any) -> Any:
        if isinstance(document, list):
            return [without(part) for part in document]
        if not isinstance(document, dict):
            return document
        return {name: without(part) for name, part in document.items() if part or name not in added}

    return without(to_json(value))


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize(("seed", "chaos"), list(AS_BEFORE))
def test_with_nothing_lacking_the_same_is_drawn_as_ever(seed, chaos, fails):
    lines, lacks = [], {*OF_TODAY} if fails else {*OF_TODAY, "Arrive.missing"}
    for index, kinds in enumerate(ATTENTION.values()):
        draw = SeededDraw(f"{seed}/{index}")
        shape = draw_shape(draw, kinds)
        model, workload = Model(shape), Workload(draw, shape, chaos=chaos, lacks=lacks)
        lines.append(_as_before(shape))
        for _ in range(60):
            lines.append(_as_before(operation := workload.next(model)))
            model.step(operation)
        lines += map(_as_before, draw_script(draw, kinds).operations)
    digest = hashlib.sha256(json.dumps(lines).encode()).hexdigest()[:16]
    assert digest == AS_BEFORE[seed, chaos][not fails]
