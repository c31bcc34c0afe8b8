"""What a core knows: of each request its tokens and how far they are computed; of the pool which block is held by whom,
in which order free blocks are reused, and what content each block has.

Nothing is stored that follows from something else: a block's reference count is the number of places that hold it, a
block is free if nothing holds it, and the free queue is the free blocks in the order in which they were freed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from .attention import NO_STEP, Written, demand
from .identity import ExtraKey, Identity
from .metrics import Metrics
from .ops import NULL, Submit

Key: TypeAlias = tuple[int, Identity]  # a group and the content of a block: what a lookup asks for


@dataclass
class Request:
    """A request between its submission and its end. All lengths in tokens."""

    submit: Submit
    tokens: list[int]
    computed: int = 0  # tokens whose keys and values are in the cache, including drafts not accepted or rejected yet
    scheduled: int = 0  # tokens of the step that was allocated and has not run yet
    arriving: int = 0  # external tokens that are being loaded; nothing else happens to the request meanwhile
    preemptions: int = 0
    hit: tuple[int, list[list[int]]] | None = None  # tokens and block ids per group of the last lookup
    limit: int = 0  # tokens that it may find at most
    lags: bool = False  # states end before that hit: tokens from outside must follow
    chain: list[Identity] = field(default_factory=list)  # content of the full hash blocks, in order
    written: Written = NO_STEP  # its last steps: which states they leave
    processed: int = 0  # tokens of all steps whose outcome is known; one that samples is not until its token is
    runs: bool = False  # it was admitted; else it waits, also for tokens that are being loaded
    junction: int = 0  # tokens up to which others share its prefix, behind its last hit

    def compute(self, tokens: int) -> None:
        """So many tokens count as computed now."""
        self.computed = tokens
        if tokens < len(self.tokens):
            self.processed = tokens

    @property
    def lead(self) -> int:
        """Tokens that have been computed or sampled, but are not known yet."""
        return max(0, self.computed + 1 - len(self.tokens))

    @property
    def drafts(self) -> int:
        """Computed positions whose tokens are not known yet: what a `Reject` may take back."""
        return max(0, self.computed - len(self.tokens))


class Stored(NamedTuple):
    """Blocks of one range of a request were registered."""

    identities: tuple[Identity, ...]
    parent: Identity | None
    tokens: tuple[int, ...]  # all tokens of the range, also those of blocks left out
    block_size: int
    adapter: str | None
    keys: tuple[tuple[ExtraKey, ...], ...] | None  # of each registered block
    group: int
    ahead: tuple[tuple[int, ...], ...] = ()  # of each registered block, the tokens behind it that its name covers


class Removed(NamedTuple):
    """A block lost its identity."""

    identity: Identity
    group: int


class Cleared(NamedTuple):
    """All identities were forgotten."""


Event: TypeAlias = Stored | Removed | Cleared


class State:
    """Tables, outside holders, identities and the order of the free queue, for a pool of `num_blocks` blocks."""

    def __init__(self, num_blocks: int, num_groups: int, metrics: Metrics | None = None) -> None:
        self.num_blocks = num_blocks
        self.tables: list[dict[str, list[int]]] = [{} for _ in range(num_groups)]
        self.outside: list[int] = []  # held by outside holders (connectors), once per reference
        self.sinks: list[int] = []  # set aside for ever (core.md §7, sink)
        self.identity: dict[int, Key] = {}  # of registered blocks, in the order in which they were registered
        self.events: list[Event] = []  # what happened to identities and was not drained yet, in order (core.md §5)
        self.metrics = metrics or Metrics(0, caching=False)
        self._order = list(range(1, num_blocks))  # the blocks that are free are in the order of the free queue

    def references(self) -> list[int]:
        """References per block: how many table entries and outside holders hold it; the null block's is 0 (T26)."""
        counts = [0] * self.num_blocks
        for tables in (*self.tables, {"outside": self.outside, "sinks": self.sinks}):
            for held in tables.values():
                for block in held:
                    counts[block] += 1
        counts[NULL] = 0
        return counts

    def queue(self, counts: Sequence[int] = ()) -> list[int]:
        """The free queue, the next block to be reused in front (core.md §2). `counts`: references, if known."""
        counts = counts or self.references()
        return [block for block in self._order if not counts[block]]

    def num_free(self) -> int:
        """How many blocks nothing holds."""
        return self.references().count(0) - 1

    def take(self, count: int) -> list[int]:
        """The next `count` blocks to be reused; they lose their identity. ValueError if fewer are free."""
        queue = self.queue() if count else []
        demand(0 <= count <= len(queue), "ValueError")
        for block in queue[:count]:
            self.forget(block)
        self.metrics.taken(queue[:count])
        return queue[:count]

    def forget(self, block: int) -> None:
        """The block loses its identity, if it has one."""
        if block in self.identity:
            group, identity = self.identity.pop(block)
            self.events.append(Removed(identity, group))

    def let_go(self, blocks: Sequence[int], front: bool = False) -> None:
        """One reference to each of `blocks` has been dropped. Blocks that nothing holds now enter the free queue.

        They are put at the back in this order; with `front` at the front, so that the queue begins like `blocks`. A
        block that is listed more than once counts where it is listed last (vllm-project/vllm#42571).
        """
        if not blocks:
            return
        counts, last_times = self.references(), reversed(dict.fromkeys(reversed(blocks)))
        freed = {block: None for block in last_times if block != NULL and not counts[block]}
        others = [block for block in self._order if block not in freed]
        self._order = [*freed, *others] if front else [*others, *freed]

    def let_go_by_identity(self, blocks: Sequence[int]) -> None:
        """Blocks with an identity go to the back, the others to the front (vllm-project/vllm#42948)."""
        self.let_go([block for block in blocks if block in self.identity])
        self.let_go([block for block in blocks if block not in self.identity], front=True)

    def earliest(self) -> dict[Key, int]:
        """Per registered identity, the block that a lookup finds: the one registered first (core.md §4)."""
        return {key: block for block, key in reversed(self.identity.items())}

    def register(self, block: int, key: Key, covers: int = 0) -> None:
        """Give the block this identity, of so many tokens. AssertionError if it has one already."""
        demand(block not in self.identity)
        self.identity[block] = key

    def forget_all(self) -> None:
        """No block has an identity any more."""
        self.identity.clear()
