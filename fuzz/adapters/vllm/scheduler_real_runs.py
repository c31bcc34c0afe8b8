"""Random mixes of requests through the scheduler of a release with one of its own connectors: what was found.

In the interpreter of the release, `python -m blockproof.fuzz.adapters.vllm.scheduler_real_runs CONNECTOR SEED FIRST
COUNT` runs the mixes `FIRST .. FIRST + COUNT - 1` and prints a line of JSON for each. CONNECTOR is a name of
`scheduler_real_connectors.REAL`; the mixes depend on it, on SEED and on their number only. A name of `FAULTS` behind it
is a mistake that is made in the connector or by its worker, for tests. With `-` the same arguments are read from
standard input, a run a line: the engine is imported once. `... table` prints what can be imported and built instead.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from ...simulation.protocol import ClientRequest
from .played import PlayedRun
from .scheduler_config import Setup, module, shape_of
from .scheduler_groups import TRIED, draw_with_connector
from .scheduler_real_connectors import REAL, WORKERS
from .scheduler_real_faults import FAULTS

_STEPS = 600
"""Limit of a mix, in steps; most end before."""
_LAST = 3
"""Steps after the last request's end in which the scheduler learns of it, and its worker."""
_DRAIN = 40
"""Steps after the last request's end within which all transfers end: more than a transfer takes."""


