"""Two vLLM engines with the release's own NixlConnector between them: the router, the stand-ins for the library, and
the release installed here."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from blockproof.fuzz.adapters.vllm.pairs.nixl_agent import (
    CLOCK,
    HANDSHAKE_ROUNDS,
    Agent,
    Handshake,
    HandshakeAnswer,
    Handshakes,
    Notification,
)
from blockproof.fuzz.engines.stories import StoryTask
from blockproof.fuzz.engines.story_fuzzing import read_story, simulate
from blockproof.fuzz.opening.engines import engine_spec, is_engine
from blockproof.fuzz.opening.names import ReleaseName, parsed
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.simulation.attempts import PATIENCE, Abort, Alive, AttemptsRouter, Serve, TokensTold
from blockproof.fuzz.simulation.judges import FATE, MEMORY, PROGRESS
from blockproof.fuzz.simulation.network import Network, Port
from blockproof.fuzz.simulation.protocol import ClientRequest, Delivered, EngineShape
from blockproof.fuzz.simulation.traffic import shape_with
from blockproof.fuzz.targets.base import TargetUnavailableError
from blockproof.model.ops import Group

from .released import place_of
from .test_vllm_simulated import RELEASE, needs_release, said_by_release

PAIR = f"{RELEASE}/nixl"
INPUTS = Path(__file__).parent / "inputs"
REQUEST = ClientRequest("a", (1, 2, 3), 4)
THERE = {"do_remote_prefill": True}


# The name.


def test_a_pair_is_named_behind_its_release() -> None:
    named = parsed("vllm==0.33.0/nixl+patch.py")
    assert isinstance(named, ReleaseName)
    assert (named.version, named.pair, named.release) == ("0.33.0", "nixl", "vllm==0.33.0")
    assert named.patch is not None
    assert is_engine("vllm==0.33.0/nixl")
    assert not is_engine("vllm==0.33.0")
    assert (engine_spec("vllm==0.33.0/nixl"), engine_spec("vllm==0.33.0")) == ("vllm/nixl", "vllm")


def test_a_pair_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"no pair 'hixl'; write vllm==0.33.0/nixl, vllm==0.33.0/nixl-push"):
        parsed("vllm==0.33.0/hixl")
    with pytest.raises(ValueError, match=r"no pair 'nixl'; it has none"):
        parsed("lmdeploy/nixl")
    with pytest.raises(TargetUnavailableError, match=r"only simulated; write blockproof simulate --target vllm/nixl"):
        open_target("vllm/nixl")


# The router.


class Wire:
    """A network of which the messages are looked at."""

    def __init__(self) -> None:
        self.network = Network(200)
        shape = EngineShape(shape_with((Group("full", 4),), 32, 32, 32, caching=True))
        self.router = AttemptsRouter(shape, Port(self.network, "router"))

    def sent(self) -> list[tuple[str, Any]]:
        return [(told.to, told.message) for told in self.network.tick()]

    def wait(self, rounds: int) -> None:
        for _ in range(rounds):
            list(self.network.tick())
            self.router.tick()


@pytest.fixture
def wire() -> Wire:
    return Wire()


def begun(wire: Wire) -> None:
    """The request is computed, and is to be answered."""
    wire.router.add(REQUEST)
    assert wire.sent() == [("prefill", Serve(REQUEST, 1, {"do_remote_decode": True}))]
    assert wire.router.receive("prefill", TokensTold("a", 1, (5,), "length", THERE)) == ()
    assert wire.sent() == [("decode", Serve(REQUEST, 1, THERE))]


def test_a_token_is_delivered_once_however_often_it_is_told(wire: Wire) -> None:
    begun(wire)
    assert wire.router.receive("decode", TokensTold("a", 1, (5, 6))) == (Delivered("a", (5, 6)),)
    assert wire.router.receive("decode", TokensTold("a", 1, (5,))) == ()
    assert wire.router.receive("decode", TokensTold("a", 1, (5, 6, 7), "length")) == (Delivered("a", (7,), "length"),)
    assert wire.router.idle()
    assert wire.router.receive("decode", TokensTold("a", 1, (5, 6, 7), "length")) == ()


def test_who_gives_no_sign_is_begun_anew_and_not_heard_any_more(wire: Wire) -> None:
    begun(wire)
    wire.wait(PATIENCE - 1)
    wire.router.receive("decode", Alive(0, (("a", 1),)))
    wire.wait(PATIENCE)
    assert wire.sent() == []
    wire.wait(1)
    assert wire.sent() == [("prefill", Serve(REQUEST, 2, {"do_remote_decode": True}))]
    assert wire.router.receive("decode", TokensTold("a", 1, (5,), "length")) == ()


def test_a_new_life_loses_what_the_old_one_held(wire: Wire) -> None:
    begun(wire)
    wire.router.receive("prefill", Alive(1, ()))
    assert wire.sent() == []  # it is not there any more
    wire.router.receive("decode", Alive(1, ()))
    assert wire.sent() == [("prefill", Serve(REQUEST, 2, {"do_remote_decode": True}))]


def test_a_prompt_whose_blocks_cannot_be_had_is_computed_where_it_is_answered(wire: Wire) -> None:
    begun(wire)
    assert wire.router.receive("decode", TokensTold("a", 1, (), "failed")) == ()
    assert wire.sent() == [("decode", Serve(REQUEST, 2, {}))]
    assert wire.router.receive("decode", TokensTold("a", 2, (5,), "stop")) == (Delivered("a", (5,), "stop"),)


def test_who_leaves_is_aborted_where_he_is(wire: Wire) -> None:
    begun(wire)
    wire.router.cancel("a")
    assert wire.sent() == [("decode", Abort("a", 1))]
    assert wire.router.idle()
    too_long = ClientRequest("b", tuple(range(40)), 1)
    assert [told.ended for told in wire.router.add(too_long)] == ["refused"]


# What stands for the library.


def test_a_read_is_over_when_all_its_groups_are_and_then_the_other_engine_is_told() -> None:
    sent: list[Any] = []
    agent = Agent(2, sent.append)
    number = agent.make_prepped_xfer("READ", 0, [(0, 1), (1, 4)], "prefill 3", [(0, 5), (1, 6)], b"a/1:1")
    agent.transfer(number)
    assert [(one.group, one.device, one.tier, one.other) for one in agent.begun] == [
        (0, (2, 3), "prefill 3", (10, 11)),
        (1, (8, 9), "prefill 3", (12, 13)),
    ]
    agent.ended(agent.begun[0].id, True)
    assert (agent.check_xfer_state(number), sent) == ("PROC", [])
    agent.ended(agent.begun[1].id, True)
    assert (agent.check_xfer_state(number), sent) == ("DONE", [Notification("prefill 3", b"a/1:1")])


def test_a_read_of_which_a_part_fails_has_failed_and_nobody_is_told() -> None:
    sent: list[Any] = []
    agent = Agent(2, sent.append)
    number = agent.make_prepped_xfer("READ", 0, [(0, 1), (1, 4)], "prefill 0", [(0, 5), (1, 6)], b"a/1:1")
    agent.transfer(number)
    agent.ended(agent.begun[0].id, False)
    assert agent.reading
    agent.ended(agent.begun[1].id, True)
    assert (agent.check_xfer_state(number), agent.reading, sent) == ("ERR", False, [])


def test_a_handshake_comes_back_or_is_given_up() -> None:
    sent: list[Any] = []
    now = Counter[str]()
    CLOCK.now = lambda: now["round"]
    shakes = Handshakes(sent.append)
    waiting = {
        engine: shakes.submit(lambda *about: about[3], "host", 1, 1, engine) for engine in ("one", "other", "no answer")
    }
    assert sent == [Handshake("one"), Handshake("other"), Handshake("no answer")]
    shakes.answered(HandshakeAnswer("one", "one"))
    shakes.answered(HandshakeAnswer("other", "its next life"))
    assert waiting["one"].result() == "one"
    assert isinstance(waiting["other"].exception(), RuntimeError)
    now["round"] = HANDSHAKE_ROUNDS - 1
    shakes.wait()
    assert not waiting["no answer"].done()
    now["round"] += 1
    shakes.wait()
    assert isinstance(waiting["no answer"].exception(), TimeoutError)
    shakes.answered(HandshakeAnswer("no answer", "no answer"))


# With a release.

FOUND = {
    "chunk-astride-block": MEMORY,
    "nothing-to-read-of-a-group": FATE,
    "prompt-loaded-whole": MEMORY,
    "read-behind-the-lease": MEMORY,
}


@pytest.mark.slow
@needs_release
@pytest.mark.parametrize("known", FOUND)
def test_what_the_pair_shows_is_named_by_experiment(known: str) -> None:
    task = StoryTask(replay=read_story(INPUTS / f"nixl-{known}.json").story, shrink_seconds=0.0)
    found = simulate(PAIR, task, None, lambda text: None).found
    assert [(one["known"], one["judge"]) for one in found] == [(known, FOUND[known])]


@pytest.mark.slow
@pytest.mark.parametrize("known", [f"vllm-project/vllm#{number}" for number in (53514, 46453, 43226)])
def test_what_an_older_release_shows_has_its_name(known: str) -> None:
    older = "vllm==0.26.0"
    place_of(older)
    file = INPUTS / f"nixl-0.26-{known.rpartition('/')[2].replace('#', '-')}.json"
    task = StoryTask(replay=read_story(file).story, shrink_seconds=0.0)
    found = simulate(f"{older}/nixl", task, None, lambda text: None).found
    assert [one["known"] for one in found] == [known]


PLANTED = """
from blockproof.fuzz.adapters.vllm.pairs import nixl_half
from blockproof.fuzz.adapters.vllm.pairs.nixl_pair import DEFECTS, NixlPair
from blockproof.fuzz.engines.simulated import SimulatedFamily

