"""Draws stories: engines of all attention types in pools from tight to roomy, and requests that share prefixes."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from ....model.arith import cdiv
from ....model.ops import Group, Item, Submit
from .scheduler_config import Setup, shape_of
from .scheduler_connectors import MINIMAL
from .scheduler_device import DeviceJob
from .scheduler_groups import draw_of_story
from .scheduler_story import Story, StoryEvent, What

ALPHABET = 4
"""Prompts are drawn from so few tokens that their blocks often agree by chance, too."""


def draw_story(random: Random, connectors: Sequence[str] = ("", MINIMAL), attention: Sequence[str] = ()) -> Story:
    """A story that depends on `random` only. `connectors`: names to choose from; the first in half of all engines.
    `attention`: of which attention types engines are, as in `full+mamba`; all if empty. ValueError for others."""
    setup = _setup(random, connectors, attention)
    return Story(setup, tuple(_events(random, setup, _jobs(random, setup))))


# Engines.


def least_blocks(groups: Sequence[Group], length: int, drafts: int) -> int:
    """Blocks of a pool in which one request of `length` tokens always fits, the null block counted."""
    return sum(cdiv(length, group.block_size) + 2 + drafts for group in groups) + 2


def _setup(random: Random, connectors: Sequence[str], attention: Sequence[str]) -> Setup:
    drafts = random.choice((0, 0, 0, 1, 2, 3))
    groups = draw_of_story(random, drafts, attention)
    largest = max(group.block_size for group in groups)
    length = largest * random.randint(5, 14)
    batched = max(largest, 16) * random.choice((1, 1, 2, 4, 8))
    blocks = least_blocks(groups, length, drafts) + random.choice((0, 0, 1, 2, 5, 10, 30, 100))
    asynchronous = random.random() < 0.35
    eagle = bool(drafts) and (asynchronous or random.random() < 0.6)
    if any(group.chunk for group in groups):  # up to 0.32 a lookup for Eagle asserts there
        drafts, eagle = 0 if asynchronous else drafts, False
    shape = shape_of(groups, blocks, length, batched, caching=random.random() < 0.93, eagle=eagle)
    return Setup(
        shape,
        max_num_seqs=random.choice((2, 3, 4, 6, 8, 16)),
        drafts=drafts,
        method="eagle" if eagle else "ngram",
        asynchronous=asynchronous,
        connector=connectors[0] if random.random() < 0.5 else random.choice(list(connectors)),
        policy=random.choice(("fcfs", "priority")),
    )


# Requests.


def _jobs(random: Random, setup: Setup) -> list[DeviceJob]:
    jobs: list[DeviceJob] = []
    adapters = random.random() < 0.2
    salts = random.random() < 0.2
    items = random.random() < 0.2
    for number in range(random.randint(6, 30)):
        most = setup.shape.max_model_len - 2 - setup.drafts
        prompt = _prompt(random, jobs, most)
        room = setup.shape.max_model_len - len(prompt) - 1 - setup.drafts
        submit = Submit(
            f"r{number}",
            tuple(prompt),
            adapter=random.choice((None, "a", "b")) if adapters else None,
            salt=random.choice((None, "s", "t")) if salts else None,
            items=_items(random, len(prompt)) if items else (),
        )
        job = DeviceJob(submit, max(1, min(room, random.choice((1, 5, 20, 40, 80)))), _judged(random, setup))
        job = replace(job, priority=random.randint(0, 2))
        if setup.connector == MINIMAL and random.random() < 0.6:
            job = replace(job, external=random.randint(1, len(prompt)), loads_later=random.random() < 0.6)
        jobs.append(job)
    if adapters and random.random() < 0.2:
        jobs = _reloaded(random, jobs)
    return jobs


def _prompt(random: Random, jobs: Sequence[DeviceJob], most: int) -> list[int]:
    """At most `most` tokens; often the beginning of an earlier conversation, with its answer or without."""
    prompt = [random.randint(1, ALPHABET) for _ in range(random.randint(1, most))]
    if jobs and random.random() < 0.7:
        before = random.choice(jobs)
        told = [before.token(i) for i in range(random.randint(1, most))]
        prompt = (told + prompt[: random.choice((0, 1, 5, 20))])[:most]
    return prompt


def _judged(random: Random, setup: Setup) -> tuple[tuple[int, int], ...]:
    """For some decode steps, how many tokens are drafted and how many of them are right."""
    if not setup.drafts:
        return ()
    return tuple((setup.drafts, random.choice((0, 0, random.randint(0, setup.drafts)))) for _ in range(4))


def _items(random: Random, length: int) -> tuple[Item, ...]:
    """Items one after the other; seldom two of them on the same tokens. One name, one length."""
    items, at = list[Item](), random.randint(0, 4)
    for _ in range(random.randint(0, 3)):
        size = random.randint(1, 12)
        if at + size > length:
            break
        items.append(Item(f"{random.choice('uvw')}{size}", at, size))
        if random.random() < 0.03:
            items.append(Item(f"{random.choice('xyz')}{size}", at, size))
        at += size + random.choice((0, 0, 3))
    return tuple(items)


def _reloaded(random: Random, jobs: list[DeviceJob]) -> list[DeviceJob]:
    """From some request on, the adapters' weights are others, in another place or in the same one."""
    first, in_place = random.randrange(len(jobs)), random.random() < 0.2
    return [
        replace(job, adapter_version=int(number >= first), adapter_in_place=in_place) for number, job in enumerate(jobs)
    ]


def _events(random: Random, setup: Setup, jobs: list[DeviceJob]) -> list[StoryEvent]:
    events, at = list[StoryEvent](), 0
    aborts, resets = random.random() < 0.4, random.random() < 0.2
    pace = random.choice((0, 1, 3, 10))
    for job in jobs:
        events.append(StoryEvent(at, "add", job))
        if aborts and random.random() < 0.25:
            what: What = "abort" if random.choice((True, False)) else "abort-in-flight"
            events.append(StoryEvent(at + random.randint(0, 12), what, request=job.submit.request))
        if resets and random.random() < 0.2:
            preempts = not setup.connector and random.random() < 0.5
            events.append(StoryEvent(at + random.randint(0, 3), "reset-running" if preempts else "reset"))
        at += random.randint(0, pace)
    return sorted(events, key=lambda event: event.at)
