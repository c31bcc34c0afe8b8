"""Who gets the next task."""

import pytest
from blockproof.fuzz.campaign.arms import GIVEN_UP_AFTER, KEEP, LEAST_SHARE, Arm, Standing, chosen, next_share


def standings(count):
    return [Standing(Arm("impl", f"type {number}", ("shadow",), "random")) for number in range(count)]


def shared(yields, tasks=400, seed=1, cost=1.0):
    """Processor seconds of each arm, after tasks that bring what `yields` says, by arm and its task's number."""
    arms = standings(len(yields))
    for number in range(1, tasks + 1):
        index = chosen(arms, seed, number)
        arms[index].ended(100, cost, yields[index](arms[index].tasks))
    return [arm.seconds for arm in arms]


def dry(task):
    return 5 if task == 0 else 0


def test_each_arm_gets_a_task_first():
    arms = standings(4)
    for number in range(1, 5):
        index = chosen(arms, 1, number)
        arms[index].ended(1, 1.0, 0)
    assert [arm.tasks for arm in arms] == [1, 1, 1, 1]


@pytest.mark.parametrize("seed", range(5))
def test_an_arm_that_still_yields_gets_more_and_a_dry_one_its_floor(seed):
    got = shared([dry, dry, lambda task: 4, dry, dry], seed=seed)
    floor = LEAST_SHARE / 5 * sum(got)
    assert got[2] > 3 * max(got[:2] + got[3:])
    assert all(floor - 1 <= seconds for seconds in got)


def test_without_the_floor_a_dry_arm_would_get_less(monkeypatch):
    monkeypatch.setattr("blockproof.fuzz.campaign.arms.LEAST_SHARE", 0.0)
    got = shared([dry, dry, lambda task: 20, dry, dry], tasks=2_000)
    assert min(got) < LEAST_SHARE / 5 * sum(got)


@pytest.mark.parametrize("seed", range(5))
def test_an_arm_that_runs_dry_loses_its_share(seed):
    arms = standings(2)
    for number in range(1, 801):
        index = chosen(arms, seed, number)
        fresh = (index == 0) == (number <= 400)
        arms[index].ended(100, 1.0, 5 if fresh else 0)
        if number == 400:
            first = [arm.seconds for arm in arms]
    second = [arm.seconds - before for arm, before in zip(arms, first, strict=True)]
    assert first[0] > 3 * first[1]
    assert second[1] > 2 * second[0]


def test_arms_that_bring_the_same_for_less_time_get_more_tasks():
    arms = standings(2)
    for number in range(1, 301):
        index = chosen(arms, 1, number)
        arms[index].ended(100, 1.0 + 9.0 * index, 4)
    assert arms[0].tasks > 4 * arms[1].tasks


def test_the_same_results_in_the_same_order_lead_to_the_same_choices():
    def sequence(seed):
        arms, choices = standings(6), []
        for number in range(1, 200):
            choices.append(chosen(arms, seed, number))
            arms[choices[-1]].ended(10, 0.5, number % 4)
        return choices

    assert sequence(3) == sequence(3)
    assert sequence(3) != sequence(4)


def test_tasks_under_way_count_as_time_without_news():
    arms = standings(3)
    for number in range(1, 4):
        arms[chosen(arms, 1, number)].under_way += 1
    assert [arm.under_way for arm in arms] == [1, 1, 1]


def test_an_arm_whose_tasks_fail_is_given_up_and_one_success_begins_again():
    arms = standings(2)
    for _ in range(GIVEN_UP_AFTER - 1):
        arms[0].ended(0, 0.0, 0, "no such release")
    arms[0].ended(5, 1.0, 0)
    assert not arms[0].is_given_up
    for _ in range(GIVEN_UP_AFTER):
        arms[0].ended(0, 0.0, 0, "no such release")
    assert {chosen(arms, 1, number) for number in range(50)} == {1}
    for _ in range(GIVEN_UP_AFTER):
        arms[1].ended(0, 0.0, 0, "gone")
    assert chosen(arms, 1, 51) is None


def test_old_news_count_less():
    (arm,) = standings(1)
    arm.ended(1, 1.0, 10)
    for _ in range(10):
        arm.ended(1, 1.0, 0)
    assert arm.news == 10
    assert arm.recent_news == pytest.approx(10 * KEEP**10)


def equal(*targets, kinds=4):
    return [Standing(Arm(target, f"type {kind}", ("shadow",), "random")) for target in targets for kind in range(kinds)]


def given(arms, ended):
    """Gives out shares until there is no more, each of which ends as `ended` says: operations and problem. Returns what
    each target and attention type had."""
    had = []
    while (placed := next_share(arms)) is not None:
        index, part = placed
        arms[index].assigned += 1
        had.append((index, part))
        arms[index].ended(*ended(index))
    return had


def test_equal_shares_are_one_task_for_each_arm_in_turn():
    assert given(equal("a", "b"), lambda index: (100, 1.0, 0)) == [(index, 0.25) for index in range(8)]


def test_what_cannot_be_built_leaves_its_share_to_the_others_of_its_target():
    had = given(equal("a", "b"), lambda index: (0 if index < 2 else 100, 1.0, 0))
    assert had[4:6] == [(2, 0.25), (3, 0.25)]
    assert sorted(had[:4]) == [(index, 0.25) for index in range(4)]
    assert had[6:] == [(index, 0.25) for index in range(4, 8)]
    assert given(equal("a"), lambda index: (0, 1.0, 0)) == [(index, 0.25) for index in range(4)]


def test_a_target_that_cannot_be_started_is_asked_once():
    had = given(equal("a", "b"), lambda index: (0, 1.0, 0, "it is not installed") if index < 4 else (100, 1.0, 0))
    assert [index for index, _ in had] == [0, 4, 5, 6, 7]


def test_a_share_that_was_left_is_given_once_all_of_its_target_have_ended():
    arms = equal("a", kinds=2)
    for _ in arms:
        index, _ = next_share(arms)
        arms[index].assigned += 1
    arms[0].ended(100, 1.0, 0)
    assert next_share(arms) is None
    arms[1].ended(0, 1.0, 0)
    assert next_share(arms) == (0, 0.5)
