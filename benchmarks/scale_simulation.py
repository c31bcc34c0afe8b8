"""A campaign on up to some thousand cores, simulated with what was measured on two: where does it stop to scale?

    python benchmarks/scale_simulation.py [--tasks 300] [--ray-ms MS] [--write docs/evidence/scale.md]

First measures, in processor time, what the conductor of a campaign does for a task (choose it, keep it in the store,
take its result in), over results that tasks on our core have really come to. `--ray-ms` is what the driver of Ray takes
for an empty task, as `ray_cluster.py` prints it. Then a simulation of discrete events: cores that each have a task and
another one waiting, one conductor and one driver, each of which does one thing at a time.
"""

import argparse
import heapq
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import msgspec
from blockproof.fuzz.campaign.conduct import Session, conduct
from blockproof.fuzz.campaign.doing import close_targets, run_task
from blockproof.fuzz.campaign.executor import Done
from blockproof.fuzz.campaign.ray_driver import PER_CORE
from blockproof.fuzz.campaign.settings import Limits, Settings
from blockproof.fuzz.campaign.store import Store
from blockproof.fuzz.campaign.tasks import encoded, result_of, task_of
from blockproof.fuzz.findings.oracle_names import ORACLES
from written import command, processor, put

RAY_MS = 1.0
"""Replaced by what `ray_cluster.py` measures where `--ray-ms` is given."""
DISPATCH_S = 0.005
"""From the driver to a core and back; with `PER_CORE` tasks a core does not wait for it."""
SPREAD = 0.3
"""Standard deviation of the logarithm of a task's length."""
ATTENTION = ("full", "sliding", "mamba", "full+sliding")
TARGET = 0.95


class Echo:
    """An executor that has done every task already: results that real tasks have come to, in turn."""

    capacity = 2 * PER_CORE

    def __init__(self, results: Sequence[bytes]) -> None:
        self._results, self._given = [result_of(result) for result in results], deque[Done]()

    def submit(self, number: int, task: bytes) -> None:
        again = msgspec.structs.replace(self._results[number % len(self._results)], number=task_of(task).number)
        self._given.append(Done(number, encoded(again)))

    def done(self, timeout_s: float) -> list[Done]:
        told, self._given = [*self._given], deque()
        return told

    def close(self) -> None:
        """Nothing is open."""


class Recorder(Echo):
    """Does the tasks in this process, and keeps their results."""

    capacity = 1

    def __init__(self) -> None:
        super().__init__([])
        self.results: list[bytes] = []

    def submit(self, number: int, task: bytes) -> None:
        self.results.append(run_task(task))
        self._given.append(Done(number, self.results[-1]))


def of_conductor(tasks: int, folder: Path) -> tuple[float, float, float]:
    """Seconds of a task: processor time of the conductor, its wall time, and of the task itself processor time."""
    settings = Settings(1, {"impl": ORACLES}, ATTENTION, out=str(folder))
    recorder = Recorder()
    store = Store(folder / "first.sqlite", settings)
    conduct(store, recorder, Session(Limits(operations=len(ATTENTION) * settings.task_operations)))
    close_targets()
    store.close()
    lengths = [result_of(result).processor_seconds for result in recorder.results]
    store = Store(folder / "second.sqlite", settings)
    cpu, wall = time.process_time(), time.monotonic()
    conduct(store, Echo(recorder.results), Session(Limits(operations=tasks * settings.task_operations)))
    spent = (time.process_time() - cpu) / tasks, (time.monotonic() - wall) / tasks
    store.close()
    return (*spent, sum(lengths) / len(lengths))


@dataclass(frozen=True)
class Cluster:
    """What is simulated; all times in seconds."""

    cores: int
    task: float
    """Mean length of a task."""
    conductor: float
    """What the conductor does for each."""
    driver: float
    """What the driver of Ray does for each."""
    start: float
    """Until a core has imported its engine, before its first task."""
    tasks_per_core: int = 40


