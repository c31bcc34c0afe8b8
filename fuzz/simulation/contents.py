"""What a token stands for: everything that its keys, values and states depend on, as one number; and what the model
samples behind it, a function of that alone.
"""

from collections.abc import Sequence
from zlib import crc32

from ...model.ops import Item
from .protocol import ClientRequest

ALPHABET = 5
"""The model samples tokens from 1 to this, and prompts are drawn from them: so prefixes often agree by chance, too."""
JUNK = 100
"""Tokens from here on are sampled behind something that was read wrong."""
_MASK = (1 << 61) - 1


def mixed(before: int, what: int) -> int:
    """A number for this behind that; the same in every process."""
    mixture = ((before ^ (what + 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9) & _MASK
    return mixture ^ (mixture >> 29)


def _number(text: str | None) -> int:
    return 0 if text is None else crc32(text.encode()) + 1


def _of_adapter(request: ClientRequest) -> int:
    return _number(request.adapter) + (0 if request.adapter is None else request.adapter_version << 32)


def sampled(content: int, branch: int = 0) -> int:
    """The token that the model samples behind this content; `branch` tells requests apart that were forked."""
    return 1 + mixed(content, branch) % ALPHABET


class TokenContents:
    """The tokens of one request, and what each of them stands for, under the weights of one version."""

    def __init__(self, request: ClientRequest, weights: int = 0, branch: int = 0) -> None:
        self.request, self.weights, self.branch = request, weights, branch
        self.tokens: list[int] = []
        self.values: list[int] = []
        """By position, the content up to it and with it."""
        self._items: tuple[Item, ...] = request.items
        self.extend(request.prompt)

    def extend(self, tokens: Sequence[int]) -> None:
        """These tokens follow."""
        before = self.values[-1] if self.values else mixed(self.weights, _of_adapter(self.request))
        for token in tokens:
            before = mixed(before, token)
            if self._items:
                at = len(self.tokens)
                for item in self._items:
                    if 0 <= at - item.offset < item.length:
                        before = mixed(before, _number(item.identifier) + at - item.offset)
            self.tokens.append(token)
            self.values.append(before)

    def next_token(self) -> int:
        """What the model samples behind all of them."""
        return sampled(self.values[-1], self.branch)

    def cut(self, length: int) -> None:
        """Only so many are left."""
        del self.tokens[length:], self.values[length:]

    def under(self, weights: int) -> "TokenContents":
        """The same tokens under other weights."""
        other = TokenContents(self.request, weights, self.branch)
        other.cut(0)
        other.extend(self.tokens)
        return other


def branch_of(id: str) -> int:
    """The branch of a request that was forked."""
    return _number(id)
