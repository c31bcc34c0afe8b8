"""Two vLLM engines of which the first one writes into the second one, by NixlPushConnector or MooncakeConnector: the
stand-ins, and the release installed here."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from blockproof.fuzz.adapters.vllm.pairs.mooncake_wire import (
    PAGE,
    QUERY_ROUNDS,
    REGION,
    Asked,
    Connections,
    Query,
    QueryAnswer,
    QueryError,
    TurnsLoop,
    Writer,
    WrittenTo,
)
from blockproof.fuzz.adapters.vllm.pairs.nixl_agent import CLOCK, Agent, Notification
from blockproof.fuzz.engines.stories import StoryTask
from blockproof.fuzz.engines.story_fuzzing import read_story, simulate
from blockproof.fuzz.simulation.judges import MEMORY, PROGRESS

from .test_vllm_pair import INPUTS
from .test_vllm_simulated import RELEASE, needs_release, said_by_release

# What stands for the libraries.


def test_a_write_goes_to_the_other_engine_and_is_told_there_when_it_is_over() -> None:
    sent: list[Any] = []
    agent = Agent(2, sent.append)
    number = agent.make_prepped_xfer("WRITE", 0, [(0, 1), (1, 4)], "decode 3", [(0, 5), (1, 6)], b"a/1:1")
    agent.transfer(number)
    assert [(one.kind, one.group, one.device, one.tier, one.other) for one in agent.begun] == [
        ("store", 0, (2, 3), "decode 3", (10, 11)),
        ("store", 1, (8, 9), "decode 3", (12, 13)),
    ]
    assert agent.works_for("a/1")
    for one in agent.begun:
        assert not sent
        agent.ended(one.id, True)
    assert (agent.works_for("a/1"), sent) == (False, [Notification("decode 3", b"a/1:1")])


class Wires:
    """Two engines with connections to each other; what they say is delivered by hand."""

    def __init__(self) -> None:
        self.now = 0
        CLOCK.now = lambda: self.now
        self.loop, self.said = TurnsLoop(), list[Any]()
        self.here, self.there = (Connections(name, self.said.append) for name in ("decode 0", "prefill 0"))
        self.loop.web = self.here

    def run(self, todo: Any) -> "asyncio.Task[Any]":
        task = self.loop.create_task(todo)
        self.loop.turn()
        return task

    def wait(self, rounds: int) -> None:
        self.now += rounds
        self.loop.turn()


@pytest.fixture
def wires() -> Wires:
    return Wires()


def test_answers_on_a_connection_come_in_order_and_once(wires: Wires) -> None:
    async def ask() -> list[bytes]:
        with wires.here.to("prefill 0") as socket:
            socket.setsockopt(0, 5000)
            await socket.send(b"?")
            return [await socket.recv(), await socket.recv()]

    asked = wires.run(ask())
    (message,) = wires.said
    assert isinstance(message, Asked)
    for _ in range(2):
        wires.there.hear(message)  # it comes twice, and is heard once
    heard = wires.run(wires.there.recv_multipart())
    assert heard.result() == (message.connection, b"?")
    for payload in (b"1", b"2"):
        wires.run(wires.there.send_multipart((message.connection, payload)))
    first, second = wires.said[1:]
    for late in (second, first, first):
        wires.here.hear(late)
    wires.loop.turn()
    assert asked.result() == [b"1", b"2"]
    wires.here.hear(WrittenTo(message.connection, 2, b"3"))  # nobody is there any more


def test_an_answer_that_does_not_come_is_waited_for_so_long(wires: Wires) -> None:
    async def ask() -> bytes:
        with wires.here.to("prefill 0") as socket:
            socket.setsockopt(0, 5000)
            await socket.send(b"?")
            return await socket.recv()

    asked = wires.run(ask())
    wires.wait(4)
    assert not asked.done()
    wires.wait(1)
    assert isinstance(asked.exception(), TimeoutError)


def test_the_web_server_says_who_serves_or_does_not_answer(wires: Wires) -> None:
    asked, waits = wires.run(wires.here.query()), wires.run(wires.here.query())
    assert isinstance(wires.said[0], Query)
    wires.there.hear(wires.said[0])
    assert wires.said[2:] == [QueryAnswer(wires.said[0].number, "prefill 0")]
    wires.here.hear(wires.said[2])
    wires.loop.turn()
    assert asked.result().json()["0"]["engine_id"] == "prefill 0"
    wires.wait(QUERY_ROUNDS)
    assert isinstance(waits.exception(), QueryError)


def test_spans_of_bytes_are_blocks_and_their_thread_waits_for_the_device(wires: Wires) -> None:
    writer = Writer(2)
    spans = ([REGION + 3 * PAGE], [REGION + 7 * PAGE], [2 * PAGE])
    codes = [writer.begin(wires.loop, writer.batch_transfer_sync_write, ("decode 0:0", *spans)) for _ in range(2)]
    assert [(one.group, one.device, one.tier, one.other) for one in writer.begun] == [
        (1, (6, 7, 8, 9), "decode 0", (14, 15, 16, 17))
    ] * 2
    for one, well in zip(list(writer.begun), (True, False), strict=True):
        assert writer.reading
        writer.ended(one.id, well)
    assert [code.result() for code in codes] == [0, -1]
    assert not writer.reading


def test_the_tasks_of_an_engine_end_with_it_also_while_another_loop_runs(wires: Wires) -> None:
    ended: list[str] = []

    async def listen() -> None:
        try:
            await wires.there.recv_multipart()
        finally:
            ended.append("listener")

    wires.run(listen())

    async def end() -> None:
        wires.loop.end()

    other = TurnsLoop()
    other.create_task(end())
    other.turn()
    assert ended == ["listener"]
    other.end()


def test_a_loop_turns_also_while_another_one_runs(wires: Wires) -> None:
    async def answer() -> int:
        return 7

    async def ask() -> Any:
        return wires.run(answer()).result()  # as under a driver of a browser, whose loop runs all the time

    other = TurnsLoop()
    asked = other.create_task(ask())
    other.turn()
    assert asked.result() == 7
    other.end()


# With a release.

FOUND = {
    "nixl-push-push-never-comes": PROGRESS,
    "mooncake-nothing-to-load-is-not-told": PROGRESS,
    "mooncake-unknown-transfer-is-waited-for": PROGRESS,
}


@pytest.mark.slow
@needs_release
@pytest.mark.parametrize("found", FOUND)
def test_what_a_pair_shows_is_named_by_experiment(found: str) -> None:
    pair = "mooncake" if found.startswith("mooncake") else "nixl-push"
    task = StoryTask(replay=read_story(INPUTS / f"{found}.json").story, shrink_seconds=0.0)
    told = simulate(f"{RELEASE}/{pair}", task, None, lambda text: None).found
    assert [(one["known"], one["judge"]) for one in told] == [(found.removeprefix(f"{pair}-"), FOUND[found])]


BEHIND_OTHERS = """
import json
import sys
from blockproof.fuzz.adapters.vllm.pairs.mooncake_pair import MooncakePair
from blockproof.fuzz.adapters.vllm.pairs.nixl_push import NixlPushPair
from blockproof.fuzz.engines.simulated import SimulatedFamily
from blockproof.fuzz.simulation.story import story_from_json

