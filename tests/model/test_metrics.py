"""The lives of blocks that metrics follow (core.md §5)."""

import pytest
from blockproof.model import ops
from blockproof.model.core import Model
from blockproof.model.metrics import KEPT_ACCESSES, Life, Metrics
from blockproof.model.ops import Done, Group, Shape


def test_one_block_in_so_many_is_followed() -> None:
    metrics = Metrics(3, caching=True)
    metrics.taken([5, 4, 9, 8])
    assert list(metrics.lives) == [5, 8]
    metrics.taken([5])
    assert metrics.drain() == ((0, 0, ()),)
    assert list(metrics.lives) == [8]
    metrics.reset()
    assert (metrics.lives, metrics.drain()) == ({}, ())


def test_uses_that_lie_far_back_are_forgotten() -> None:
    metrics = Metrics(1, caching=True)
    metrics.taken([1])
    for metrics.now in (2, 3, 5, 8, 13):
        metrics.touched([0, 1])
    assert metrics.lives[1] == Life(0, (3, 5, 8, 13))
    assert len(metrics.lives[1].used) == KEPT_ACCESSES
    metrics.now = 20
    metrics.evicted(1)
    assert metrics.drain() == ((20, 7, (2, 3, 5)),)


@pytest.mark.parametrize(("caching", "told"), [(True, ((2, 2, ()),)), (False, ())])
def test_without_a_cache_no_life_is_told(caching: bool, told: tuple[ops.Value, ...]) -> None:
    shape = Shape((Group("full", 1),), 2, 4, 1, 1, 4, caching=caching, sampling=1)
    model = Model(shape)
    for operation in (ops.Take(1), ops.Release((1,)), ops.Take(1)):
        model.apply(operation)
    assert model.snapshot().stats == (None, ((1, 3, 3, ()),), told)
    assert model.apply(ops.TakeStats()) == Done((None, told))
    assert model.apply(ops.TakeStats()) == Done((None, ()))


def test_a_landing_takes_no_time() -> None:
    model = Model(Shape((Group("full", 1),), 2, 4, 1, 1, 4, sampling=1))
    model.apply(ops.Landed("a"))
    assert model.state.metrics.now == 0
