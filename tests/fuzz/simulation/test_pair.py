"""Two halves under one clock: what the network does to messages, and where blocks and transfers of each half lie."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from blockproof.fuzz.simulation.device import SimulatedDevice
from blockproof.fuzz.simulation.judges import FATE, FOR_NOBODY, MEMORY, PROGRESS, QUIET, ClientJudge
from blockproof.fuzz.simulation.memory import block_in_half, half_of_block
from blockproof.fuzz.simulation.network import HALVES, LINKS, Network, Port, draw_faults, mishaps_of
from blockproof.fuzz.simulation.pair import EnginePair
from blockproof.fuzz.simulation.protocol import (
    ClientRequest,
    Delivered,
    EngineView,
    PoolTooSmallError,
    Scheduled,
    ScheduledBatch,
    SlotCopy,
    Slots,
    SlotTransfer,
    StepResults,
)
from blockproof.fuzz.simulation.run import SimulatedRun
from blockproof.fuzz.simulation.smaller import smaller
from blockproof.fuzz.simulation.story import Happening, SimulatedStory, story_from_json, story_to_json
from blockproof.fuzz.simulation.traffic import EngineFacts, draw_simulation, facts_of
from blockproof.fuzz.workload.draw import SeededDraw

from .engines import shape_of

PROMPT = (1, 2, 3, 4)


def sent(network: Network, many: int = 1) -> None:
    for number in range(many):
        network.send("router", "decode", number)


def arrived(network: Network, rounds: int) -> list[list[Any]]:
    """Messages by round."""
    return [[one.message for one in network.tick()] for _ in range(rounds)]


# The network.


@pytest.mark.parametrize(
    ("faults", "rounds"),
    [
        ((), [[0, 1, 2], [], []]),
        (("router>decode 1 lost",), [[0, 2], [], []]),
        (("router>decode 0 late 1",), [[1, 2], [0], []]),
        (("router>decode 2 twice 2",), [[0, 1, 2], [], [2]]),
        (("router>decode 1 twice 0",), [[0, 1, 1, 2], [], []]),
        (("decode>router 1 lost", "router>prefill 0 late 9", "router>decode 7 lost"), [[0, 1, 2], [], []]),
    ],
)
def test_what_becomes_of_messages(faults, rounds):
    network = Network(10)
    network.begin(faults)
    sent(network, 3)
    assert arrived(network, 3) == rounds


@pytest.mark.parametrize("place", ["decode", "router>decode"])
def test_a_cut_loses_what_is_sent_and_ends(place):
    network = Network(10)
    network.part(place, 2)
    got = []
    for number in range(4):
        network.send("router", "decode", number)
        got += [one.message for one in network.tick()]
    assert got == [3]
    network.send("decode", "router", "other way")
    assert arrived(network, 1) == [["other way"]]


def test_a_cut_of_one_link_leaves_the_others():
    network = Network(10)
    network.part("prefill>decode", 5)
    for sender, to in (("prefill", "decode"), ("decode", "prefill"), ("prefill", "router")):
        network.send(sender, to, to)
    assert arrived(network, 1) == [["prefill", "router"]]


def test_a_half_that_is_down_gets_nothing_and_comes_back_in_another_life():
    network = Network(10)
    network.crash("decode", 2)
    assert network.lives == {"prefill": 0, "decode": 1}
    assert not network.is_clear
    got = []
    for number in range(4):
        network.send("router", "decode", number)
        got += [one.message for one in network.tick()]
    assert got == [2, 3]
    assert network.is_clear


def test_trouble_ends_a_timeout_behind_the_last_mishap():
    network = Network(5)
    network.begin(["router>decode 0 late 3"])
    assert not network.troubled
    sent(network)
    troubled = []
    for _ in range(12):
        troubled.append(network.troubled)
        arrived(network, 1)
    assert troubled == [True] * 9 + [False] * 3


@pytest.mark.parametrize(
    "text", ["", "router>decode", "router>decode 1", "router>nobody 1 lost", "router>decode x lost", "a>b 1 late -1"]
)
def test_what_is_no_fault_of_a_network(text):
    with pytest.raises(ValueError, match="no fault of a network"):
        mishaps_of([text])


def test_drawn_faults_are_some_and_each_can_be_meant():
    drawn = [draw_faults(SeededDraw(f"1/{number}")) for number in range(60)]
    for faults in drawn:
        mishaps_of(faults)
    words = {tuple(text.split()[::2])[:2] for faults in drawn for text in faults}
    assert {link for link, _ in words} == set(LINKS)
    assert {what for _, what in words} == {"lost", "late", "twice"}
    assert () in drawn


# A pair.


class Clients:
    """A router that lets prefill compute the prompt, then decode the next token."""

    def __init__(self, shape: Any, port: Port) -> None:
        self.port, self.open = port, set[str]()
        self.ticks = 0

    def add(self, request: ClientRequest) -> list[Delivered]:
        self.open.add(request.id)
        self.port.send("prefill", request)
        return []

    def cancel(self, id: str) -> None:
        self.open.discard(id)

    def receive(self, sender: str, message: Any) -> list[Delivered]:
        id, token = message
        if sender == "prefill":
            self.port.send("decode", (id, self.port.now))
            return [Delivered(id, (token,))]
        self.open.discard(id)
        return [Delivered(id, (token,), "length")]

    def tick(self) -> list[Delivered]:
        self.ticks += 1
        return []

    def idle(self) -> bool:
        return not self.open


class Half:
    """Has one request at a time, in its blocks 0 and 1."""

    tier = "prefill"

    def __init__(self, shape: Any, port: Port) -> None:
        self.port, self.blocks = port, shape.num_blocks
        self.todo: list[tuple[str, int, int]] = []
        self.loads: list[str] = []
        self.heard: list[StepResults] = []

    def receive(self, sender: str, message: Any) -> None:
        if self.port.name == "prefill":
            self.todo.append((message.id, 0, len(message.prompt)))
        else:
            self.loads.append(message[0])

    def schedule(self) -> ScheduledBatch | None:
        transfers = tuple(SlotTransfer(id, "load", 0, (0, 1, 2, 3), self.tier, (0, 1, 2, 3)) for id in self.loads)
        self.loads.clear()
        parts = tuple(Scheduled(*one, slots=(Slots((0, 1, 2)),), samples=True) for one in self.todo)
        self.todo.clear()
        return ScheduledBatch(parts, transfers=transfers) if parts or transfers else None

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> None:
        self.heard.append(results)
        self.todo += [(id, len(PROMPT), 1) for id in results.transferred]
        for id, tokens in results.tokens.items():
            self.port.send("router", (id, tokens[0]))

    def idle(self) -> bool:
        return not self.todo and not self.loads

    def look(self) -> EngineView:
        return EngineView(free=self.blocks)


class OfLife(Half):
    """Reads from the first life of prefill only."""

    tier = "prefill 0"


def story_of(*happenings: Happening, blocks: int = 8, network: tuple[str, ...] = ()) -> SimulatedStory:
    add = Happening(0, "add", request=ClientRequest("a", PROMPT, 2))
    return SimulatedStory(shape_of(blocks=blocks), (add, *happenings), delays=(2,), network=network)


def pair(decode: Callable[..., Any] = Half) -> EnginePair:
    return EnginePair(Clients, Half, decode)


def test_a_prompt_computed_by_one_half_is_read_by_the_other():
    run = SimulatedRun(pair(), story_of())
    assert run.run(200) == []
    assert run.fates["a"][0] == "length"
    assert run.reached["transfers ended"] == 1
    assert run.reached["looks at an idle engine"] >= 2
    assert run.reached["messages"] == 4


def test_what_decode_reads_it_must_have_loaded(monkeypatch):
    monkeypatch.setattr(Half, "tier", "host")
    (found,) = SimulatedRun(pair(), story_of()).run(200)
    assert found.judge == MEMORY
    assert "what nobody wrote" in found.what


def test_who_crashes_has_lost_its_memory():
    """A crash of decode while it loads: the load never ends, and nobody begins anew."""
    (found,) = SimulatedRun(pair(), story_of(Happening(4, "crash", half="decode", rounds=1))).run(2000)
    assert found.judge == PROGRESS


@pytest.mark.parametrize(("decode", "fails"), [(Half, False), (OfLife, True)])
def test_blocks_of_a_life_that_is_over_are_read_by_who_does_not_say_it(decode, fails):
    """Prefill crashes when decode is about to load, and its new life has blocks of the same numbers."""
    made = pair(decode)
    run = SimulatedRun(
        made, story_of(Happening(3, "crash", half="prefill", rounds=1), network=("router>decode 0 late 4",))
    )
    found = run.run(2000)
    assert [one.judge for one in found] == [PROGRESS if fails else MEMORY]
    failed = [id for heard in made._halves["decode"].heard for id in heard.failed]  # type: ignore[attr-defined]
    assert failed == (["a"] if fails else [])


def test_a_new_life_is_built_behind_a_crash():
    lives = []

    class Counting(Half):
        def __init__(self, shape: Any, port: Port) -> None:
            super().__init__(shape, port)
            lives.append((port.name, port.life))

    made = EnginePair(Clients, Counting, Counting)
    run = SimulatedRun(
        made, story_of(Happening(0, "crash", half="prefill", rounds=3), Happening(3, "part", half="decode"))
    )
    run.run(30)
    assert lives == [("prefill", 0), ("decode", 0), ("prefill", 1)]


def test_blocks_and_slots_of_decode_lie_behind_those_of_prefill():
    made = pair()
    made.start(shape_of(blocks=8))
    table = Slots((0, None, 3, 4, -1))
    batch = ScheduledBatch(
        (Scheduled("a", 0, 1, slots=(table,)),),
        (SlotCopy(0, 1, 2),),
        cleared=(3,),
        transfers=(
            SlotTransfer("t", "load", 0, (0, 7), "prefill", (2, 3)),
            SlotTransfer("u", "store", 0, (1,), "host", (5,)),
        ),
    )
    (prefill, decode) = (made._shifted(name, batch) for name in HALVES)
    assert prefill.parts[0].slots == (Slots((0, None, 3, 8, -1)),)
    assert decode.parts[0].slots == (Slots((4, None, 7, 9, -1)),)
    assert decode.copies == (SlotCopy(0, 5, 6),)
    assert decode.cleared == (7,)
    assert decode.transfers == (
        SlotTransfer("decode 0/t", "load", 0, (8, 15), "device", (2, 3)),
        SlotTransfer("decode 0/u", "store", 0, (9,), "host", (5,)),
    )
    by_slot = replace(batch, parts=(Scheduled("a", 0, 1, slots=(Slots(at={0: 3}, written={0: 2}),)),))
    moved = made._shifted("decode", by_slot)
    assert moved.parts[0].slots == (Slots(at={0: 11}, written={0: 10}),)
    assert moved.copies == (SlotCopy(0, 9, 10),)


def test_pools_that_are_larger_than_their_share_have_nothing_in_common():
    """A window's pool may be, and once a half read there what the other one had written."""
    places = {(half, block): block_in_half(block, half, 2, 9) for half in (0, 1) for block in range(7)}
    assert sorted(places.values()) == [0, 1, 2, 3, 4, 5, 6, 7, *range(9, 15)]
    assert all(half_of_block(place, 2, 9) == half for (half, _), place in places.items())


