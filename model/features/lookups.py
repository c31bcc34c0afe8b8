"""A lookup for a request whose other tokens a connector may bring: a state is worth nothing but at the end of what is
computed, and the connector brings the one that is needed with its tokens. So states may end before the hit."""

from .. import arith
from ..attention import Mamba
from ..state import Request
from ..tables import BlockIds, Core
from .inside import Names, alike, hit


def for_connector(core: Core, request: Request) -> tuple[int, BlockIds, bool]:
    """Tokens of the longest hit of all groups but those of states, its blocks, and whether states end before it; then
    tokens from outside must follow. The row of a state group is that of its own longest hit up to there."""
    states = [group for group, rule in enumerate(core.rules) if isinstance(rule, Mamba)]
    others = [group for group in range(len(core.rules)) if group not in states]
    if not states or not any(core.rules[group].is_full for group in others):
        return *hit(core, request), False
    names = Names(core, request)
    length = longest(core, names, others, min(names.limit, request.limit))
    ends = {group: longest(core, names, alike(core, core.rules[group]), length) for group in states}
    blocks = [names.blocks([group], ends.get(group, length)) for group in range(len(core.rules))]
    return length, [rows[0] if rows else [] for rows in blocks], min(ends.values()) < length


def longest(core: Core, names: Names, groups: list[int], limit: int) -> int:
    """Tokens of the longest hit of these groups within the limit."""
    ends = range(arith.down(limit, core.alignment), 0, -core.alignment)
    return next((end for end in ends if all(names.blocks([group], end) is not None for group in groups)), 0)
