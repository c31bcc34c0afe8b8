"""What the simulated device keeps of a request, and of a transfer that is under way."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .contents import TokenContents
from .memory import Slot
from .protocol import SlotTransfer, StepResults

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
    overtaken: Mapping[Slot, int]
    """Slots into which a step in flight still writes, and what."""
    kept: dict[Slot, int] = field(default_factory=dict)
    """What must stay where it is."""
    is_over: bool = False


@dataclass(frozen=True)
class RanStep:
    """What came of a launched step."""

    results: StepResults
    wrong: tuple[str, ...]
    """What is wrong with it, a line each; what stands before the colon says where."""
    writes: frozenset[Slot] = frozenset()


class Voids:
    """For each step in flight, what stands where a load of it has failed, and what was computed with that: the engine
    cannot know yet that it is wrong, and nobody may use what the step samples."""

    def __init__(self) -> None:
        self._tags: deque[set[int]] = deque()

    def launched(self) -> None:
        """A step begins."""
        self._tags.append(set())

    def landed(self) -> None:
        """The engine hears of the oldest one."""
        self._tags.popleft()

    def add(self, tags: Iterable[int]) -> None:
        """These stand there by the step that was launched last."""
        self._tags[-1].update(tags)

    def __contains__(self, tag: int) -> bool:
        return any(tag in void for void in self._tags)
