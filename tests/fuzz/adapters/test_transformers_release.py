"""transformers itself, simulated: skipped where no environment with it is installed."""

import json
from pathlib import Path

import pytest
from blockproof.fuzz.adapters.transformers import VARIABLE
from blockproof.fuzz.engines.stories import StoryTask
from blockproof.fuzz.engines.story_fuzzing import simulate
from blockproof.fuzz.opening import environments

SPEC = "transformers==5.24.0"
FINDINGS = Path(__file__).resolve().parents[3] / "docs" / "evidence" / "findings"
STORIES = {
    path.parent.name: json.loads(path.read_text())
    for path in FINDINGS.glob("*/story.json")
    if "transformers" in path.read_text()
}
FAULT = """
def patch():
    from transformers.generation.continuous_batching.cache_allocators.cache_allocator import BlockLedger

    def acquire(self, block_id):
        self.cached_blocks.pop(block_id, None)  # who shares it is not counted

    BlockLedger.acquire = acquire
"""

pytestmark = pytest.mark.skipif(environments.find(SPEC) is None, reason=f"{SPEC} is not installed")


def run(target=SPEC, **task):
    return simulate(target, StoryTask(**{"seconds": None, "shrink_seconds": 5.0, **task}), None, lambda line: None)


@pytest.mark.slow
@pytest.mark.parametrize("name", STORIES)
def test_the_smallest_story_of_a_finding_shows_it_and_nothing_without_its_remedy(name):
    (found,) = run(replay=STORIES[name]["story"], shrink_seconds=0.001).found  # it is as small as it gets
    assert (found["known"], found["judge"]) == (name, STORIES[name]["judge"])


@pytest.mark.slow
def test_the_engine_without_the_known_defects_passes(monkeypatch):
    monkeypatch.setenv(VARIABLE, "mended")
    outcome = run(seed=1, steps=2500, goes_on=True)
    reached = outcome.told["reached"]
    assert outcome.lines()[-1] == "nothing found"
    assert outcome.exit_code == 0
    for what in ("steps in flight beside another", "preemptions", "hits", "ids used again", "blocks copied"):
        assert reached.get(what), what


@pytest.mark.slow
def test_a_block_that_is_shared_and_freed_is_noticed(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, "mended")
    (tmp_path / "shared_and_freed.py").write_text(FAULT)
    outcome = run(f"{SPEC}+{tmp_path}/shared_and_freed.py", seed=3, steps=4000, attention=("full",), goes_on=False)
    assert {(one["judge"], one["known"]) for one in outcome.found} <= {("memory", ""), ("fate", ""), ("capacity", "")}
    assert outcome.found


@pytest.mark.slow
def test_its_own_worker_answers_as_it_does_alone(monkeypatch):
    monkeypatch.setenv(VARIABLE, "mended,worker")
    outcome = run(seed=1, steps=120, goes_on=True)
    assert not outcome.found
    assert outcome.told["reached"]["requests served alone to compare"] >= 20
    assert "memory" in outcome.told["not_observed"]
