"""What a cache without end would find in a log: nothing is ever evicted, and everybody computes at once."""

from dataclasses import dataclass

from ...model.arith import down
from .logs import Log


@dataclass(frozen=True)
class Ideal:
    """What a cache without end would find."""

    asked: int
    """Tokens of all prompts."""
    hit: int
    """Tokens of these in whole blocks that an earlier prompt begins with, the last token left out."""
    entries: int
    """Numbers of the log's content."""
    entries_hit: int
    """Of these, leading ones of a prompt that came up before; the figure that is published with such logs."""

    @property
    def ratio(self) -> float:
        """Of the tokens asked for, the share that was there."""
        return self.hit / self.asked

    @property
    def ratio_of_entries(self) -> float:
        """The same of the log's own numbers."""
        return self.entries_hit / self.entries


def ideal(log: Log, block_size: int) -> Ideal:
    """What a cache without end would find in blocks of so many tokens.

    Equal content is known by equal chains: a number counts together with those before it.
    """
    chains: dict[tuple[int, int], int] = {}
    longest: dict[int, int] = {0: 0}  # by chain, the most tokens of its last number that a prompt had
    asked = hit = entries = entries_hit = 0
    for one in log.requests:
        chain, shared, known, left = 0, 0, True, one.prompt
        for number in one.content:
            tokens = min(left, log.unit)
            link = (chain, number)
            entries_hit += known and link in chains
            known = known and link in chains
            chain = chains.setdefault(link, len(chains) + 1)
            shared += min(tokens, longest.get(chain, 0)) if known else 0
            known = known and longest[chain] >= tokens
            longest[chain] = max(longest.get(chain, 0), tokens)
            left -= tokens
        asked += one.prompt
        hit += min(down(shared, block_size), down(one.prompt - 1, block_size))
        entries += len(one.content)
    return Ideal(asked, hit, entries, entries_hit)
