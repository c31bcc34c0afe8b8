"""What the contract asks for, what it lets pass and why, and what it says of a target that cannot show everything."""

import re
from collections import Counter
from pathlib import Path

import pytest
from blockproof.fuzz.adapters.lmdeploy.target import LmdeployTarget
from blockproof.fuzz.adapters.sglang.target import LOSES as SGLANG_LOSES
from blockproof.fuzz.adapters.vllm.releases import REFERENCE, RELEASES, release_of
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.oracles.contract import PROPERTIES, Contract, unobserved
from blockproof.fuzz.runs.scheduler_view import SchedulerView
from blockproof.fuzz.targets.base import losing
from blockproof.fuzz.targets.declarations import LOSES
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.operations import Workload
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.model.legal import allows
from blockproof.model.ops import (
    Advance,
    Allocate,
    Arrive,
    Done,
    Evict,
    Free,
    Group,
    Lookup,
    Reject,
    Shape,
    Submit,
)
from blockproof.model.snapshot import Snapshot

from ..adapters.test_deviations import Release
from .contract_stories import REPLAY, STORIES, computed

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "contract.md"
NOTHING_BUT_TABLES = frozenset(Snapshot._fields) - {"tables", "free", "num_free"} | {"free_order"}


def hidden(snapshot, hides):
    """The snapshot of a target that cannot show these fields."""
    blank = dict.fromkeys(("labels", "earliest"), [None] * len(snapshot.ref_cnt)) | {
        "free": sorted(snapshot.free) if "free" not in hides else [],
        "num_free": 0,
        "ref_cnt": [0] * len(snapshot.ref_cnt),
        "registered": [{} for _ in snapshot.tables],
        "new_block_ids": [[] for _ in snapshot.tables],
        "usage": 0.0,
        "num_identities": 0,
        "events": (),
        "stats": None,
    }
    names = {"free" if name == "free_order" else name for name in hides}
    return snapshot._replace(**{name: blank[name] for name in names & blank.keys()})


class Story:
    """A run of one target under the contract."""

    def __init__(self, target, shape, hides=(), losses=()):
        self.target, self.hides = target, hides
        _, shown = target.start(shape)
        self.before = hidden(shown, hides)
        self.view, self.contract = SchedulerView(shape), Contract(shape, hides, losses)
        self.view.start(shown)
        self.contract.start(self.before)

    def step(self, operation):
        assert allows(self.view, operation), operation
        outcome, shown = self.target.step(operation)
        self.view.follow(operation, outcome, shown)
        before, self.before = self.before, hidden(shown, self.hides)
        return self.contract.step(operation, outcome, before, self.before, self.view)

    def tell(self, *operations):
        """What the contract says of each operation."""
        return [self.step(operation) for operation in operations]


def shape(*groups, **more):
    size = max(group.block_size for group in groups)
    sizes = {"num_blocks": 24, "max_model_len": 16, "hash_block_size": groups[-1].block_size}
    return Shape(groups, **sizes | {"scheduler_block_size": size, "max_num_batched_tokens": 16} | more)


WINDOW = Group("sliding", 1, window=2)
ZEROS = (0,) * 9
LOSSES = {
    "computed-taken-back": (
        "S6",
        shape(WINDOW),
        (Submit("a", (0, 1, 2)), Allocate("a", 0, external=3, delay=True), Arrive("a")),
    ),
    "skipped-on-optimistic-count": ("S13", shape(WINDOW), (*computed("a", 0, 1, 2), Allocate("a", 1))),
    "chunk-astride-block": ("S7", shape(Group("chunked", 2, chunk=5)), (Submit("a", (*ZEROS, 0)), Lookup("a"))),
    "chunked-refuses": ("S8", shape(Group("chunked", 1, chunk=2), eagle=True), (Submit("a", (0,)), Lookup("a"))),
    "window-of-one": ("S14", shape(Group("full", 1), Group("sliding", 1, window=1)), REPLAY),
    "eagle-cut-twice": (
        "S14",
        shape(Group("full", 2), Group("sliding", 1, window=16, eagle=True)),
        (*computed("a", *ZEROS), Submit("b", ZEROS), Lookup("b")),
    ),
    "eagle-asked-in-turn": (
        "S14",
        shape(Group("sliding", 1, window=1), Group("sliding", 1, window=1, num_heads=2), eagle=True),
        # What is left registered: entries 2 and 4 (blocks 3 and 5) of the first group, entry 2 (block 9) of the other.
        (
            *(*computed("a", *ZEROS[:6]), Evict((1, 2, 4, 6, 7, 8, 10, 11, 12))),
            *(Submit("b", ZEROS[:6]), Lookup("b")),
        ),
    ),
    "eagle-last-block": ("S14", shape(Group("full", 1), eagle=True), REPLAY),
    "boundary-without-eagle": (
        "S14",
        shape(Group("sliding", 2, window=2), eagle=True, retention_interval=0),
        (*computed("a", *ZEROS[:5]), Submit("b", ZEROS[:5]), Lookup("b")),
    ),
    "window-kept-for-scheduler": ("S14", shape(WINDOW, scheduler_block_size=2), REPLAY),
    "states-by-scheduler": (
        "S10",
        shape(Group("mamba", 2, mamba_mode="align")),
        (Submit("a", ZEROS[:3]), Allocate("a", 2, external=1)),
    ),
}
"""By name of the loss: the first property that it breaks, and a story at whose end it does."""