def test_a_half_that_delivers_is_told_so(monkeypatch):
    update = Half.update
    monkeypatch.setattr(Half, "update", lambda *given: (update(*given), [Delivered("a", (1,))])[1])
    (found,) = SimulatedRun(pair(), story_of()).run(200)
    assert found.judge == FATE
    assert "prefill delivers something" in found.what


def test_a_pair_of_one_block_is_none():
    with pytest.raises(PoolTooSmallError, match="a block for each half"):
        pair().start(shape_of(blocks=1))


def test_a_half_is_not_asked_while_it_has_as_many_steps_in_flight_as_it_may():
    made = pair()
    made.start(shape_of(blocks=8))
    made.network().begin(())
    made.add(ClientRequest("a", PROMPT, 2))
    made.add(ClientRequest("b", PROMPT, 2))
    batch = made.schedule()
    assert batch is not None
    made._halves["prefill"].receive("router", ClientRequest("c", PROMPT, 2))
    assert made.schedule() is None
    made.update(batch, StepResults({"a": (1,), "b": (1,)}))
    assert made.schedule() is not None


# The device, the judges, stories.


def test_a_crash_empties_blocks_and_ends_transfers():
    device = SimulatedDevice(shape_of(blocks=8), separate=False, reads_first=False, delays=(3,), halves=True)
    device.add(ClientRequest("a", PROMPT, 4))
    moved = [
        SlotTransfer("to", "load", 0, (8, 9), "device", (0, 1)),
        SlotTransfer("from", "load", 0, (0, 1), "device", (10, 11)),
        SlotTransfer("else", "load", 0, (2, 3), "host", (12, 13)),
    ]
    part = Scheduled("a", 0, 4, slots=(Slots((4, 5)),))
    assert device.launch(ScheduledBatch((part,), transfers=tuple(moved))).wrong == ()
    for slot in (0, 16, 18):  # a block of the other half; one behind all, of the other half and of this one
        device.cells.put(("device", slot), 7)
    device.lose(1, 2)
    assert [device.cells.get(("device", slot)) for slot in (0, 16, 18)] == [7, 7, 0]
    assert device.ended(0) == ((), ("from",))
    assert device.ended(3) == (("else",), ())
    assert device.cells.get(("device", 8)) == 0
    part = Scheduled("a", 4, 1, slots=(Slots((4, 5, 6)),))
    assert "what nobody wrote" in device.launch(ScheduledBatch((part,))).wrong[0]


