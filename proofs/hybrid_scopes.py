"""The small scopes in which the search for a common hit is tried on every cache (T14)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd, lcm
from typing import TypeAlias

from ..model.ops import Group, Shape

Family: TypeAlias = tuple[tuple[Group, ...], int]
"""Groups without eagle flags, and the greatest limit of a hit, in tokens."""


@dataclass(frozen=True)
class Scope:
    """Groups, with their eagle flags, and the greatest limit of a hit, in tokens."""

    groups: tuple[Group, ...]
    tokens: int
    eagle: bool = False  # the model drafts with eagle: where no group is flagged, all are

    @property
    def name(self) -> str:
        """The groups with their sizes in tokens and the eagle flags (`*`), and the greatest limit."""
        return f"{self.family}, limits to {self.tokens}"

    @property
    def family(self) -> str:
        """The groups with their sizes in tokens and the eagle flags (`*`)."""
        return " + ".join(_group_name(group, self.is_eagle(i)) for i, group in enumerate(self.groups))

    @property
    def hash_block_size(self) -> int:
        """Greatest common divisor of the block sizes, in tokens."""
        return gcd(*(group.block_size for group in self.groups))

    @property
    def alignment(self) -> int:
        """Scheduler block size: least common multiple of the block sizes, in tokens."""
        return lcm(*(group.block_size for group in self.groups))

    @property
    def shape(self) -> Shape:
        """A core with these groups and room for two requests."""
        length = 2 * (self.tokens + 1 + self.alignment)
        return Shape(
            groups=self.groups,
            num_blocks=1 + 2 * length * len(self.groups),
            max_model_len=length,
            hash_block_size=self.hash_block_size,
            scheduler_block_size=self.alignment,
            max_num_batched_tokens=length,
            eagle=self.eagle,
        )

    def alike(self, group: int) -> tuple[int, ...]:
        """The groups whose spec equals that of this one: they are looked up together (core.md §9)."""
        return tuple(i for i, other in enumerate(self.groups) if other.spec == self.groups[group].spec)

    def is_eagle(self, group: int) -> bool:
        """True if the group is an eagle group (core.md §9); one flag counts for all alike."""
        everybody = self.eagle and not any(other.eagle for other in self.groups)
        return everybody or any(self.groups[i].eagle for i in self.alike(group))

    def gives_up(self, group: int) -> bool:
        """True if drafts need the block behind a hit in this group. A Mamba group has none: it uses one state."""
        return self.is_eagle(group) and self.groups[group].kind != "mamba"

    def block_id(self, group: int, i: int) -> int:
        """The block that every subject registers as block `i` of the content in this group."""
        return 1 + group * (self.tokens + 1) + i


def _group_name(group: Group, eagle: bool) -> str:
    sizes = {"b": group.block_size, "w": group.window, "k": group.chunk}
    named = " ".join(f"{letter}={number}" for letter, number in sizes.items() if number)
    return f"{group.kind}{'*' * eagle}({named})"


def _flagged(groups: Sequence[Group], tokens: int) -> Iterator[Scope]:
    """The groups without eagle, with each one flagged, and with all."""
    yield Scope(tuple(groups), tokens)
    every = list(range(len(groups)))
    for flags in [[flag] for flag in every] + [every]:
        if len(flags) == len(groups):
            yield Scope(tuple(groups), tokens, eagle=True)
        else:
            flagged = [replace(group, eagle=i in flags) for i, group in enumerate(groups)]
            yield Scope(tuple(flagged), tokens)


def full(b: int) -> Group:
    """Full attention with `b` tokens a block."""
    return Group("full", b)


def latent(b: int) -> Group:
    """A second kind of full attention."""
    return Group("mla", b)


def sliding(b: int, w: int) -> Group:
    """A window of `w` tokens."""
    return Group("sliding", b, window=w)


def chunked(b: int, k: int) -> Group:
    """Chunks of `k` tokens."""
    return Group("chunked", b, chunk=k)


def mamba(b: int) -> Group:
    """A state every `b` tokens."""
    return Group("mamba", b, mamba_mode="all")


SMALL: tuple[Family, ...] = (
    *[((full(1), sliding(1, w)), 4) for w in (1, 2, 3)],
    ((full(1), sliding(1, 5)), 5),
    *[((full(1), chunked(1, k)), 4) for k in (1, 2, 3)],
    ((full(1), mamba(1)), 5),
    ((full(1), latent(1)), 4),
    ((sliding(1, 2), sliding(1, 3)), 5),
    *[((sliding(1, w), mamba(1)), 4) for w in (1, 3)],
    ((sliding(1, 3), chunked(1, 2)), 4),
    ((chunked(1, 3), mamba(1)), 4),
    *[((full(2), sliding(2, w)), 9) for w in (2, 3, 4)],
    ((full(2), chunked(2, 4)), 9),
    ((full(2), mamba(2)), 9),
    # Blocks of different sizes: hits are aligned to the largest.
    *[((full(2), sliding(1, w)), 5) for w in (1, 2, 3, 5)],
    *[((full(1), sliding(2, w)), 5) for w in (2, 4)],
    ((full(4), sliding(1, 4)), 6),
    ((full(4), sliding(2, 6)), 10),
    ((full(2), mamba(1)), 5),
    ((full(1), mamba(4)), 5),
    ((full(1), chunked(2, 4)), 5),
    ((sliding(1, 3), mamba(2)), 5),
    ((full(2), latent(1)), 6),
    # Three types: one round is not enough.
    ((full(1), sliding(1, 2), sliding(1, 3)), 4),
    ((full(1), sliding(1, 3), mamba(1)), 3),
    ((full(1), sliding(1, 3), chunked(1, 2)), 3),
    ((full(1), chunked(1, 2), mamba(1)), 3),
    ((full(1), latent(1), sliding(1, 2)), 3),
    ((sliding(1, 2), sliding(1, 3), sliding(1, 4)), 3),
    ((sliding(1, 2), sliding(1, 3), mamba(1)), 3),
    ((full(2), sliding(1, 3), mamba(2)), 5),
    ((full(4), sliding(2, 3), sliding(1, 3)), 5),
    ((full(1), sliding(1, 2), sliding(1, 2)), 3),
)
"""Groups and greatest limits of the scopes that run by default."""

ASTRIDE: tuple[Family, ...] = (
    ((full(2), chunked(2, 3)), 9),
    ((full(2), chunked(2, 5)), 9),
    ((full(1), chunked(2, 5)), 6),
    ((chunked(2, 3), mamba(2)), 9),
)
"""Chunks that start inside a block (core.md, `chunk-astride-block`)."""


def scopes(families: Sequence[Family] = (*SMALL, *ASTRIDE)) -> tuple[Scope, ...]:
    """Each family without eagle, with each of its groups flagged, and with all."""
    return tuple(scope for groups, tokens in families for scope in _flagged(groups, tokens))