OF_TODAY = release_of("0.33.0").loses - release_of(REFERENCE).loses
"""Of operations that few cores have (`test_contract_of_today.py`)."""
OF_THE_CONTRACT = [name for name, told in LOSES.items() if told.startswith("S") and name not in OF_TODAY]
"""The others are of liveness only."""


@pytest.mark.parametrize("name", OF_THE_CONTRACT)
def test_a_loss_is_counted_for_a_target_that_declares_it_and_reported_for_any_other(name):
    property, in_shape, operations = LOSSES[name]
    assert property in LOSES[name].partition(":")[0].split(", ")
    declaring = Story(Release(), in_shape, losses={name})
    assert declaring.tell(*operations) == [None] * len(operations)
    assert declaring.contract.reached[f"contract: known loss {name}"] > 0
    for losses in ((), LOSES.keys() - {name}):
        *quiet, last = Story(Release(), in_shape, losses=losses).tell(*operations)
        assert quiet == [None] * len(quiet)
        assert last is not None
        assert last.id == property


@pytest.mark.parametrize("name", OF_THE_CONTRACT)
def test_our_core_loses_nothing(name):
    _, in_shape, operations = LOSSES[name]
    assert Story(open_target("impl"), in_shape).tell(*operations) == [None] * len(operations)


def test_each_family_of_releases_declares_losses_and_all_are_declared_by_some():
    others = SGLANG_LOSES | LmdeployTarget.loses
    declared = [release.loses for release in RELEASES]
    assert set().union(*declared, others) == LOSES.keys()
    assert (
        release_of("0.19.1").loses
        < release_of(REFERENCE).loses
        == LOSES.keys() - {"room-ahead", "pools-apart"} - OF_TODAY
    )
    assert not {name for name in release_of("0.33.0").loses if "eagle" in name}, "its hashes cover one token more"
    assert not losing(open_target("impl"))


def test_a_block_that_others_hold_may_be_written_with_what_it_holds():
    """The last token of a prompt that was loaded from outside as a whole is computed again."""
    story = Story(open_target("impl"), shape(Group("full", 1)))
    operations = (
        *(Submit("a", (0, 1)), Allocate("a", 0, external=2, delay=True), Arrive("a")),
        *(Submit("b", (0, 1, 2)), Lookup("b"), Allocate("b", 1, hit=True), Allocate("a", 1)),
    )
    assert story.tell(*operations) == [None] * len(operations)
    assert story.contract.reached["contract: written with what it holds"] == 1


@pytest.mark.parametrize("seed", range(3))
def test_our_core_keeps_to_the_contract_on_random_runs_of_every_attention_type(seed):
    """Again: SeededDraw(f"contract/{seed}/{name}") with shapes.draw_shape and workload.Workload."""
    reached = Counter()
    for name, kinds in ATTENTION.items():
        draw = SeededDraw(f"contract/{seed}/{name}")
        in_shape = draw_shape(draw, kinds)
        story, workload = Story(open_target("impl"), in_shape), Workload(draw, in_shape)
        for _ in range(120):
            operation = workload.next(story.view)
            assert story.step(operation) is None, (name, operation)
        for operation in workload.drain(story.view):
            assert story.step(operation) is None, (name, operation)
        reached += story.contract.reached
    for property in PROPERTIES.keys() - {"S2", "S4", "S5", "S11", "S14"}:
        assert reached[f"contract: {property} checked"], property


def test_a_target_that_shows_nothing_but_tables_and_free_blocks_is_judged_by_them():
    judged = {}
    for name, planted in STORIES.items():
        said = Story(open_target(f"fault:{name}"), planted.shape, NOTHING_BUT_TABLES).tell(*planted.operations)
        judged[name] = next((violation.id for violation in said if violation), None)
    seen_elsewhere = {"S9", "S10", "S11", "S18", "S19"}
    by_hidden_fields = {"named-by-its-own-tokens", "new-block-told-twice", "hit-told-as-new"} | {
        *("last-new-block-not-told", "new-blocks-told-again")
    }
    assert unobserved(NOTHING_BUT_TABLES).keys() == seen_elsewhere
    for name, id in judged.items():
        if STORIES[name].property not in seen_elsewhere | {"S14", "S12"} and name not in by_hidden_fields:
            assert id == STORIES[name].property, name
        assert id not in seen_elsewhere, name