def draw_setup(random: Random, connector: str) -> Setup:
    """An engine; most pools are so small that its requests preempt one another and lose what they had cached."""
    drafts = random.choice((0, 0, 0, 2))
    groups = draw_with_connector(random, drafts)
    if any(group.chunk for group in groups):
        drafts = 0  # releases refuse both together
    largest = max(group.block_size for group in groups)
    length = largest * random.randint(5, 12)
    least = sum(length // group.block_size + 2 + drafts for group in groups) + 2
    blocks = least + random.choice((0, 2, 6, 12, 40))
    shape = shape_of(groups, blocks, length, max(largest, 16) * random.choice((1, 2, 8)), eagle=drafts > 0)
    return Setup(
        shape,
        max_num_seqs=random.choice((2, 4, 8)),
        drafts=drafts,
        asynchronous=random.random() < 0.4 and not drafts,
        connector=connector,
        policy=random.choice(("fcfs", "priority")),
    )


def draw_jobs(random: Random, setup: Setup) -> list[tuple[ClientRequest, tuple[int, ...]]]:
    """Requests that come back to what a few of them began with, each with how many drafts of a step are right."""
    most = setup.shape.max_model_len - 2 - setup.drafts
    stems = [[random.randint(1, 4) for _ in range(random.randint(1, most))] for _ in range(random.randint(1, 4))]
    jobs = list[tuple[ClientRequest, tuple[int, ...]]]()
    for number in range(random.randint(4, 16)):
        stem = random.choice(stems)[: random.randint(1, most) if random.random() < 0.3 else most]
        prompt = (stem + [random.randint(1, 4) for _ in range(random.choice((0, 0, 1, 7, 20)))])[:most]
        rights = tuple(random.randint(0, setup.drafts) for _ in range(3)) if setup.drafts else ()
        room = setup.shape.max_model_len - len(prompt) - 1 - setup.drafts
        tokens = max(1, min(room, random.choice((1, 2, 10, 40))))
        jobs.append((ClientRequest(f"r{number}", tuple(prompt), tokens, priority=random.randint(0, 2)), rights))
    return jobs


def _abort(random: Random, run: PlayedRun) -> None:
    """A client goes away."""
    if run.live:
        run.cancel(random.choice(run.live))


def run_mix(connector: str, seed: int, number: int, faults: Sequence[str] = ()) -> dict[str, object]:
    """What was found in a mix; `refused` says why the release builds no such engine."""
    random = Random(f"{connector}/{seed}/{number}")
    setup = draw_setup(random, connector)
    line: dict[str, object] = {"mix": number, "setup": repr(setup)}
    try:
        run = PlayedRun(setup)
    except NotImplementedError as refusal:
        return line | {"refused": str(refusal)[:200]}
    for fault in faults:
        FAULTS[fault](run)
    free = run.engine.pool.get_num_free_blocks()
    waiting, aborts = draw_jobs(random, setup), random.choice((0.0, 0.0, 0.1, 0.3))
    _drive(random, run, waiting, aborts)
    observed, link = run.observed, run.scheduler.connector.link
    error = observed.error
    ended = not error and not run.scheduler.has_unfinished_requests()
    return line | {
        "steps": observed.steps,
        "loads": link.transfers.begun[True],
        "stores": link.transfers.begun[False],
        "preemptions": observed.preemptions,
        "error": error,
        "wrong": observed.corruption[:3],
        "starved": observed.starved,
        "missing": free - run.engine.pool.get_num_free_blocks() if ended else 0,
        "left": link.left_over() if ended else "",
        "stuck": not (ended or error or observed.starved),
    }


def _drive(random: Random, run: PlayedRun, waiting: list[tuple[ClientRequest, tuple[int, ...]]], aborts: float) -> None:
    """Run all requests, and then until all transfers have ended."""
    while (waiting or run.scheduler.has_unfinished_requests()) and not run.stands:
        for _ in range(random.randint(1, 4)):
            if waiting:
                job, rights = waiting.pop(0)
                run.add(job, *rights)
        for _ in range(random.randint(1, 8)):
            if random.random() < aborts / 4:
                _abort(random, run)
            run.step()
        if run.observed.steps > _STEPS:
            return
    if run.stands:
        return
    for step in range(_DRAIN):
        if step < _LAST or run.engine.transferring:
            run.step()


def found(line: Mapping[str, Any]) -> str:
    """The first objection in a line, with the kind of the judge before it; empty if there is none."""
    for kind in ("error", "wrong", "starved", "stuck", "missing", "left"):
        if line.get(kind):
            return f"{kind}: {line[kind]}"
    return ""


def table() -> list[dict[str, object]]:
    """For each connector that the release knows: can it be imported, built here, and does it take several groups."""
    lines = list[dict[str, object]]()
    registry = module("distributed.kv_transfer.kv_connector.factory").KVConnectorFactory._registry
    hybrids = module("distributed.kv_transfer.kv_connector.v1.base").SupportsHMA
    runs = {kind.name: name for name, kind in WORKERS.items()}
    for name, load in registry.items():
        try:
            kind: Any = load()
        except Exception as error:
            lines.append({"connector": name, "imported": False, "why": f"{type(error).__name__}: {error}"[:120]})
            continue
        line: dict[str, object] = {"connector": name, "imported": True, "hybrids": issubclass(kind, hybrids)}
        lines.append(line | {"built": _built(runs[name]) if name in runs else "no worker's half for it here"})
    return lines


def _built(connector: str) -> str:
    """Which engines of one and of several groups can be built."""
    built = list[str]()
    for name, groups in TRIED.items():
        try:
            PlayedRun(Setup(shape_of(groups, 64, 256, 64), connector=connector))
        except NotImplementedError as error:
            built.append(f"{name}: {str(error)[:80]}")
        else:
            built.append(name)
    return ", ".join(built)


def main(connector: str, *given: str) -> None:
    """See above."""
    if connector == "table":
        for row in table():
            print(json.dumps(row), flush=True)
        return
    if connector == "-":
        for line in sys.stdin:
            main(*line.split())
        return
    if connector not in REAL:
        raise SystemExit(f"no connector is called {connector!r}; there are {', '.join(REAL)}")
    seed, first, count, *faults = given
    for number in range(int(first), int(first) + int(count)):
        told = run_mix(connector, int(seed), number, faults)
        print(json.dumps(told | {"found": found(told)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
