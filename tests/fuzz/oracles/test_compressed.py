"""Groups whose entries stand for several tokens: a cache that keeps whole entries only is right, and what is wrong."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.findings.oracle_names import MODEL_FREE
from blockproof.fuzz.kinds.compressed import Compressed, rules_with, stored
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.reports.vacuity import vacuity
from blockproof.model.ops import Done, Failed, Group, Kind, Shape

EXAMPLE = Path(__file__).parents[3] / "examples" / "my-engine"
SHAPE = Shape((Group("mla", 8), Group("full", 8)), 9, 40, 8, 8, 40)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the target of the example, whose cache is to be changed."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield import_module("my_target")
    for name in ("my_target", "my_engine"):
        sys.modules.pop(name, None)


def made(engine, ratio, mistake="", designs=()):
    """The target with a cache of entries of `ratio` tokens, and what it says of itself."""

    def allocate(self, request, num_tokens, hit=()):
        """Takes blocks for whole entries only."""
        whole = num_tokens - num_tokens % ratio
        if mistake == "counts one too few":
            whole = max(0, whole - ratio)
        new = engine.KVCache.allocate(self, request, whole, hit)
        table = self.tables.get(request)
        if mistake == "drops an entry that is needed" and new is not None and table and len(table) > 2:
            self.pool.give_back(table.pop(0))
        return new

    def start(self, shape):
        if [group.kind for group in shape.groups] != ["mla"]:
            return Failed("NotImplementedError"), None
        self.shape, self.requests, self.labels = shape, {}, engine.Labels()
        self.core = cache(shape.num_blocks - 1, shape.groups[0].block_size, shape.caching)
        return Done(), self.look()

    cache = type("Cache", (engine.KVCache,), {"allocate": allocate})
    target = type("Target", (engine.MyTarget,), {"start": start})()
    target.name, target.block_sizes = f"compressed-{ratio}", (ratio, 2 * ratio)
    target.lacks = (target.lacks | {"Group.kind=full"}) - {"Group.kind=mla"}
    target.designs = frozenset(designs or {f"compressed_{ratio}"})
    return target


def fuzzed(target: Any, operations: int) -> Summary:
    done = Summary(target.name, "random", 1, oracles=MODEL_FREE)
    plan = Plan(1, operations=operations, attention=("mla",), oracles=MODEL_FREE)
    return run_random(target, plan, done)


@pytest.mark.parametrize(("ratio", "operations"), [(4, 6_000), (128, 800)])
def test_a_cache_that_keeps_whole_entries_is_right(engine: Any, ratio: int, operations: int) -> None:
    done = fuzzed(made(engine, ratio), operations)
    assert done.finding is None, done.finding.text()
    assert vacuity(done).problem is None
    assert done.reached["contract: hit"] > 5
    assert done.reached["shadow: tokens read back"] > 500
    assert done.reached["liveness: request finished"] > 2


def test_without_the_design_it_is_accused(engine: Any) -> None:
    done = fuzzed(made(engine, 4, designs=("publishes_at_end",)), 2_000)
    assert done.finding is not None


@pytest.mark.parametrize("ratio", [4, 128])
@pytest.mark.parametrize(
    ("mistake", "found"),
    [("counts one too few", {"S15", "corruption"}), ("drops an entry that is needed", {"S5", "S6", "corruption"})],
)
def test_a_wrong_one_is_found(engine: Any, ratio: int, mistake: str, found: set[str]) -> None:
    done = fuzzed(made(engine, ratio, mistake), 2_000)
    assert done.finding is not None
    assert done.finding.observable in found, done.finding.text()


def test_the_rules_are_those_of_the_latent_groups_with_such_blocks() -> None:
    latent, plain = rules_with(SHAPE, {"compressed_4", "compressed_128"})
    assert isinstance(latent, Compressed)
    assert latent.ratio == 4
    assert not isinstance(plain, Compressed)
    assert [latent.required(tokens) for tokens in (0, 3, 4, 8, 11, 12)] == [0, 0, 1, 1, 1, 2]
    assert [latent.attends(5, token) for token in (3, 4)] == [True, False]
    assert (stored(latent, 7), stored(plain, 7)) == (4, 7)
    (large,) = rules_with(Shape((Group("mla", 256),), 9, 512, 256, 256, 512), {"compressed_4", "compressed_128"})
    assert isinstance(large, Compressed)
    assert large.ratio == 128
    assert not any(isinstance(rule, Compressed) for rule in rules_with(SHAPE, {"compressed_128"}))
    assert {"mla", "full"} <= set(get_args(Kind))
