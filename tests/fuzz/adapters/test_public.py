"""A manager with the methods of vLLM's and nothing behind them, as of a core in another language: right, and wrong."""

from dataclasses import replace
from typing import Any

import pytest
from blockproof.fuzz.adapters.impl import bind_impl
from blockproof.fuzz.adapters.vllm.binding import Binding
from blockproof.fuzz.adapters.vllm.style import VllmStyleTarget
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.oracle_names import MODEL_FREE
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.reports.vacuity import vacuity
from blockproof.fuzz.targets.base import TargetLostError, hidden_fields
from blockproof.model.ops import Allocate, Done, Free, Group, Shape, Submit

LACKS = frozenset(
    {"Shape.caching", "Shape.events", "Shape.stats", "Release", "hybrids", "CommonPrefix", "Evict", "refused_shapes"}
    | {"Shape.decode_parallel", "Shape.prefill_parallel"}
)
SHAPE = Shape((Group("full", 2),), 6, 8, 2, 2, 8, caching=False)


class Given:
    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def get_block_ids(self, allow_none: bool = False) -> Any:
        return None if allow_none and not self.ids else (self.ids,)


class Manager:
    """Full attention without a cache; all that it keeps is its own."""

    def __init__(self, shape: Shape, mistake: str) -> None:
        self._size, self._longest, self._mistake = shape.groups[0].block_size, shape.max_model_len, mistake
        self._free, self._tables = [*range(1, shape.num_blocks)], dict[str, list[int]]()

    def get_num_free_blocks(self) -> int:
        return len(self._free)

    def get_block_ids(self, request_id: str) -> tuple[list[int]]:
        return (self._tables.get(request_id, []),)

    def allocate_slots(self, request: Any, new: int, reserved_blocks: int = 0, **named: Any) -> Given | None:
        table = self._tables.get(request.request_id, [])
        ahead = named.get("num_external_computed_tokens", 0) + named.get("num_lookahead_tokens", 0)
        end = min(request.num_computed_tokens + new + ahead, self._longest)
        whole = max(end, request.num_tokens) if named.get("full_sequence_must_fit") else end
        if -(-whole // self._size) - len(table) > len(self._free) - reserved_blocks:
            return None
        wanted = end // self._size if self._mistake == "rounds down" else -(-end // self._size)
        missing = max(0, wanted - len(table))
        taken, self._free = self._free[:missing], self._free[missing:]
        self._tables[request.request_id] = [*table, *taken]
        return Given(taken)

    def free(self, request: Any) -> None:
        table = self._tables.pop(request.request_id, [])
        self._free += table[1:] if self._mistake == "loses a block" else table

    def cache_blocks(self, request: Any, num_computed_tokens: int) -> None: ...

    def new_step_starts(self) -> None: ...

    def remove_skipped_blocks(self, request_id: str, computed: int, **named: Any) -> None: ...

    def take_new_block_ids(self) -> list[int]:
        return []

    def reset_prefix_cache(self) -> bool:
        return not self._tables


class Silent:
    """Has none of the methods by which a state is read."""


def opened(mistake: str = "") -> VllmStyleTarget:
    class Bound(Binding):
        def manager(self, shape: Shape) -> Any:
            return Silent() if mistake == "silent" else Manager(shape, mistake)

    bound = Bound(**vars(bind_impl()))
    return VllmStyleTarget("public", replace(bound, release=replace(bound.release, offers=frozenset())), lacks=LACKS)


def fuzzed(mistake: str = "") -> Summary:
    done = Summary("public", "random", 1, oracles=MODEL_FREE)
    plan = Plan(1, operations=4_000, attention=("full", "mla"), oracles=MODEL_FREE)
    return run_random(opened(mistake), plan, done)


def test_a_right_one_is_judged_by_its_methods() -> None:
    done = fuzzed()
    assert done.finding is None, done.finding.text()
    assert vacuity(done).problem is None
    assert min(done.reached[what] for what in ("contract: S1 checked", "shadow: tokens read back")) > 300
    assert done.reached["liveness: request finished"] > 5


@pytest.mark.parametrize(
    ("mistake", "found"), [("rounds down", {"S15", "corruption"}), ("loses a block", {"S1", "L4"})]
)
def test_a_wrong_one_is_found(mistake: str, found: set[str]) -> None:
    done = fuzzed(mistake)
    assert done.finding is not None
    assert done.finding.observable in found, done.finding.text()


def test_its_state_is_what_its_methods_say() -> None:
    target = opened()
    assert target.start(SHAPE)[0] == Done()
    assert "ref_cnt" in hidden_fields(target)
    assert not {"tables", "num_free"} & hidden_fields(target)
    for operation in (Submit("a", (1, 2, 3)), Allocate("a", 3)):
        outcome, shown = target.step(operation)
    assert outcome == Done(((1, 2),))
    assert (shown.tables, shown.num_free) == ([{"a": [1, 2]}], 3)
    assert target.step(Free("a"))[1].tables == [{}]


def test_one_that_cannot_be_read_is_told_what_is_missing() -> None:
    with pytest.raises(TargetLostError, match=r"Silent has no get_block_ids\(request_id\), by which its tables are"):
        opened("silent").start(SHAPE)
