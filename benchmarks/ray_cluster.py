"""A Ray cluster of three nodes on this machine, one of which is killed: is each task told once? What does one cost?

    python benchmarks/ray_cluster.py                    # needs the extra `cluster`; about two minutes on two cores
    python benchmarks/ray_cluster.py --tasks 40 --json

Everything stays on the loopback device, without dashboard and without usage statistics. The same tasks are done by
plain calls first: what the cluster brings must be equal. Exits with 1 if something is missing, told twice or different.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from blockproof.fuzz.campaign.doing import close_targets, run_task
from blockproof.fuzz.campaign.executor import Executor
from blockproof.fuzz.campaign.local import LocalExecutor
from blockproof.fuzz.campaign.ray_executor import RayExecutor
from blockproof.fuzz.campaign.tasks import Options, Task, TaskResult, encoded, result_of
from blockproof.fuzz.findings.oracle_names import ORACLES

NODES, CORES = 3, 1
STORE_BYTES = 80 << 20
FAULT = "fault:touch-ignores-used-blocks"
MOST_S = 420.0
HEAD_LIVES_S = 30.0
"""Within which a campaign has begun on the cluster."""
EMPTY_TASKS = 200


@dataclass
class Cluster:
    """A cluster of this machine."""

    address: str
    kill_one: Callable[[], None]
    """Kill the raylet of a node that is not the head, as a machine that loses its power."""
    kill_head: Callable[[], None]
    """Kill what the whole cluster depends on."""
    close: Callable[[], None]


def cluster(nodes: int = NODES, cores: int = CORES) -> Cluster:
    """Start one. `close` ends all its processes."""
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_enable_metrics_collection": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # nodes call each other by the address of the loopback device
        "RAY_health_check_period_ms": "1000",  # a node counts as dead after some seconds; the default is for networks
        "RAY_health_check_failure_threshold": "3",
    }
    from ray.cluster_utils import Cluster as Local

    options: dict[str, Any] = {"num_cpus": cores, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    local = Local(initialize_head=True, head_node_args={**options, "node_ip_address": "127.0.0.1"})
    workers = [local.add_node(wait=False, node_ip_address="127.0.0.1", **options) for _ in range(nodes - 1)]
    local.wait_for_nodes(timeout=120)

    def kill(node: Any, *kinds: str) -> None:
        for process in [process for kind in kinds for process in node.all_processes[kind]]:
            os.kill(process.process.pid, 9)

    return Cluster(
        local.address,
        lambda: kill(workers[0], "raylet"),
        lambda: kill(local.head_node, "gcs_server", "raylet"),
        local.shutdown,
    )


def real_tasks(count: int, operations: int) -> list[Task]:
    """Tasks on our core, every third with a planted fault: seed and attention types differ from one to the next."""
    kinds = ("full", "sliding", "mamba", "full+sliding")
    options = Options(shrink_seconds=MOST_S)  # what is cut short by time differs from machine to machine
    return [
        Task(n, FAULT if n % 3 == 0 else "impl", kinds[n % 4], ORACLES, "random", n, operations, options=options)
        for n in range(1, count + 1)
    ]


def empty_tasks(count: int) -> list[Task]:
    """Tasks that replay nothing: what is left of one is what it costs to hand it out and to take it back."""
    options = Options(traces=())
    return [Task(n, "impl", "full", ORACLES, "random", n, 0, "replay", options) for n in range(1, count + 1)]


def outcome(result: TaskResult) -> tuple[object, ...]:
    """What a task has come to, wherever it was done."""
    found = sorted((one.cause, one.times, one.trace) for one in result.findings)
    return result.runs, result.operations, result.keys, found, result.problem


def through(executor: Executor, tasks: Sequence[Task], at: Mapping[int, Callable[[], None]]) -> dict[str, Any]:
    """Do all tasks. `at`: what is to happen once so many are done."""
    begin, told, results, waiting = time.monotonic(), Counter[int](), dict[int, TaskResult](), [*tasks]
    problems, happened = list[str](), set[int]()
    while len(told) < len(tasks) and time.monotonic() - begin < MOST_S:
        while waiting and len(tasks) - len(waiting) - len(told) < executor.capacity:
            task = waiting.pop(0)
            executor.submit(task.number, encoded(task))
        for done in executor.done(0.5):
            told[done.number] += 1
            if done.result is None:
                problems.append(f"task {done.number}: {done.problem}")
            else:
                results[done.number] = result_of(done.result)
        for count, act in at.items():
            if count <= len(told) and count not in happened:
                happened.add(count)
                act()
    seconds = time.monotonic() - begin
    return {"told": told, "results": results, "problems": problems, "seconds": seconds}


def head_lost(nodes: Cluster, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """A campaign whose cluster goes away: how it ends, and whether its store can be resumed without one."""
    store = folder / "campaign.sqlite"
    command = [sys.executable, "-m", "blockproof.fuzz.cli", "campaign"]
    begun = [
        "--target",
        "impl",
        "--seed",
        "1",
        "--store",
        str(store),
        "--task-operations",
        "500",
        "--attention",
        "full",
    ]
    process = subprocess.Popen(
        [*command, *begun, "--ray", nodes.address, "--out", str(folder)], text=True, stderr=subprocess.PIPE
    )
    time.sleep(HEAD_LIVES_S)
    nodes.kill_head()
    killed = time.monotonic()
    _, said = process.communicate(timeout=MOST_S)
    seconds, last = time.monotonic() - killed, said.strip().splitlines()[-1]
    wrong = [] if process.returncode == 3 else [f"a lost cluster ended the campaign with {process.returncode}: {last}"]
    wrong += ["its end is a traceback"] if "Traceback" in said else []
    resumed = subprocess.run(
        [*command, "--resume", str(store), "--operations", "1000", "--json"], capture_output=True, text=True
    )
    if resumed.returncode:
        wrong.append(f"the store was not resumed: {resumed.stderr.strip()}")
    return {"ended after": seconds, "said": last, "resumed with": resumed.returncode}, wrong


def processor_of(process: int) -> float:
    """Processor time of a process that lives, in seconds."""
    with open(f"/proc/{process}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def compared(tasks: Sequence[Task], right: Mapping[int, tuple[object, ...]], brought: Mapping[str, Any]) -> list[str]:
    """What is missing, told twice or different, a line each."""
    wrong = list(brought["problems"])
    for task in tasks:
        if (times := brought["told"][task.number]) != 1:
            wrong.append(f"task {task.number} was told {times} times")
        elif task.number in brought["results"] and outcome(brought["results"][task.number]) != right[task.number]:
            wrong.append(f"task {task.number} came to something else than in a plain call")
    return wrong


def per_task(executor: Executor, tasks: Sequence[Task], driver: int | None = None) -> dict[str, float]:
    """Milliseconds of a task: wall time, processor time of this process, and of Ray's driver."""
    through(executor, tasks[: executor.capacity], {})  # processes have started then, and targets are open
    mine, theirs = time.process_time(), processor_of(driver) if driver else 0.0
    seconds = through(executor, tasks, {})["seconds"]
    spent = {"wall": seconds, "this process": time.process_time() - mine}
    if driver:
        spent["driver of Ray"] = processor_of(driver) - theirs
    return {name: round(1000 * took / len(tasks), 3) for name, took in spent.items()}


