"""The theorems, by subject."""

from ..theorem import Statement
from . import (
    admission,
    extra_keys,
    free_queue,
    free_queue_any,
    grouping,
    hits,
    hybrid,
    identities,
    items,
    lengths,
    memory,
    page_sizes,
    prediction,
    queue_order,
    references,
    registering,
    searches,
    skipping,
    slots,
    states,
    views,
    windows,
)

FAMILIES = (
    admission,
    extra_keys,
    free_queue,
    free_queue_any,
    grouping,
    hits,
    hybrid,
    identities,
    items,
    lengths,
    memory,
    page_sizes,
    prediction,
    queue_order,
    references,
    registering,
    searches,
    skipping,
    slots,
    states,
    views,
    windows,
)

THEOREMS: tuple[Statement, ...] = tuple(
    sorted((theorem for family in FAMILIES for theorem in family.THEOREMS), key=lambda theorem: theorem.number)
)
"""All of them, in the order of their numbers."""

BY_ID = {theorem.id: theorem for theorem in THEOREMS}
