"""What the core knows of a request: its tokens, how far it is computed, and the content of its blocks."""

from dataclasses import dataclass, field

from .identity import Identity
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
