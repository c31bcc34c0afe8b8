"""Shapes and operations without what a target lacks. The names are those of `declarations.LACKS`."""

from collections.abc import Collection
from dataclasses import fields, replace
from functools import cache
from itertools import accumulate
from typing import Any

from ...model.attention import RULES, Mamba
from ...model.ops import Allocate, AllocateBatch, Group, Operation, Shape, Submit
from ..findings.starved import EVERY_OPERATION, Starved
from .declarations import OFFERS, in_shape


def adapted_shape(shape: Shape, lacks: Collection[str]) -> Shape:
    """The shape without the features that a target has no equivalent of (`base.lacking`).

    Groups stay, also those of a kind that the target does not have: such a core cannot be built there.
    """
    if not {*lacks} - OFFERS.keys():
        return _without_offers(shape, lacks)
    lacks = in_shape(lacks, shape)
    shape = _with_fewer_ranks(shape, lacks)
    if "Group.block_size" in lacks:
        shape = _of_one_block_size(shape)
    if "Shape.hash_block_size" in lacks:
        shape = replace(shape, hash_block_size=shape.groups[0].block_size * shape.parallel)
    if "Shape.scheduler_block_size" in lacks:
        shape = replace(shape, scheduler_block_size=shape.least_scheduler_block_size)
    if "Shape.max_num_batched_tokens" in lacks:
        most = max(shape.max_model_len, *(group.block_size for group in shape.groups))
        shape = replace(shape, max_num_batched_tokens=most)
    if "Shape.retention_interval" in lacks:
        shape = replace(shape, retention_interval=None)
    cacheable = all(RULES[group.kind].cacheable for group in shape.groups)
    shape = replace(
        shape,
        caching=(shape.caching or ("Shape.caching=False" in lacks and cacheable)) and "Shape.caching" not in lacks,
        eagle=shape.eagle and "Shape.eagle" not in lacks,
        events=shape.events and "Shape.events" not in lacks,
        stats=shape.stats and "Shape.stats" not in lacks,
        event_digests=shape.event_digests and "Shape.event_digests" not in lacks,
        sampling=0 if "Shape.sampling" in lacks else shape.sampling,
    )
    shape = _without_offers(shape, lacks)
    groups = [_adapted_group(group, shape.caching, lacks) for group in shape.groups]
    return replace(shape, groups=tuple(_told_apart(groups, lacks) if shape.caching else groups))


def _without_offers(shape: Shape, lacks: Collection[str]) -> Shape:
    """The shape without what few cores have."""
    if "Shape.watermark" in lacks and shape.watermark:
        shape = replace(shape, watermark=0)
    if "Shape.old_names" in lacks and shape.old_names:
        shape = replace(shape, old_names=False)
    if "Shape.reads_ahead" in lacks and shape.reads_ahead > 1:
        shape = replace(shape, reads_ahead=1)
    if "Shape.names_junctions" in lacks and shape.names_junctions:
        shape = replace(shape, names_junctions=False)
    if "Group.checkpoint" in lacks and any(group.checkpoint for group in shape.groups):
        shape = replace(shape, groups=tuple([replace(group, checkpoint=0) for group in shape.groups]))
    return shape


def _with_fewer_ranks(shape: Shape, lacks: Collection[str]) -> Shape:
    if "Shape.prefill_parallel" in lacks and shape.prefill_parallel > 1:
        shape = replace(shape, hash_block_size=shape.hash_block_size // shape.prefill_parallel, prefill_parallel=1)
    if "Shape.decode_parallel" in lacks and shape.decode_parallel > 1:
        shape = replace(shape, hash_block_size=shape.hash_block_size // shape.decode_parallel, decode_parallel=1)
    return shape


def _of_one_block_size(shape: Shape) -> Shape:
    """The shape with the block size of the first group for all; what is counted in blocks stays as many blocks."""
    size = shape.groups[0].block_size
    groups = tuple(
        replace(group, block_size=size, sink_len=group.sink_len // group.block_size * size) for group in shape.groups
    )
    scheduler = shape.scheduler_block_size // shape.least_scheduler_block_size * size * shape.parallel
    interval = shape.retention_interval
    if interval is not None:
        interval = interval // shape.scheduler_block_size * scheduler
    return replace(shape, groups=groups, scheduler_block_size=scheduler, retention_interval=interval)


def _adapted_group(group: Group, caching: bool, lacks: Collection[str]) -> Group:
    if "Group.eagle" in lacks:
        group = replace(group, eagle=False)
    if "Group.num_heads" in lacks:
        group = replace(group, num_heads=1)
    if "Group.mamba_mode" in lacks and caching and RULES[group.kind] is Mamba:
        group = replace(group, mamba_mode="align")
    if "Group.speculative_blocks" in lacks:
        group = replace(group, speculative_blocks=0)
    return group


def _told_apart(groups: list[Group], lacks: Collection[str]) -> list[Group]:
    """The groups, the last one changed if all specs are equal: a hybrid that caches has distinct specs (core.md §9)."""
    if len(groups) < 2 or len({group.spec for group in groups}) > 1:
        return groups
    last = groups[-1]
    if "Group.num_heads" not in lacks:
        return [*groups[:-1], replace(last, num_heads=2)]
    return [*groups[:-1], replace(last, window=last.window + 1) if last.window else last]


def adapted(operation: Operation, lacks: Collection[str]) -> Operation | None:
    """The operation without the fields that a target has no equivalent of (`base.lacking_in` the shape); None if it
    lacks it entirely."""
    if not lacks:
        return operation
    kind = type(operation).__name__
    if kind in lacks:
        return None
    defaults = _defaults(kind, frozenset(lacks))
    changed = {name: value for name, value in defaults if getattr(operation, name) != value}
    operation = replace(operation, **changed) if changed else operation
    return _adapted_prompt(operation, lacks) if isinstance(operation, Submit) else operation


def _adapted_prompt(submit: Submit, lacks: Collection[str]) -> Submit:
    """The request with rows of zeros in place of tokens beside embeddings, and without items on tokens of others."""
    if "mixed_prompts" in lacks and submit.embeds is not None and None in submit.embeds:
        submit = replace(submit, prompt=(0,) * len(submit.prompt), embeds=tuple(row or 0 for row in submit.embeds))
    if "overlapping_items" in lacks:
        ends = [0, *accumulate((item.offset + item.length for item in submit.items), max)]
        apart = tuple(item for item, end in zip(submit.items, ends, strict=False) if item.offset >= end)
        submit = replace(submit, items=apart) if apart != submit.items else submit
    return submit


@cache
def _defaults(kind: str, lacks: frozenset[str]) -> tuple[tuple[str, Any], ...]:
    """The fields of a kind of operation that a target lacks, each with its default; a batch is made of allocations, and
    `Starved` is one."""
    made = EVERY_OPERATION[kind]
    of = Allocate.__name__ if made in (AllocateBatch, Starved) else kind
    return tuple((one.name, one.default) for one in fields(made) if f"{of}.{one.name}" in lacks)
