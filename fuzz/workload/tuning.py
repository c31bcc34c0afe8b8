"""How the generator draws: the numbers in it that the detection benchmark is about (docs/evidence/detection.md)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ...model.ops import Shape
from .bounds import sink_blocks


@dataclass(frozen=True)
class Tuning:
    """The odds of a run. Those of a sequence are drawn for a whole run, each number in it as likely as another."""

    swarm: Sequence[int] = (0, 0, 1, 1, 4)
    """Swarm testing: how much more often an action is drawn in a whole run; with 0 it is off."""
    hot_prefixes: bool = True
    """Prompts share prefixes, one more often than others; without, only what is sent again does."""
    again: Sequence[int] = (0, 3, 6, 6)
    """How many of 8 prompts are those of an earlier request, or begin with them."""
    features: int = 3
    """In how many of 8 runs requests have adapters, salts, items or embeddings."""
    boundaries: int = 4
    """How many of 8 other prompts end just behind a place where hits can end."""
    cuts: int = 3
    """Weight of evicting blocks of an earlier request, which is then sent again and looked up."""
    peels: Sequence[int] = (0, 3, 3, 6)
    """How many of 8 hits lose a block of one group before they are used, and are looked up again."""
    ladder: int = 7
    """How many of 8 further hits of such a request lose one more block."""
    answers: int = 6
    """How many of 8 requests that are sent again are answered as they were before."""
    tight: int = 4
    """How many of 8 reservations leave about as much as is asked for."""
    preempting: Sequence[int] = (1, 1, 2)
    """How many of 3 requests that make room after a refusal are preempted and not freed."""
    deep: int = 6
    """How many of 8 hybrids have many places where a hit may end, and room for some requests."""
    rounds: int = 2
    """How many more runs of each type whose lookups can take several rounds come in every turn but the first."""
    steps: int = 1
    """How many runs about steps of long requests come in every turn but the first (`turns.in_turn`)."""
    meetings: int = 0
    """Weight of decoding a request to the end of a block, where another one meets it within the step."""
    batches: int = 0
    """Weight of steps of several requests in one call."""
    flights: int = 0
    """How many of 8 steps are allocated while earlier ones are in flight."""
    refusals: Sequence[int] = ()
    """How many of 8 allocations are asked for while the world gives out; only of a target that offers that."""
    pools: Literal["any", "small", "large"] = "any"
    """Blocks: from nearly none to enough for everything, only few, or always enough."""
    drain: bool = True
    """A run ends with everything given back."""
    operations: int = 80
    """Of one run, before its pool is drained: few, so that many cores are tried."""
    reads_only: bool = False
    """Calls that only read: nothing can be found so. The check of the benchmark itself."""

    def sized(self, shape: Shape) -> Shape:
        """The shape with a pool as wanted."""
        if self.pools == "any":
            return shape
        sinks = sink_blocks(shape.groups)
        few = 4 + 2 * len(shape.groups)
        return replace(shape, num_blocks=sinks + (few if self.pools == "small" else 64))


USUAL_TUNING = Tuning()
"""What every run draws by, unless something else is asked for."""
