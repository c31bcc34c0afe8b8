"""Full reports: events that tell somebody outside, a router say, of the blocks that a lookup has found."""

from ..decisions import stored
from ..ops import NULL
from ..state import Request
from ..tables import BlockIds, Core


def report(core: Core, request: Request, length: int, rows: BlockIds) -> None:
    """Tell of the hit, group by group, as if its blocks were stored anew from the start of the prompt: of those that
    are there, up to the last token that was found."""
    for group, row in enumerate(rows):
        b = core.rules[group].b
        places = [(i * b, min((i + 1) * b, length)) for i, block in enumerate(row) if block != NULL]
        if places:
            tell(core, request, group, places, length)


def tell(core: Core, request: Request, group: int, places: list[tuple[int, int]], length: int) -> None:
    """Tell of the blocks at these places, from where to where in tokens, of the first `length` tokens."""
    size = places[0][1] - places[0][0]
    core.state.events.append(stored(core, group, request, places, (0, length), size))
