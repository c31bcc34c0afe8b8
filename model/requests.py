"""What the core knows of a request: its tokens, how far it is computed, and the content of its blocks."""

from dataclasses import dataclass, field

from .identity import ExtraKey, Identities, Identity, extra_keys, overlapping_items
from .ops import Submit


@dataclass
class Request:
    """A request between its submission and its end. All lengths in tokens."""

    submit: Submit
    tokens: list[int]
    computed: int = 0
    """Tokens whose keys and values are in the cache, drafts not yet judged included."""
    scheduled: int = 0
    """Tokens of the step that was allocated and has not run yet."""
    arriving: bool = False
    """External tokens are on their way; nothing else happens to the request until they are there."""
    preemptions: int = 0
    hit: tuple[int, list[list[int]]] | None = None
    """The last lookup's tokens and block ids per group."""
    chain: list[Identity] = field(default_factory=list)
    """Identities of the full hash blocks, in order."""

    @property
    def lead(self) -> int:
        """Computed positions whose tokens are not known yet: what a `Reject` may take back."""
        return max(0, self.computed + 1 - len(self.tokens))

    def extend_chain(self, identities: Identities, hash_block_size: int) -> None:
        """Name the content of the hash blocks that have become full."""
        restart = len(self.chain) * hash_block_size
        for start in range(restart, len(self.tokens) - hash_block_size + 1, hash_block_size):
            parent = self.chain[-1] if self.chain else None
            end = start + hash_block_size
            self.chain.append(identities(parent, self.tokens[start:end], self.content_keys(start, end, restart)))

    def content_keys(self, start: int, end: int, restart: int) -> tuple[ExtraKey, ...]:
        """Tagged extra keys of the hash block `start .. end - 1`; `restart` is where naming went on this time."""
        return extra_keys(self.submit, start, end, overlapping_items(self.submit.items, start, end))
