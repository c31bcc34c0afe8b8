"""What the simulated device keeps of a request, and of a transfer that is under way."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .contents import TokenContents
from .memory import Slot
from .protocol import SlotTransfer

DRAFTS_RIGHT = (0,)
"""None of them, where nothing is said."""


@dataclass
class OnDevice:
    """One request, as the device knows it."""

    contents: TokenContents
    rights: Sequence[int] = DRAFTS_RIGHT
    """For one step with drafts after the other, how many of those that the device proposes are right."""
    fixed: int = 0
    """So many of its tokens came from its client."""
    computed: int = 0
    steps: int = 0
    """With drafts."""
    states: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Per group of Mamba layers: how many tokens its state has seen, its table entry, and the block that held it."""
    tags: list[list[int]] = field(default_factory=list)
    """Per group, what the slots of its tokens must hold."""


@dataclass
class DeviceTransfer:
    """One that is under way."""

    told: SlotTransfer
    ends: int
    """The round in which it ends."""
    overtaken: frozenset[Slot]
    """Slots into which a step in flight still writes."""
    kept: dict[Slot, int] = field(default_factory=dict)
    """What must stay where it is."""
    is_over: bool = False
