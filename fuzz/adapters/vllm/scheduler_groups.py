"""Groups of layers of the engines that a release's scheduler drives: kinds alone, and hybrids that models have."""

from collections.abc import Mapping
from random import Random

from ....model.ops import Group


def draw_of_mix(random: Random, drafts: int) -> tuple[Group, ...]:
    """The groups of a mix that runs over two cores."""
    size = random.choice((4, 8, 16))
    full = Group("full", size)
    sliding = Group("sliding", size, window=random.choice((size, 2 * size - 1, 3 * size + 1)))
    chunked = Group("chunked", size, chunk=size * random.choice((2, 4)))
    mamba = Group("mamba", size, mamba_mode="align", speculative_blocks=drafts)
    kinds: tuple[tuple[Group, ...], ...] = (
        (full,),
        (sliding,),
        (chunked,),
        (full, sliding),
        (full, Group("sliding", 2 * size, window=3 * size)),
        (full, chunked),
        (full, mamba),
        (mamba,),
        (full, sliding, mamba),
    )
    return random.choice(kinds)


def draw_with_connector(random: Random, drafts: int) -> tuple[Group, ...]:
    """The groups of a mix with one of the release's own connectors."""
    size = random.choice((4, 16))
    full, state = Group("full", size), Group("mamba", size, mamba_mode="align", speculative_blocks=drafts)
    window = Group("sliding", size, window=random.choice((size, 2 * size - 1, 3 * size + 1)))
    kinds: tuple[tuple[Group, ...], ...] = (
        (full,),
        (full, window),
        (full, Group("sliding", 2 * size, window=5 * size)),
        (Group("full", 2 * size), window),
        (full, window, Group("sliding", size, window=6 * size)),
        (full, Group("chunked", size, chunk=4 * size)),
        (full, state),
        (full, window, state),
        (full, state, state),
    )
    return random.choice(kinds)


TIMED: Mapping[str, tuple[Group, ...]] = {
    "full": (Group("full", 16),),
    "full+sliding": (Group("full", 16), Group("sliding", 16, window=1024)),
}
"""Engines whose scheduler is timed."""
TRIED: Mapping[str, tuple[Group, ...]] = {
    "full": (Group("full", 16),),
    "full + window": (Group("full", 16), Group("sliding", 16, window=32)),
    "full + states": (Group("full", 16), Group("mamba", 16, mamba_mode="align")),
}
"""Engines of which it is told whether they can be built with a connector."""
