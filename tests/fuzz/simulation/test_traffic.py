"""What is drawn, kept as JSON, and made smaller."""

import json
from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest
from blockproof.fuzz.simulation.faults import OneAtATime
from blockproof.fuzz.simulation.protocol import OFFERS, ClientRequest, EngineShape
from blockproof.fuzz.simulation.run import SimulatedRun
from blockproof.fuzz.simulation.smaller import smaller
from blockproof.fuzz.simulation.story import Happening, SimulatedStory, story_from_json, story_to_json
from blockproof.fuzz.simulation.traffic import MORE, EngineFacts, draw_simulation, facts_of
from blockproof.fuzz.workload.draw import ByteDraw, SeededDraw
from blockproof.model.ops import Group, Item, Shape

EVERYTHING = EngineFacts(
    frozenset(OFFERS),
    frozenset(MORE) | {"resume"},
    {"asynchronous": (False, True)},
    ("full", "full+sliding", "mamba", "full+mamba"),
    depth=3,
)


def drawn(many: int = 300, facts: EngineFacts = EVERYTHING) -> list[SimulatedStory]:
    return [draw_simulation(SeededDraw(f"7/{number}"), facts) for number in range(many)]


def test_a_seed_gives_a_story():
    assert drawn(20) == drawn(20)
    assert len({json.dumps(story_to_json(story)) for story in drawn(20)}) == 20


def test_bytes_give_one_too():
    assert draw_simulation(ByteDraw(b"\x00\x07" * 400), EVERYTHING).jobs


def test_all_that_an_engine_offers_occurs():
    stories = drawn()
    done = Counter(one.what for story in stories for one in story.happenings)
    assert {*done} == {"add", "cancel", "resume", *MORE}
    jobs = [job for story in stories for job in story.jobs]
    assert all(done[what] > 100 for what in done)
    assert {one.patience % 2 for story in stories for one in story.happenings if one.patience} == {0, 1}
    for name in ("adapter", "salt", "items", "stop", "priority", "external"):
        assert sum(bool(getattr(job, name)) for job in jobs) > 100, name
    assert {story.depth for story in stories} == {1, 2, 3}
    assert {story.kinds for story in stories} == {*EVERYTHING.attention}
    assert {story.shape.drafts for story in stories} == {0, 1, 2, 3}
    assert {story.shape.options["asynchronous"] for story in stories} == {False, True}
    assert any(-1 in story.delays for story in stories)
    long = [story for story in stories if any(len(job.prompt) > story.shape.max_length for job in story.jobs)]
    fits = [
        story for story in stories for job in story.jobs if len(job.prompt) + job.max_tokens == story.shape.max_length
    ]
    assert len(long) > 10
    assert len(fits) > 100


def test_nothing_else_occurs():
    for story in drawn(facts=EngineFacts()):
        assert {one.what for one in story.happenings} <= {"add", "cancel"}
        assert not any(job.adapter or job.salt or job.items or job.external or job.priority for job in story.jobs)
        assert (story.depth, story.kinds, story.shape.drafts, story.shape.options) == (1, "full", 0, {})


def test_what_an_engine_lacks_is_not_asked():
    for story in drawn(facts=EngineFacts(lacks=frozenset({"cancel", "stops", "ids", "uncached"}))):
        assert len({job.id for job in story.jobs}) == len(story.jobs)
        assert {one.what for one in story.happenings} == {"add"}
        assert not any(one.patience for one in story.happenings)
        assert not any(job.stop for job in story.jobs)
        assert story.shape.core.caching


def test_a_step_has_room_for_a_token_of_each_request():
    assert all(story.shape.max_requests <= story.shape.max_tokens for story in drawn())


