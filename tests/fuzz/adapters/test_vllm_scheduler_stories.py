"""Stories as data: drawn, stored, made smaller, named; and the planted faults, with the releases installed here."""

import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from blockproof.fuzz.adapters.vllm.releases import KNOWN as RELEASES
from blockproof.fuzz.adapters.vllm.scheduler_config import Setup, shape_of
from blockproof.fuzz.adapters.vllm.scheduler_connectors import MINIMAL, connectors
from blockproof.fuzz.adapters.vllm.scheduler_device import DeviceJob
from blockproof.fuzz.adapters.vllm.scheduler_draw import draw_story, least_blocks
from blockproof.fuzz.adapters.vllm.scheduler_known import KNOWN, experiments
from blockproof.fuzz.adapters.vllm.scheduler_shrink import smaller
from blockproof.fuzz.adapters.vllm.scheduler_story import Story, StoryEvent, story_from_json, story_to_json, with_job
from blockproof.fuzz.engines.stories import StoryTask
from blockproof.fuzz.engines.story_fuzzing import StoryOutcome, fuzz_scheduler, read_story
from blockproof.fuzz.opening import environments
from blockproof.fuzz.targets.declarations import LOSES
from blockproof.model.ops import Group, Item, Submit

FULL, WINDOW = Group("full", 4), Group("sliding", 4, window=8)
STATE = Group("mamba", 4, mamba_mode="align")
RELEASE = f"vllm=={RELEASES[-1]}"
"""The newest: it has the fewest findings of its own, and the clean pair must have none."""
needs_release = pytest.mark.skipif(environments.find(RELEASE) is None, reason=f"blockproof targets install {RELEASE}")


def story(*jobs: DeviceJob, groups: tuple[Group, ...] = (FULL,), **setup: object) -> Story:
    shape = shape_of(groups, 64, 32, 32, eagle=bool(setup.pop("eagle", False)))
    return Story(Setup(shape, **setup), tuple(StoryEvent(0, "add", job) for job in jobs))  # type: ignore[arg-type]


def job(name: str, length: int = 8, **submit: object) -> DeviceJob:
    return DeviceJob(Submit(name, tuple(range(1, length + 1)), **submit))  # type: ignore[arg-type]


@pytest.mark.parametrize("number", range(30))
def test_a_drawn_story_can_be_stored_and_every_request_fits_into_its_pool(number: int) -> None:
    drawn = draw_story(Random(number))
    assert story_from_json(story_to_json(drawn)) == drawn
    assert drawn == draw_story(Random(number))
    shape, drafts = drawn.setup.shape, drawn.setup.drafts
    assert shape.num_blocks >= least_blocks(shape.groups, shape.max_model_len, drafts)
    for one in drawn.jobs:
        assert len(one.submit.prompt) + one.max_tokens + drafts < shape.max_model_len
        assert all(item.offset + item.length <= len(one.submit.prompt) for item in one.submit.items)


def test_draws_differ_in_all_that_matters() -> None:
    drawn = [draw_story(Random(number)) for number in range(200)]
    assert len({one.kinds for one in drawn}) >= 9
    for name in ("asynchronous", "connector", "drafts", "policy"):
        assert len({getattr(one.setup, name) for one in drawn}) > 1, name
    whats = {event.what for one in drawn for event in one.events}
    assert whats == {"add", "abort", "abort-in-flight", "reset", "reset-running"}
    assert any(one.submit.items for story in drawn for one in story.jobs)
    assert any(one.adapter_in_place for story in drawn for one in story.jobs)
    assert any(one.loads_later for story in drawn for one in story.jobs)


@pytest.mark.parametrize("raw", [{}, {"setup": {}}, [], {"setup": {"shape": {}}, "events": []}])
def test_what_is_no_story_is_refused(raw: object) -> None:
    with pytest.raises(ValueError, match=r"story|shape"):
        story_from_json(raw)


def shrunk(start: Story, shows: Callable[[Story], bool]) -> Story:
    """The smallest story that the proposals lead to, each the first that shows it and is no larger."""
    best, found = start, True
    while found:
        tries = (one for one in smaller(best) if one.size <= best.size and shows(one))
        one = next(tries, None)
        found = one is not None
        best = one or best
    return best