def test_a_token_may_be_computed_by_both_halves():
    for halves, known in ((True, 5), (False, 5)):
        device = SimulatedDevice(shape_of(), separate=False, reads_first=False, delays=(), halves=halves)
        device.add(ClientRequest("a", PROMPT, 4))
        part = Scheduled("a", 0, 4, slots=(Slots((0, 1)),), samples=True)
        first = device.launch(ScheduledBatch((part,))).results.tokens["a"]
        device.launch(ScheduledBatch((Scheduled("a", 4, 1, slots=(Slots((0, 1, 2)),), samples=True),)))
        assert device.launch(ScheduledBatch((part,))).results.tokens["a"] == first
        assert len(device.requests["a"].contents.tokens) == known + halves


def test_a_pair_may_wait_for_its_timeout_and_no_longer():
    judge = ClientJudge(20, samples=False, timeout=30)
    judge.add(ClientRequest("a", PROMPT, 2))
    for _ in range(QUIET + 29):
        judge.round(computed=0, moved=False, waiting=False)
    assert judge.found == []
    judge.round(computed=0, moved=False, waiting=False)
    assert [one for one, _ in judge.found] == [PROGRESS]


def test_who_computes_on_for_nobody_is_found():
    judge = ClientJudge(20, samples=False)
    for _ in range(FOR_NOBODY):
        judge.round(computed=1, moved=True, waiting=False)
    assert judge.found == [(PROGRESS, "the engine: computes on and on, and nobody is owed anything")]


