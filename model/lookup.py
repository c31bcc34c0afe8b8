"""What a prefix cache is for: which hit a lookup finds, and which blocks are worth registering for it (core.md §§8, 9).

A hit may end at a *boundary*, a multiple of the alignment. It needs, in every group, the blocks from `Rule.first` to
`Rule.end`: those that the query behind it reads and, where a draft model reads on, the block behind it.
"""

from collections.abc import Callable, Sequence

from .arith import down, up
from .attention import Rule, demand
from .ops import Shape


def check_sizes(shape: Shape) -> None:
    """CoreError unless the scheduler block is whole blocks of every group (core.md §9)."""
    unit = shape.scheduler_block_size
    demand(unit % shape.hash_block_size == unit % shape.least_scheduler_block_size == 0)


def check(shape: Shape, rules: Sequence[Rule]) -> None:
    """CoreError unless the retention interval and the groups of the shape go together (core.md §§8, 9)."""
    unit, retention = shape.scheduler_block_size, shape.retention_interval
    if retention is not None:
        demand(any(rule.windowed for rule in rules) and retention >= 0 and retention % unit == 0, "ValueError")
    check_groups(shape, rules)
    demand(not shape.caching or len(rules) == 1 or len({group.spec for group in shape.groups}) > 1)


def check_groups(shape: Shape, rules: Sequence[Rule]) -> None:
    """CoreError unless blocks are whole hash blocks where contents are looked up."""
    if shape.caching and len(rules) == 1:
        demand(rules[0].group.block_size * shape.parallel == shape.hash_block_size)
    elif shape.caching:
        sizes = [rule.group.block_size for rule in rules if not rule.scratch]
        demand(shape.parallel == 1 and bool(sizes) and all(size % shape.hash_block_size == 0 for size in sizes))


def alignment(shape: Shape, rules: Sequence[Rule]) -> int:
    """Hits end at multiples of so many tokens: the scheduler block size; with one group, its own."""
    return shape.least_scheduler_block_size if len(rules) == 1 else shape.scheduler_block_size


def replay_boundary(rules: Sequence[Rule], unit: int, num_tokens: int) -> int:
    """Where the hit of a request of so many tokens can end at most (T11); below 1 if it can have none. Behind it lie
    the last token, which is always computed again (T13), or the block that drafts need."""
    return down(num_tokens - max([1, *[rule.behind for rule in rules]]), unit)


def longest_hit(rules: Sequence[Rule], unit: int, num_tokens: int, found: Callable[[int, int], int]) -> int:
    """Tokens of the longest hit in a request of so many tokens, 0 if there is none (T14): a multiple of `unit`, such
    that `found(group, i)` is true for every block `i` that it needs in any group."""
    length = replay_boundary(rules, unit, num_tokens)
    while length > 0 and not served(rules, length, found):
        length -= unit
    return max(0, length)


def served(rules: Sequence[Rule], length: int, found: Callable[[int, int], int]) -> bool:
    """True if every group has every block that a hit of so many tokens needs."""
    return all(found(group, i) for group, rule in enumerate(rules) for i in range(rule.first(length), rule.end(length)))


def worth_registering(rule: Rule, i: int, interval: int, replay: int) -> bool:
    """True if a hit at some boundary needs block `i`: one at a multiple of `interval`, 0 for none, or at `replay`. If
    any multiple does, the next one on either side of the block does (T10)."""
    nearest = [up((i + 1) * rule.b, interval), down(i * rule.b, interval)] if interval else []
    return any(rule.first(length) <= i < rule.end(length) for length in (*nearest, replay) if length > 0)