def test_what_cannot_be_observed_is_never_counted_as_checked():
    hides = NOTHING_BUT_TABLES
    draw = SeededDraw("hidden")
    in_shape = draw_shape(draw, ("full",))
    story, workload = Story(open_target("impl"), in_shape, hides), Workload(draw, in_shape)
    for _ in range(150):
        assert story.step(workload.next(story.view)) is None
    for id in unobserved(hides):
        assert not story.contract.reached[f"contract: {id} checked"], id
    assert story.contract.reached["contract: S1 checked"]


@pytest.mark.parametrize(
    ("hides", "ids"),
    [
        ((), ()),
        (("free_order",), ("S9",)),
        (("free",), ("S9",)),
        (("free", "num_free"), ("S1", "S9", "S17")),
        (("labels",), ("S10", "S11", "S18")),
        (("events",), ("S11",)),
        (("free", "labels"), ("S4", "S9", "S10", "S11", "S18")),
        (("append_only", "usage"), ()),
        (("append_only", "usage", "stats"), ("S19",)),
    ],
)
def test_properties_that_need_a_hidden_field_are_named_with_the_reason(hides, ids):
    found = unobserved(hides)
    assert tuple(found) == ids
    assert all(found.values())


def test_by_count_alone_a_leak_is_still_seen():
    hides = {"free", "ref_cnt"}
    planted = STORIES["one-block-leaks"]

    def leak(snapshot):
        return snapshot._replace(num_free=snapshot.num_free - 1)

    story = Story(open_target("impl"), planted.shape, hides)
    *first, last = planted.operations
    assert story.tell(*first) == [None] * len(first)
    outcome, shown = story.target.step(last)
    story.view.follow(last, outcome, shown)
    violation = story.contract.step(last, outcome, story.before, leak(hidden(shown, hides)), story.view)
    assert violation is not None
    assert violation.id == "S1"
    assert "10 free + 0 held + 0 set aside != 11" in violation.what


def test_without_labels_a_replay_is_asked_for_once_its_request_has_ended():
    in_shape = STORIES["eagle-drop-twice"].shape
    prompt = (0, 0, 0, 0)
    operations = (*computed("a", *prompt), Free("a"), Submit("b", prompt), Lookup("b"))
    *quiet, last = Story(open_target("fault:eagle-drop-twice"), in_shape, {"labels"}).tell(*operations)
    assert quiet == [None] * len(quiet)
    assert last is not None
    assert last.id == "S14"
    clean = Story(open_target("impl"), in_shape, {"labels"})
    assert clean.tell(*operations) == [None] * len(operations)
    assert clean.contract.reached["contract: S14 checked"] == 1


class Exchanging:
    """Our core, shown as if the first entry of a table had been exchanged for a copy of its content."""

    def __init__(self, name, copy, at):
        self.target, self.name, self.copy, self.at = open_target("impl"), name, copy, at

    def start(self, in_shape):
        return self.target.start(in_shape)

    def step(self, operation):
        outcome, shown = self.target.step(operation)
        if operation == self.at:
            tables = [{name: list(table) for name, table in of_group.items()} for of_group in shown.tables]
            tables[0]["b"][0] = self.copy
            shown = shown._replace(tables=tables)
        return outcome, shown


@pytest.mark.parametrize(("prompt", "accepted"), [((0, 1), True), ((5, 1), False)])
def test_a_table_entry_may_be_exchanged_for_the_same_content_only_where_tables_are_not_append_only(prompt, accepted):
    operations = (*computed("a", 0, 1), *computed("b", *prompt), Allocate("b", 1))
    shown_only = NOTHING_BUT_TABLES | {"free", "num_free"}
    for hides in (shown_only, shown_only | {"append_only"}):
        exchanging = Exchanging("exchanging", copy=1, at=Allocate("b", 1))
        said = Story(exchanging, shape(Group("full", 2)), hides).tell(*operations)
        assert said[:-1] == [None] * (len(said) - 1)
        if accepted and "append_only" in hides:
            assert said[-1] is None
        else:
            assert said[-1] is not None
            assert said[-1].id == "S5"