def measured(tasks: Sequence[Task]) -> tuple[dict[str, Any], list[str]]:
    """Everything: the comparison with a node killed in the middle, and the cost of a task."""
    begin, cpu = time.monotonic(), time.process_time()
    right = {task.number: outcome(result_of(run_task(encoded(task)))) for task in tasks}
    plain = {"wall": time.monotonic() - begin, "processor": time.process_time() - cpu}
    findings = sum(len(outcome[3]) for outcome in right.values() if isinstance(outcome[3], list))
    empty = empty_tasks(EMPTY_TASKS)
    for task in empty[:1]:
        run_task(encoded(task))
    begin = time.monotonic()
    for task in empty:
        run_task(encoded(task))
    costs: dict[str, object] = {"plain call": {"wall": round(1000 * (time.monotonic() - begin) / len(empty), 3)}}
    close_targets()
    local = LocalExecutor(2)
    try:
        costs["LocalExecutor of 2"] = per_task(local, empty)
    finally:
        local.close()
    begin = time.monotonic()
    nodes = cluster()
    report: dict[str, Any] = {
        "tasks": len(tasks),
        "findings": findings,
        "start of the cluster": time.monotonic() - begin,
    }
    try:
        begin = time.monotonic()
        executor = RayExecutor(nodes.address, MOST_S)
        report["connected after"] = time.monotonic() - begin
        try:
            costs[f"Ray, {NODES} nodes"] = per_task(executor, empty, executor.driver)
            brought = through(executor, tasks, {len(tasks) // 3: nodes.kill_one})
            wrong = compared(tasks, right, brought)
        finally:
            executor.close()
        with TemporaryDirectory() as folder:
            report["the head killed"], more = head_lost(nodes, Path(folder))
            wrong += more
    finally:
        nodes.close()
    report |= {"real tasks, plain calls": plain, "real tasks, a node killed": {"wall": brought["seconds"]}}
    return {**report, "milliseconds of an empty task": costs, "wrong": wrong}, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--operations", type=int, default=1_000, help="of a task")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    report, wrong = measured(real_tasks(given.tasks, given.operations))
    if given.json:
        print(json.dumps(report, indent=1))
    else:
        for name, value in report.items():
            print(f"{name}: {value}")
        if not wrong:
            print(f"all {given.tasks} tasks told once, all {report['findings']} findings as in plain calls")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
