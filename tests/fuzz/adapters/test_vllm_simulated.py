"""vLLM under simulation: what is loaded, which known defects are suspected, and the releases installed here."""

import re
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from blockproof.fuzz.adapters.vllm.engine.known_causes import KNOWN, suspected
from blockproof.fuzz.adapters.vllm.engine.loads import LATER, ExternalLoad
from blockproof.fuzz.adapters.vllm.engine.scheduler_config import setup_of
from blockproof.fuzz.adapters.vllm.releases import KNOWN as RELEASES
from blockproof.fuzz.engines.stories import StoryTask
from blockproof.fuzz.engines.story_fuzzing import read_story, simulate
from blockproof.fuzz.opening import environments
from blockproof.fuzz.opening.child import environment_of
from blockproof.fuzz.simulation.faults import SEEN_BY
from blockproof.fuzz.simulation.judges import CHECKS, FATE, MEMORY, PROGRESS
from blockproof.fuzz.simulation.protocol import ClientRequest, EngineShape
from blockproof.fuzz.simulation.story import Happening, SimulatedStory, story_to_json
from blockproof.fuzz.simulation.traffic import shape_with
from blockproof.fuzz.targets.declarations import LOSES
from blockproof.model.attention import rule_for
from blockproof.model.ops import Group, Item

FULL, WINDOW = Group("full", 4), Group("sliding", 4, window=8)
STATE = Group("mamba", 4, mamba_mode="align")
RELEASE = f"vllm=={RELEASES[-1]}"
"""The newest: it has the fewest findings of its own, and the clean pair must have none."""
needs_release = pytest.mark.skipif(environments.find(RELEASE) is None, reason=f"blockproof targets install {RELEASE}")


def story(*jobs: ClientRequest, groups: tuple[Group, ...] = (FULL,), drafts: int = 0, **options: Any) -> SimulatedStory:
    shape = EngineShape(shape_with(groups, 64, 32, 32, caching=True), drafts=drafts, options=options)
    return SimulatedStory(shape, tuple(Happening(0, "add", request=job) for job in jobs))


def job(name: str, **more: Any) -> ClientRequest:
    return ClientRequest(name, tuple(range(1, 9)), 2, **more)


OVERLAPPING = job("a", items=(Item("v", 0, 4), Item("s", 0, 4)))
TWO_VERSIONS = job("a", adapter="x"), job("b", adapter="x", adapter_version=1)
READS = "a: the query at 4 or behind reads position 3 in block 1, which holds another content (group 0, full)"
STANDS = "a: nothing happens any more, in 25 rounds"
SUSPECTED: tuple[tuple[str, str, str, str, SimulatedStory], ...] = (
    ("overlapping-items", "0.33.0", MEMORY, READS, story(OVERLAPPING)),
    ("adapter-changed-in-place", "0.33.0", MEMORY, READS, story(*TWO_VERSIONS, adapters_in_place=True)),
    ("", "0.33.0", MEMORY, READS, story(*TWO_VERSIONS)),
    ("adapter-loaded-anew", "0.30.0", MEMORY, READS, story(*TWO_VERSIONS)),
    (
        *("state-from-outside", "0.33.0", FATE, "schedule raises ValueError: Cannot get 1 free blocks from the pool"),
        story(job("a"), groups=(FULL, STATE), connector=LATER),
    ),
    (
        *("loads-block-each-other", "0.33.0", PROGRESS, STANDS),
        story(job("a", external=4), job("b"), groups=(FULL, WINDOW), connector=LATER),
    ),
    ("", "0.33.0", PROGRESS, STANDS, story(job("a"), job("b"), connector=LATER)),
    ("vllm-project/vllm#57104", "0.33.0", PROGRESS, STANDS, story(job("a"), drafts=1, connector=LATER)),
    ("admission-deadlock", "0.19.1", PROGRESS, STANDS, story(job("a"), groups=(FULL, WINDOW))),
    ("window-cut-too-early", "0.23.0", MEMORY, READS, story(job("a"), groups=(WINDOW,), drafts=2, asynchronous=True)),
    ("", "0.33.0", MEMORY, READS, story(job("a"), groups=(WINDOW,), drafts=2, asynchronous=True)),
    (
        *("prompt-loaded-whole", "0.33.0", MEMORY, READS),
        story(job("a", external=8), groups=(WINDOW,), connector=LATER),
    ),
    ("states-by-scheduler", "0.26.0", CHECKS, "S10: block 6 is registered", story(job("a"), groups=(FULL, STATE))),
    (
        *("lookup-asserts", "0.26.0", FATE, "AssertionError: SlidingWindowManager does not support fine-grained hits"),
        story(job("a"), groups=(FULL, WINDOW, STATE)),
    ),
    (
        *("vllm-project/vllm#46384", "0.30.0", CHECKS, "S17: a was refused, though it takes at most 2 blocks"),
        story(job("a"), groups=(FULL, Group("mamba", 8, mamba_mode="align"))),
    ),
    (
        *("vllm-project/vllm#55450", "0.30.0", CHECKS, "S17: the first 6 entries have not been read for 2 steps"),
        story(job("a"), groups=(STATE,), asynchronous=True),
    ),
    ("chunked-cap", "0.33.0", PROGRESS, STANDS, story(job("a"), groups=(Group("chunked", 4, chunk=6),))),
    ("", "0.33.0", MEMORY, READS, story(job("a"), job("b"))),
)