for kind, name, *others in (
    (NixlPushPair, "nixl-push-nothing-to-write-of-a-group", "loads-block-each-other", "chunk-astride-block"),
    (NixlPushPair, "nixl-push-write-behind-the-lease", "push-never-comes"),
    (MooncakePair, "mooncake-failed-load-of-a-window"),
):
    with open(f"{INPUTS}/{name}.json") as file:
        story = story_from_json(json.load(file)["story"])
    own = name.removeprefix("nixl-push-").removeprefix("mooncake-")
    others.append("prompt-loaded-whole")
    for mended in (others, [*others, own]):
        found = SimulatedFamily(kind(tuple(mended))).run_of(story).run(3000)
        print("story", own, ",".join(sorted({one.judge for one in found})) or "nothing")
"""
"""What comes up behind other causes only: pairs without those, and without its own cause, too."""


@pytest.mark.slow
@needs_release
def test_what_others_hide_has_its_name_by_experiment_too(tmp_path: Path) -> None:
    script = f"INPUTS = {str(INPUTS)!r}\n{BEHIND_OTHERS}"
    lines = [line.split()[1:] for line in said_by_release(script, tmp_path) if line.startswith("story ")]
    assert lines == [
        ["nothing-to-write-of-a-group", PROGRESS],
        ["nothing-to-write-of-a-group", "nothing"],
        ["write-behind-the-lease", MEMORY],
        ["write-behind-the-lease", "nothing"],
        ["failed-load-of-a-window", MEMORY],
        ["failed-load-of-a-window", "nothing"],
    ]


PUSH = """
from blockproof.fuzz.adapters.vllm.pairs import nixl_agent, nixl_push
from blockproof.fuzz.adapters.vllm.pairs.nixl_push import PUSH_DEFECTS, NixlPushPair
from blockproof.fuzz.engines.simulated import SimulatedFamily

real = nixl_push.push_worker


def says_at_once_that_it_has_written(half, counts):
    worker, agent = real(half, counts), half.agent
    agent.check_xfer_state = lambda number: "DONE"
    agent.release_xfer_handle = lambda number: None
    return worker


