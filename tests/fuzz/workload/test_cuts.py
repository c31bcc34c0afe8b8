"""What the generator takes away from earlier requests, and what it changes in those that it sends again."""

from itertools import pairwise

import pytest
from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.operations import Workload
from blockproof.fuzz.workload.past import with_another_item
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.fuzz.workload.tuning import Tuning
from blockproof.model import ops
from blockproof.model.core import Model
from blockproof.model.ops import Item


def driven(attention: str, tuning: Tuning, runs: int, operations: int = 200):
    """Models with the operation that comes next, and the workload that has drawn it."""
    for run in range(runs):
        draw = SeededDraw(f"{attention} {run}")
        shape = draw_shape(draw, ATTENTION[attention])
        model, workload = Model(shape), Workload(draw, shape, tuning=tuning)
        for _ in range(operations):
            operation = workload.next(model)
            yield model, operation, workload
            model.step(operation)


@pytest.mark.parametrize("overlap", [True, False])
def test_an_item_is_changed_in_one_thing_and_stays_within_the_prompt(overlap):
    items, seen = (Item("p002", 0, 2), Item("*", 2, 3), Item("q001", 6, 1)), set()
    for seed in range(200):
        changed = with_another_item(SeededDraw(seed), items, 7, overlap)
        assert all(item.offset >= 0 < item.length and item.offset + item.length <= 7 for item in changed)
        if not overlap:
            assert all(a.offset + a.length <= b.offset for a, b in pairwise(changed))
        if len(changed) < len(items):
            assert set(changed) < set(items)
            seen.add("gone")
            continue
        ((was, now),) = [pair for pair in zip(items, changed, strict=True) if pair[0] != pair[1]]
        differing = [name for name in ("identifier", "offset", "length") if getattr(was, name) != getattr(now, name)]
        assert len(differing) == 1 or now.identifier == "*"  # its shorter form has the other length
        seen.update(differing)
    assert seen == {"gone", "identifier", "offset", "length"}


def test_a_block_that_a_cut_takes_away_is_found_under_no_other_number():
    """Every block that holds what an evicted one holds goes with it, so that a lookup does miss it."""
    cuts = copies = 0
    for model, operation, _ in driven("sliding+sliding", Tuning(swarm=(0,), peels=(7,)), 12):
        if isinstance(operation, ops.Evict):
            identity = model.state.identity
            lost = {identity[block] for block in operation.blocks}
            assert {block for block, content in identity.items() if content in lost} == set(operation.blocks)
            cuts, copies = cuts + 1, copies + (len(lost) < len(operation.blocks))
    assert cuts > 50
    assert copies > 3


def test_a_hit_is_lost_block_by_block_until_nothing_is_found():
    """Evict, look up, evict ...: of one request less and less is found, in several steps."""
    found: list[int] = []
    most = 0
    for model, operation, _ in driven("sliding+mamba", Tuning(swarm=(0,), peels=(8,), ladder=8), 12):
        request = model.requests.get(model.just_looked_up or "")
        if request is None or request.hit is None:
            found = found if isinstance(operation, ops.Lookup) else []
        elif isinstance(operation, ops.Evict):
            found.append(request.hit[0])
            assert found == sorted(found, reverse=True)
            most = max(most, len(set(found)))
    assert most > 3