@pytest.mark.parametrize(("prompt", "accepted"), [((0, 1), True), ((5, 1), False)])
def test_a_step_may_be_given_a_block_that_others_hold_only_with_its_content_and_where_blocks_are_merged(
    prompt, accepted
):
    operations = (*computed("a", 0, 1), Submit("b", prompt), Allocate("b", 2))
    shown_only = NOTHING_BUT_TABLES | {"free", "num_free"}
    for hides in (shown_only, shown_only | {"append_only"}):
        merging = Exchanging("merging", copy=1, at=Allocate("b", 2))
        said = Story(merging, shape(Group("full", 2)), hides).tell(*operations)
        assert said[:-1] == [None] * (len(said) - 1)
        if accepted and "append_only" in hides:
            assert said[-1] is None
        else:
            assert said[-1] is not None
            assert said[-1].id == "S2"


def test_late_rejected_drafts_do_not_count_as_content():
    """Two requests whose drafts were taken back are not expected to share what was never theirs."""
    in_shape = shape(Group("full", 1))
    story = Story(open_target("impl"), in_shape)
    operations = (
        *(Submit("a", (0,)), Allocate("a", 3), Advance("a"), Reject("a", 2), Advance("a", (7,))),
        *(Allocate("a", 1), Advance("a", (8,)), Submit("b", (0, 7, 8)), Lookup("b")),
    )
    assert story.tell(*operations) == [None] * len(operations)
    assert story.view.last is not None
    outcome = story.view.last[1]
    assert isinstance(outcome, Done)
    assert isinstance(outcome.value, tuple)
    assert outcome.value[0] == 2


def test_the_document_has_every_property_and_every_planted_mistake():
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (S\d+) \|.*\| ([^|]+) \|$", text, re.MULTILINE))
    assert rows.keys() == PROPERTIES.keys()
    for property, mistakes in rows.items():
        planted = [name for name, story in STORIES.items() if story.property == property]
        assert mistakes.split(", ") == planted, property


def shown(*tables):
    """What a target shows that shows its tables only."""
    groups = range(len(tables))
    labels: list[int | None] = [None] * 8
    registered: list[dict[str, int]] = [{} for _ in groups]
    return Snapshot([], 0, 0.0, [0] * 8, list(tables), registered, labels, labels, 0, (), [[] for _ in groups], None)


@pytest.mark.parametrize(
    ("prompt", "copied", "id"), [((0, 1, 9), True, None), ((0, 5, 9), True, "S7"), ((0, 1, 9), False, "S15")]
)
def test_a_hit_may_end_inside_a_block_that_begins_with_the_prefix_and_is_copied_before_it_is_written(
    prompt, copied, id
):
    in_shape = shape(Group("full", 4), Group("full", 2), num_blocks=8)
    contract, view = Contract(in_shape, Snapshot._fields[:4] + Snapshot._fields[5:]), SchedulerView(in_shape)
    a, b = {"a": [1]}, {"a": [2, 3]}
    run = [
        (Submit("a", (0, 1, 2)), Done(1), shown({}, {})),
        (Allocate("a", 3), Done(((1,), (2, 3))), shown(a, b)),
        (Advance("a"), Done(1), shown(a, b)),
        (Submit("b", prompt), Done(1), shown(a, b)),
        (Lookup("b"), Done((2, ((1,), (2,)))), shown(a, b)),
        (
            Allocate("b", 1, hit=True),
            Done(((4,), (5,))),
            shown(a | {"b": [4 if copied else 1]}, b | {"b": [2, 5]}),
        ),
    ]
    before = shown({}, {})
    contract.start(before)
    said = None
    for operation, outcome, after in run:
        assert allows(view, operation)
        view.follow(operation, outcome, after)
        said = contract.step(operation, outcome, before, after, view)
        before = after
        if said is not None:
            break
    assert (said and said.id) == id
    assert contract.reached["contract: hit that ends inside a block"] == 1


class Missing:
    """Our core, whose lookups find nothing."""

    def __init__(self):
        self.target, self.name = open_target("impl"), "missing"

    def start(self, in_shape):
        return self.target.start(in_shape)

    def step(self, operation):
        outcome, seen = self.target.step(operation)
        return (Done((0, ((),))) if isinstance(operation, Lookup) else outcome), seen


@pytest.mark.parametrize(("evicted", "id"), [((), "S14"), ((2,), None)])
def test_with_eagle_a_block_need_not_be_found_by_who_goes_on_with_another_token(evicted, id):
    """Block 1 holds the token 0 in front of a 0, block 2 holds it in front of a 1."""
    story = Story(Missing(), shape(Group("full", 1), eagle=True))
    *quiet, last = story.tell(
        *(Submit("a", (0, 0)), Allocate("a", 1), Submit("b", (0, 1, 0)), Allocate("b", 3)),
        *(Evict(evicted), Submit("c", (0, 1, 0)), Lookup("c")),
    )
    assert quiet == [None] * len(quiet)
    assert (last and last.id) == id
