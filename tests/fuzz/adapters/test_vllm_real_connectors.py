"""The release's own connectors in scheduler runs: the transfers alone, and runs with planted mistakes and without."""

import json
import subprocess
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.adapters.vllm.scheduler_real_faults import FAULTS
from blockproof.fuzz.adapters.vllm.scheduler_real_runs import found
from blockproof.fuzz.adapters.vllm.scheduler_real_transfers import Transfers
from blockproof.fuzz.opening import environments
from blockproof.fuzz.opening.child import environment_of


class Pages:
    """Four blocks of two tokens."""

    def __init__(self) -> None:
        self.pages = [[0, 0] for _ in range(4)]

    def page(self, block: int) -> list[int]:
        return list(self.pages[block])

    def set_page(self, block: int, tags: Any) -> None:
        self.pages[block] = list(tags)


def transfers(held: int = 1, delay: int = 6) -> Transfers:
    pool = SimpleNamespace(blocks=[SimpleNamespace(ref_cnt=held) for _ in range(4)])
    return Transfers(Pages(), pool, Random(1), delay)


def pass_time(it: Transfers) -> None:
    for _ in range(10):
        it.moment()


def test_what_is_stored_is_loaded_again() -> None:
    it = transfers()
    store: dict[Any, list[int]] = {}
    it.memory.set_page(1, [5, 6])
    it.begin("s", False, [it.into(store, "place", 1)])
    pass_time(it)
    it.begin("l", True, [it.out_of(store, "place", 2)])
    pass_time(it)
    assert (it.ended(False), it.ended(True), len(it)) == (["s"], ["l"], 0)
    assert it.memory.page(2) == [5, 6]
    assert it.take_wrong() == ()


def test_a_transfer_is_told_once_all_its_copies_are_carried_out_and_in_order() -> None:
    it = transfers(delay=0)
    it.begin("first", False, [it.into({}, "place", 1)], silent=2)
    it.begin("second", False, [])
    it.moment()
    assert it.ended(False) == []
    it.moment()
    assert it.ended(False) == ["first", "second"]


def test_one_that_is_waited_for_ends_at_once() -> None:
    it = transfers(delay=1000)
    store: dict[Any, list[int]] = {}
    it.begin("s", False, [it.into(store, "place", 1)])
    it.finish(["s"])
    assert store
    assert it.ended(False) == ["s"]


@pytest.mark.parametrize(("now", "seen"), [([7, 6], True), ([5, 9], False)])
def test_another_owner_of_a_block_under_store_is_seen(now: list[int], seen: bool) -> None:
    """One who goes on writing behind the tokens that are stored is none."""
    it = transfers()
    it.memory.set_page(1, [5, 6])
    it.begin("s", False, [it.into({}, "place", 1)])
    it.memory.set_page(1, now)
    it.finish()
    assert bool(it.take_wrong()) is seen


def test_a_load_into_a_free_block_and_one_of_nothing_are_seen() -> None:
    it = transfers(held=0)
    it.begin("l", True, [it.out_of({}, "place", 1)])
    pass_time(it)
    free, empty = it.take_wrong()
    assert "is free" in free
    assert "nothing was stored" in empty


def test_a_line_names_its_first_objection() -> None:
    assert found({"error": "", "wrong": [], "starved": [], "stuck": False, "missing": 0, "left": ""}) == ""
    assert found({"error": "", "wrong": ["a"], "missing": 2}).startswith("wrong")
    assert found({"stuck": True, "left": "x"}).startswith("stuck")


# With a release; each mix is one that shows the mistake.

RELEASE = "vllm==0.33.0"
INSTALLED = {environment.name: environment for environment in environments.installed(families()["vllm"])}
Seen = dict[tuple[str, ...], str]


PLANTED = [
    ("simple-offload", 20, "load-told-too-early", "wrong"),
    ("simple-offload", 1, "store-told-too-early", "wrong"),
    ("offloading", 7, "store-not-waited-for", "wrong"),
    ("simple-offload", 11, "load-into-wrong-block", "wrong"),
    ("simple-offload", 11, "arrival-lost", "starved"),
    ("nixl", 1, "sending-lost", "missing"),
    ("simple-offload", 0, "store-lost", "missing"),
    ("simple-offload", 11, "arrival-told-twice", "error"),
    ("simple-offload", 0, "never-carried-out", "missing"),
]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """What each mix shows, with its planted mistake and without: all in one process, which imports the engine once."""
    if RELEASE not in INSTALLED:
        pytest.skip(f"{RELEASE} is not installed (blockproof targets install {RELEASE})")
    place = INSTALLED[RELEASE].place
    module = "blockproof.fuzz.adapters.vllm.scheduler_real_runs"
    pairs = [(connector, str(number), fault) for connector, number, fault, _ in PLANTED]
    asked: list[tuple[str, ...]] = list(dict.fromkeys([*(pair[:2] for pair in pairs), *pairs]))
    ended = subprocess.run(
        [str(place.python), "-m", module, "-"],
        env=environment_of(place, tmp_path_factory.mktemp("modules")),
        input="".join(f"{name} 1 {number} 1 {' '.join(faults)}\n" for name, number, *faults in asked),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    return {key: line["found"] for key, line in zip(asked, lines, strict=True)}


@pytest.mark.slow
def test_planted_mistakes_are_found_and_the_pairs_without_them_are_silent(seen: Seen) -> None:
    for connector, number, fault, kind in PLANTED:
        assert seen[connector, str(number)] == "", (connector, number)
        assert seen[connector, str(number), fault].startswith(kind), fault


def test_every_mistake_is_planted_in_some_run() -> None:
    assert {fault for _, _, fault, _ in PLANTED} == set(FAULTS)
