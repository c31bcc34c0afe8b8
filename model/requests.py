"""What the core knows of a request: its tokens, how far it is computed, and the content of its blocks."""

from dataclasses import dataclass, field

from .identity import Identity
from .ops import Submit


@dataclass
class Request:
    """A request between its submission and its end. All lengths in tokens."""

    submit: Submit
    tokens: list[int]
    computed: int = 0  # tokens whose keys and values are in the cache, including drafts not accepted or rejected yet
    scheduled: int = 0  # tokens of the step that was allocated and has not run yet
    arriving: bool = False  # external tokens are being loaded; nothing else happens to the request meanwhile
    preemptions: int = 0
    hit: tuple[int, list[list[int]]] | None = None  # tokens and block ids per group of the last lookup
    chain: list[Identity] = field(default_factory=list)  # content of the full hash blocks, in order

    @property
    def lead(self) -> int:
        """Tokens that have been computed or sampled, but are not known yet."""
        return max(0, self.computed + 1 - len(self.tokens))

    @property
    def drafts(self) -> int:
        """Computed positions whose tokens are not known yet: what a `Reject` may take back."""
        return max(0, self.computed - len(self.tokens))
