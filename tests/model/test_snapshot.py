"""What a snapshot shows, and that a difference shows what changed and nothing else."""

from blockproof.fuzz.findings.difference import difference, first_difference
from blockproof.model.ops import Allocate, Group, StepStart, Submit, TakeEvents
from blockproof.model.snapshot import Labels, Snapshot

from .running import core, done, runs, steps

BLANK = Snapshot([1, 2], 2, 0.0, [0, 0, 0], [{}, {}], [{}, {}], [None] * 3, [None] * 3, 0, (), [[], []], None)


def test_equal_snapshots_have_no_difference():
    assert difference(BLANK, BLANK._replace(free=[1, 2])) == []
    assert first_difference(BLANK, BLANK._replace(free=[1, 2])) is None


def test_a_difference_in_a_list_by_block_names_the_blocks_that_changed():
    after = BLANK._replace(ref_cnt=[0, 2, 0], labels=[None, 7, None])
    assert difference(BLANK, after) == ["ref_cnt: block 1: 0 -> 2", "labels: block 1: None -> 7"]


def test_a_difference_in_a_table_names_group_and_request():
    after = BLANK._replace(tables=[{}, {"a": [1], "b": [2]}])
    assert difference(BLANK, after) == ["tables: group 1, a: None -> [1]", "tables: group 1, b: None -> [2]"]
    assert difference(after, after._replace(tables=[{}, {"b": [2]}])) == ["tables: group 1, a: [1] -> None"]


def test_what_was_appended_is_shown_alone():
    before = BLANK._replace(events=(("cleared",),))
    after = BLANK._replace(events=(("cleared",), ("removed", (1,), 0)))
    assert difference(before, after) == ["events: ... + (('removed', (1,), 0),)"]


def test_the_first_difference_is_the_first_field_that_differs():
    assert first_difference(BLANK, BLANK._replace(num_free=1, stats=(1,))) == "num_free"
    assert first_difference(BLANK, BLANK._replace(stats=(1,))) == "stats"


def test_a_difference_names_every_field_that_changed_and_no_other():
    for model, workload, where in runs(seeds=23):
        for _, before, _, after in steps(model, workload, 60):
            named = list(dict.fromkeys(line.split(":")[0] for line in difference(before, after)))
            changed = [name for name in Snapshot._fields if getattr(before, name) != getattr(after, name)]
            assert named == changed, where
            assert first_difference(before, after) == (changed[0] if changed else None), where


def test_a_snapshot_does_not_change_when_the_model_does():
    model = core(Group("full", 2), events=True, stats=True)
    done(model, Submit("a", (1, 2, 3)))
    before = model.snapshot()
    copy = eval(repr(before), {"Snapshot": Snapshot})
    done(model, Allocate("a", 3))
    assert before == copy
    assert before != model.snapshot()


def test_looking_changes_nothing():
    model = core(Group("full", 2), events=True)
    done(model, Submit("a", (1, 2, 3)))
    done(model, Allocate("a", 3))
    assert model.snapshot() == model.snapshot()
    assert model.step(StepStart())[1] == model.snapshot()


def test_labels_are_given_in_the_order_in_which_identities_are_shown():
    labels = Labels()
    assert [labels(key) for key in ("x", "y", "x", "z", "y")] == [0, 1, 0, 2, 1]


def test_drained_events_are_told_the_group_s_kind_and_window():
    model = core(Group("sliding", 2, window=5), events=True)
    done(model, Submit("a", (1, 2, 3), adapter="x"))
    _, after = model.step(Allocate("a", 3))
    assert after.events == (("stored", (1,), None, (1, 2), 2, "x", ((("x", ""),),), 0, None, None),)
    assert done(model, TakeEvents()) == (
        ("stored", (1,), None, (1, 2), 2, "x", ((("x", ""),),), 0, "sliding_window", 5),
    )
    assert done(model, TakeEvents()) == ()
