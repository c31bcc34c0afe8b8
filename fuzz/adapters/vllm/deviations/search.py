"""How the reference release searches for a hit, where that is not the longest one (core.md, last section).

It asks one attention type after the other. Each accepts the length found so far or cuts it to what it holds, until a
round cuts nothing. Each way in which this misses the longest hit, or takes one that is none, is a deviation of its own,
and can be left out.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple, TypeAlias

from .....model.arith import cdiv, down
from .....model.attention import Chunked, Mamba, Rule, demand
from .....model.ops import NULL
from .....model.state import Request
from .....model.tables import BlockIds, Core
from .....model.tables import hit as longest_hit

Found: TypeAlias = Callable[[int], bool]
"""True if this block of the request's content is registered in every group of a type."""
Hit: TypeAlias = range
"""Indices of the real blocks of a hit; those before its start are null in the table."""

SEARCH = (
    "chunk-astride-block",
    "chunked-refuses",
    "window-of-one",
    "eagle-cut-twice",
    "eagle-in-turn",
    "eagle-last-block",
    "mamba-eagle-margin",
    "hit-not-cut",
)
"""Ids of the deviations of the search."""


class SpecGroup(NamedTuple):
    """Groups with equal specs: they are looked up together."""

    rule: Rule
    groups: tuple[int, ...]


class HitSearch:
    """One lookup as the release makes it, with those of its deviations whose ids are given."""

    def __init__(self, core: Core, request: Request, quirks: Collection[str]) -> None:
        self.core, self.request, self.quirks = core, request, quirks
        self.earliest = core.state.earliest()
        by_spec: dict[tuple[object, ...], list[int]] = {}
        for index, rule in enumerate(core.rules):
            if not rule.scratch:
                by_spec.setdefault(rule.group.spec, []).append(index)
        specs = [SpecGroup(core.rules[same[0]], tuple(same)) for same in by_spec.values()]
        self.spec_groups = sorted(specs, key=lambda spec_group: not spec_group.rule.is_full)

    def result(self) -> tuple[int, BlockIds]:
        """Tokens of the hit, and its blocks per group."""
        length, hits = self._common_hit()
        blocks: BlockIds = [[] for _ in self.core.rules]
        for spec_group, hit in hits.items():
            for group in spec_group.groups:
                entries = range(self._end(spec_group, hit, length))
                blocks[group] = [self._block(group, i) if i >= hit.start else NULL for i in entries]
        return length, blocks

    def _block(self, group: int, i: int) -> int:
        return self.core.cached(self.request, group, i, self.earliest)

    def _end(self, spec_group: SpecGroup, hit: Hit, length: int) -> int:
        """Number of entries of a hit that are handed out: those of the common length, or all that were found."""
        first = spec_group is self.spec_groups[0] and spec_group.rule.is_full
        cut = first or len(self.core.rules) == 1 or "hit-not-cut" not in self.quirks
        return min(hit.stop, length // spec_group.rule.b) if cut else hit.stop

    def _common_hit(self) -> tuple[int, dict[SpecGroup, Hit]]:
        limit = len(self.request.tokens) - 1
        bound = limit if "eagle-last-block" in self.quirks else limit + 1
        length, hits = limit, {}  # type: int, dict[SpecGroup, Hit]
        dropped: set[SpecGroup] = set()
        one_round = len(self.spec_groups) <= 1 + self.spec_groups[0].rule.is_full
        while True:
            before = length
            for spec_group in self.spec_groups:
                rule = spec_group.rule
                if rule.is_full and spec_group in hits:
                    length = down(length, rule.b)
                    continue
                drop = self._drops(rule) and (spec_group not in dropped or "eagle-in-turn" not in self.quirks)
                reach = min(length + rule.b, bound) if drop else length
                hits[spec_group] = hit = self._hit(spec_group, reach, drop)
                if drop:
                    dropped.add(spec_group)
                elif hit.stop * rule.b < length:
                    dropped.clear()
                length = hit.stop * rule.b
            if one_round or length >= before:
                return min(length, before), hits  # a type that looks a block beyond may find more than before

    def _drops(self, rule: Rule) -> bool:
        margin = isinstance(rule, Mamba) and rule.eagle and "mamba-eagle-margin" in self.quirks
        return bool(rule.behind) or margin

    def _hit(self, spec_group: SpecGroup, limit: int, drop: bool) -> Hit:
        """The longest hit of one type within `limit` tokens; with `drop` the last block found is given up."""
        rule, unit = spec_group.rule, self.core.alignment

        def found(i: int) -> bool:
            return all(self._block(group, i) != NULL for group in spec_group.groups)

        if isinstance(rule, Chunked):
            demand("chunked-refuses" not in self.quirks or (not drop and unit == rule.b))
            if "chunk-astride-block" in self.quirks:
                first = rule.skipped(limit) // rule.b
                return range(first, _run(rule, found, first, limit))
        if rule.windowed and self._odd_window(rule, drop):
            return _window(rule, found, limit, drop, unit)
        if isinstance(rule, Mamba):
            drop = False
        for end in range(down(limit - drop * rule.b, unit), 0, -unit):
            wanted = range(max(0, rule.skipped(end)) // rule.b, end // rule.b + drop)
            if all(found(i) for i in reversed(wanted)):
                return range(wanted.start, end // rule.b)
        return range(0)

    def _odd_window(self, rule: Rule, drop: bool) -> bool:
        if rule.w == 1 and not drop:
            return "window-of-one" in self.quirks
        return drop and "eagle-cut-twice" in self.quirks


def asked_first(rule: Rule, limit: int, known: int) -> int:
    """The first block of a kind that is asked for in order; of these, `known` have names. A chunk begins with its."""
    return rule.skipped(limit) // rule.b if isinstance(rule, Chunked) else known


def _run(rule: Rule, found: Found, start: int, limit: int) -> int:
    """End of the longest run of registered blocks from block `start` on, within `limit` tokens."""
    end = start
    while (end + 1) * rule.b <= limit and found(end):
        end += 1
    return end


def _window(rule: Rule, found: Found, limit: int, drop: bool, unit: int) -> Hit:
    """The search of a window: at least one registered block, and a run from the start is cut to the alignment twice."""
    need = max(1, cdiv(rule.w - 1, rule.b) + drop)
    for end in range(limit // rule.b, 0, -1):
        first = max(0, end - need)
        if (end - drop) * rule.b % unit == 0 and all(found(i) for i in range(end - 1, first - 1, -1)):
            if end < need:
                end = down(end * rule.b, unit) // rule.b
            return range(first, down(max(0, end - drop) * rule.b, unit) // rule.b)
    return range(0)


def release_hit(quirks: Collection[str], core: Core, request: Request) -> tuple[int, BlockIds]:
    """Tokens and blocks that the release's lookup finds, with these of its deviations."""
    return HitSearch(core, request, quirks).result() if quirks else longest_hit(core, request)
