"""Simpler shapes for a trace: what the reducer tries on the core that is built (`shrink`).

Sizes depend on each other (hash and scheduler blocks on the groups' blocks, windows on blocks, prompts on all of them),
so that most steps change several of them at once.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import gcd
from typing import Any, TypeVar

from ...model.ops import Advance, Allocate, AllocateBatch, Group, Operation, Shape, Submit
from ..findings.finding import Trace
from ..kinds import KINDS
from .simplify import EXHAUSTIVE, SIMPLE_FIRST, variants
from .trace_file import shape_problems

T = TypeVar("T")


def simpler_shapes(trace: Trace) -> Iterator[Trace]:
    """One thing about the shape simpler, also with the sizes that depend on it made to fit."""
    shape = trace.shape
    kinds = (
        replace(shape, groups=(*shape.groups[:i], Group(kind, group.block_size), *shape.groups[i + 1 :]))
        for i, group in enumerate(shape.groups)
        for kind in SIMPLE_FIRST[: SIMPLE_FIRST.index(group.kind)]
    )
    for source in (_shape_variants(shape), kinds):
        for other in source:
            if any(shape_problems(other)):
                continue
            yield replace(trace, shape=other)
            if other.groups:
                yield replace(trace, shape=fitted(other))


def _shape_variants(shape: Shape) -> Iterator[Shape]:
    return (other for other in variants(shape) if isinstance(other, Shape))


def fitted(shape: Shape) -> Shape:
    """The shape with the smallest hash and scheduler block sizes that its groups allow, the retention in proportion."""
    least = shape.least_scheduler_block_size
    alone = len(shape.groups) == 1
    hashed = least if alone else gcd(*(group.block_size for group in shape.groups))
    kept = shape.retention_interval
    if kept:
        kept = max(1, kept // shape.scheduler_block_size) * least
    return replace(shape, hash_block_size=hashed, scheduler_block_size=least, retention_interval=kept)


def smaller_blocks(trace: Trace) -> Iterator[Trace]:
    """Smaller blocks, alone or with everything that is counted in tokens in proportion."""
    sizes = sorted({group.block_size for group in trace.shape.groups})
    common = gcd(*sizes)
    for new in [*range(1, min(common, EXHAUSTIVE)), *([common // 2] if common > EXHAUSTIVE else [])]:
        for ceil in (0, common - 1):

            def scale(tokens: int, new: int = new, ceil: int = ceil) -> int:
                return (tokens * new + ceil) // common

            blocks_only = tuple(replace(g, block_size=scale(g.block_size)) for g in trace.shape.groups)
            yield replace(trace, shape=fitted(replace(trace.shape, groups=blocks_only)))
            shape = fitted(_scaled_shape(trace.shape, scale))
            yield replace(trace, shape=shape)
            yield Trace(shape, tuple(_scaled(op, scale, common, new) for op in trace.operations))


def one_rank(trace: Trace) -> Iterator[Trace]:
    """One rank instead of several, with everything that is counted in tokens of all ranks in proportion."""
    shape, ranks = trace.shape, trace.shape.parallel
    for ceil in (0, ranks - 1) if ranks > 1 else ():

        def scale(tokens: int, ceil: int = ceil) -> int:
            return (tokens + ceil) // ranks

        alone = _scaled_shape(replace(shape, decode_parallel=1, prefill_parallel=1), scale)
        sizes = zip(alone.groups, shape.groups, strict=True)
        groups = tuple(replace(group, block_size=was.block_size) for group, was in sizes)
        yield Trace(
            fitted(replace(alone, groups=groups)), tuple(_scaled(op, scale, ranks, 1) for op in trace.operations)
        )


def _scaled_shape(shape: Shape, scale: Callable[[int], int]) -> Shape:
    groups = tuple(replace(group, block_size=scale(group.block_size), **_sizes(group, scale)) for group in shape.groups)
    longest, batched = max(1, scale(shape.max_model_len)), max(1, scale(shape.max_num_batched_tokens))
    return replace(shape, groups=groups, max_model_len=longest, max_num_batched_tokens=batched)


def _sizes(group: Group, scale: Callable[[int], int]) -> dict[str, Any]:
    """The windows and other sizes of a group, none smaller than a trace may have it."""
    sizes = {name: (getattr(group, name), least) for kind in KINDS.values() for name, least in kind.needs.items()}
    return {name: max(scale(size), min(size, least)) for name, (size, least) in sizes.items()}


def _scaled(op: Operation, scale: Callable[[int], int], old: int, new: int) -> Operation:
    """The operation with its token counts in proportion; of each block the first tokens stay."""

    def sample(tokens: tuple[T, ...]) -> tuple[T, ...]:
        places = (i // new * old + i % new for i in range(scale(len(tokens))))
        return tuple(tokens[place] for place in places if place < len(tokens))

    if isinstance(op, Submit):
        return replace(op, prompt=sample(op.prompt), embeds=op.embeds and sample(op.embeds), items=())
    if isinstance(op, Advance):
        return replace(op, sampled=op.sampled[: scale(len(op.sampled))])
    if isinstance(op, Allocate):
        new_tokens, external, lookahead = scale(op.new_tokens), scale(op.external), scale(op.lookahead)
        encoder_tokens = scale(op.encoder_tokens)
        op = replace(op, new_tokens=new_tokens, external=external, lookahead=lookahead, encoder_tokens=encoder_tokens)
        return replace(op, in_flight=scale(op.in_flight))
    if isinstance(op, AllocateBatch):
        new_tokens, lookahead, in_flight = map(scale, (op.new_tokens, op.lookahead, op.in_flight))
        return replace(op, new_tokens=new_tokens, lookahead=lookahead, in_flight=in_flight)
    return op
