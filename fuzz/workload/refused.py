"""Shapes that no core may be built of: a legal one with one thing wrong about it (core.md §§8, 9)."""

from collections.abc import Mapping
from dataclasses import replace

from ...model.attention import RULES
from ...model.ops import Shape


def refused_shapes(shape: Shape) -> Mapping[str, Shape]:
    """What can be wrong about this legal shape, in words, and the shape with it. None of them is legal.

    >>> from ...model.ops import Group
    >>> sorted(refused_shapes(Shape((Group("full", 1),), 9, 9, 1, 1, 9)))
    ['hash block size of one group', 'retention without windows']
    """
    hash_size, unit, shapes = shape.hash_block_size, shape.scheduler_block_size, {}
    if any(RULES[group.kind].windowed for group in shape.groups):
        shapes["retention below 0"] = replace(shape, retention_interval=-unit)
        if unit > 1:
            shapes["retention astride boundaries"] = replace(shape, retention_interval=unit + 1)
    else:
        shapes["retention without windows"] = replace(shape, retention_interval=unit)
    if shape.least_scheduler_block_size > 1:
        shapes["scheduler block astride blocks"] = replace(shape, scheduler_block_size=unit + 1)
    if not shape.caching:
        return shapes
    if any(group.eagle for group in shape.groups) and not any(group.sink_len for group in shape.groups):
        # Where a core with sinks cannot be built at all, it is open what is wrong first.
        chain = replace(shape, reads_ahead=unit + 1, names_junctions=False, old_names=False)
        shapes["chain longer than a scheduler block"] = chain
    if len(shape.groups) == 1:
        shapes["hash block size of one group"] = replace(
            shape, hash_block_size=2 * hash_size, scheduler_block_size=2 * unit, retention_interval=None
        )
    else:
        larger = 2 * shape.scheduler_block_size
        shapes["hash block larger than blocks"] = replace(
            shape, hash_block_size=larger, scheduler_block_size=larger, retention_interval=None
        )
        alike = tuple(replace(shape.groups[-1], eagle=group.eagle) for group in shape.groups)
        shapes["all groups alike"] = replace(shape, groups=alike, retention_interval=None)
    return shapes
