"""Two vLLM engines of which the second one reads within a step, by MoRIIOConnector: the stand-ins, and the release
installed here."""

from pathlib import Path

import pytest
from blockproof.fuzz.adapters.vllm.pairs.moriio_wire import PAGE, AtOnce, Reader
from blockproof.fuzz.engines.stories import StoryTask
from blockproof.fuzz.engines.story_fuzzing import read_story, simulate
from blockproof.fuzz.simulation.judges import FATE, MEMORY, PROGRESS, TOKENS

from .test_vllm_pair import INPUTS
from .test_vllm_simulated import RELEASE, needs_release, said_by_release


def a_reader(life: str = "prefill 0") -> Reader:
    made = Reader(2)
    made.serves = lambda: life
    return made


def test_a_read_is_a_load_of_one_life_of_the_other_engine() -> None:
    reader = a_reader()
    session = reader.create_session(1, "prefill 0")
    status = session.batch_read([3 * PAGE, 7 * PAGE], [5 * PAGE, 0], [2 * PAGE, PAGE], reader.allocate_transfer_uid())
    (load,) = reader.begun
    assert (load.kind, load.group, load.tier, load.fails) == ("load", 1, "prefill 0", False)
    assert load.device == (6, 7, 8, 9, 14, 15)
    assert load.other == (10, 11, 12, 13, 0, 1)
    assert (status.Succeeded(), status.Failed(), reader.reading) == (False, False, True)
    reader.ended(load.id, True)
    assert (status.Succeeded(), status.Failed(), reader.reading) == (True, False, False)


@pytest.mark.parametrize("allowed", [True, False])
def test_a_read_fails_where_that_life_is_over_or_it_may_not_be(allowed: bool) -> None:
    reader = a_reader("prefill 0" if not allowed else "prefill 1")
    reader.may_read = lambda engine, transfer: allowed
    status = reader.create_session(0, "prefill 0").batch_read([0], [0], [PAGE], reader.allocate_transfer_uid())
    assert [one.fails for one in reader.begun] == [True]
    reader.ended(reader.begun[0].id, False)
    assert (status.Failed(), status.Code()) == (True, 1)
    assert status.Message()


def test_nothing_is_read_at_once() -> None:
    status = a_reader().create_session(0, "prefill 0").batch_read([], [], [], 1)
    assert status.Succeeded()


def test_a_handshake_is_waited_for() -> None:
    def fails() -> None:
        raise LookupError("nobody")

    assert AtOnce().submit(lambda one: one + 1, 2).result() == 3
    assert isinstance(AtOnce().submit(fails).exception(), LookupError)


# With a release.

FOUND = {
    "window-dropped-before-the-last-token": MEMORY,
    "state-read-beside-its-block": MEMORY,
    "read-of-another-life": MEMORY,
    "read-behind-the-lease": MEMORY,
    "failed-load-of-a-window": MEMORY,
    "failed-load-stays-cached": MEMORY,
    "failed-load-of-several-groups": FATE,
    "failed-load-of-states": FATE,
    "restarted-engine-is-not-asked-again": FATE,
    "vllm-project/vllm#49250": TOKENS,
}


@pytest.mark.slow
@needs_release
def test_what_the_pair_shows_is_named_by_experiment() -> None:
    for known, judge in FOUND.items():
        file = INPUTS / f"moriio-{known.rpartition('/')[2].replace('#', '-')}.json"
        task = StoryTask(replay=read_story(file).story, shrink_seconds=0.0)
        found = simulate(f"{RELEASE}/moriio", task, None, lambda text: None).found
        assert [(one["known"], one["judge"]) for one in found] == [(known, judge)]


BEHIND_OTHERS = """
import json
from blockproof.fuzz.adapters.vllm.pairs.{module} import {defects} as DEFECTS, {pair} as Pair
from blockproof.fuzz.engines.simulated import SimulatedFamily
from blockproof.fuzz.simulation.story import story_from_json

own = "{own}"
with open("{story}") as file:
    story = story_from_json(json.load(file)["story"])
for mended in ([name for name in DEFECTS if name != own], DEFECTS):
    found = SimulatedFamily(Pair(tuple(mended))).run_of(story).run(3000)
    print("story", ",".join(sorted({{one.judge for one in found}})) or "nothing")
"""


