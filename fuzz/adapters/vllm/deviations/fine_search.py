"""How vLLM searches for a hit from 0.26 on, which may end inside a block (`model.features.inside`).

Each kind of attention in turn accepts the length found so far or cuts it to what it holds, until a round cuts nothing;
full attention is asked once, and cut with the others. Up to 0.32 a kind that drafts read looks a block further, a hash
block inside blocks, and gives it up; in 0.33 names look ahead instead.
"""

from collections.abc import Collection, Sequence

from .....model import arith
from .....model.attention import Mamba, demand
from .....model.features import inside, lookups
from .....model.ops import NULL
from .....model.state import Request
from .....model.tables import BlockIds, Core
from .search import HitSearch, SpecGroup, asked_first

APART = LEFT_BEHIND, AHEAD, RINGS = "windows-left-behind", "states-ahead-of-attention", "rings-lag-behind"
"""Ids of the deviations of a lookup for a connector."""
REFUSED, PAST = "windows-refuse-fine-hits", "lookup-past-the-last-name"
FINE_SEARCH = (
    *("chunk-astride-block", "chunked-refuses", "window-of-one"),
    *("eagle-cut-twice", "eagle-in-turn", "eagle-last-block", "hit-not-cut", REFUSED, PAST),
)
"""Ids of the deviations of this search; those of a draft model are not in 0.33."""


class FineSearch(HitSearch):
    """One lookup as the release makes it where hits may end inside a block."""

    def __init__(self, core: Core, request: Request, quirks: Collection[str]) -> None:
        super().__init__(core, request, quirks)
        self.fine = inside.ends_inside(core)
        self.limit = request.limit
        further = "eagle-last-block" not in quirks and any(rule.behind for rule in core.rules)
        self.names = inside.Names(core, request, reads_on=False)
        self.bound = len(request.chain) * self.names.unit if further else self.limit
        """Where a kind ends that looks further: a draft model could read the last token, too."""
        self.names.limit = min(arith.down(self.bound, self.names.unit), len(request.chain) * self.names.unit)

    def result(self) -> tuple[int, BlockIds]:
        """Tokens of the hit, and its blocks per group."""
        length, rows = self._common(self.spec_groups)
        blocks: BlockIds = [[] for _ in self.core.rules]
        for kind, found in rows.items():
            cut = kind.rule.is_full and (kind is self.spec_groups[0] or "hit-not-cut" not in self.quirks)
            for group, row in zip(kind.groups, found, strict=True):
                blocks[group] = row[: arith.cdiv(length, kind.rule.b)] if cut else row
        return length, blocks

    def first(self) -> int:
        """Tokens that the kind asked first holds."""
        kind = self.spec_groups[0] if self.spec_groups else None
        return self._alone(kind, self.limit)[0] if kind else 0

    def _alone(self, kind: SpecGroup, limit: int) -> tuple[int, BlockIds]:
        """What one kind holds within so many tokens."""
        return self._of_kind(kind, self._reach(kind, limit), bool(kind.rule.behind))

    def apart(self) -> tuple[int, BlockIds, bool] | None:
        """What full attention holds, what each other kind holds, and whether one of them holds less. None where there
        are no states or no full attention, and where another kind holds more than full attention."""
        limit, of_tokens = self.limit, [kind for kind in self.spec_groups if not isinstance(kind.rule, Mamba)]
        if len(of_tokens) == len(self.spec_groups) or not self.spec_groups[0].rule.is_full:
            return None
        first = self.spec_groups[0]
        length, _ = self._common([first] if LEFT_BEHIND in self.quirks else of_tokens)
        found = {kind: self._alone(kind, limit if AHEAD in self.quirks else length) for kind in self.spec_groups}
        if AHEAD in self.quirks and any(end > length for end, _ in found.values()):
            return None
        rows: BlockIds = [[] for _ in self.core.rules]
        for kind, (_, of_kind) in found.items():
            for group, row in zip(kind.groups, of_kind, strict=True):
                rows[group] = row
        rings = RINGS in self.quirks and length > 0 and any(rule.scratch for rule in self.core.rules)
        return length, rows, rings or any(end < length for end, _ in found.values())

    def _reach(self, kind: SpecGroup, length: int) -> int:
        return min(length + inside.behind(self.core, kind.rule), self.bound) if kind.rule.behind else length

    def _common(self, kinds: Sequence[SpecGroup]) -> tuple[int, dict[SpecGroup, BlockIds]]:
        length = self.limit
        ends: dict[SpecGroup, int] = {}
        rows: dict[SpecGroup, BlockIds] = {}
        given_up: set[SpecGroup] = set()
        if not kinds:
            return 0, rows
        one_round = len(kinds) <= 1 + kinds[0].rule.is_full
        while True:
            before = length
            for kind in kinds:
                if kind.rule.is_full and kind in rows:
                    length = min(length, ends[kind])
                    continue
                asked = kind.rule.eagle and (kind not in given_up or "eagle-in-turn" not in self.quirks)
                drop = asked and bool(kind.rule.behind)
                found, rows[kind] = self._of_kind(kind, self._reach(kind, length) if drop else length, drop)
                if asked:
                    given_up.add(kind)
                elif found < length:
                    given_up.clear()
                ends[kind] = length = found
            if one_round or length >= before:
                return min(length, before), rows

    def _of_kind(self, kind: SpecGroup, limit: int, drop: bool) -> tuple[int, BlockIds]:
        """Tokens and blocks of the longest hit of one kind within `limit` tokens; with `drop` the last block or hash
        block of it is given up."""
        rule, unit = kind.rule, self.core.alignment
        if self.fine and rule.b > unit and (rule.is_full or isinstance(rule, Mamba)):
            for length in range(arith.down(limit, unit), 0, -unit):
                found = self.names.blocks(kind.groups, length)
                if found is not None and (not rule.is_full or self._is_named(kind, length)):
                    length -= unit * drop
                    return length, [row[: arith.cdiv(length, rule.b)] for row in found]
            return 0, [[] for _ in kind.groups]
        demand(not self.fine or rule.b <= unit or REFUSED not in self.quirks)
        hit = self._hit(kind, limit, drop)
        demand(PAST not in self.quirks or not self._is_past(kind, limit), "IndexError")
        return hit.stop * rule.b, [
            [self._block(group, i) if i >= hit.start else NULL for i in range(hit.stop)] for group in kind.groups
        ]

    def _is_past(self, kind: SpecGroup, limit: int) -> bool:
        """True if it asks for the name of a block behind the last one that has a name."""
        rule, known = kind.rule, len(self.request.chain) * self.core.shape.hash_block_size // kind.rule.b
        first = asked_first(rule, limit, known)
        if rule.is_full or limit // rule.b <= max(first, known):
            return False
        return all(self._is_found(kind, i) for i in range(first, known))

    def _is_found(self, kind: SpecGroup, i: int) -> bool:
        return all(self._block(group, i) != NULL for group in kind.groups)

    def _is_named(self, kind: SpecGroup, length: int) -> bool:
        return all(self.names.at(group, length) != NULL for group in kind.groups)


