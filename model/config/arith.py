"""The closed forms of configurations, as plain arithmetic on integers, so that proofs run them on symbolic ones."""

from collections.abc import Sequence

from ..arith import cdiv, up


def nvfp4_width(width: int) -> int:
    """Bytes of `width` 4-bit numbers and of a scale for 16 of them, begun ones included: none lies outside [S-11]."""
    return cdiv(width, 2) + cdiv(width, 16)


def group_size(lo: int, hi: int) -> int:
    """Layers of a group where the rarest type has `lo` and the most frequent one `hi`: as long as these are nearly as
    many, padding the rarer ones costs less than one more group of every type (K-4)."""
    return hi if 2 * hi < 3 * lo else lo


def padding(values: Sequence[int], unit: int) -> int:
    """Sum of what must be added to the values to make each a multiple of `unit`: slots that stay empty."""
    return sum(up(x, unit) - x for x in values)


def approximate_gcd(values: Sequence[int], lower_bound: int) -> int:
    """The unit from `lower_bound` to the largest value with the least padding, the largest such unit on ties; the
    lower bound where it exceeds every value (I6). Values and bound are positive."""
    units = range(lower_bound, max(values) + 1)
    return min(units, key=lambda unit: (padding(values, unit), -unit), default=lower_bound)
