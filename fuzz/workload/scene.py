"""`Scene`: the state of a core as its scheduler knows it, from which the next operation is chosen.

The model is a scene. In a model-free run the scene is made of the core's answers (`fuzz.runs.scheduler_view`).
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ...model.ops import Operation, Outcome, Shape
from ...model.state import Request


class Holdings(Protocol):
    """Who holds which block, and which blocks carry an identity."""

    @property
    def tables(self) -> Sequence[Mapping[str, Sequence[int]]]:
        """Per group, the block table of every request; 0 is the null block."""
        ...

    @property
    def outside(self) -> Sequence[int]:
        """Blocks that outside holders (connectors) hold, once per reference."""
        ...

    @property
    def sinks(self) -> Sequence[int]:
        """Blocks that the core has set aside for ever, so that no operation may touch them."""
        ...

    @property
    def identity(self) -> Mapping[int, object]:
        """Blocks that carry an identity."""
        ...

    def references(self) -> list[int]:
        """References per block; the null block's is 0."""
        ...


class Scene(Protocol):
    """A core as its scheduler knows it."""

    @property
    def shape(self) -> Shape:
        """The shape from which it was built."""
        ...

    @property
    def requests(self) -> Mapping[str, Request]:
        """Requests that were submitted and not freed yet."""
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
        """The last operation, with its outcome."""
        ...

    @property
    def just_looked_up(self) -> str | None:
        """The request of the last operation if that was a lookup: its hit may be used now."""
        ...
