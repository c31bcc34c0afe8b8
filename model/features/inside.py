"""Hits that end inside a block (vLLM from 0.26 on): the longest one at the grain of hash blocks."""

from collections.abc import Sequence

from .. import arith, lookup
from ..attention import Full, Mamba, Rule
from ..ops import NULL, Shape
from ..state import Request
from ..tables import BlockIds, Core


def alignment(shape: Shape, rules: Sequence[Rule]) -> int:
    """Hits end at multiples of so many tokens: of hash blocks where states are kept for more tokens than these, and
    each group can look up so."""
    fine = [rule for rule in rules if isinstance(rule, Mamba) and rule.align and rule.b > shape.hash_block_size]
    sizes = {rule.b for rule in rules if not (isinstance(rule, Mamba | Full) or rule.scratch)}
    inside = shape.caching and len(rules) > 1 and bool(fine) and sizes <= {shape.hash_block_size}
    return shape.hash_block_size if inside else lookup.alignment(shape, rules)


def drafts(shape: Shape) -> int:
    """How many tokens behind a step draft models read, each of a chain one further than the last; 0 without any."""
    return shape.reads_ahead if shape.eagle or any(group.eagle for group in shape.groups) else 0


def names_ahead(shape: Shape) -> int:
    """A draft model computes the last position of a block from the token behind it: so that token names the block."""
    return drafts(shape) if shape.caching and not shape.old_names else 0


def behind(core: Core, rule: Rule) -> int:
    """Tokens right behind a hit that must be cached, too, where drafts are made and names do not look ahead: a block;
    of full attention, where hits end inside blocks, a hash block."""
    return min(rule.behind, core.alignment) if rule.is_full else rule.behind


def left(core: Core, rule: Rule | None = None) -> int:
    """Tokens at the end of a prompt behind the longest hit of it: the last one, those that names cover besides, or what
    must be cached behind a hit. `rule`: of a group that names it; full attention that drafts read has them cached, too,
    and states end at hash blocks."""
    if rule is not None and rule.is_full:
        return 0 if rule.behind else max(1, core.ahead)
    most = core.shape.max_model_len if rule is None else core.shape.hash_block_size
    return max(1, core.ahead, *[min(most, behind(core, one)) for one in core.rules])


def first(core: Core) -> Rule:
    """The rule of the groups that say how much of a prefix is held: full attention, if there is any."""
    return min(core.rules, key=lambda rule: (rule.scratch, not rule.is_full))


def alike(core: Core, rule: Rule) -> list[int]:
    """The groups with the same spec: they are looked up together."""
    return [group for group, other in enumerate(core.rules) if other.group.spec == rule.group.spec]


def ends_inside(core: Core) -> bool:
    """Do hits end inside blocks?"""
    return any(core.alignment < rule.b for rule in core.rules if not rule.scratch)


class Names:
    """What a lookup of one request finds."""

    def __init__(self, core: Core, request: Request, reads_on: bool = True) -> None:
        """`reads_on`: what drafts need behind a hit is asked for, too."""
        self.core, self.request, self.earliest = core, request, core.state.earliest()
        self.unit, self.reads_on = core.shape.hash_block_size, reads_on and any(rule.behind for rule in core.rules)
        named = len(request.chain) * self.unit
        self.limit = named if self.reads_on else min(arith.down(request.limit, self.unit), named)
        """Tokens up to which it looks."""

    def at(self, group: int, tokens: int) -> int:
        """The block that is named for the content of the first `tokens` tokens; null if there is none."""
        known = 0 < tokens <= self.limit
        return self.earliest.get((group, self.request.chain[tokens // self.unit - 1]), NULL) if known else NULL

    def whole(self, group: int, i: int) -> int:
        """The same of a whole block of the group."""
        return self.at(group, (i + 1) * self.core.rules[group].b)

    def inside(self, group: int, length: int) -> int:
        """The block in which the tokens up to `length` stand, of full attention: that whose name reaches furthest."""
        b = self.core.rules[group].b
        ends = range(min(arith.up(length, b), self.limit), length - 1, -self.unit)
        return next((block for end in ends if (block := self.at(group, end)) != NULL), NULL)

    def blocks(self, groups: Sequence[int], length: int) -> list[list[int]] | None:
        """The entries of these groups of one kind for a hit of so many tokens; None where one lacks a block."""
        rows = []
        for group in groups:
            rule = self.core.rules[group]
            further = behind(self.core, rule) if self.reads_on else 0
            if further and not rule.is_full and self.whole(group, length // rule.b) == NULL:
                return None
            reach = length + further * rule.is_full
            whole, rest = divmod(reach, rule.b)
            if isinstance(rule, Mamba):
                row = [NULL] * (arith.cdiv(length, rule.b) - 1) + [self.at(group, length)]
                needed = row[-1:]
            else:
                first = rule.first(length)
                row = [NULL] * first + [self.whole(group, i) for i in range(first, whole)]
                row += [self.inside(group, reach)] if rest and not rule.scratch else []
                needed = row[first:]
            if NULL in needed:
                return None
            rows.append(row[: arith.cdiv(length, rule.b)])
        return rows


def hit(core: Core, request: Request) -> tuple[int, BlockIds]:
    """Tokens of the longest hit, and its blocks per group."""
    names, groups = Names(core, request), range(len(core.rules))
    for length in range(arith.down(min(names.limit, request.limit), core.alignment), 0, -core.alignment):
        rows = names.blocks(groups, length)
        if rows is not None and any(rows):
            return length, rows
    return 0, [[] for _ in groups]


def junction(core: Core, request: Request, hit: int) -> int:
    """Where the prefix ends that the groups of full attention hold (those of the first kind, if there are none), if the
    common hit ends before it; else 0. In tokens."""
    names, asked = Names(core, request), alike(core, first(core))
    longer = range(arith.down(min(names.limit, request.limit), core.alignment), hit, -core.alignment)
    return next((length for length in longer if any(names.blocks(asked, length) or ())), 0)
