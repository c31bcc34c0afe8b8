"""What has to be known of a core to say which operations make sense for it, and to judge what it does.

The model is one such scene. Another is what a scheduler knows of a core that it drives without a model.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from .ops import Operation, Outcome, Shape
from .requests import Request


class Holdings(Protocol):
    """Who holds which block, and which blocks carry an identity."""

    @property
    def tables(self) -> Sequence[Mapping[str, Sequence[int]]]:
        """Per group, the block table of every request; 0 is the null block."""
        ...

    @property
    def outside(self) -> Sequence[int]:
        """Blocks that somebody without a table holds, once per reference."""
        ...

    @property
    def out_of_reach(self) -> Sequence[int]:
        """Blocks that nobody outside can know of, so that nobody touches them."""
        ...

    @property
    def identity(self) -> Mapping[int, object]:
        """Blocks that carry an identity."""
        ...

    def references(self) -> list[int]:
        """References per block; the null block's is 0."""
        ...


class Scene(Protocol):
    """A core in the eyes of its scheduler."""

    @property
    def shape(self) -> Shape:
        """What it was built from."""
        ...

    @property
    def requests(self) -> Mapping[str, Request]:
        """Requests that were submitted and not freed yet."""
        ...

    @property
    def item_lengths(self) -> Mapping[str, int]:
        """Lengths in tokens of the multimodal items seen so far, by identifier."""
        ...

    @property
    def registered(self) -> Sequence[Mapping[str, int]]:
        """Per group, how many leading table entries of a running request count as registered."""
        ...

    @property
    def state(self) -> Holdings:
        """Blocks and their holders."""
        ...

    @property
    def last(self) -> tuple[Operation, Outcome] | None:
        """The operation before, with its outcome."""
        ...

    @property
    def just_looked_up(self) -> str | None:
        """The request whose lookup was the operation before: its hit may be used."""
        ...
