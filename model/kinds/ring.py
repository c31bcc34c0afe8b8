"""Rings: layers that keep the last few tokens only, in one block that is written round and round."""

from collections.abc import Mapping

from ..attention import Rule
from ..ops import Group, Kind, Shape


class Ring(Rule):
    """One block for each request, from its first step to its end. It is scratch: what stands there is of use to its
    own request alone, so it gets no name, no hit needs it, and it need not be cleared.

    The one entry stands for all tokens that a request can have. `Group.block_size` says how many of them it holds.
    """

    kinds: Mapping[Kind, str] = {"ring": "unknown"}
    scratch = True
    needs_behind = False

    def __init__(self, group: Group, shape: Shape, eagle: bool = False) -> None:
        super().__init__(group, shape, eagle)
        self.b = self.b * (shape.max_model_len + 1)

    def attends(self, q: int, t: int) -> bool:
        """No: nothing of a token stays in its place."""
        return False

    def required(self, num_tokens: int) -> int:
        """One, whatever the request has."""
        return 1