@pytest.mark.parametrize(("id", "release", "judge", "what", "shows"), SUSPECTED)
def test_a_cause_is_suspected_only_where_judge_release_and_story_fit(
    id: str, release: str, judge: str, what: str, shows: SimulatedStory
) -> None:
    """What it is, an experiment says."""
    found = suspected(release, judge, what, shows)
    assert id in found if id else not found


def test_every_name_is_that_of_a_written_up_finding_or_of_an_upstream_report() -> None:
    evidence = Path(__file__).parents[3] / "docs/evidence"
    of_connectors = re.findall(r"^### ([\w-]+)$", (evidence / "connectors.md").read_text(), re.MULTILINE)
    written_up = {*tomllib.loads((evidence / "findings/findings.toml").read_text()), *LOSES, *of_connectors}
    assert [id for id in KNOWN if id not in written_up and "#" not in id] == []


def test_what_is_taken_away_is_the_cause_and_nothing_else() -> None:
    named = KNOWN["overlapping-items"].request(OVERLAPPING)
    assert len({item.identifier for item in named.items}) == 1
    assert replace(named, items=OVERLAPPING.items) == OVERLAPPING
    adapters = [KNOWN["adapter-loaded-anew"].request(one).adapter for one in TWO_VERSIONS]
    assert len(set(adapters)) == 2
    assert KNOWN["prompt-loaded-whole"].request(job("a", external=8)).external == 7


def test_no_cause_is_told_from_words_about_what_was_read() -> None:
    """A finding of another kind was put down to a known one once, since its text had "state" in it."""
    states = story(job("a"), groups=(FULL, STATE), drafts=1, drafter="eagle")
    said = "a: reads the state before position 4 in block 1, which holds another content (group 1, mamba)"
    assert suspected("0.23.0", MEMORY, said, states) == suspected("0.23.0", MEMORY, "anything else", states)


def test_asynchronous_engines_have_eagle_for_drafts_and_chunks_have_none() -> None:
    assert setup_of(story(job("a"), drafts=1).shape).method == "ngram"
    assert setup_of(story(job("a"), drafts=1, asynchronous=True).shape).shape.eagle
    chunked = setup_of(story(job("a"), groups=(Group("chunked", 4, chunk=8),), drafts=1, asynchronous=True).shape)
    assert (chunked.asynchronous, chunked.shape.eagle, chunked.drafts) == (False, False, 1)


def test_a_load_fills_the_blocks_that_are_there() -> None:
    shape = shape_with((FULL, STATE), 16, 32, 32, caching=True)
    load = ExternalLoad("r", [[1, 0], [0, 3]], 2, 8)
    keys, state = load.transfers([rule_for(group, shape) for group in shape.groups], 4, "a", now=True)
    assert (keys.device, keys.positions) == ((6, 7), (2, 3))
    assert (state.device, set(state.positions)) == ((12, 13, 14, 15), {7})


# With a release.


@pytest.mark.slow
def test_a_load_that_waits_for_room_for_drafts_beside_it_is_named_by_experiment() -> None:
    """The pool just holds the request: a load wants blocks for a step with drafts besides, and there is none."""
    if environments.find(RELEASE) is None:
        pytest.skip(f"blockproof targets install {RELEASE}")
    shape = EngineShape(
        shape_with((Group("full", 16),), 4, 35, 96, caching=False), 1, drafts=1, options={"connector": LATER}
    )
    whole = ClientRequest("a", tuple(range(1, 35)), 1, external=34)
    task = StoryTask(
        replay=story_to_json(SimulatedStory(shape, (Happening(0, "add", request=whole),))), shrink_seconds=0.0
    )
    found = simulate(RELEASE, task, None, lambda text: None).found
    assert [(one["known"], one["judge"]) for one in found] == [("vllm-project/vllm#57104", PROGRESS)]


INPUTS = Path(__file__).parent / "inputs"


