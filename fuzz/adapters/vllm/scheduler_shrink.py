"""Proposes smaller stories: fewer requests and events, shorter prompts, a smaller engine. Deterministic, and no more
than data: whether a proposal still shows the finding is for others to say."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from ....model.ops import Item
from ...findings.story_finding import with_pieces_left_out
from .scheduler_config import Setup, shape_of
from .scheduler_device import DeviceJob
from .scheduler_draw import least_blocks
from .scheduler_story import Story, StoryEvent, with_job

Pass: TypeAlias = Callable[[Story], Iterator[Story]]


def smaller(story: Story) -> Iterator[Story]:
    """All proposals, the boldest first."""
    for simpler in PASSES:
        yield from simpler(story)


def _with_events(story: Story, events: tuple[StoryEvent, ...]) -> Story:
    """The story with these events; who is aborted must arrive."""
    names = {event.job.submit.request for event in events if event.job is not None}
    return replace(story, events=tuple(event for event in events if not event.request or event.request in names))


def _fewer_events(story: Story) -> Iterator[Story]:
    for events in with_pieces_left_out(story.events):
        left = _with_events(story, events)
        if left.jobs:
            yield left


def _plain_engine(story: Story) -> Iterator[Story]:
    setup = story.setup
    changes: tuple[dict[str, object], ...] = (
        {"asynchronous": False},
        {"policy": "fcfs"},
        {"connector": ""},
        {"drafts": setup.drafts - 1, "method": "ngram" if setup.drafts == 1 else setup.method},
    )
    for change in changes:
        if change.get("drafts") == -1 or all(getattr(setup, name) == value for name, value in change.items()):
            continue
        plain = replace(setup, **change)  # type: ignore[arg-type]  # names and types are those of the fields
        if not plain.drafts:
            plain = replace(plain, shape=replace(plain.shape, eagle=False), method="ngram")
        yield replace(story, setup=plain)


def _smaller_engine(story: Story) -> Iterator[Story]:
    setup, shape = story.setup, story.setup.shape
    if len(shape.groups) > 1:
        for left_out in range(len(shape.groups)):
            groups = tuple(group for number, group in enumerate(shape.groups) if number != left_out)
            made = shape_of(groups, shape.num_blocks, shape.max_model_len, shape.max_num_batched_tokens, shape.caching)
            yield replace(story, setup=replace(setup, shape=replace(made, eagle=shape.eagle)))
    least = least_blocks(shape.groups, shape.max_model_len, setup.drafts)
    for blocks in (least, (shape.num_blocks + least) // 2, shape.num_blocks - 1):
        if least <= blocks < shape.num_blocks:
            yield replace(story, setup=replace(setup, shape=replace(shape, num_blocks=blocks)))
    longest = max(len(job.submit.prompt) + job.max_tokens for job in story.jobs) + 1 + setup.drafts
    if longest < shape.max_model_len:
        yield replace(story, setup=_shorter(setup, longest))
    for running in (1, 2, setup.max_num_seqs // 2):
        if 0 < running < setup.max_num_seqs:
            yield replace(story, setup=replace(setup, max_num_seqs=running))


def _shorter(setup: Setup, longest: int) -> Setup:
    """The engine for shorter requests, with as much room beyond one of the greatest length as before."""
    shape = setup.shape
    saved = sum(-(-shape.max_model_len // g.block_size) + -longest // g.block_size for g in shape.groups)
    return replace(setup, shape=replace(shape, max_model_len=longest, num_blocks=shape.num_blocks - max(0, saved)))


def _each_job(change: Callable[[StoryEvent], Iterator[StoryEvent]]) -> Pass:
    def simpler(story: Story) -> Iterator[Story]:
        for number, event in enumerate(story.events):
            if event.job is None:
                continue
            for changed in change(event):
                yield replace(story, events=(*story.events[:number], changed, *story.events[number + 1 :]))

    return simpler


PLAIN: Mapping[str, object] = {
    "items": (),
    "adapter": None,
    "salt": None,
    "external": 0,
    "priority": 0,
    "drafts": (),
    "loads_later": False,
    "adapter_version": 0,
    "adapter_in_place": False,
}
"""What a request without anything special has in its fields."""


def _is_plain(job: DeviceJob, name: str) -> bool:
    return bool(getattr(job if hasattr(job, name) else job.submit, name) == PLAIN[name])


def _plain_jobs(story: Story) -> Iterator[Story]:
    """Something special is taken from all requests at once: a story that needs no items soon has none."""
    for name, value in PLAIN.items():
        if all(_is_plain(job, name) for job in story.jobs):
            continue
        events = (event if event.job is None else with_job(event, **{name: value}) for event in story.events)
        yield replace(story, events=tuple(events))


def _plain_job(event: StoryEvent) -> Iterator[StoryEvent]:
    assert event.job is not None
    submit = event.job.submit
    for name, value in PLAIN.items():
        if not _is_plain(event.job, name):
            yield with_job(event, **{name: value})
    if len(submit.items) > 1:
        for left_out in range(len(submit.items)):
            yield with_job(event, items=submit.items[:left_out] + submit.items[left_out + 1 :])


def _short_job(event: StoryEvent) -> Iterator[StoryEvent]:
    assert event.job is not None
    job, prompt = event.job, event.job.submit.prompt
    for answer in (1, job.max_tokens // 2, job.max_tokens - 1):
        if 0 < answer < job.max_tokens:
            yield with_job(event, max_tokens=answer)
    for length in (len(prompt) // 2, len(prompt) - 4, len(prompt) - 1):
        if 0 < length < len(prompt):
            yield with_job(event, prompt=prompt[:length], items=_within(job.submit.items, length))
    if job.external > 1:
        yield with_job(event, external=job.external - 1)


def _within(items: tuple[Item, ...], length: int) -> tuple[Item, ...]:
    return tuple(item for item in items if item.offset + item.length <= length)


def _sooner(story: Story) -> Iterator[Story]:
    if any(event.at for event in story.events):
        yield replace(story, events=tuple(replace(event, at=0) for event in story.events))
        yield replace(story, events=tuple(replace(event, at=event.at // 2) for event in story.events))


PASSES: tuple[Pass, ...] = (
    _plain_jobs,
    _plain_engine,
    _fewer_events,
    _smaller_engine,
    _each_job(_plain_job),
    _each_job(_short_job),
    _sooner,
)
"""Passes, the boldest first."""