real = nixl_half.nixl_worker


def says_at_once_that_it_has_read(half, agent, send, counts):
    agent.check_xfer_state = lambda number: "DONE"
    agent.release_xfer_handle = lambda number: None
    return real(half, agent, send, counts)


def leases_for_ever(half, agent, send, counts):
    worker = real(half, agent, send, counts)
    worker._reap_expired_send_leases = lambda done: None
    return worker


def failed_reads_count(half, agent, send, counts):
    state = agent.check_xfer_state
    agent.check_xfer_state = lambda number: {"ERR": "DONE"}.get(state(number), state(number))
    return real(half, agent, send, counts)


pair = NixlPair((*DEFECTS, "chunk-astride-block"))
family = SimulatedFamily(pair)
for plant in (real, says_at_once_that_it_has_read, leases_for_ever, failed_reads_count):
    nixl_half.nixl_worker = plant
    judges, reached = set(), 0
    for number in range(60 if plant is real else 200):
        try:
            run = family.run_of(family.draw(1, number, (), ("full", "full+sliding")))
        except NotImplementedError:
            continue
        judges |= {one.judge for one in run.run(3000)}
        reached += run.reached["transfers ended"]
        if judges:
            break
    print("planted", plant.__name__, ",".join(sorted(judges)) or "nothing", reached >= 20)
"""
"""The pair without its known defects, and with a mistake."""


@pytest.mark.slow
@needs_release
def test_each_mistake_of_the_protocol_is_found_and_the_mended_pair_is_silent(tmp_path: Path) -> None:
    lines = [line.split()[1:] for line in said_by_release(PLANTED, tmp_path) if line.startswith("planted ")]
    assert lines[0] == ["nixl_worker", "nothing", "True"]
    assert {name: judges for name, judges, _ in lines[1:]} == {
        "says_at_once_that_it_has_read": MEMORY,
        "leases_for_ever": PROGRESS,
        "failed_reads_count": MEMORY,
    }
