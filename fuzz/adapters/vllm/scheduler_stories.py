"""What fuzzing of a scheduler needs of this family (`Family.stories`): draws, engines, proposals, names, faults.

Works in the Python environment of the release.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any

from ....model.ops import Group, Shape, Submit
from .scheduler_config import module
from .scheduler_connectors import MINIMAL
from .scheduler_device import Device, DeviceJob
from .scheduler_draw import draw_story
from .scheduler_engine import StoryEngine
from .scheduler_known import Experiment, experiments
from .scheduler_run import SchedulerRun
from .scheduler_shrink import smaller
from .scheduler_story import Story, story_from_json, story_to_json

__all__ = [
    "FAULTS",
    "draw",
    "engine",
    "engine_of",
    "smaller",
    "story_from_json",
    "story_to_json",
    "suspects",
    "version",
    "wrong_reads",
]


def version() -> str:
    """The release in this interpreter."""
    return str(module("version").__version__)


def draw(seed: int, number: int, only: str | None, attention: Sequence[str] = ()) -> Story:
    """The story of this number; `only`: the connector of all engines, none if empty; None draws which. `attention`: as
    for `draw_story`.

    A release's own connectors end requests whose load failed, and hold blocks longer than requests live, of which the
    judges of stories know nothing; they have runs and judges of their own (`scheduler_real_runs`).
    """
    return draw_story(Random(f"{seed}/{number}"), ("", MINIMAL) if only is None else (only,), attention)


def engine(story: Story, fault: str = "") -> StoryEngine:
    """The engine of a story, with a planted fault if one is named. An exception if it cannot be built."""
    return StoryEngine(story, FAULTS[fault] if fault else None)


def suspects(judge: str, rule: str, what: str, story: Story) -> Iterator[Experiment]:
    """The known causes that a finding may have, each with a story: if it shows nothing, that was the cause."""
    return experiments(version(), judge, rule, what, story)


def engine_of(experiment: Experiment, fault: str = "") -> StoryEngine:
    """The engine of an experiment, with what it changes in the release."""

    def changed(run: SchedulerRun) -> None:
        for change in (FAULTS.get(fault), experiment.remedy):
            if change is not None:
                change(run)

    return StoryEngine(experiment.story, changed)


def wrong_reads() -> tuple[str, ...]:
    """What the device says of a hit whose blocks stand in the wrong order: it plays a step of one request, then one of
    another with the same prompt. For the canary of a run (`runs.story_canary`)."""
    prompt = (1, 2, 3, 4, 5)
    jobs = {name: DeviceJob(Submit(name, prompt)) for name in "ab"}
    device = Device(Shape((Group("full", 2),), 9, 12, 2, 2, 16), jobs, asynchronous=False)
    first = device.execute(_new_request("a", [1, 2, 3], computed=0, tokens=5), {"a": 5})
    then = device.execute(_new_request("b", [2, 1, 4], computed=4, tokens=1), {"b": 5})
    return () if first.wrong else then.wrong


def _new_request(name: str, blocks: list[int], computed: int, tokens: int) -> Any:
    """What a scheduler puts out for a step with one request that is new to the worker."""
    return SimpleNamespace(
        scheduled_new_reqs=[SimpleNamespace(req_id=name, block_ids=[blocks], num_computed_tokens=computed)],
        scheduled_cached_reqs=SimpleNamespace(req_ids=[], new_block_ids=[], num_computed_tokens=[]),
        scheduled_spec_decode_tokens={},
        num_scheduled_tokens={name: tokens},
    )


# Faults, one at least for each judge.


def _worker_not_told(run: SchedulerRun) -> None:
    schedule, turn = run.scheduler.schedule, count(1)

    def forgetful() -> Any:
        output = schedule()
        cached = output.scheduled_cached_reqs
        for at, ids in enumerate(cached.new_block_ids):
            if ids is not None and cached.req_ids[at] not in cached.resumed_req_ids and next(turn) % 3 == 0:
                cached.new_block_ids[at] = None
        return output

    run.scheduler.schedule = forgetful


def _counted_twice(run: SchedulerRun) -> None:
    touch = run.pool.touch

    def twice(blocks: Any, *more: Any) -> None:
        touch(blocks, *more)
        for row in blocks:
            for block in row if isinstance(row, list | tuple) else [row]:
                block.ref_cnt += not block.is_null

    run.pool.touch = twice


def _refused_for_ever(run: SchedulerRun) -> None:
    manager = run.scheduler.kv_cache_manager
    allocate = manager.allocate_slots

    def refusing(request: Any, *given: Any, **named: Any) -> Any:
        return None if request.request_id == "r2" else allocate(request, *given, **named)

    manager.allocate_slots = refusing


def _raises(run: SchedulerRun) -> None:
    take, turn = run.pool.get_new_blocks, count(1)

    def broken(blocks: int) -> Any:
        if next(turn) > 20:
            raise KeyError("planted")
        return take(blocks)

    run.pool.get_new_blocks = broken


FAULTS: Mapping[str, Callable[[SchedulerRun], None]] = {
    "worker-not-told": _worker_not_told,
    "counted-twice": _counted_twice,
    "refused-for-ever": _refused_for_ever,
    "raises": _raises,
}
"""Planted in an engine after it is built. Who must notice: shadow memory, contract, liveness, exceptions."""
