"""Random requests through SGLang's scheduler in batches (`batches`), each told to who judges it (`telling`)."""

from collections import Counter
from dataclasses import dataclass, field
from math import ceil
from random import Random

from ....model.ops import Group, Shape
from .batch_faults import FAULTS as FAULTS
from .batch_faults import Plant
from .batches import BatchJob, BatchScheduler
from .engine import SWA_SHARE, Cache, SglangEngine
from .engine import load as load
from .listener import AnswerJudge, Told
from .states import StatePool
from .target import HIDES as HIDES
from .target import LACKS as LACKS
from .target import LOSES as LOSES

KNOWN = "known: a prompt within a page of the pool starves (sgl-project/sglang#28530, sgl-project/sglang#29249)"
_STEPS = 400
"""Limit of a mix, in steps; most end long before."""
_LONGEST = 256
"""Tokens of the longest sequence that the model allows; more than most pools have room for."""


@dataclass
class Mix:
    """One run: its requests, its cache and what came of it."""

    kind: str
    """The layers: `full`, `full+sliding` or `full+mamba`."""
    shape: Shape
    states: int
    chunk: int
    ratio: float
    most: int
    jobs: list[BatchJob]
    found: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)


def draw_mix(seed: int, number: int) -> Mix:
    """The mix with this number."""
    random = Random(f"{seed}/{number}")
    kind = random.choice(("full", "full+sliding", "full+mamba"))
    page = 1 if kind == "full+mamba" else random.choice((1, 2, 4, 16))
    window = random.choice((2, page + 1, 3 * page, 17))
    groups: tuple[Group, ...] = (Group("full", page),)
    if kind == "full+sliding":
        groups += (Group("sliding", page, window=window),)
    most = random.choice((2, 3, 4, 8))
    tokens = random.choice((24, 32, 48, 64, 96)) + page * random.choice((0, 1, 2))
    chunk = page * max(1, random.choice((8, 16, 64)) // page)
    blocks = 1 + max(4, tokens // page)
    if (
        kind == "full+sliding"
    ):  # the window's pool holds two windows and a prefill step, as one that is set up well does
        blocks += max(4, tokens // page, ceil((2 * window + chunk + 2 * page) / page / SWA_SHARE) - blocks)
    shape = Shape(groups, blocks, _LONGEST, page, page, chunk)
    states = random.randint(3 * most, 5 * most) if kind == "full+mamba" else 0
    room = (max(4, tokens // page)) * page
    return Mix(kind, shape, states, chunk, random.choice((0.1, 0.1, 0.4, 1.0)), most, _jobs(random, room))


def _jobs(random: Random, room: int) -> list[BatchJob]:
    """Requests for a pool with so much room, in tokens. Many begin as an earlier one with its output does; few are
    about as long as the pool."""
    jobs: list[BatchJob] = []
    for number in range(random.randint(4, 16)):
        length = random.randint(1, random.choice((8, room // 2, room // 2, room)))
        prompt = [random.randint(1, 3) for _ in range(length)]
        if jobs and random.random() < 0.7:
            before = random.choice(jobs)
            told = [*before.prompt, *before.outputs]
            prompt = told[: random.randint(1, len(told))] + prompt[: random.randint(0, 6)]
        outputs = [random.randint(1, 3) for _ in range(random.choice((1, 4, 16, room // 2)))]
        jobs.append(BatchJob(f"r{number}", prompt, outputs, random.choice((None, None, None, "salt"))))
    return jobs


def run_mix(engine: SglangEngine, mix: Mix, judge: AnswerJudge, plant: Plant | None = None) -> Mix:
    """Run this mix until all requests are finished, or something is found. `plant` plants a mistake."""
    cache = _build(engine, mix)
    states = StatePool(cache) if mix.states else None
    told = Told(engine, cache, mix.shape, states, judge)
    scheduler = BatchScheduler(engine, cache, told, chunk=mix.chunk, ratio=mix.ratio, most=mix.most)
    if plant:
        plant(engine, cache, scheduler)
    jobs, random = list(mix.jobs), Random(len(mix.jobs))
    longest = min(_LONGEST, cache.full_pages * cache.page)
    try:
        for _ in range(_STEPS):
            for _ in range(random.randint(0, 2) if not scheduler.idle else 1):
                if jobs:
                    _submit(scheduler, told, jobs.pop(0), longest, mix.seen)
            if scheduler.idle and not jobs:
                break
            if not scheduler.step():
                _starves(scheduler, told)
                break
            told.settled()
            if told.found:
                break
            mix.seen["steps"] += 1
        else:
            told.found.append(f"not finished after {_STEPS} steps")
    except Exception as error:
        told.found.append(f"raises: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
        mix.seen["raised"] += 1
        told.error = error
    mix.found += told.found
    mix.seen += told.seen
    return mix


def _starves(scheduler: BatchScheduler, told: Told) -> None:
    """Nothing runs, and the first request that waits is not admitted: nobody ever will be."""
    request = scheduler.waiting[0]
    if request.sampling_params.max_new_tokens:
        told.objects("starves: nothing runs, and it is not admitted", request)
    else:
        told.seen[KNOWN] += 1


def _build(engine: SglangEngine, mix: Mix) -> Cache:
    if mix.states:
        return engine.build_with_states(mix.shape.num_blocks - 1, mix.states, _LONGEST)
    return engine.build(mix.shape)


def _submit(scheduler: BatchScheduler, told: Told, job: BatchJob, longest: int, seen: Counter[str]) -> None:
    if scheduler.add(job, longest) is None:
        seen["turned away: too long"] += 1
        return
    told.arrives(job.name, tuple(job.prompt), job.salt)
