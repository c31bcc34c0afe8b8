"""What a picture of a plan shows beyond its figures: what each layer takes, and what requests of other lengths hold."""

from dataclasses import dataclass
from math import isfinite, log2

from ..targets.base import Calculator
from .fields import ModelError
from .parts import Layers, Serving, Spec
from .plan import Deployment, MemoryPlan, members_of, questions_of
from .questions import Questions, RefusedError

MOST_LENGTHS = 96
"""Lengths that are asked about, apart from those that the plan names."""
STEPS_TO_THE_DOUBLE = 8
"""From one length to its double, if that is not more than `MOST_LENGTHS` in all."""


@dataclass(frozen=True)
class LayerShare:
    """One layer in a block id of its group; bytes of one rank."""

    name: str
    group: int
    stage: int
    page_bytes: int
    held_bytes: int
    """Bytes of the page that hold something."""


@dataclass(frozen=True)
class Growth:
    """Requests of one length."""

    length_tokens: int
    blocks: tuple[int, ...]
    """The most blocks that one such request holds, by group."""
    concurrency: float | None
    """Requests of this length that the pool holds at once; None if they need nothing."""


@dataclass(frozen=True)
class Picture:
    """A plan, its layers in the order of the model, and its requests from short to long."""

    plan: MemoryPlan
    layers: tuple[LayerShare, ...]
    growth: tuple[Growth, ...]


def make_picture(
    calculator: Calculator, plan: MemoryPlan, layers: Layers, serving: Serving, deployment: Deployment
) -> Picture:
    """The picture of a plan that `make_plan` has made of the same layers: asked of the same calculator.

    ModelError if the calculator refuses what it has not refused before.
    """
    try:
        _, questions = questions_of(calculator, layers, serving, deployment)
        groups = questions.groups(plan.limit_tokens)
        shares = _shares(questions, groups, serving.tensor_parallel)
        return Picture(plan, shares, _growth(questions, groups, plan))
    except RefusedError as error:
        raise ModelError(f"{calculator.name} refuses these layers ({error})") from None


def lengths_of(plan: MemoryPlan) -> list[int]:
    """Lengths from one block to the longest asked about, in whole blocks and evenly on a scale of doublings, with those
    that the plan names."""
    longest = max(plan.limit_tokens, plan.max_model_len_tokens)
    block = min(longest, *(max(1, group.block_size_tokens) for group in plan.groups))
    doublings = log2(longest / block)
    steps = min(STEPS_TO_THE_DOUBLE, max(1, int(MOST_LENGTHS / max(1, doublings))))
    lengths = {round(2 ** (step / steps)) * block for step in range(int(doublings * steps) + 1)}
    named = {plan.max_model_len_tokens, plan.longest_fit_tokens, plan.longest_usable_tokens, plan.model_longest_tokens}
    return sorted(length for length in lengths | named | {longest} if 0 < length <= longest)


def _growth(questions: Questions, groups: list[tuple[list[str], Spec]], plan: MemoryPlan) -> tuple[Growth, ...]:
    lengths = lengths_of(plan)
    blocks = [questions.request_blocks_at(spec, lengths) for _, spec in groups]
    times = [questions.concurrency(plan.num_blocks, length) for length in lengths]
    return tuple(
        Growth(length, held, many if isfinite(many) else None)
        for length, held, many in zip(lengths, zip(*blocks, strict=True), times, strict=True)
    )


def _shares(questions: Questions, groups: list[tuple[list[str], Spec]], ranks: int) -> tuple[LayerShare, ...]:
    """Each layer, in the order of the model."""
    stages = {name: number // ranks for number, layers in enumerate(questions.workers) for name, _ in layers}
    shares: dict[str, LayerShare] = {}
    for number, (names, spec) in enumerate(groups):
        members = members_of(names, spec)
        sizes = {id(member): (questions.page(member), questions.stored(member)) for member in members}
        for name, member in zip(names, members, strict=True):
            shares[name] = LayerShare(name, number, stages[name], *sizes[id(member)])
    return tuple(shares[name] for name, _ in questions.layers)