class GivesUp(EnginePair):
    """Whatever is lost, the router says so when decode tells it."""

    gives_up = True


@pytest.mark.parametrize(
    ("kind", "happens", "judges"), [(EnginePair, True, [FATE]), (GivesUp, True, []), (GivesUp, False, [FATE])]
)
def test_a_request_may_fail_where_the_pair_says_so_and_something_happened(kind, happens, judges):
    class Failing(Clients):
        """Of two requests that are open at once, one fails."""

        def add(self, request: ClientRequest) -> list[Delivered]:
            if self.open:
                return [Delivered(request.id, ended="failed")]
            return super().add(request)

    cut = (Happening(0, "part", half="decode>prefill", rounds=1),) if happens else ()
    run = SimulatedRun(
        kind(Failing, Half, Half), story_of(*cut, Happening(0, "add", request=ClientRequest("b", PROMPT, 2)))
    )
    assert [one.judge for one in run.run(300)] == judges
    assert run.judge.clients["b"].ended == "failed"


FACTS = facts_of(EnginePair(Clients, Half, Half))


def test_a_pair_gets_two_pools_and_what_may_happen_to_it():
    assert FACTS.pools == 2
    stories = [draw_simulation(SeededDraw(f"3/{number}"), FACTS) for number in range(80)]
    whats = {one.what for story in stories for one in story.happenings}
    assert {"crash", "part"} <= whats
    assert any(story.network for story in stories)
    assert all(story.shape.num_blocks % 2 == 0 for story in stories)
    others = [draw_simulation(SeededDraw(f"3/{number}"), EngineFacts()) for number in range(80)]
    assert not any(story.network for story in others)
    assert not {"crash", "part"} & {one.what for story in others for one in story.happenings}


def test_a_pair_that_offers_drafts_or_uses_names_again_is_refused():
    for declared in ({"offers": frozenset({"drafts"})}, {"lacks": frozenset()}):
        made = pair()
        made.__dict__.update(declared)
        with pytest.raises(ValueError, match="a pair offers no drafts"):
            facts_of(made)


def test_a_story_of_a_pair_as_json_and_back_and_smaller():
    story = story_of(
        Happening(3, "crash", half="decode", rounds=5), network=("router>decode 3 lost", "decode>router 0 late 2")
    )
    assert story_from_json(json.loads(json.dumps(story_to_json(story)))) == story
    proposed = list(smaller(story))
    assert any(one.network == () for one in proposed)
    assert any(one.network == story.network[1:] for one in proposed)
    assert any(len(one.happenings) == 1 for one in proposed)
    assert any(one.happenings[-1].rounds == 1 for one in proposed)
    assert all(one.size <= story.size for one in proposed)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("network", ["nonsense"], "no fault of a network: 'nonsense'"),
        ("happenings", [{"at": 0, "what": "crash", "half": "router"}], r"\[0\].half: expected one of prefill"),
        ("network", [3], r"network\[0\]: expected str, got int"),
    ],
)
def test_what_is_no_story_of_a_pair(field, value, said):
    with pytest.raises(ValueError, match=said):
        story_from_json({**story_to_json(story_of()), field: value})
