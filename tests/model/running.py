"""Runs of the model over random workloads, for tests that check something at every operation."""

from collections.abc import Iterator, Sequence

from blockproof.fuzz.workload.draw import SeededDraw
from blockproof.fuzz.workload.operations import Workload
from blockproof.fuzz.workload.shapes import ATTENTION, draw_shape
from blockproof.model.core import Model
from blockproof.model.ops import Done, Operation, Outcome, Refused, Shape
from blockproof.model.snapshot import Snapshot


def runs(
    names: Sequence[str] = tuple(ATTENTION), seeds: int = 23, steps: int = 120, chaos: bool = False, kind=Model
) -> Iterator[tuple[Model, Workload, str]]:
    """Fresh models with a workload for each, and what repeats it."""
    for seed in range(seeds):
        draw, name = SeededDraw(seed), names[seed % len(names)]
        shape = draw_shape(draw, ATTENTION[name])
        model = kind(shape)
        assert model.construction == Done(), shape
        yield model, Workload(draw, shape, chaos=chaos), f"seed {seed}, {name}: {shape}"


def steps(
    model: Model, workload: Workload, count: int = 120
) -> Iterator[tuple[Operation, Snapshot, Outcome, Snapshot]]:
    """Operations with the views before and after."""
    before = model.snapshot()
    for _ in range(count):
        operation = workload.next(model)
        outcome, after = model.step(operation)
        yield operation, before, outcome, after
        before = after


def core(*groups, num_blocks=10, max_model_len=32, kind=Model, **switches) -> Model:
    """A small model; sizes that are not named follow from the groups."""
    block_size = groups[0].block_size if groups else 1
    sizes = {"hash_block_size": block_size, "scheduler_block_size": block_size, "max_num_batched_tokens": max_model_len}
    model: Model = kind(Shape(groups, num_blocks, max_model_len, **(sizes | switches)))
    assert model.construction == Done()
    return model


def done(model: Model, operation: Operation):
    """The value that the operation returns; it must return."""
    outcome, _ = model.step(operation)
    assert isinstance(outcome, Done), f"{operation}: {outcome}"
    return outcome.value


def refused(model: Model, operation: Operation) -> bool:
    """True if the operation is refused."""
    return model.step(operation)[0] == Refused()