def behind_others(module: str, defects: str, pair: str, own: str, folder: Path) -> list[str]:
    """The judges that object to the story of this defect without all others, and without all."""
    story = INPUTS / f"moriio-{own}.json"
    said = said_by_release(
        BEHIND_OTHERS.format(module=module, defects=defects, pair=pair, own=own, story=story), folder
    )
    return [line.removeprefix("story ") for line in said if line.startswith("story ")]


@pytest.mark.slow
@needs_release
def test_what_a_lost_first_token_hides_has_its_name_by_experiment_too(tmp_path: Path) -> None:
    own = "failed-load-counts-what-is-in-flight"
    assert behind_others("moriio_pair", "MORIIO_DEFECTS", "MoriioPair", own, tmp_path) == [PROGRESS, "nothing"]


PLANTED = """
from blockproof.fuzz.adapters.vllm.pairs import moriio_pair
from blockproof.fuzz.adapters.vllm.pairs.moriio_pair import MORIIO_DEFECTS, MoriioPair
from blockproof.fuzz.engines.simulated import SimulatedFamily

real = moriio_pair.moriio_worker


def leaves_out_the_last_block(half, counts):
    align = half.connector._align_read_blocks

    def shorter(mine, theirs, most):
        mine, theirs = align(mine, theirs, most)
        return mine[:-1], theirs[:-1]

    half.connector._align_read_blocks = shorter
    return real(half, counts)


def reads_in_another_order(half, counts):
    worker = real(half, counts)
    merge = worker.merge_contiguous_blocks
    worker.merge_contiguous_blocks = lambda here, there, sizes: merge(here, there[::-1], sizes)
    return worker


def failed_reads_count(half, counts):
    worker = real(half, counts)
    worker._record_failed_recv = lambda name: None
    return worker


def releases_before_it_has_read(half, counts):
    worker = real(half, counts)
    read = worker._read_blocks

    def told(**about):
        worker._send_read_release(about["transfer_id"], about["remote_host"], (1,))
        half.late = getattr(half, "late", []) + [about]

    worker._read_blocks = told
    load = worker.start_load_kv

    def loads_what_was_left(metadata):
        late, half.late = getattr(half, "late", []), []
        load(metadata)
        for about in late:
            read(**about)

    worker.start_load_kv = loads_what_was_left
    return worker


def never_releases(half, counts):
    worker = real(half, counts)
    worker._send_read_release = lambda *about: None
    half.connector._defer_timeout = 1e9
    return worker


def reads_what_was_read_before(half, counts):
    worker = real(half, counts)
    read, before = worker._read_blocks, {}

    def mixed(**about):
        theirs = about["remote_block_ids"]
        if before and [len(group) for group in before["last"]] == [len(group) for group in theirs]:
            about["remote_block_ids"] = before["last"]
        before["last"] = theirs
        read(**about)

    worker._read_blocks = mixed
    return worker


PLANTS = (
    leaves_out_the_last_block,
    reads_in_another_order,
    failed_reads_count,
    releases_before_it_has_read,
    never_releases,
    reads_what_was_read_before,
)
family = SimulatedFamily(MoriioPair((*MORIIO_DEFECTS, "chunk-astride-block")))
for plant in (real, *PLANTS):
    moriio_pair.moriio_worker = plant
    judges, reached, stories = set(), 0, 0
    for number in range(60 if plant is real else 200):
        try:
            run = family.run_of(family.draw(1, number, (), ("full", "full+sliding")))
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
    assert lines[0] == ["moriio_worker", "nothing", "True"]
    assert {name: judges for name, judges, _ in lines[1:]} == {
        "leaves_out_the_last_block": MEMORY,
        "reads_in_another_order": MEMORY,
        "failed_reads_count": MEMORY,
        "releases_before_it_has_read": MEMORY,
        "never_releases": PROGRESS,
        "reads_what_was_read_before": MEMORY,
    }
