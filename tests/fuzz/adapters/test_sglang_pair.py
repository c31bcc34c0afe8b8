"""Two SGLang engines: the router and the stand-ins, and the release: skipped where no environment has it."""

import json
import subprocess
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from blockproof.fuzz.adapters import families
from blockproof.fuzz.adapters.sglang import pair_stand_ins, pair_world
from blockproof.fuzz.adapters.sglang.disaggregation import BothRouter
from blockproof.fuzz.adapters.sglang.pair_world import Frames, World
from blockproof.fuzz.engines.stories import StoryTask
from blockproof.fuzz.engines.story_fuzzing import read_story, simulate
from blockproof.fuzz.opening.child import environment_of
from blockproof.fuzz.simulation.attempts import PATIENCE, Abort, Alive, Serve, TokensTold
from blockproof.fuzz.simulation.judges import FATE, MEMORY, PROGRESS
from blockproof.fuzz.simulation.network import Network, Port
from blockproof.fuzz.simulation.protocol import ClientRequest

from .released import place_of

NAME = families()["sglang"].example
HERE = Path(__file__).parent
PAIR = f"{NAME}/disaggregation"


def a_router() -> tuple[BothRouter, Network]:
    network = Network(100)
    return BothRouter(SimpleNamespace(max_length=20), Port(network, "router")), network  # type: ignore[arg-type]


def told(network: Network) -> list[Any]:
    return [(one.to, one.message) for one in network.tick()]


def test_each_attempt_is_given_to_both_engines_under_a_room_of_its_own() -> None:
    router, network = a_router()
    request = ClientRequest("a", (1, 2), 3)
    router.add(request)
    first = Serve(request, 1, {"room": 1})
    assert told(network) == [("prefill", first), ("decode", first)]
    router.receive("prefill", TokensTold("a", 1, (), "failed"))
    again = Serve(request, 2, {"room": 2})
    assert told(network) == [("prefill", again), ("decode", again)]
    (got,) = router.receive("decode", TokensTold("a", 2, (7, 8, 9), "length"))
    assert (got.tokens, got.ended, router.idle()) == ((7, 8, 9), "length", True)


def test_who_is_refused_is_told_and_the_other_engine_too() -> None:
    router, network = a_router()
    router.add(ClientRequest("a", (1, 2), 3))
    told(network)
    (got,) = router.receive("prefill", TokensTold("a", 1, (), "refused"))
    assert (got.ended, told(network)) == ("refused", [("prefill", Abort("a", 1)), ("decode", Abort("a", 1))])


def test_a_first_engine_that_gives_no_sign_is_not_waited_for_until_its_work_is_done() -> None:
    for is_done in (False, True):
        router, network = a_router()
        router.add(ClientRequest("a", (1, 2), 3))
        told(network)
        if is_done:
            router.receive("prefill", TokensTold("a", 1, (7,), "length"))
        later = list[tuple[str, Any]]()
        for _ in range(PATIENCE + 3):
            later += told(network)
            router.receive("decode", Alive(0, (("a", 1),)))
            router.tick()
        assert [to for to, _ in later] == ([] if is_done else ["prefill", "decode"])


def test_a_new_life_of_the_first_engine_gets_what_the_last_one_had() -> None:
    router, network = a_router()
    router.add(ClientRequest("a", (1, 2), 3))
    told(network)
    router.receive("prefill", Alive(1, ()))
    assert [message.attempt for _, message in told(network)] == [2, 2]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> tuple[World, World]:
    """Of both engines, as if the release were there."""
    parts = SimpleNamespace(
        use_context=lambda context: nullcontext(), RuntimeContext=lambda parallel: None, ParallelContext=lambda: None
    )
    monkeypatch.setattr(pair_world, "imported", lambda name: parts)
    network, made = Network(100), dict[str, World]()
    for name, other in (("prefill", "decode"), ("decode", "prefill")):
        port = Port(network, "prefill" if name == "prefill" else "decode", 2)
        made[name] = World(port, lambda other=other: made.get(other), Counter())  # type: ignore[misc]
    return made["prefill"], made["decode"]


