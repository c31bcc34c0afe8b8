"""The release's own connectors under simulation: what is drawn for them, what is told when, and planted mistakes."""

import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.adapters.vllm.engine.connector_workers import (
    ConnectorJob,
    ConnectorWorker,
    Offloading,
    Several,
    SimpleOffload,
    WorkerScene,
    at_once,
)
from blockproof.fuzz.adapters.vllm.engine.connectors import OPTIONS_OF, WORKERS, ConnectorLink
from blockproof.fuzz.opening import environments
from blockproof.fuzz.opening.child import environment_of
from blockproof.fuzz.simulation.traffic import EngineFacts, draw_simulation
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.model.attention import rule_for
from blockproof.model.ops import Group, Shape

SHAPE = Shape((Group("full", 2),), 9, 12, 2, 2, 16)


class Told(ConnectorWorker):
    """Begins what the metadata say, and reports the keys."""

    def jobs(self, metadata: Any, output: Any) -> Iterable[ConnectorJob]:
        return [self._moved(key, kind, [(block, 1)]) for key, kind, block in metadata]

    def awaited(self, metadata: Any, under_way: Sequence[str]) -> Iterable[str]:
        return [key for key in (*under_way, *(key for key, *_ in metadata)) if "awaited" in key]

    def report(self, ended: Sequence[str]) -> dict[str, Any]:
        return {"told": list(ended)}

    def held(self) -> int:
        return 3


def link(held: int = 1, works_on: bool = False, kind: type[Told] = Told) -> ConnectorLink:
    connector = SimpleNamespace(has_pending_push_work=lambda: works_on)
    scheduler = SimpleNamespace(connector=connector, requests={"r": 1})
    rules = [rule_for(group, SHAPE) for group in SHAPE.groups]
    scene = WorkerScene(connector, scheduler, {}, rules, SHAPE, {})
    return ConnectorLink(kind(scene), SimpleNamespace(blocks=[SimpleNamespace(ref_cnt=held) for _ in range(9)]))


def step(*jobs: tuple[str, str, int]) -> Any:
    return SimpleNamespace(kv_connector_metadata=jobs, finished_req_ids=())


@pytest.fixture(autouse=True)
def _without_release(monkeypatch: pytest.MonkeyPatch) -> None:
    place = "blockproof.fuzz.adapters.vllm.engine.connectors"
    monkeypatch.setattr(f"{place}.module", lambda name: SimpleNamespace(KVConnectorOutput=None))
    monkeypatch.setattr(f"{place}.make", lambda kind, told: told)


def test_a_job_is_reported_once_its_transfers_have_ended_and_no_sooner_than_those_before():
    made = link()
    first, second = step(("a", "load", 1), ("b", "load", 2)), step(("c", "store", 3))
    (one, other), awaited = made.begin(first)
    assert (one.device, awaited) == ((2, 3), ())
    made.begin(second)
    made.transferred((other.id, "c"))
    assert made.report(first) is None  # c began in a later step, and b is behind a
    made.transferred((one.id,))
    assert made.report(second) == ["a", "b", "c"]
    assert not made.busy


def test_a_store_that_waits_is_reported_with_the_next_step_unless_it_is_awaited():
    class Waits(Told):
        stores_wait = True

    made = link(kind=Waits)
    first, second = step(("a", "store", 1), ("awaited b", "store", 2)), step()
    _, awaited = made.begin(first)
    assert awaited == ("awaited b",)
    made.transferred(("a", "awaited b"))
    assert made.report(first) is None  # one queue
    made.begin(second)
    assert made.report(second) == ["a", "awaited b"]


def test_a_block_that_is_free_while_it_is_loaded_is_objected_to():
    assert list(link().objections()) == []
    made = link(held=0)
    made.begin(step(("a", "load", 1), ("b", "store", 2)))
    assert [line.partition(": ")[0] for line in made.objections()] == ["free while loaded"]
    assert made.held() is None
    made.transferred(("a", "b"))
    assert list(made.objections()) == []


def test_an_engine_that_goes_on_for_nobody_is_objected_to():
    made = link(works_on=True)
    made.begin(step())
    made._scheduler.requests.clear()
    for _ in range(200):
        made.begin(step())
    assert (list(made.objections()), made.held()) == ([], 3)
    made.begin(step())
    assert [line.partition(": ")[0] for line in made.objections()] == ["never at rest"]


def test_what_is_over_before_the_step_is_not_waited_for():
    made = link()
    job = Told(made.worker.scene)._moved("a", "load", [(1, 1)])
    assert [one.now for one in at_once(job).transfers] == [True]


def test_a_connectors_options_are_drawn_beside_it_and_nothing_else_changes():
    plain = draw_simulation(SeededDraw(1), EngineFacts(options={"connector": ("",)}, options_of=OPTIONS_OF))
    asked = [
        draw_simulation(SeededDraw(n), EngineFacts(options={"connector": ("offloading",)}, options_of=OPTIONS_OF))
        for n in range(40)
    ]
    assert dict(plain.shape.options) == {"connector": ""}
    for name, values in Offloading.options.items():
        assert {story.shape.options[name] for story in asked} == set(values), name


def test_several_connectors_are_told_what_each_of_them_is_told():
    options: dict[str, Any] = {name: values[0] for name, values in Several.options.items()}
    told: Any = Several.extra(options, SHAPE)["connectors"]
    assert [one["kv_connector"] for one in told] == [Offloading.name, SimpleOffload.name]
    assert told[0]["kv_connector_extra_config"] == Offloading.extra(options, SHAPE)
    assert all(kind in WORKERS.values() for kinds in Several.pairs.values() for kind in kinds)


# With a release; each story is one that shows the mistake.

RELEASE = "vllm==0.33.0"
PLANTED = [
    ("offloading", 23, "load-told-too-early", "memory"),
    ("simple-offload", 15, "load-told-too-early", "memory"),
    ("simple-offload", 1, "store-told-too-early", "memory"),
    ("offloading", 1, "store-not-waited-for", "memory"),
    ("offloading", 7, "load-into-wrong-block", "memory"),
    ("simple-offload", 15, "arrival-lost", "progress"),
    ("nixl", 4, "sending-lost", "progress"),
    ("simple-offload", 0, "store-lost", "progress"),
    ("simple-offload", 15, "arrival-told-twice", "fate"),
    ("simple-offload", 0, "never-carried-out", "progress"),
]


@pytest.mark.slow
def test_planted_mistakes_are_found_and_the_stories_without_them_are_silent(tmp_path: Path) -> None:
    environment = environments.find(RELEASE)
    if environment is None:
        pytest.skip(f"{RELEASE} is not installed (blockproof targets install {RELEASE})")
    place = {one.name: one for one in environments.installed(families()["vllm"])}[RELEASE].place
    pairs = [(connector, str(number), fault) for connector, number, fault, _ in PLANTED]
    asked = list(dict.fromkeys([*(pair[:2] for pair in pairs), *pairs]))
    ended = subprocess.run(
        [str(place.python), str(Path(__file__).with_name("faulty_transfers.py"))],
        env=environment_of(place, tmp_path),
        input="".join(f"{' '.join(words)}\n" for words in asked),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("[")]
    seen = dict(zip(asked, lines, strict=True))
    for connector, number, fault, judge in PLANTED:
        assert seen[connector, str(number)] == [], (connector, number)
        assert seen[connector, str(number), fault] == [judge], fault