def simulated(cluster: Cluster, *, steady: bool = False, seed: int = 1) -> float:
    """Share of the cores' time in which they do tasks: of the whole campaign, or with `steady` of its middle, without
    start and tail."""
    random, clock = Random(seed), 0.0
    mean = Random(seed)
    count = cluster.cores * cluster.tasks_per_core
    scale = 1.0 / sum(mean.lognormvariate(0, SPREAD) for _ in range(2_000)) * 2_000
    events: list[tuple[float, int, int, float]] = []  # end of a task, its number, its core, its length
    idle = [(cluster.start, core) for core in range(cluster.cores)]
    heapq.heapify(idle)
    ready = deque[float]()  # when each task that waits on the cluster has got there
    conductor = driver = useful = 0.0
    given = done = number = 0
    marks: list[tuple[float, float]] = []  # time, and what was done until then, after one and three quarters

    def hand_out(at: float) -> None:
        """One task more: through conductor and driver, each after what it does already."""
        nonlocal conductor, driver, given
        conductor = max(conductor, at) + cluster.conductor
        driver = max(driver, conductor) + cluster.driver
        ready.append(driver + DISPATCH_S / 2)
        given += 1

    for _ in range(min(count, PER_CORE * cluster.cores)):
        hand_out(0.0)
    while done < count:
        while ready and idle:
            free, core = heapq.heappop(idle)
            begin = max(free, ready.popleft())
            length = cluster.task * scale * random.lognormvariate(0, SPREAD)
            number += 1
            heapq.heappush(events, (begin + length, number, core, length))
        clock, _, core, length = heapq.heappop(events)
        done, useful = done + 1, useful + length
        if done in (count // 4, 3 * count // 4):
            marks.append((clock, useful))
        heapq.heappush(idle, (clock, core))
        if given < count:
            hand_out(clock + DISPATCH_S / 2)
    (begin, before), (end, after) = marks if steady else [(0.0, 0.0), (clock, useful)]
    return (after - before) / (cluster.cores * (end - begin))


def shortest(cluster: Cluster, efficiency: float = TARGET) -> float:
    """The shortest task, in seconds, with which the cores are so well used, without their start and the end."""

    def share(task: float) -> float:
        return simulated(replace(cluster, task=task, start=0.0, tasks_per_core=16), steady=True)

    low, high = 0.001, 1_000.0
    for _ in range(12):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if share(middle) >= efficiency else (middle, high)
    return high


def page(conductor: tuple[float, float, float], driver: float, tasks: int) -> Iterator[str]:
    cpu, wall, length = conductor
    base = Cluster(1_000, 10.0, cpu, driver, 0.0)
    yield "# Toward a thousand cores, simulated"
    yield ""
    yield f"`{command()}`"
    yield "wrote this page. **Nobody has measured a thousand cores**: what follows is a simulation of discrete events,"
    yield "fed with what was measured on two. What it leaves out, and how to use a cluster, is in"
    yield "[clusters](../guide/cluster.md)."
    yield ""
    yield f"Measured on 2 shared cores, {processor()}:"
    yield ""
    yield "| | milliseconds |"
    yield "| --- | ---: |"
    yield f"| conductor: choose a task, keep it, take its result in ({tasks} tasks), processor | {1000 * cpu:.2f} |"
    yield f"| the same, wall time, with what the disk takes on a busy machine | {1000 * wall:.2f} |"
    yield f"| driver of Ray for a task, processor (`ray_cluster.py`) | {1000 * driver:.2f} |"
    yield f"| 4,000 operations on our core under lockstep and shadow memory, processor | {1000 * length:,.0f} |"
    yield ""
    yield f"So one conductor takes in at most {1 / cpu:,.0f} results a second, one driver {1 / driver:,.0f}."
    yield ""
    yield "## The shortest task with which 95 % of the cores' time is used"
    yield ""
    yield "`with the disk` takes the wall time of the conductor for what it does: its store is written once for a task."
    yield ""
    yield "| cores | seconds of a task | with the disk | operations of our core in that time |"
    yield "| ---: | ---: | ---: | ---: |"
    for cores in (10, 100, 1_000, 4_000):
        seconds, slow = shortest(replace(base, cores=cores)), shortest(replace(base, cores=cores, conductor=wall))
        yield f"| {cores:,} | {seconds:.2f} | {slow:.2f} | {slow / length * 4_000:,.0f} |"
    yield ""
    yield "## What is used of 1,000 cores"
    yield ""
    yield "From the first task to the last one, 40 tasks a core, with the start of each core and the tail at the end."
    yield ""
    yield "| seconds of a task | nothing to start | 2 s to start | 20 s to start (an engine is imported) |"
    yield "| ---: | ---: | ---: | ---: |"
    for seconds in (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0):
        shares = (simulated(replace(base, task=seconds, start=start)) for start in (0.0, 2.0, 20.0))
        yield f"| {seconds:g} | " + " | ".join(f"{share:.1%}" for share in shares) + " |"
    yield ""
    yield "## What breaks first"
    yield ""
    slower, faster = ("conductor", "driver of Ray") if cpu > driver else ("driver of Ray", "conductor")
    yield f"The {slower}: it is one process, and beyond {1 / max(cpu, driver):,.0f} tasks a second tasks wait for it."
    yield f"Were it twice as fast, 1,000 cores would need tasks of {shortest(_halved(base)):.2f} s."
    yield f"The {faster} is next."
    yield ""


def _halved(cluster: Cluster) -> Cluster:
    if cluster.conductor > cluster.driver:
        return replace(cluster, conductor=cluster.conductor / 2)
    return replace(cluster, driver=cluster.driver / 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=300, help="results that the conductor takes in, to be measured")
    parser.add_argument("--ray-ms", type=float, default=RAY_MS)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        conductor = of_conductor(given.tasks, Path(folder))
    put("\n".join(page(conductor, given.ray_ms / 1000, given.tasks)), given.write)


if __name__ == "__main__":
    main()
