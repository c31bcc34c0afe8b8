"""Runs about lookups that take several rounds: one group shortens a hit, and another one must be asked again.

Few cores of few attention types can show what goes wrong there, so they come more often than the others, once each
type has had its turn.
"""

from collections.abc import Sequence
from dataclasses import replace

from ...model.attention import RULES
from ...model.ops import Kind, Shape
from .draw import Draw
from .finished import finished_shape
from .tuning import Tuning

_PLACES = 8
"""Where a hit may end in such a core."""


def takes_rounds(kinds: Sequence[Kind]) -> bool:
    """True if two groups of these kinds can serve hits behind holes, one of them where a draft model reads on.

    >>> takes_rounds(("sliding", "mamba")), takes_rounds(("full", "sliding"))
    (True, False)
    """
    rules = [RULES[kind] for kind in kinds]
    behind_holes = [rule for rule in rules if not (rule.is_full or rule.scratch)]
    return len(behind_holes) > 1 and any(rule.windowed for rule in behind_holes)


def with_rounds(draw: Draw, shape: Shape) -> Shape:
    """The shape with many places where a hit may end, narrow windows, drafts that read on behind each hit, and a pool
    that holds the longest request in one group at least, in all groups at most."""
    groups = [replace(group, eagle=False, window=min(group.window, 2 * group.block_size)) for group in shape.groups]
    length = _PLACES * shape.scheduler_block_size + 1
    tables = [-(-length // group.block_size) for group in groups]
    return finished_shape(
        replace(
            shape,
            groups=tuple(groups),
            num_blocks=2 + max(draw.integer(max(tables), sum(tables)) for _ in range(2)),
            max_model_len=length,
            caching=True,
            eagle=True,
            retention_interval=shape.retention_interval or None,
        )
    )


def about_rounds(tuning: Tuning) -> Tuning:
    """How such a run draws: groups often lose blocks apart from each other."""
    return replace(tuning, cuts=3 * tuning.cuts)
