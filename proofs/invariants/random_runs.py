"""Random runs of the model, each step of which must be a sequence of moves: small, the same every time, without a
harness. The tests check far more steps, of the model and of our core, as `blockproof fuzz` draws them."""

import random
from collections.abc import Callable, Sequence

from ...model import legal, ops
from ...model.core import Model
from ...model.ops import Group, Operation, Shape
from .follower import Replayed

GROUPS: Sequence[tuple[Group, ...]] = (
    (Group("full", 2),),
    (Group("sliding", 2, window=4),),
    (Group("full", 2), Group("chunked", 2, chunk=3)),
    (Group("full", 2), Group("sliding", 2, window=3), Group("mamba", 2)),
    (Group("full", 2), Group("mamba", 2, mamba_mode="align", speculative_blocks=1)),
)
"""The groups of the runs."""
STEPS = 40


def check_runs() -> int:
    """How many steps were checked. StepError for one that is no sequence of allowed moves."""
    steps = 0
    for number, groups in enumerate(GROUPS):
        size = max(group.block_size for group in groups)
        shape = Shape(groups, 14, 16, size, size, 8)
        rng, model = random.Random(number), Model(shape)
        run = Replayed(shape, model.snapshot())
        while run.steps < STEPS:
            op = rng.choice(_DRAWN)(rng, model)
            if legal.allows(model, op) and not legal.misuse(model, op):
                outcome, after = model.step(op)
                run.step(op, outcome, after)
        steps += run.steps
    return steps


def _tokens(rng: random.Random, most: int) -> tuple[int, ...]:
    return tuple(rng.randrange(2) for _ in range(rng.randint(1, most)))


def _allocate(rng: random.Random, model: Model) -> Operation:
    name = model.just_looked_up or _name(rng)
    external = rng.choice((0, 0, 0, 2))
    return ops.Allocate(name, rng.randint(1, 5), hit=model.just_looked_up is not None, external=external)


def _name(rng: random.Random) -> str:
    return rng.choice("abc")


_DRAWN: Sequence[Callable[[random.Random, Model], Operation]] = (
    lambda rng, model: ops.Submit(_name(rng), _tokens(rng, 12)),
    lambda rng, model: ops.Lookup(_name(rng)),
    _allocate,
    _allocate,
    _allocate,
    lambda rng, model: ops.Advance(_name(rng), _tokens(rng, 1)),
    lambda rng, model: ops.Advance(_name(rng)),
    lambda rng, model: ops.Advance(_name(rng), _tokens(rng, 1), rejected=1),
    lambda rng, model: ops.Reject(_name(rng), 1),
    lambda rng, model: ops.Free(_name(rng)),
    lambda rng, model: ops.Preempt(_name(rng)),
    lambda rng, model: ops.RemoveSkipped(_name(rng)),
    lambda rng, model: ops.Evict((rng.randrange(14),)),
    lambda rng, model: ops.Take(1),
    lambda rng, model: ops.Touch((rng.randrange(1, 14),)),
    lambda rng, model: ops.Release(tuple(model.state.outside[:1])),
    lambda rng, model: ops.Reset(),
)