BY_EXPERIMENT = (
    (RELEASE, "hit-too-large-for-the-pool", "hit-too-large-for-the-pool", PROGRESS),
    ("vllm==0.26.0", "no-fine-lookup-in-windows", "lookup-asserts", FATE),
    ("vllm==0.26.0", "copied-state-counted-twice", "vllm-project/vllm#46384", PROGRESS),
    ("vllm==0.26.0", "state-behind-a-gap", "vllm-project/vllm#55450", CHECKS),
    ("vllm==0.26.0", "hit-between-chunks", "chunk-astride-block", MEMORY),
    ("vllm==0.26.0", "chunk-without-room", "chunk-astride-block", MEMORY),  # nor has its pool room for a chunk
    ("vllm==0.26.0", "lone-request-copies-its-state", "vllm-project/vllm#46384", PROGRESS),
    # vllm-project/vllm#46384 shows behind it:
    ("vllm==0.26.0", "two-known-causes", "adapter-loaded-anew", CHECKS),
    (RELEASE, "block-of-another-group-stored", "block-of-another-group-stored", FATE),
    (RELEASE, "lazy-offload-never-rests", "lazy-offload-never-rests", CHECKS),
    (RELEASE, "simple-offload-asserts", "simple-offload-asserts", FATE),
    ("vllm==0.29.0", "load-over-stored-block", "load-over-stored-block", MEMORY),
    ("vllm==0.26.0", "copy-over-stored-block", "copy-over-stored-block", MEMORY),
    ("vllm==0.28.0", "copy-over-stored-block", "copy-over-stored-block", MEMORY),
    ("vllm==0.26.0", "cancelled-before-it-ran", "vllm-project/vllm#49118", FATE),
    ("vllm==0.29.0", "offloading-stands-still", "loads-block-each-other", PROGRESS),
    ("vllm==0.26.0", "loads-block-each-other-in-multi", "loads-block-each-other", PROGRESS),
    ("vllm==0.31.0", "load-beside-drafts", "vllm-project/vllm#57104", PROGRESS),
    ("vllm==0.26.0", "stored-without-blocks", "vllm-project/vllm#52170", FATE),
    ("vllm==0.26.0", "chunks-not-offloaded", "chunks-not-offloaded", FATE),
    ("vllm==0.26.0", "padded-step-is-cut", "vllm-project/vllm#54392", MEMORY),
    ("vllm==0.26.0", "padded-up-to-the-end", "vllm-project/vllm#53962", FATE),
    ("vllm==0.29.0", "host-hit-within-a-block", "host-hit-within-a-block", FATE),
    ("vllm==0.29.0", "set-back-behind-a-step-in-flight", "vllm-project/vllm#49674", PROGRESS),
    ("vllm==0.29.0", "offloaded-window-without-content", "hole-in-a-stored-chunk", MEMORY),
    ("vllm==0.29.0", "replay-behind-the-kept-state", "replay-boundary-eagle", CHECKS),
    # Without giving up any blocks the contract would object:
    ("vllm==0.23.0", "window-cut-in-flight", "window-cut-too-early", MEMORY),
    ("vllm==0.19.1", "lone-request-not-admitted", "admission-deadlock", PROGRESS),
    ("vllm==0.19.1", "window-missing-in-hit", "window-missing-in-hit", MEMORY),
)
"""On which release, by file in `inputs`: cause and judge."""


@pytest.mark.slow
@pytest.mark.parametrize(("release", "file", "known", "judge"), BY_EXPERIMENT)
def test_what_a_run_found_is_named_by_experiment(release: str, file: str, known: str, judge: str) -> None:
    if environments.find(release) is None:
        pytest.skip(f"blockproof targets install {release}")
    task = StoryTask(replay=read_story(INPUTS / f"{file}.json").story, shrink_seconds=0.0)
    found = simulate(release, task, None, lambda text: None).found
    assert [(one["known"], one["judge"]) for one in found] == [(known, judge)]