def test_proposals_lead_to_the_only_request_that_matters() -> None:
    def shows(one: Story) -> bool:
        return any(of.submit.adapter == "b" and len(of.submit.prompt) >= 5 for of in one.jobs)

    start = draw_story(Random(4))
    events = list(start.events)
    at = next(i for i, event in enumerate(events) if event.job is not None and len(event.job.submit.prompt) > 8)
    events[at] = with_job(events[at], adapter="b")
    small = shrunk(replace(start, events=tuple(events)), shows)
    (only,) = small.jobs
    assert (only.submit.adapter, len(only.submit.prompt), only.max_tokens) == ("b", 5, 1)
    assert only.submit.items == ()
    assert (len(small.setup.shape.groups), small.setup.connector, small.setup.drafts) == (1, "", 0)
    assert not small.setup.asynchronous
    assert all(event.at == 0 for event in small.events)


def test_an_abort_goes_with_the_request() -> None:
    start = story(job("a"), job("b"))
    start = replace(start, events=(*start.events, StoryEvent(2, "abort", request="a")))
    for one in smaller(start):
        names = {of.submit.request for of in one.jobs}
        assert all(not event.request or event.request in names for event in one.events)


READS = ("shadow", "the query at N or behind reads position N of group N in block N, which holds another content")
SUSPECTED: tuple[tuple[str, str, tuple[str, str], Story], ...] = (
    ("overlapping-items", "0.33.0", READS, story(job("a", items=(Item("v", 0, 4), Item("s", 0, 4))))),
    (
        "adapter-changed-in-place",
        "0.33.0",
        READS,
        story(job("a", adapter="x"), replace(job("b", adapter="x"), adapter_version=1, adapter_in_place=True)),
    ),
    ("", "0.33.0", READS, story(job("a", adapter="x"), replace(job("b", adapter="x"), adapter_version=1))),
    (
        "adapter-loaded-anew",
        "0.30.0",
        READS,
        story(job("a", adapter="x"), replace(job("b", adapter="x"), adapter_version=1)),
    ),
    (
        "state-from-outside",
        "0.33.0",
        ("exception", "ValueError in get_new_blocks < allocate_new_blocks: ValueError: Cannot get 1 free blocks"),
        story(job("a"), groups=(FULL, STATE), connector=MINIMAL),
    ),
    (
        "loads-block-each-other",
        "0.33.0",
        ("liveness", "starved"),
        story(replace(job("a"), external=4, loads_later=True), job("b"), groups=(FULL, WINDOW), connector=MINIMAL),
    ),
    ("", "0.33.0", ("liveness", "starved"), story(job("a"), job("b"), groups=(FULL,), connector=MINIMAL)),
    ("admission-deadlock", "0.19.1", ("liveness", "starved"), story(job("a"), groups=(FULL, WINDOW))),
    (
        "window-cut-too-early",
        "0.23.0",
        READS,
        story(job("a"), groups=(WINDOW,), asynchronous=True, drafts=2, eagle=True),
    ),
    ("", "0.33.0", READS, story(job("a"), groups=(WINDOW,), asynchronous=True, drafts=2, eagle=True)),
    (
        "prompt-loaded-whole",
        "0.33.0",
        ("shadow", "the query at N or behind reads position N of group N (sliding) in the null block"),
        story(replace(job("a"), external=8, loads_later=True), groups=(WINDOW,), connector=MINIMAL),
    ),
    ("", "0.33.0", READS, story(job("a"), job("b"))),
)


@pytest.mark.parametrize(("id", "release", "found", "shows"), SUSPECTED)
def test_a_cause_is_suspected_only_where_judge_release_and_story_fit(
    id: str, release: str, found: tuple[str, str], shows: Story
) -> None:
    """What it is, an experiment says: the suspect differs from the story, or changes the release."""
    suspected = list(experiments(release, *found, "", shows))
    assert id in {one.id for one in suspected} if id else not suspected
    assert all(one.story != shows or one.remedy is not None for one in suspected)