def of_one_group(quirks: Collection[str], core: Core) -> list[str]:
    """Those of the deviations that 0.33 has in this core: with several groups, drafts may read the last token."""
    return [name for name in quirks if name != "eagle-last-block" or len(core.rules) == 1]


def today_hit(quirks: Collection[str], core: Core, request: Request) -> tuple[int, BlockIds]:
    """What the lookup of 0.33 finds."""
    return fine_hit(of_one_group(quirks, core), core, request)


def today_junction(quirks: Collection[str], core: Core, request: Request, hit: int) -> int:
    """Where the prefix ends of which 0.33 tells."""
    return fine_junction(of_one_group(quirks, core), core, request, hit)


def fine_hit(quirks: Collection[str], core: Core, request: Request) -> tuple[int, BlockIds]:
    """Tokens and blocks that the release's lookup finds, with these of its deviations."""
    return FineSearch(core, request, quirks).result() if quirks else inside.hit(core, request)


def fine_for_connector(quirks: Collection[str], core: Core, request: Request) -> tuple[int, BlockIds, bool]:
    """The same of a lookup for a connector, behind which states may lag: the hits of all kinds, if none is longer than
    that of full attention."""
    if not set(quirks) & {*APART}:
        return lookups.for_connector(core, request)
    quirks = of_one_group(quirks, core)
    search = FineSearch(core, request, quirks)
    return search.apart() or (*search.result(), False)


def fine_junction(quirks: Collection[str], core: Core, request: Request, hit: int) -> int:
    """Where the prefix ends that the kind asked first holds."""
    if not quirks:
        return inside.junction(core, request, hit)
    first = FineSearch(core, request, quirks).first()
    return first if first > hit else 0
