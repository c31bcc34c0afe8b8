"""Coordination of the groups: which hit they have in common, and how far each registers (core.md §§8, 9)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from . import arith
from .attention import Hit, Rule, demand
from .identity import Identity
from .ops import FULL_FAMILY, NULL, Shape, Submit
from .state import Key


@dataclass(frozen=True)
class SpecGroup:
    """Groups with equal specs: they are looked up together."""

    rule: Rule
    groups: tuple[int, ...]
    eagle: bool

    @property
    def is_full(self) -> bool:
        """Does it belong to the full-attention family?"""
        return self.rule.group.kind in FULL_FAMILY


class Coordinator:
    """What binds the groups of one core together."""

    def __init__(self, shape: Shape, rules: Sequence[Rule]) -> None:
        self.shape = shape
        self.rules = rules
        self.alignment = rules[0].b if len(rules) == 1 else shape.scheduler_block_size
        """Hits end at multiples of so many tokens: alone, a group cares for its own blocks only."""
        demand(shape.scheduler_block_size % shape.hash_block_size == 0)
        demand(all(shape.scheduler_block_size % rule.b == 0 for rule in rules))
        by_spec: dict[tuple[object, ...], list[int]] = {}
        for index, group in enumerate(shape.groups):
            by_spec.setdefault(group.spec, []).append(index)
        flagged = {index for index, group in enumerate(shape.groups) if group.eagle}
        if shape.eagle and not flagged:
            flagged = set(range(len(rules)))
        spec_groups = [
            SpecGroup(rules[indices[0]], tuple(indices), not flagged.isdisjoint(indices))
            for indices in by_spec.values()
        ]
        self.spec_groups = sorted(spec_groups, key=lambda spec_group: not spec_group.is_full)
        self.eagle_groups = {index for spec in spec_groups if spec.eagle for index in spec.groups}
        if shape.caching and len(rules) == 1:
            demand(rules[0].b == shape.hash_block_size)
        elif shape.caching and rules:
            demand(all(rule.group.block_size % shape.hash_block_size == 0 for rule in rules))
            demand(shape.parallel == 1 and len(spec_groups) > 1)

    def identity(self, chain: Sequence[Identity], rule: Rule, i: int) -> Identity:
        """What block `i` of a table of this rule holds: the content up to its end."""
        return chain[(i + 1) * rule.b // self.shape.hash_block_size - 1]

    def cacheable(self, group: int, num_tokens: int) -> int:
        """How many of the first tokens a group may register: up to the last common boundary, eagle one block more."""
        if len(self.rules) == 1:
            return num_tokens
        aligned = arith.down(num_tokens, self.shape.scheduler_block_size)
        if aligned and group in self.eagle_groups:
            return min(num_tokens, aligned + self.rules[group].b)
        return aligned

    def keeps(self, group: int, i: int, submit: Submit) -> bool:
        """Is block `i` of the group's table worth registering for this request?"""
        shape, eagle = self.shape, group in self.eagle_groups
        return self.rules[group].keeps(
            i, eagle, shape.scheduler_block_size, shape.retention_interval, len(submit.prompt)
        )

    def longest_hit(
        self, chain: Sequence[Identity], limit: int, earliest: Mapping[Key, int], reached: Counter[str]
    ) -> tuple[int, list[list[int]]]:
        """Tokens of the longest hit within `limit` tokens, and its blocks per group, null where not needed."""
        hits: dict[SpecGroup, Hit] = {}
        length = self._single(chain, limit, earliest, hits) if len(self.rules) == 1 else limit
        dropped: set[SpecGroup] = set()
        while len(self.rules) > 1:
            before = length
            length = self._round(chain, limit, length, earliest, hits, dropped)
            if length >= before or (len(self.spec_groups) == 2 and self.spec_groups[0].is_full):
                break
        blocks: list[list[int]] = [[] for _ in self.rules]
        for spec_group, hit in hits.items():
            for group in spec_group.groups:
                blocks[group] = [
                    earliest[group, self.identity(chain, spec_group.rule, i)] if i >= hit.start else NULL
                    for i in range(self.end(spec_group, hit, length))
                ]
        self._note(length, hits, reached)
        return length, blocks

    def end(self, spec_group: SpecGroup, hit: Hit, length: int) -> int:
        """How many entries of a hit stand for the common length (report 40868: in every group)."""
        return min(hit.stop, length // spec_group.rule.b)

    def _hit(
        self, spec_group: SpecGroup, chain: Sequence[Identity], limit: int, drop: bool, earliest: Mapping[Key, int]
    ) -> Hit:
        rule = spec_group.rule

        def found(i: int) -> bool:
            identity = self.identity(chain, rule, i)
            return all((group, identity) in earliest for group in spec_group.groups)

        return rule.hit(found, limit, drop, self.alignment)

    def _single(
        self, chain: Sequence[Identity], limit: int, earliest: Mapping[Key, int], hits: dict[SpecGroup, Hit]
    ) -> int:
        """One group: its own longest hit."""
        spec_group = self.spec_groups[0]
        hits[spec_group] = self._hit(spec_group, chain, limit, spec_group.eagle, earliest)
        return hits[spec_group].stop * spec_group.rule.b

    def _round(
        self,
        chain: Sequence[Identity],
        limit: int,
        length: int,
        earliest: Mapping[Key, int],
        hits: dict[SpecGroup, Hit],
        dropped: set[SpecGroup],
    ) -> int:
        """Each type in turn accepts the length or shrinks it (T14). Returns the length after the round.

        `dropped` are the eagle types that have given up their block for the present candidate length.
        """
        for spec_group in self.spec_groups:
            rule = spec_group.rule
            if spec_group.is_full and spec_group in hits:
                length = arith.down(length, rule.b)
                continue
            drop = spec_group.eagle and rule.drops and spec_group not in dropped
            reach = min(length + rule.b, limit) if drop else length
            hits[spec_group] = hit = self._hit(spec_group, chain, reach, drop, earliest)
            shrunk = hit.stop * rule.b < length
            length = hit.stop * rule.b
            if drop:
                dropped.add(spec_group)
            elif shrunk:
                dropped.clear()
        return length

    def _note(self, length: int, hits: Mapping[SpecGroup, Hit], reached: Counter[str]) -> None:
        reached["hit"] += length > 0
        reached["hit with null entries"] += any(hit.start > 0 for hit in hits.values())
        reached["hit cut by another group"] += any(hit.stop * spec.rule.b > length for spec, hit in hits.items())
