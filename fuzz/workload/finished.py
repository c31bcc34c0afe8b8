"""What follows from the rest of a drawn shape."""

from collections.abc import Sequence
from dataclasses import replace

from ...model.ops import Group, Shape

SAMPLINGS = (0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0, 0)
"""One block in how many is followed by metrics, none for 0."""


def finished_shape(shape: Shape) -> Shape:
    """The shape with what is looked at besides, metrics and digests in events, and with distinct specs where it caches.

    It follows from the rest, so that it costs no choice: what else is drawn does not depend on it.
    """
    groups = _with_distinct_specs(shape.groups) if shape.caching else shape.groups
    sizes = shape.num_blocks + shape.max_model_len
    sampling = SAMPLINGS[sizes % len(SAMPLINGS)]
    return replace(shape, groups=tuple(groups), sampling=sampling, event_digests=shape.events and sizes % 3 == 0)


def _with_distinct_specs(groups: Sequence[Group]) -> Sequence[Group]:
    """The groups, the last one changed if all specs are equal: a hybrid that caches has distinct specs (core.md §9)."""
    if len(groups) > 1 and len({group.spec for group in groups}) == 1:
        return (*groups[:-1], replace(groups[-1], num_heads=2))
    return groups
