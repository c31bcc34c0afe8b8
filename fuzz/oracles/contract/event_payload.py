"""What events say of the blocks that they store, held against the request's own tokens (S11).

The names in an event are opaque. What is said with them is not: the tokens of a range of a request's blocks, the block
before that range, and the adapter. A router that builds its own map of what is cached where keeps just these
(vllm-project/vllm#44451).
"""

from collections.abc import Iterator, Sequence
from typing import Any

from .properties import Break
from .run_record import RunRecord
from .tracked import Tracked


class Payload:
    """Judges events that store whole blocks; which content a name stands for is remembered."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self._content_of: dict[tuple[int, object], int | None] = {}
        """(group, name of a block in events) to the content of that block."""

    def check(self, event: Any, request: Tracked | None, entries: Sequence[int]) -> None:
        """S11 of one event that stores the blocks in these `entries` of the request's table, in their order.

        The range that it tells of has these entries in it, and may have others: skipped ones, and those left out. So
        more than one range may have as many tokens; one of them has to fit.
        """
        _, names, parent, tokens, size, adapter, _, group = event[:8]
        if request is None or not isinstance(tokens, tuple):
            return
        count, rest = divmod(len(tokens), size)
        if rest:
            raise Break("S11", f"the event {event} has {len(tokens)} tokens for blocks of {size}", "number of tokens")
        told = [first for first in _starts(request, entries, count, size) if self._has(request, first * size, tokens)]
        if not told:
            own = tuple(request.tokens[entries[0] * size : (entries[-1] + 1) * size]) if entries else ()
            what = f"stores entries {list(entries)} of {request.submit.request} with the tokens {tokens}"
            raise Break("S11", f"the event {event} {what}; in these are {own}", "other tokens")
        for name, entry in zip(names, entries, strict=False):
            self._content_of[group, name] = self.record.key(request, group, entry)
        if not any(self._is_behind(request, group, first, parent) for first in told):
            where = f"begins at entry {' or '.join(map(str, told))} of {request.submit.request}"
            raise Break(
                "S11",
                f"the event {event} {where}, and {parent} is not the name of the block before it",
                "another parent",
            )
        if adapter != request.submit.adapter:
            raise Break(
                "S11",
                f"the event {event} names adapter {adapter!r}, the request {request.submit.adapter!r}",
                "another adapter",
            )
        self.record.reached["contract: S11 of tokens told"] += 1

    @staticmethod
    def _has(request: Tracked, start: int, tokens: Sequence[int]) -> bool:
        return request.tokens[start : start + len(tokens)] == list(tokens)

    def _is_behind(self, request: Tracked, group: int, first: int, parent: object) -> bool:
        """True if `parent` can be the name of the block before entry `first`: none at the start. A name that no event
        has told yet can be that of a block which was left out."""
        if parent is None or not first:
            return parent is None and not first
        known = self._content_of.get((group, parent))
        return known is None or known == self.record.key(request, group, first - 1)


def _starts(request: Tracked, entries: Sequence[int], count: int, size: int) -> Iterator[int]:
    """First entries of the ranges of `count` blocks that have all these entries in them."""
    last = len(request.tokens) // size - count
    if entries:
        yield from range(max(0, entries[-1] + 1 - count), min(entries[0], last) + 1)
    else:
        yield from range(last + 1)
