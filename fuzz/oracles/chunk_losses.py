"""Where chunks lie badly in blocks: what follows is excused of releases that are known for it."""

from collections.abc import Sequence

from ...model.attention import Chunked, Rule


def is_astride(rule: Rule) -> bool:
    """True if a chunk may begin inside a block."""
    return isinstance(rule, Chunked) and rule.k % rule.b > 0


def is_hard_to_look_up(rules: Sequence[Rule], unit: int) -> bool:
    """True if a draft model reads one of these groups behind a hit, or its blocks end where no hit does; `unit`: tokens
    between the places where hits may end."""
    return any(isinstance(rule, Chunked) and (rule.behind > 0 or rule.b != unit) for rule in rules)