def tells_before_it_has_written(half, counts):
    worker, begin = real(half, counts), half.agent.transfer

    def told(number):
        begin(number)
        write = half.agent._reads[number]
        half.tell_other(nixl_agent.Notification(write.engine, write.text))

    half.agent.transfer = told
    return worker


def writes_the_first_blocks(half, counts):
    worker = real(half, counts)
    worker._apply_prefix_caching = lambda decode_block_ids, prefill_block_ids, **more: (
        decode_block_ids,
        [theirs[: len(mine)] for mine, theirs in zip(decode_block_ids, prefill_block_ids, strict=True)],
    )
    return worker


def leases_for_ever(half, counts):
    worker = real(half, counts)
    worker._reap_expired_send_leases = lambda done: None
    return worker


def registers_other_blocks(half, counts):
    worker = real(half, counts)
    send = worker._do_send_reg_notif

    def turned(name, about):
        blocks = [list(reversed(group)) for group in about["local_block_ids"]]
        send(name, {**about, "local_block_ids": blocks})

    worker._do_send_reg_notif = turned
    return worker


pair = NixlPushPair((*PUSH_DEFECTS, "chunk-astride-block"))
family = SimulatedFamily(pair)
PLANTS = (
    says_at_once_that_it_has_written,
    tells_before_it_has_written,
    writes_the_first_blocks,
    leases_for_ever,
    registers_other_blocks,
)
for plant in (real, *PLANTS):
    nixl_push.push_worker = plant
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
MOONCAKE = """
from blockproof.fuzz.adapters.vllm.pairs import mooncake_pair
from blockproof.fuzz.adapters.vllm.pairs.mooncake_pair import MOONCAKE_DEFECTS, MooncakePair
from blockproof.fuzz.engines.simulated import SimulatedFamily

real = mooncake_pair._worker


def says_at_once_that_it_has_written(half, counts):
    begin = half.agent.begin

    def told(*about):
        future = begin(*about)
        future.set_result(0)
        return future

    half.agent.begin = told
    return real(half, counts)


def failed_writes_count(half, counts):
    half.agent.batch_transfer_sync_write = lambda *about: 0
    return real(half, counts)


def frees_what_is_being_sent(half, counts):
    worker = real(half, counts)
    fetch = worker.fetch_finished_sending_reqs

    async def fetched():
        for one in worker.reqs_need_send.values():
            one.sending = 0
        return await fetch()

    worker.fetch_finished_sending_reqs = fetched
    return worker


def keeps_for_ever(half, counts):
    worker = real(half, counts)

    async def fetched():
        sent, worker.finished_sending_reqs = worker.finished_sending_reqs, set()
        return sent

    worker.fetch_finished_sending_reqs = fetched
    return worker


def asks_for_other_blocks(half, counts):
    worker = real(half, counts)
    build = worker._build_pull_metadata

    def turned(tasks, **more):
        built = build(tasks, **more)
        for name, (transfer, blocks) in built.req_blocks.items():
            built.req_blocks[name] = (transfer, [group[::-1] for group in blocks])
        return built

    worker._build_pull_metadata = turned
    return worker


def answers_nobody_after_a_failure(half, counts):
    worker = real(half, counts)
    worker._handle_failed_recv = lambda tasks, names, reason: None
    return worker


PLANTS = (
    says_at_once_that_it_has_written,
    failed_writes_count,
    frees_what_is_being_sent,
    keeps_for_ever,
    asks_for_other_blocks,
    answers_nobody_after_a_failure,
)
family = SimulatedFamily(MooncakePair((*MOONCAKE_DEFECTS, "chunk-astride-block")))
for plant in (real, *PLANTS):
    mooncake_pair._worker = plant
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
"""As above."""
JUDGES = {
    PUSH: {
        "says_at_once_that_it_has_written": PROGRESS,
        "tells_before_it_has_written": MEMORY,
        "writes_the_first_blocks": MEMORY,
        "leases_for_ever": PROGRESS,
        "registers_other_blocks": MEMORY,
    },
    MOONCAKE: {
        "says_at_once_that_it_has_written": MEMORY,
        "failed_writes_count": MEMORY,
        "frees_what_is_being_sent": MEMORY,
        "keeps_for_ever": PROGRESS,
        "asks_for_other_blocks": MEMORY,
        "answers_nobody_after_a_failure": PROGRESS,
    },
}


@pytest.mark.slow
@needs_release
@pytest.mark.parametrize("planted", JUDGES, ids=("push", "mooncake"))
def test_each_mistake_of_the_protocol_is_found_and_the_mended_pair_is_silent(planted: str, tmp_path: Path) -> None:
    lines = [line.split()[1:] for line in said_by_release(planted, tmp_path) if line.startswith("planted ")]
    assert lines[0][1:] == ["nothing", "True"]
    assert {name: judges for name, judges, _ in lines[1:]} == JUDGES[planted]
