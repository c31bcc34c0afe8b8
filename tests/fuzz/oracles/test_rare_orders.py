"""Orders of operations that are rare in drawn runs, and in which something was wrong once."""

import pytest
from blockproof.fuzz.findings.finding import Trace
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.runs.judging import Judging
from blockproof.fuzz.traces.replay import replay
from blockproof.impl.today.reference_window import ReferenceWindowManager
from blockproof.model.ops import Advance, Allocate, Arrive, Group, Lookup, Preempt, RemoveSkipped, Shape, Submit

RUNS = {
    # A state named at the end of a prompt that others share is copied before the request writes on: a preempted
    # request has tokens behind its prompt, and its next step was one of those that change nothing.
    "a junction at the end of a prompt": Trace(
        Shape(
            groups=(Group("full", 1, eagle=True), Group("mamba", 2, mamba_mode="align")),
            num_blocks=6,
            max_model_len=2,
            hash_block_size=1,
            scheduler_block_size=2,
            max_num_batched_tokens=1,
            names_junctions=True,
        ),
        (
            Submit("a", (0,)),
            Advance("a", (0,)),
            Allocate("a", 1),
            Preempt("a"),
            Lookup("a"),
            Allocate("a", 1),
            Advance("a"),
            Allocate("a", 1),
        ),
    ),
    # Blocks that a window has left before they were full are told of without a block: a step on the short way left
    # that out.
    "an event of null blocks": Trace(
        Shape(
            groups=(Group("sliding", 3, window=2),),
            num_blocks=4,
            max_model_len=8,
            hash_block_size=3,
            scheduler_block_size=3,
            max_num_batched_tokens=1,
            events=True,
        ),
        (
            Submit("a", (0, 0, 0)),
            Allocate("a", 7),
            Advance("a", (0, 0, 0, 0, 0)),
            Allocate("a", 1),
        ),
    ),
    # What is given up between a prompt and the window while it is loaded is read by nobody: nothing is written there.
    "a gap in what is loaded": Trace(
        Shape(
            groups=(Group("rswa", 1, window=1),),
            num_blocks=3,
            max_model_len=3,
            hash_block_size=1,
            scheduler_block_size=1,
            max_num_batched_tokens=1,
        ),
        (
            Submit("a", (0,)),
            Advance("a", (0, 0)),
            Allocate("a", 0, external=2, delay=True),
            RemoveSkipped("a"),
            Arrive("a"),
        ),
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_nothing_is_found(name):
    finding, applied = replay(RUNS[name], open_target("impl-today"), Judging(("lockstep", "shadow")))
    assert finding is None
    assert applied.operations == RUNS[name].operations


def test_what_is_loaded_outside_of_the_gap_wants_its_blocks(monkeypatch):
    """The same run on a core that gives up what the prompt's readers still read."""
    kept = ReferenceWindowManager.remove_skipped_blocks

    def too_much(self, request_id, total_computed_tokens):
        kept(self, request_id, total_computed_tokens)
        if request_id in self.req_to_blocks:
            self.req_to_blocks[request_id][0] = self.block_pool.null_block

    monkeypatch.setattr(ReferenceWindowManager, "remove_skipped_blocks", too_much)
    trace = RUNS["a gap in what is loaded"]
    finding, _ = replay(trace, open_target("impl-today"), Judging(("shadow",)))
    assert finding is not None
    assert finding.step == len(trace.operations) - 1
    assert "position 0: is written, but has no block" in finding.detail
