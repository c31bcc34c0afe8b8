"""Two vLLM engines of which the first one writes into the second one, by MoRIIOConnector in write mode: the stand-ins,
and the release installed here."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from blockproof.fuzz.adapters.vllm.pairs.moriio_wire import PAGE
from blockproof.fuzz.adapters.vllm.pairs.moriio_write import BlockWriter, WriterTasks
from blockproof.fuzz.engines.stories import StoryTask
from blockproof.fuzz.engines.story_fuzzing import read_story, simulate
from blockproof.fuzz.simulation.judges import CAPACITY, MEMORY, PROGRESS
from blockproof.fuzz.simulation.own_turns import Turns

from .test_vllm_moriio_pair import behind_others
from .test_vllm_pair import INPUTS
from .test_vllm_simulated import RELEASE, needs_release, said_by_release


@pytest.mark.parametrize("well", [True, False])
def test_a_write_is_a_store_into_one_life_of_the_other_engine(well: bool) -> None:
    writer = BlockWriter(2)
    session = writer.create_session(1, "decode 3")
    status = session.batch_write([3 * PAGE, 7 * PAGE], [5 * PAGE, 0], [2 * PAGE, PAGE], writer.allocate_transfer_uid())
    (store,) = writer.begun
    assert (store.kind, store.group, store.tier) == ("store", 1, "decode 3")
    assert store.device == (6, 7, 8, 9, 14, 15)
    assert store.other == (10, 11, 12, 13, 0, 1)
    assert (status.Succeeded(), status.Failed(), writer.reading) == (False, False, True)
    writer.ended(store.id, well)
    assert (status.Succeeded(), status.Failed(), writer.reading) == (well, not well, False)
    assert session.batch_write([], [], [], 2).Succeeded()


def test_the_turn_of_the_thread_is_over_where_nothing_is_left_to_do() -> None:
    done, tasks = list[object](), WriterTasks()

    def loop() -> None:
        while True:
            done.append(tasks.get(timeout=0.01).name)

    def works() -> None:
        while True:
            try:
                loop()
            except WriterTasks.nothing:
                done.append("rests")

    tasks.turns = Turns(works)
    tasks.turns.go_on()
    for name in ("a", "b"):
        tasks.put(SimpleNamespace(name=name))
    assert done == []
    tasks.turns.go_on()
    assert done == ["rests", "a", "b"]
    tasks.turns.leave()
    assert tasks.turns.is_over


# With a release.

FOUND = {
    "failed-write-is-not-told": PROGRESS,
    "left-while-written-keeps-blocks": CAPACITY,
    "write-never-comes": PROGRESS,
}


@pytest.mark.slow
@needs_release
def test_what_the_pair_shows_is_named_by_experiment() -> None:
    for known, judge in FOUND.items():
        task = StoryTask(replay=read_story(INPUTS / f"moriio-{known}.json").story, shrink_seconds=0.0)
        found = simulate(f"{RELEASE}/moriio-write", task, None, lambda text: None).found
        assert [(one["known"], one["judge"]) for one in found] == [(known, judge)]


@pytest.mark.slow
@needs_release
def test_layers_that_are_lost_have_their_name_behind_the_others(tmp_path: Path) -> None:
    own = "handshake-loses-layers"
    assert behind_others("moriio_write", "MORIIO_WRITE_DEFECTS", "MoriioWritePair", own, tmp_path) == [
        CAPACITY,
        "nothing",
    ]


PLANTED = """
from blockproof.fuzz.adapters.vllm.pairs import moriio_write
from blockproof.fuzz.adapters.vllm.pairs.moriio_write import MORIIO_WRITE_DEFECTS, MoriioWritePair
from blockproof.fuzz.engines.simulated import SimulatedFamily

real = moriio_write._writing_worker


def writes_in_another_order(half, counts):
    worker = real(half, counts)
    merge = worker.merge_contiguous_blocks
    worker.merge_contiguous_blocks = lambda here, there, sizes: merge(here, there[::-1], sizes)
    return worker


def leaves_out_the_last_block(half, counts):
    worker = real(half, counts)
    write = half.agent.write
    half.agent.write = lambda session, number, pairs: write(session, number, pairs[:-1] or pairs)
    return worker


def does_not_wait_for_its_writes(half, counts):
    worker = real(half, counts)
    worker.moriio_wrapper.waiting_for_transfer_complete = lambda *about, **more: None
    return worker


def is_done_when_asked_for(half, counts):
    worker = real(half, counts)
    allocated = worker.moriio_wrapper._handle_remote_blocks_message

    def handled(data):
        allocated(data)
        worker.moriio_wrapper.send_notify(data["transfer_id"], "decode", 2, "write_done")

    worker.moriio_wrapper._handle_remote_blocks_message = handled
    return worker


def never_gives_back(half, counts):
    worker = real(half, counts)
    worker.moriio_wrapper.pop_finished_req_ids = list
    return worker


PLANTS = (
    writes_in_another_order,
    leaves_out_the_last_block,
    does_not_wait_for_its_writes,
    is_done_when_asked_for,
    never_gives_back,
)
for plant in (real, *PLANTS):
    moriio_write._writing_worker = plant
    family = SimulatedFamily(MoriioWritePair(tuple(MORIIO_WRITE_DEFECTS)))
    judges, reached, stories = set(), 0, 0
    for number in range(15 if plant is real else 100):
        try:
            run = family.run_of(family.draw(1, number, (), ("full", "full+mamba")))
        except NotImplementedError:
            continue
        stories += 1
        judges |= {one.judge for one in run.run(3000)}
        reached += run.reached["transfers ended"]
        if judges:
            break
    print("planted", plant.__name__, ",".join(sorted(judges)) or "nothing", reached >= 20, stories)
"""
"""The pair without its known defects, and with a mistake."""


@pytest.mark.slow
@needs_release
def test_each_mistake_of_the_protocol_is_found_and_the_mended_pair_is_silent(tmp_path: Path) -> None:
    lines = [line.split()[1:4] for line in said_by_release(PLANTED, tmp_path) if line.startswith("planted ")]
    assert lines[0] == ["_writing_worker", "nothing", "True"]
    assert {name: judges for name, judges, _ in lines[1:]} == {
        "writes_in_another_order": MEMORY,
        "leaves_out_the_last_block": MEMORY,
        "does_not_wait_for_its_writes": MEMORY,
        "is_done_when_asked_for": MEMORY,
        "never_gives_back": PROGRESS,
    }
