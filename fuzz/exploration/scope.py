"""A scope: which core is explored, which requests come, and what a scheduler may do with them. A scope is data.

Everything in it is small, so that every reachable state can be visited: a few blocks, two or three requests at a time,
a handful of prompts over two token values. A request that has left makes room for the next, without end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, lcm

from ...model.ops import Group, Shape

NAMES = "abcd"
"""Requests that are there at the same time, by slot."""
MAX_CODE = 250
"""Most sequences, blocks, tokens or contents a scope may number: a packed state has one byte for each (packing)."""


class ScopeError(ValueError):
    """A scope that cannot be explored; the text is one line that says why and what to change."""


@dataclass(frozen=True)
class Scope:
    """What is explored. All lengths in tokens."""

    name: str
    shape: Shape
    requests: int
    """Requests that are there at the same time, at most."""
    prompts: tuple[tuple[int, ...], ...]
    """What a request may ask for."""
    outputs: int
    """Tokens sampled for each request; with the last one it has finished."""
    sampled: tuple[int, ...] = (0,)
    """Values a sampled token may have."""
    chunks: tuple[int, ...] = (1, 2)
    """How many new tokens a step may compute; at most those that are left."""
    drafts: int = 0
    """Draft tokens a decode step may carry, from 0 to this many; each may be accepted or rejected."""
    lookahead: int = 0
    """Slots that each allocation asks for beyond its tokens."""
    gate: bool = False
    """True if the first allocation of a request is refused unless its whole sequence fits."""
    reserved: tuple[int, ...] = (0,)
    """Blocks that the first allocation of a request may have to leave to others."""
    external: tuple[int, ...] = ()
    """How many tokens behind its hit a request may get from outside (a connector), besides none."""
    delay: bool = False
    """True if such tokens may arrive later, when others have acted in between."""
    fails: bool = False
    """True if the last of such tokens may not arrive at all."""
    abort: bool = True
    """True if a request may be aborted at any time."""
    evict: bool = False
    """True if any registered block may be evicted from outside, one at a time, and the cache reset."""
    must_reach: tuple[str, ...] = ()
    """What some transition must bring about (`situations`): else the scope is too small to mean much."""

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ScopeError(f"scope {self.name}: {problem}")

    def _problems(self) -> Sequence[str]:
        longest = max(map(len, self.prompts), default=0) + self.outputs
        return [
            text
            for wrong, text in (
                (not 1 <= self.requests <= len(NAMES), f"{self.requests} requests: give 1 to {len(NAMES)}"),
                (
                    not self.prompts or not all(self.prompts),
                    "there is no prompt, or an empty one: give at least 1 token",
                ),
                (self.outputs < 1, f"{self.outputs} output tokens: give at least 1"),
                (not self.sampled, "no sampled token value: give at least one"),
                (not self.reserved or min(self.reserved) < 0, f"reserved {self.reserved}: give 0 or more blocks"),
                (any(tokens < 1 for tokens in self.external), f"external {self.external}: give positive numbers"),
                (self.delay and not self.external, "delay without external tokens: say how many may arrive"),
                (self.fails and not self.delay, "a load that fails, and none that arrives later: set delay"),
                (not self.chunks or min(self.chunks) < 1, f"chunks {self.chunks}: give positive numbers"),
                (
                    longest > self.shape.max_model_len,
                    f"a request may reach {longest} tokens, the model length is {self.shape.max_model_len}: raise it",
                ),
                (
                    max(self.shape.num_blocks, self.shape.max_model_len) >= MAX_CODE,
                    f"{self.shape.num_blocks} blocks, model length {self.shape.max_model_len}: "
                    f"keep both below {MAX_CODE}",
                ),
            )
            if wrong
        ]


def shape_of(groups: Sequence[Group], blocks: int, max_len: int, batched: int, **switches: object) -> Shape:
    """A shape with events; block sizes decide what hashes name and where hits end."""
    sizes = [group.block_size for group in groups]
    single = len(groups) == 1
    return Shape(
        groups=tuple(groups),
        num_blocks=blocks,
        max_model_len=max_len,
        hash_block_size=sizes[0] if single else gcd(*sizes),
        scheduler_block_size=sizes[0] if single else lcm(*sizes),
        max_num_batched_tokens=batched,
        events=True,
        **switches,  # type: ignore[arg-type]
    )
