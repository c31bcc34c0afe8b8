"""States of Mamba layers in mode align: how many a request holds, and that a worker finds the blocks it writes."""

from random import Random
from typing import Any

import blockproof.impl as impl
import pytest


def real(table: list[int]) -> int:
    """Entries that are not null."""
    return sum(block != 0 for block in table)


class Run:
    """One request of one align group, `b` tokens a block, with a worker that keeps its own row of block ids as vLLM's
    does: it only ever appends what an allocation returns."""

    def __init__(self, core: Any, b: int, p: int, prompt: int) -> None:
        self.b, self.p = b, p
        sizes = {"scheduler_block_size": b, "hash_block_size": b, "max_model_len": 512}
        self.manager = core.manager(core.mamba("align", speculative=p, block_size=b), num_blocks=64, **sizes)
        (self.single,) = self.manager.coordinator.single_type_managers
        hasher = impl.get_request_block_hasher(b, impl.sha256)
        self.request = core.request("a", prompt, block_hasher=hasher)
        self.row: list[int] = []
        self.free = self.manager.block_pool.get_num_free_blocks

    @property
    def table(self) -> list[int]:
        """Ids of the request's table."""
        ids: list[int] = self.manager.get_block_ids("a")[0]
        return ids

    def allocate(self, new: int) -> None:
        """A step of so many tokens, drafts included; what is predicted must be taken."""
        computed, known = self.request.num_computed_tokens, self.request.num_tokens
        settled = min(computed, known - 1)
        self.single.remove_skipped_blocks("a", settled)
        main = computed + new
        predicted = self.single.get_num_blocks_to_allocate("a", main, [], computed, main, num_settled_tokens=settled)
        free = self.free()
        added = self.single.allocate_new_blocks("a", main, main, computed)
        dropped = self.free() - (free - predicted)
        assert dropped >= 0
        self.row += [block.block_id for block in added]
        self.manager.check()
        written = self.table[(main - 1) // self.b :][: 1 + self.p]
        assert 0 not in written
        assert len(written) == 1 + self.p
        assert real(self.table) <= 1 + self.p + -(-max(1 + self.p, 2 * self.p - 1) // self.b)
        self.single.cache_blocks(self.request, min(main, known))


@pytest.mark.parametrize("seed", range(8))
def test_no_request_holds_more_than_two_states_beside_those_of_drafts(core: Any, seed: int) -> None:
    draw = Random(seed)
    for _ in range(12):
        b, p = draw.randint(1, 5), draw.randint(0, 3)
        run = Run(core, b, p, draw.randint(1, 12))
        for _ in range(12):
            new = draw.randint(1, draw.choice((2, 3 * b)))
            run.allocate(new)
            kept = draw.randint(1, new)
            run.request.num_computed_tokens += kept
            missing = run.request.num_computed_tokens + draw.randint(0, 1) - run.request.num_tokens
            run.request.append_output_token_ids([7] * max(0, missing))


def prefilled(core: Any, b: int, p: int, prompt: int, draw: Random) -> Run:
    """A request whose prompt has been computed, in chunks of whole blocks, and whose first token is known."""
    run = Run(core, b, p, prompt)
    while left := prompt - run.request.num_computed_tokens:
        new = min(left, b * draw.randint(1, 3))
        run.allocate(new)
        run.request.num_computed_tokens += new
    run.request.append_output_token_ids([7])
    return run


def finds_its_blocks(run: Run, start: int, drafts: int, source: int) -> None:
    """A step behind `start` tokens writes into distinct blocks of the request, and what it continues from is held."""
    at = (start + drafts) // run.b
    used = run.row[at : at + 1 + drafts]
    assert len(set(used)) == 1 + drafts
    assert set(used) <= set(run.table) - {0}
    assert run.row[source] in run.table


SMALL = [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3)]
"""Block sizes with no fewer blocks for drafts: a step of drafts can pass several block ends."""


@pytest.mark.parametrize(("b", "p"), [*SMALL, (2, 1), (3, 1), (3, 2), (4, 2), (4, 3), (8, 3)])
def test_a_worker_with_a_row_of_its_own_finds_its_blocks(core: Any, b: int, p: int) -> None:
    draw = Random(b * 10 + p)
    for _ in range(20):
        prompt = draw.randint(1, 3 * b)
        run = prefilled(core, b, p, prompt, draw)
        source = (prompt - 1) // b
        for _ in range(12):
            start, drafts = run.request.num_computed_tokens, draw.randint(0, p)
            run.allocate(1 + drafts)
            finds_its_blocks(run, start, drafts, source)
            accepted = draw.randint(0, drafts)
            source = (start + drafts) // b + accepted
            run.request.num_computed_tokens += 1 + accepted
            run.request.append_output_token_ids([7] * (1 + accepted))


@pytest.mark.parametrize(("b", "p"), [*SMALL, (2, 1), (3, 2), (4, 2), (4, 3), (8, 3)])
def test_it_finds_them_too_if_each_step_is_allocated_before_the_drafts_of_the_last_one_are_judged(
    core: Any, b: int, p: int
) -> None:
    draw = Random(b * 10 + p)
    for _ in range(20):
        prompt = draw.randint(1, 3 * b)
        run = prefilled(core, b, p, prompt, draw)
        start, drafts = prompt, draw.randint(0, p)
        run.allocate(1 + drafts)
        for _ in range(12):
            at, flying = (start + drafts) // b, drafts  # where the step in flight writes, and its drafts
            run.request.num_computed_tokens = start + 1 + flying
            drafts = draw.randint(0, p)
            run.allocate(1 + drafts)
            for accepted in range(flying + 1):
                finds_its_blocks(run, start + 1 + accepted, drafts, at + accepted)
            accepted = draw.randint(0, flying)
            start += 1 + accepted
            run.request.append_output_token_ids([7] * (1 + accepted))


def test_a_step_that_does_not_say_where_it_begins_begins_in_the_block_before_its_last_one(core: Any) -> None:
    """As vLLM's coordinator asks."""
    manager = core.manager(core.mamba("align"))
    (single,) = manager.coordinator.single_type_managers
    single.allocate_new_blocks("a", 4, 4)
    single.allocate_new_blocks("a", 8, 8)
    assert [block.block_id for block in single.req_to_blocks["a"]] == [1, 2]  # the state that it continues from stays


def test_of_a_request_that_has_gone_nothing_is_kept(core: Any) -> None:
    manager = core.manager(core.mamba("align"), core.full())
    request = core.request("a", 6)
    core.run(manager, request)
    steps = manager.coordinator.steps
    assert steps.due.keys() == {"a"}
    steps.look("a", 0)
    assert steps.horizons.keys() == steps.firsts.keys() == {"a"}
    core.run(manager, other := core.request("b", 6))
    for gone in (request, other):
        manager.free(gone)
    assert steps.horizons == steps.firsts == steps.due == {}
