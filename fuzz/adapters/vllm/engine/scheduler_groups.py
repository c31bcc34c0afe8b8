"""Groups of layers of the engines that a release's scheduler drives: kinds alone, and hybrids that models have."""

from collections.abc import Mapping
from random import Random

from .....model.ops import Group


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


TIMED: Mapping[str, tuple[Group, ...]] = {
    "full": (Group("full", 16),),
    "full+sliding": (Group("full", 16), Group("sliding", 16, window=1024)),
}
"""Engines whose scheduler is timed."""