SILENT = (
    ("vllm==0.26.0", "state-of-drafts-in-flight"),
    (RELEASE, "hit-cut-for-a-load"),
    ("vllm==0.26.0", "hit-of-each-group-alone"),
    ("vllm==0.26.0", "hit-of-each-group-shared"),
    (RELEASE, "reset-while-a-step-runs"),
    (RELEASE, "goes-on-behind-a-stored-tail"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("release", "file"), SILENT)
def test_what_a_judge_once_took_for_a_mistake_is_none(release: str, file: str) -> None:
    """A state at the end of a block, which drafts wrote whose outcome came while the next step ran; a hit of which the
    scheduler takes only the first blocks, since a connector has more; hits that the scheduler looks up by itself, for
    each group; a reset, to which an engine in step comes behind the step; and a block that is filled while the tokens
    that it has are stored."""
    if environments.find(release) is None:
        pytest.skip(f"blockproof targets install {release}")
    task = StoryTask(replay=read_story(INPUTS / f"{file}.json").story, shrink_seconds=0.0)
    assert simulate(release, task, None, lambda text: None).found == []


BEHIND_A_CHUNK = INPUTS / "states-behind-a-chunk.json"


@pytest.mark.parametrize(("release", "known"), [("vllm==0.23.0", True), ("vllm==0.26.0", True), (RELEASE, False)])
def test_a_state_behind_a_chunk_is_found_and_named_by_experiment(release: str, known: bool) -> None:
    """A prefix whose slot holds the state of 4 tokens is registered as that of 16 (vllm-project/vllm#51113)."""
    if environments.find(release) is None:
        pytest.skip(f"blockproof targets install {release}")
    task = StoryTask(replay=read_story(BEHIND_A_CHUNK).story, shrink_seconds=0.0)
    found = simulate(release, task, None, lambda text: None).found
    assert [(one["known"], one["judge"]) for one in found] == ([("states-by-scheduler", CHECKS)] if known else [])


PLANTED_FAULTS = """
from blockproof.fuzz.adapters.vllm.engine.simulated import VllmSimulated
from blockproof.fuzz.engines.simulated import SimulatedFamily
from blockproof.fuzz.simulation.faults import SEEN_BY

family = SimulatedFamily(VllmSimulated())
for fault, judge in SEEN_BY.items():
    for number in range(60):
        story = family.draw(1, number, ("connector=",))
        try:
            found = family.run_of(story, fault).run(3000)
        except NotImplementedError:
            continue
        if judge in {one.judge for one in found} and not family.run_of(story).run(3000):
            print("planted", fault, judge)
            break
"""
"""For each fault a story in which its judge objects, and nobody to the engine without the fault."""


@pytest.mark.slow
@needs_release
def test_each_planted_fault_is_found_by_its_judge_and_the_clean_pair_is_silent(tmp_path: Path) -> None:
    lines = [line.split() for line in said_by_release(PLANTED_FAULTS, tmp_path) if line.startswith("planted ")]
    assert {fault: judge for _, fault, judge in lines} == SEEN_BY


def said_by_release(script: str, modules: Path, release: str = RELEASE) -> list[str]:
    """The lines that a script prints in the environment of a release."""
    found = environments.find(release)
    assert found is not None
    place = found.place
    command = [str(place.python), "-P", "-c", script]
    ended = subprocess.run(command, env=environment_of(place, modules), capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return ended.stdout.splitlines()


BEHIND_OTHERS = """
import json
from blockproof.fuzz.adapters.vllm.engine.simulated import VllmSimulated
from blockproof.fuzz.engines.simulated import SimulatedFamily
from blockproof.fuzz.simulation.story import story_from_json

with open(FILE) as file:
    story = story_from_json(json.load(file)["story"])
others = (*(f"vllm-project/vllm#{number}" for number in (46453, 49118, 52170)), "prompt-loaded-whole")
for mended in (others, (*others, "vllm-project/vllm#45388")):
    print("story", *(one.judge for one in SimulatedFamily(VllmSimulated(mended)).run_of(story).run(3000)))
"""


@pytest.mark.slow
def test_who_was_loaded_behind_a_head_without_room_stands_still(tmp_path: Path) -> None:
    release = "vllm==0.26.0"
    if environments.find(release) is None:
        pytest.skip(f"blockproof targets install {release}")
    script = f"FILE = {str(INPUTS / 'loaded-behind-a-preempted-head.json')!r}\n{BEHIND_OTHERS}"
    said = [line for line in said_by_release(script, tmp_path, release) if line.startswith("story")]
    assert said == [f"story {PROGRESS}", "story"]


COUNTED_TWICE = """
from blockproof.fuzz.adapters.vllm.engine.simulated import VllmSimulated
from blockproof.fuzz.engines.simulated import SimulatedFamily
from blockproof.fuzz.simulation.run import SimulatedRun

family = SimulatedFamily(VllmSimulated())
for planted in (False, True):
    for number in range(60):
        try:
            run = SimulatedRun(family.engine, family.draw(1, number, ("connector=",), ("full",)))
        except NotImplementedError:
            continue
        touch = family.engine.pool.touch

        def twice(blocks, *more):
            touch(blocks, *more)
            for block in blocks:
                block.ref_cnt += not block.is_null

        if planted:
            family.engine.pool.touch = twice
        for found in run.run(300):
            print(planted, found.judge, found.rule)
"""
"""A block that is touched gets two references."""


@pytest.mark.slow
@needs_release
def test_the_contract_judges_the_calls_on_the_core(tmp_path: Path) -> None:
    lines = [line for line in said_by_release(COUNTED_TWICE, tmp_path) if line.startswith(("True", "False"))]
    assert {line.split()[0] for line in lines} == {"True"}
    assert any(line.startswith("True checks S") for line in lines)
