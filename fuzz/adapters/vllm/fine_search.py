"""How vLLM 0.33 searches for a hit, which may end inside a block (`model.features.inside`).

Each kind of attention in turn accepts the length found so far or cuts it to what it holds, until a round cuts nothing;
full attention is asked once, and cut with the others. No kind gives a block up for drafts: names look ahead.
"""

from collections.abc import Collection

from ....model import arith
from ....model.attention import Mamba
from ....model.features import inside
from ....model.ops import NULL
from ....model.state import Request
from ....model.tables import BlockIds, Core
from .search import HitSearch, SpecGroup

FINE_SEARCH = ("chunk-astride-block", "chunked-refuses", "window-of-one")
"""Ids of the deviations of this search."""


class FineSearch(HitSearch):
    """One lookup as the release makes it where hits may end inside a block."""

    def __init__(self, core: Core, request: Request, quirks: Collection[str]) -> None:
        super().__init__(core, request, quirks)
        self.names = inside.Names(core, request)
        self.fine = inside.enabled(core.shape, core.rules)

    def result(self) -> tuple[int, BlockIds]:
        """Tokens of the hit, and its blocks per group."""
        length, rows = self._common()
        blocks: BlockIds = [[] for _ in self.core.rules]
        for kind, found in rows.items():
            for group, row in zip(kind.groups, found, strict=True):
                blocks[group] = row[: arith.cdiv(length, kind.rule.b)] if kind.rule.is_full else row
        return length, blocks

    def first(self) -> int:
        """Tokens that the kind asked first holds."""
        return self._of_kind(self.spec_groups[0], len(self.request.tokens) - 1)[0] if self.spec_groups else 0

    def _common(self) -> tuple[int, dict[SpecGroup, BlockIds]]:
        length = len(self.request.tokens) - 1
        ends: dict[SpecGroup, int] = {}
        rows: dict[SpecGroup, BlockIds] = {}
        if not self.spec_groups:
            return 0, rows
        one_round = len(self.spec_groups) <= 1 + self.spec_groups[0].rule.is_full
        while True:
            before = length
            for kind in self.spec_groups:
                if kind.rule.is_full and kind in rows:
                    length = min(length, ends[kind])
                    continue
                length, rows[kind] = self._of_kind(kind, length)
                ends[kind] = length
            if one_round or length >= before:
                return length, rows

    def _of_kind(self, kind: SpecGroup, limit: int) -> tuple[int, BlockIds]:
        """Tokens and blocks of the longest hit of one kind within `limit` tokens."""
        rule, unit = kind.rule, self.core.alignment
        if self.fine and rule.b > unit and (rule.is_full or isinstance(rule, Mamba)):
            for length in range(arith.down(limit, unit), 0, -unit):
                found = self.names.blocks(kind.groups, length)
                if found is not None and (not rule.is_full or self._is_named(kind, length)):
                    return length, found
            return 0, [[] for _ in kind.groups]
        hit = self._hit(kind, limit, False)
        return hit.stop * rule.b, [
            [self._block(group, i) if i >= hit.start else NULL for i in range(hit.stop)] for group in kind.groups
        ]

    def _is_named(self, kind: SpecGroup, length: int) -> bool:
        return all(self.names.at(group, length) != NULL for group in kind.groups)


def fine_hit(quirks: Collection[str], core: Core, request: Request) -> tuple[int, BlockIds]:
    """Tokens and blocks that the release's lookup finds, with these of its deviations."""
    return FineSearch(core, request, quirks).result() if quirks else inside.hit(core, request)


def fine_junction(quirks: Collection[str], core: Core, request: Request, hit: int) -> int:
    """Where the prefix ends that the kind asked first holds."""
    if not quirks:
        return inside.junction(core, request, hit)
    first = FineSearch(core, request, quirks).first()
    return first if first > hit else 0