def test_every_name_is_that_of_a_written_up_finding_or_of_an_upstream_report() -> None:
    text = (Path(__file__).parents[3] / "docs/evidence/findings/findings.toml").read_text()
    written_up = {*tomllib.loads(text), *LOSES}
    assert [known.id for known in KNOWN if known.id not in written_up and "#" not in known.id] == []


def test_what_is_taken_away_is_the_cause_and_nothing_else() -> None:
    items = story(job("a", items=(Item("v", 0, 4), Item("s", 2, 4), Item("t", 6, 2))))
    (apart,) = (one for one in experiments("0.33.0", *READS, "", items) if one.id == "overlapping-items")
    assert [item.identifier for item in apart.story.jobs[0].submit.items] == ["v", "t"]
    assert replace(apart.story, events=items.events) == items
    two = story(job("a", adapter="x"), replace(job("b", adapter="x"), adapter_version=1, adapter_in_place=True))
    (named,) = experiments("0.33.0", *READS, "", two)
    assert len({one.submit.adapter for one in named.story.jobs}) == 2
    chunked = story(job("a"), groups=(Group("chunked", 4, chunk=6),))
    (whole,) = experiments("0.33.0", *READS, "", chunked)
    assert whole.story.setup.shape.groups[0].chunk == 4


def test_no_cause_is_told_from_words_about_what_was_read() -> None:
    """A finding of another kind was put down to a known one once, since its text had "state" in it."""
    states = story(job("a"), groups=(FULL, STATE), drafts=1, eagle=True)
    said = ("shadow", "the state before position N of group N in block N holds another content")
    suspected = [one.id for one in experiments("0.23.0", *said, "", states)]
    assert suspected == [one.id for one in experiments("0.23.0", "shadow", "anything else", "", states)]


def test_engines_are_drawn_of_the_attention_types_that_are_asked_for() -> None:
    drawn = {draw_story(Random(number), attention=("full+mamba", "mamba")).kinds for number in range(40)}
    assert drawn == {"full+mamba", "mamba"}
    with pytest.raises(ValueError, match="no engine is drawn of 'mambo'"):
        draw_story(Random(1), attention=("mambo",))


def test_the_minimal_connector_is_there_by_name() -> None:
    assert MINIMAL in connectors()


# With a release.


BEHIND_A_CHUNK = Path(__file__).parent / "inputs" / "states-behind-a-chunk.json"


@pytest.mark.parametrize(("release", "known"), [("vllm==0.23.0", True), ("vllm==0.26.0", True), (RELEASE, False)])
def test_a_state_behind_a_chunk_is_found_and_named_by_experiment(release: str, known: bool) -> None:
    """A prefix whose slot holds the state of 4 tokens is registered as that of 16 (vllm-project/vllm#51113)."""
    if environments.find(release) is None:
        pytest.skip(f"blockproof targets install {release}")
    task = StoryTask(replay=read_story(BEHIND_A_CHUNK).story, shrink_seconds=0.0)
    found = fuzz_scheduler(release, task, None, lambda text: None).found
    assert [(one["known"], one["judge"]) for one in found] == ([("states-by-scheduler", "contract")] if known else [])


def fuzzed(**task: object) -> StoryOutcome:
    given = {"seed": 1, "connector": "", "shrink_seconds": 3.0, **task}
    return fuzz_scheduler(RELEASE, StoryTask(**given), None, lambda text: None)  # type: ignore[arg-type]


@pytest.mark.slow
@needs_release
@pytest.mark.parametrize(
    ("fault", "judge"),
    [
        ("worker-not-told", "shadow"),
        ("counted-twice", "contract"),
        ("refused-for-ever", "liveness"),
        ("raises", "exception"),
    ],
)
def test_each_planted_fault_is_found_by_its_judge_and_the_clean_pair_is_silent(fault: str, judge: str) -> None:
    found = fuzzed(fault=fault, steps=60, shrink_seconds=1.0)
    assert judge in {one["judge"] for one in found.found}, found.lines()
    assert found.exit_code == 1
    clean = fuzzed(replay=next(one["story"] for one in found.found if one["judge"] == judge))
    assert clean.found == []
    assert clean.exit_code == 0
