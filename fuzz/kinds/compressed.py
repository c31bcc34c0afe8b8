"""Groups whose entries stand for several tokens: one latent vector for each 4 or 128 of them, stored with the last one.

The model has no such groups. What they keep follows from its rule of full attention and from one number; a target says
by a design that its latent groups are of this sort (`targets.declarations.DESIGNS`), and oracles take their rules here.
"""

from collections.abc import Collection

from ...model.arith import cdiv, down
from ...model.attention import Full, Rule, rules_for
from ...model.ops import Shape

COMPRESSED = {"compressed_4": 4, "compressed_128": 128}
"""Names of designs, and the tokens that an entry stands for."""
KIND = "mla"
"""The kind of these groups. Block sizes stay in tokens."""


class Compressed(Full):
    """Full attention over entries of `ratio` tokens. The tokens behind the last whole entry are kept elsewhere, so they
    need no block, and no query reads them from one."""

    def __init__(self, rule: Rule, ratio: int) -> None:
        super().__init__(rule.group, rule.shape, rule.eagle)
        self.ratio = ratio

    def attends(self, q: int, t: int) -> bool:
        """True if the token is one of a whole entry before the query."""
        return t < down(q, self.ratio)

    def required(self, num_tokens: int) -> int:
        """Table entries for the whole entries of so many tokens."""
        return cdiv(down(num_tokens, self.ratio), self.b)


def stored(rule: Rule, tokens: int) -> int:
    """How many of the first `tokens` tokens stand in blocks: all, or those of whole entries."""
    return down(tokens, rule.ratio) if isinstance(rule, Compressed) else tokens


def rules_with(shape: Shape, designs: Collection[str]) -> list[Rule]:
    """The rules of all groups of a core with these designs. Where several ratios divide a block, the largest counts."""
    ratios = [ratio for name, ratio in COMPRESSED.items() if name in designs]
    return [_compressed(rule, ratios) for rule in rules_for(shape)]


def _compressed(rule: Rule, ratios: Collection[int]) -> Rule:
    ratio = max((one for one in ratios if not rule.b % one), default=1) if rule.group.kind == KIND else 1
    return Compressed(rule, ratio) if ratio > 1 else rule
