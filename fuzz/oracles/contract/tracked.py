"""What the contract keeps of one request, and of what a block and a prompt were filled with (`RunRecord`)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ....model import ops
from ....model.attention import NO_STEP, Written


@dataclass
class Tracked:
    """A request; all lengths in tokens."""

    submit: ops.Submit
    contents: list[int]
    """Per known token, the content of the prefix that ends with it."""
    tokens: list[int] = field(default_factory=list)
    """The known tokens."""
    computed: int = 0
    scheduled: int = 0
    written: int = 0
    """Leading tokens that are in the cache, including those of the step in flight."""
    arriving: bool = False
    hit: tuple[int, list[list[int]]] | None = None
    """Result of the last lookup: tokens, and blocks per group."""
    asked: ops.Lookup | None = None
    """That lookup."""
    runs: bool = False
    """It was admitted; else it waits, also for tokens that are being loaded."""
    attached: int = 0
    """Tokens of the hit with which its tables began."""
    cut: int = 0
    """Largest number of computed tokens for which skipped entries may have been given up."""
    pending: list[tuple[int, int]] = field(default_factory=list)
    """Steps whose outcome is not known yet: (start of the step, position of the token that settles it)."""
    drafted: bool = False
    """True if a step since the request (re)started went beyond the known tokens."""
    steps: Written = NO_STEP
    """Its last steps: which states they leave."""
    filled: list[list[tuple[int, int]]] = field(default_factory=list)
    """Per group and full leading entry: its block, and the block's number in `RunRecord.fillings` at that time."""

    def start_over(self) -> None:
        """The request has given all its blocks back."""
        self.computed = self.scheduled = self.written = 0
        self.attached = self.cut = 0
        self.steps = NO_STEP
        self.arriving = self.drafted = self.runs = False
        self.pending.clear()
        for row in self.filled:
            row.clear()

    @property
    def running(self) -> int:
        """Start of the first step whose outcome is not known yet; the computed tokens if there is none."""
        return self.pending[0][0] if self.pending else self.computed

    @property
    def settled(self) -> int:
        """Number of computed tokens that cannot be taken back: those before the running steps, and in any case the
        known tokens but the last one."""
        return max(self.running, min(self.computed, len(self.contents) - 1))

    def launch(self) -> None:
        """The allocated step has been given to the device.

        Its outcome becomes known with the first token after those known now. A chunk of a prompt counts as over at
        once.
        """
        start, end = self.computed, self.computed + self.scheduled
        self.pending.append((start, max(start + 1, min(end, len(self.contents)))))

    def update_pending(self) -> None:
        """Tokens have become known or were taken back: drop the steps that are over."""
        known, computed = len(self.contents), self.computed
        self.pending = [(start, tells) for start, tells in self.pending if start < computed and known <= tells]


class Begun(NamedTuple):
    """What a block holds: one group's tokens from the start of a table entry up to `end`; `contents` per prefix."""

    contents: Sequence[int]
    group: int
    entry: int
    end: int


@dataclass(frozen=True)
class Replay:
    """A prompt that was computed completely, and the blocks that hold it."""

    entries: tuple[tuple[tuple[int, int], ...], ...]
    """Per group and entry: block, and the block's number in `RunRecord.fillings` at that time."""
    allocations: int
    """`RunRecord.allocations` at that time."""