def started(world: World, run: Any) -> list[Any]:
    """What a thread of this world comes to."""
    came = list[Any]()
    with world.entered():
        pair_stand_ins._Threading().Thread(target=lambda: came.append(run())).start()
        world.turn()
    return came


def test_a_message_comes_once_in_order_and_to_one_life(world: tuple[World, World]) -> None:
    _, decode = world
    for endpoint, number in (("20002", 0), ("20002", 0), ("20001", 1), ("20002", 3), ("20002", 2)):
        decode.hear(Frames(f"tcp://decode:{endpoint}", "prefill 2", number, (str(number).encode(),)))
    came = started(decode, lambda: [decode.recv_multipart(), decode.recv_multipart()])
    assert came == [[[b"0"], [b"3"]]]
    assert started(decode, decode.recv_multipart) == []
    decode.end()


@pytest.mark.parametrize("fails", [(), (0,), (0, 1)])
def test_a_write_is_a_store_that_is_tried_twice(world: tuple[World, World], fails: tuple[int, ...]) -> None:
    prefill, decode = world
    prefill.knows([1000], [64], [4], 0)
    decode.knows([5000], [64], [4], 0)
    came = started(prefill, lambda: prefill.batch_transfer_sync("decode:20002", [1008], [5004], [8]))
    for number in range(2 if 0 in fails else 1):
        (store,) = prefill.begun
        prefill.begun.clear()
        assert (store.kind, store.device, store.other, store.tier) == ("store", (2, 3), (1, 2), "decode 2")
        assert not came
        prefill.ended(store.id, number not in fails)
        with prefill.entered():
            prefill.turn()
    assert came == [-1 if 1 in fails else 0]
    assert not prefill.writing


def test_nothing_is_written_to_a_life_that_is_over(world: tuple[World, World]) -> None:
    prefill, _ = world
    assert started(prefill, lambda: prefill.batch_transfer_sync("decode:20001", [0], [0], [8])) == [-1]
    assert not prefill.begun


def test_a_thread_waits_for_its_time(world: tuple[World, World]) -> None:
    prefill, _ = world
    event = pair_stand_ins._Event()
    came = started(prefill, lambda: event.wait(3))
    for _ in range(3):
        assert not came
        list(prefill.port._network.tick())
        with prefill.entered():
            prefill.turn()
    assert came == [False]


# With the release.

FOUND = """
import json, sys
sys.path.insert(0, sys.argv[1])
from sglang_pair_faults import FAULTS, found
print(json.dumps({name: found(name, 30) for name in ("", *FAULTS)}))
"""
SEEN_BY = {
    "sends in another order": MEMORY,
    "leaves out the last page": PROGRESS,
    "forgets the first piece": MEMORY,
    "gives back while it is written": MEMORY,
    "ends before it has sent": PROGRESS,
    "keeps places of results": PROGRESS,
    "forgets the prefix": MEMORY,
    "two tokens in one slot": MEMORY,
}
KNOWN = {
    "registration-is-lost": FATE,
    "never-admitted-by-decode": PROGRESS,
    "matched-again-by-decode": FATE,
    "answer-asked-of-the-window": PROGRESS,
}


@pytest.mark.slow
def test_mistakes_between_the_halves_are_found_and_without_them_nothing_is(tmp_path: Path) -> None:
    place = place_of(NAME)
    environment = environment_of(place, tmp_path) | dict(families()["sglang"].environment)
    command = [str(place.python), "-P", "-c", FOUND, str(HERE)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = {name: judge for name, (judge, _) in json.loads(ran.stdout.splitlines()[-1]).items()}
    assert found == {"": "", **SEEN_BY}


@pytest.mark.slow
@pytest.mark.parametrize("known", KNOWN)
def test_what_the_pair_shows_is_named_by_experiment(known: str) -> None:
    place_of(NAME)
    story = read_story(HERE / "inputs" / f"disaggregation-{known}.json").story
    found = simulate(PAIR, StoryTask(replay=story, shrink_seconds=0.0), None, lambda text: None).found
    assert [(one["known"], one["judge"]) for one in found] == [(known, KNOWN[known])]
