"""Coordination of the groups: the longest hit that all groups have, and how far each registers (core.md §§8, 9)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from . import arith
from .attention import Hit, Rule, demand
from .identity import Identity
from .ops import NULL, SLIDING_FAMILY, Shape
from .state import Key


class SpecGroup(NamedTuple):
    """Groups with equal specs: they are looked up together."""

    rule: Rule
    groups: tuple[int, ...]
    eagle: bool


class Query(NamedTuple):
    """The inputs of a lookup."""

    chain: Sequence[Identity]  # content of the request's hash blocks
    limit: int  # most tokens that the hit may have
    earliest: Mapping[Key, int]  # what is registered


class Coordinator:
    """The groups of one core, taken together."""

    def __init__(self, shape: Shape, rules: Sequence[Rule]) -> None:
        self.shape = shape
        self.rules = rules
        self.alignment = rules[0].b if len(rules) == 1 else shape.scheduler_block_size
        """Hits end at multiples of so many tokens; with a single group, at the ends of its blocks."""
        demand(shape.scheduler_block_size % shape.hash_block_size == 0)
        demand(all(shape.scheduler_block_size % rule.b == 0 for rule in rules))
        retention = shape.retention_interval
        if retention is not None:
            windows = any(group.kind in SLIDING_FAMILY for group in shape.groups)
            demand(windows and retention >= 0 and retention % shape.scheduler_block_size == 0, "ValueError")
        by_spec: dict[tuple[object, ...], list[int]] = {}
        for index, group in enumerate(shape.groups):
            by_spec.setdefault(group.spec, []).append(index)
        flagged = {index for index, group in enumerate(shape.groups) if group.eagle}
        if shape.eagle and not flagged:
            flagged = set(range(len(rules)))
        specs = [SpecGroup(rules[same[0]], tuple(same), not flagged.isdisjoint(same)) for same in by_spec.values()]
        self.spec_groups = sorted(specs, key=lambda spec_group: not spec_group.rule.is_full)
        self.eagle_groups = {index for spec_group in specs if spec_group.eagle for index in spec_group.groups}
        if shape.caching and len(rules) == 1:
            demand(rules[0].b == shape.hash_block_size)
        elif shape.caching:
            demand(all(rule.group.block_size % shape.hash_block_size == 0 for rule in rules))
            demand(shape.parallel == 1 and len(specs) > 1)

    def identity(self, chain: Sequence[Identity], rule: Rule, i: int) -> Identity:
        """The identity of block `i` of a table with this rule: the content up to the block's end."""
        return chain[(i + 1) * rule.b // self.shape.hash_block_size - 1]

    def cacheable(self, group: int, num_tokens: int) -> int:
        """Leading tokens that a group may register: up to the last common boundary; with eagle one block more."""
        if len(self.rules) == 1:
            return num_tokens
        aligned = arith.down(num_tokens, self.shape.scheduler_block_size)
        if aligned and group in self.eagle_groups:
            return min(num_tokens, aligned + self.rules[group].b)
        return aligned

    def longest_hit(self, query: Query, reached: Counter[str]) -> tuple[int, list[list[int]]]:
        """Tokens of the longest hit, and its blocks per group, null where not needed."""
        length, hits = self.common_hit(query)
        blocks: list[list[int]] = [[] for _ in self.rules]
        for spec_group, hit in hits.items():
            entries = range(self.end(spec_group, hit, length))
            named = [(i >= hit.start, self.identity(query.chain, spec_group.rule, i)) for i in entries]
            for group in spec_group.groups:
                blocks[group] = [query.earliest[group, identity] if real else NULL for real, identity in named]
        self._note(query, length, hits, reached)
        return length, blocks

    def _note(self, query: Query, length: int, hits: Mapping[SpecGroup, Hit], reached: Counter[str]) -> None:
        """Count the interesting situations of a lookup."""
        reached["hit"] += length > 0
        reached["hit with null entries"] += any(hit.start > 0 for hit in hits.values())
        reached["hit cut by another group"] += any(hit.stop * spec.rule.b > length for spec, hit in hits.items())
        first = self.spec_groups[0]
        whole = self.hit(first, query, query.limit, False).stop
        kept = self.hit(first, query, query.limit, first.eagle and first.rule.drops).stop
        reached["eagle drop"] += kept < whole
        if first.rule.is_full:
            registered = first.rule.run(partial(self.found, first, query), 0, query.limit)
            reached["hit cut by the alignment"] += whole < registered

    def end(self, spec_group: SpecGroup, hit: Hit, length: int) -> int:
        """Number of entries of a hit that belong to the common length, in every group (vllm-project/vllm#40868)."""
        return min(hit.stop, length // spec_group.rule.b)

    def common_hit(self, query: Query) -> tuple[int, dict[SpecGroup, Hit]]:
        """Each type in turn accepts the candidate length or shrinks it, until a round shrinks nothing (T14).

        An eagle type may reach a block beyond the candidate and gives one up; once for each candidate, so it does so
        again after another type has shrunk the length. One round is enough for full attention and one other type.
        """
        length, hits = query.limit, {}  # type: int, dict[SpecGroup, Hit]
        dropped: set[SpecGroup] = set()
        one_round = len(self.spec_groups) <= 1 + self.spec_groups[0].rule.is_full
        while True:
            before = length
            for spec_group in self.spec_groups:
                rule = spec_group.rule
                if spec_group.rule.is_full and spec_group in hits:
                    length = arith.down(length, rule.b)
                    continue
                drop = spec_group.eagle and rule.drops and spec_group not in dropped
                reach = min(length + rule.b, query.limit) if drop else length
                hits[spec_group] = hit = self.hit(spec_group, query, reach, drop)
                if drop:
                    dropped.add(spec_group)
                elif hit.stop * rule.b < length:
                    dropped.clear()
                length = hit.stop * rule.b
            if one_round or length >= before:
                return length, hits

    def found(self, spec_group: SpecGroup, query: Query, i: int) -> bool:
        """True if block `i` of the content is registered in every group of the type."""
        identity = self.identity(query.chain, spec_group.rule, i)
        return all((group, identity) in query.earliest for group in spec_group.groups)

    def hit(self, spec_group: SpecGroup, query: Query, limit: int, drop: bool) -> Hit:
        """The longest hit of one type within `limit` tokens."""
        return spec_group.rule.hit(partial(self.found, spec_group, query), limit, drop, self.alignment)