def test_prompts_share_prefixes():
    """More often than a quarter of all begin with half of an earlier one."""
    shared = requests = 0
    for story in drawn(facts=EngineFacts()):
        for number, job in enumerate(story.jobs):
            requests += 1
            shared += any(
                other.prompt[: len(other.prompt) // 2 + 1] == job.prompt[: len(other.prompt) // 2 + 1]
                for other in story.jobs[:number]
                if len(other.prompt) > 3
            )
    assert shared > requests / 4


def test_a_story_as_json_and_back():
    for story in drawn(100):
        assert story_from_json(json.loads(json.dumps(story_to_json(story)))) == story


@pytest.mark.parametrize("raw", [None, {}, {"shape": {}}, {"shape": {"core": {}}, "happenings": []}, []])
def test_other_json_is_no_story(raw):
    with pytest.raises(ValueError, match=r"^story.*(expected an object|is missing)"):
        story_from_json(raw)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"offers": {"wings"}}, "offers has 'wings'"),
        ({"lacks": {"wings"}}, "lacks has 'wings'"),
        ({"attention": ("round",)}, "attention has 'round'"),
        ({"attention": ()}, "attention has 'nothing'"),
        ({"block_sizes": (0,)}, "block_sizes is"),
        ({"depth": 0}, "depth is 0"),
        ({"options": {"x": ()}}, "options has no value to try for 'x'"),
        ({"pause": print}, "there is pause, but no resume"),
    ],
)
def test_what_cannot_be_meant_is_said(declared, said):
    engine = OneAtATime()
    engine.__dict__.update(declared)
    with pytest.raises(ValueError, match=said):
        facts_of(engine)


# Smaller.


def test_proposals_are_smaller_or_plainer_and_can_be_run():
    for story in drawn(12):
        proposals = list(smaller(story))
        assert len(proposals) > 20
        assert all(one != story and one.size <= story.size for one in proposals)
        assert all(one.jobs and story_from_json(story_to_json(one)) == one for one in proposals)


def test_a_plain_story_cannot_be_made_smaller_for_ever():
    """Following the first proposal that differs comes to an end."""
    story, steps = drawn(1)[0], 0
    while (next_one := next((one for one in smaller(story) if one.size < story.size), None)) is not None:
        story, steps = next_one, steps + 1
        assert steps < 3000
    assert len(story.happenings) == 1


def test_who_is_cancelled_arrives():
    add = Happening(0, "add", request=ClientRequest("a", (1, 2), 1))
    other = replace(add, request=ClientRequest("b", (1,), 1))
    story = replace(drawn(1)[0], happenings=(add, other, Happening(1, "cancel", id="a")))
    for one in smaller(story):
        names = {job.id for job in one.jobs}
        assert all(not happening.id or happening.id in names for happening in one.happenings)


def test_items_that_no_longer_fit_are_left_out():
    request = ClientRequest("a", (1,) * 8, 1, items=(Item("u", 0, 2), Item("v", 5, 3)))
    story = replace(drawn(1)[0], happenings=(Happening(0, "add", request=request),))
    lengths = {len(one.jobs[0].prompt): len(one.jobs[0].items) for one in smaller(story) if one.jobs[0].items}
    assert lengths.get(4) == 1
    assert lengths.get(7) == 1


def test_a_run_of_a_drawn_story_is_the_same_each_time():
    story = drawn(1, EngineFacts())[0]
    first, again = SimulatedRun(OneAtATime(), story), SimulatedRun(OneAtATime(), story)
    first.run(3000)
    again.run(3000)
    assert first.reached == again.reached


def _shares_a_block(story):
    """Two requests have a block in common, and each more than that."""
    (group,) = story.shape.groups
    jobs = [job.prompt for job in story.jobs if len(job.prompt) > group.block_size]
    return any(one[: group.block_size] == other[: group.block_size] for one, other in combinations(jobs, 2))


def test_what_needs_a_common_block_is_made_as_small_as_can_be():
    """Blocks of one token, two prompts of two, all tokens the same; where such blocks are not declared, those stay."""
    shape = EngineShape(Shape((Group("full", 16),), 40, 128, 16, 16, 512), 8)
    prompts = ((1, 2, 3, 4) * 24, (4, 3, 2), (1, 2, 3, 4) * 20)
    story = SimulatedStory(
        shape,
        tuple(Happening(n, "add", request=ClientRequest(f"r{n}", prompt, 9)) for n, prompt in enumerate(prompts)),
    )
    for sizes, size in (((1, 16), 1), ((4, 16), 4), ((16,), 16), ((), 16)):
        best = story
        while (next_one := next((one for one in smaller(best, sizes) if _is_better(one, best)), None)) is not None:
            best = next_one
        assert [job.prompt for job in best.jobs] == [(1,) * (size + 1)] * 2
        core = best.shape.core
        assert (core.groups[0].block_size, core.max_model_len) == (size, size + 2)
        assert core.max_num_batched_tokens == size + 2
        assert [job.max_tokens for job in best.jobs] == [1, 1]


def _is_better(one, best):
    return one.size <= best.size and one != best and _shares_a_block(one)
