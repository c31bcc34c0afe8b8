"""Random mixes of requests through the scheduler of a release, over its own core or over ours: what each step was.

In the interpreter of the release, `python -m blockproof.fuzz.adapters.vllm.engine.scheduler_mixes CORE SEED FIRST
COUNT` runs the mixes `FIRST .. FIRST + COUNT - 1` and prints a line of JSON for each. CORE is `theirs`, `ours` or
`compiled`, which is ours, too; the mixes depend on SEED and their number only. A name of `FAULTS` behind it, for
tests, is a mistake that is made in our core. `... CORE time STEPS` measures instead.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from ....simulation.contents import TokenContents
from ....simulation.protocol import ClientRequest
from ...impl_package import install_impl, module_of_impl
from .core_calls import CoreCalls
from .played import PlayedRun
from .scheduler_config import RETENTION_FIELD, Setup, shape_of
from .scheduler_groups import TIMED, draw_of_mix

_STEPS = 400
"""Limit of a mix, in steps; most end before."""


def _setup(random: Random) -> Setup:
    drafts = random.choice((0, 0, 2))
    groups = draw_of_mix(random, drafts)
    largest = max(group.block_size for group in groups)
    length = largest * random.randint(6, 12)
    batched = max(largest, 16) * random.choice((1, 2, 8))
    # The smallest pools hold one request of the greatest length, so that several preempt one another.
    least = sum(length // group.block_size + 2 + drafts for group in groups) + 2
    blocks = least + random.choice((0, 2, 10, 100))
    shape = shape_of(groups, blocks, length, batched, eagle=bool(drafts) and random.random() < 0.5)
    return Setup(
        shape,
        max_num_seqs=random.choice((2, 4, 8)),
        drafts=drafts,
        method="eagle" if shape.eagle else "ngram",
        asynchronous=random.random() < 0.3 and not drafts,
        policy=random.choice(("fcfs", "priority")),
    )


def _jobs(random: Random, setup: Setup) -> list[tuple[ClientRequest, tuple[int, ...]]]:
    """Requests, many of which begin as an earlier one does, each with how many drafts of a step are right."""
    length, jobs = setup.shape.max_model_len, list[tuple[ClientRequest, tuple[int, ...]]]()
    for number in range(random.randint(3, 14)):
        most = length - 2 - setup.drafts
        prompt = [random.randint(1, 4) for _ in range(random.randint(1, most))]
        if jobs and random.random() < 0.7:
            told = told_by(random.choice(jobs)[0], random.randint(1, most))
            prompt = (told + prompt[: random.randint(0, 20)])[:most]
        rights = tuple(random.randint(0, setup.drafts) for _ in range(3)) if setup.drafts else ()
        room = max(1, min(length - len(prompt) - 1 - setup.drafts, random.randint(1, 40)))
        jobs.append((ClientRequest(f"r{number}", tuple(prompt), room, priority=random.randint(0, 2)), rights))
    return jobs


def told_by(request: ClientRequest, length: int) -> list[int]:
    """The first tokens of a conversation, which goes on behind the prompt as the model answers."""
    contents = TokenContents(request)
    while len(contents.tokens) < length:
        contents.extend((contents.next_token(),))
    return contents.tokens[:length]


def run_mix(seed: int, number: int, follow: bool = True) -> dict[str, object]:
    """What the steps of a mix were. With `follow` also the calls on the core, as the model knows them."""
    random = Random(f"{seed}/{number}")
    run = PlayedRun(_setup(random))
    setup = run.engine.built.setup  # no engine has chunked attention and Eagle
    steps: list[object] = []
    # A release may have an interval where none is asked for.
    interval = getattr(run.engine.built.cache_config, RETENTION_FIELD, setup.retention)
    batched = setup.shape.max_num_batched_tokens
    # Steps of a scheduler that does not wait are in flight together, and a core is told of how many tokens.
    in_flight = getattr(run.engine.built.config, "max_in_flight_tokens", batched)
    shape = replace(setup.shape, retention_interval=interval, max_num_batched_tokens=in_flight)
    calls = CoreCalls(run.scheduler.kv_cache_manager, shape) if follow else None
    schedule = run.scheduler.schedule

    def noted() -> Any:
        output = schedule()
        steps.append(_step(output, calls.count if calls else 0))
        return output

    run.scheduler.schedule = noted
    waiting = _jobs(random, setup)
    while waiting and run.observed.steps < _STEPS and not run.observed.error:
        for _ in range(random.randint(1, 4)):
            if waiting:
                job, rights = waiting.pop(0)
                run.add(job, *rights)
        run.run(run.observed.steps + random.randint(1, 12))
    observed = run.run(_STEPS)
    return {
        "mix": number,
        "shape": "+".join(group.kind for group in setup.shape.groups),
        "setup": repr(setup),
        "steps": steps,
        "error": observed.error,
        "starved": observed.starved,
        "preemptions": observed.preemptions,
        "hits": sum(observed.hits.values()),
        "calls": calls.as_json() if calls else None,
    }


def _step(output: Any, calls: int) -> dict[str, object]:
    """An output of the scheduler as JSON, and how many calls on the core there were until then."""
    cached = output.scheduled_cached_reqs
    new = [[data.req_id, data.block_ids, data.num_computed_tokens] for data in output.scheduled_new_reqs]
    ids = zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True)
    return {
        "tokens": output.num_scheduled_tokens,
        "new": new,
        "cached": [[name, blocks, computed, name in cached.resumed_req_ids] for name, blocks, computed in ids],
        "drafts": {name: len(drafts) for name, drafts in output.scheduled_spec_decode_tokens.items()},
        "preempted": sorted(output.preempted_req_ids or ()),
        "finished": sorted(output.finished_req_ids),
        "common": list(output.num_common_prefix_blocks),
        "calls": calls,
    }


# Time.


def time_steps(name: str, steps: int, running: int = 64) -> float:
    """Nanoseconds of the scheduler for a step in which `running` requests decode; without the device."""
    shape = shape_of(TIMED[name], 40 * running, 512, 8192)
    run = PlayedRun(Setup(shape, max_num_seqs=running))
    for number in range(running):
        run.add(ClientRequest(f"r{number}", tuple(range(100 * number, 100 * number + 64)), 440))
    spent = [0]

    def measured(call: Callable[..., Any]) -> Callable[..., Any]:
        def run_it(*given: Any) -> Any:
            begin = time.thread_time_ns()
            try:
                return call(*given)
            finally:
                spent[0] += time.thread_time_ns() - begin

        return run_it

    run.step()
    scheduler = run.scheduler
    scheduler.schedule, scheduler.update_from_output = (
        measured(scheduler.schedule),
        measured(scheduler.update_from_output),
    )
    for _ in range(steps):
        run.step()
    return spent[0] / steps


# A mistake, for tests of the comparison.


def _frees_in_reverse() -> None:
    queue = module_of_impl("pool.free_queue").FreeKVCacheBlockQueue
    append = queue.append_n
    queue.append_n = lambda self, blocks: append(self, list(blocks)[::-1])


FAULTS: Mapping[str, Callable[[], None]] = {"free-order": _frees_in_reverse}


def main(core: str, *given: str) -> None:
    """See above."""
    if core != "theirs":
        install_impl(core == "compiled")
    if given[0] == "time":
        for name in TIMED:
            print(json.dumps({"name": name, "ns": time_steps(name, int(given[1]))}), flush=True)
        return
    seed, first, count, *faults = given
    for fault in faults:
        FAULTS[fault]()
    for number in range(int(first), int(first) + int(count)):
        print(json.dumps(run_mix(int(seed), number)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
