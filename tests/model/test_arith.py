"""The closed forms against their definitions, by brute force over small numbers; and that the checks can fail.

Each check returns the first counterexample of the rule it is given, or None. The model's rule has none; a rule with a
slip in it (a negative control) has one, found by the same check.
"""

from itertools import product

import pytest
from blockproof.model import arith
from blockproof.model.attention import rule_for
from blockproof.model.ops import Group, Shape

SOME = range(1, 7)


def first(cases):
    return next(cases, None)


def wrong_skip(attends, skipped):
    """T1, T2: `t < skipped(c)` exactly if no query from `c` on attends to `t`."""
    for size, c, t in product(SOME, range(16), range(16)):
        dead = not any(attends(q, t, size) for q in range(c, 32))
        if dead != (t < skipped(c, size)):
            return size, c, t
    return None


@pytest.mark.parametrize(
    ("attends", "skipped", "negative_controls"),
    [
        (
            arith.attends_sliding,
            arith.skipped_sliding,
            (lambda c, w: max(0, c - w), lambda c, w: max(0, c - w + 2), lambda c, w: c - w + 1 if c > w + 1 else 0),
        ),
        (
            arith.attends_chunked,
            arith.skipped_chunked,
            (lambda c, k: arith.down(c + 1, k), lambda c, k: arith.down(max(0, c - 1), k), lambda c, k: 0),
        ),
        (lambda q, t, _: arith.attends_full(q, t), lambda c, _: 0, (lambda c, _: c // 8,)),
        (lambda q, t, _: t == q - 1, lambda c, _: arith.skipped_mamba(c), (lambda c, _: c, lambda c, _: c - 2)),
    ],
    ids=["T1 sliding", "T2 chunked", "full", "mamba"],
)
def test_skipped_tokens_are_those_that_no_later_query_reads(attends, skipped, negative_controls):
    assert wrong_skip(attends, skipped) is None
    assert all(wrong_skip(attends, control) for control in negative_controls)


def wrong_prefix(attends, skipped, blocks):
    """T3: 0 <= skipped <= c, monotone, and the blocks given up hold dead tokens only."""
    for size, b, c in product(SOME, SOME, range(20)):
        dead_tokens = range(blocks(skipped(c, size), b) * b)
        alive = any(attends(q, t, size) for q in range(c, 30) for t in dead_tokens)
        if alive or not 0 <= skipped(c, size) <= min(c, skipped(c + 1, size)):
            return size, b, c
    return None


@pytest.mark.parametrize(
    ("attends", "skipped"),
    [(arith.attends_sliding, arith.skipped_sliding), (arith.attends_chunked, arith.skipped_chunked)],
)
def test_the_skipped_blocks_are_a_growing_prefix_of_dead_tokens(attends, skipped):
    assert wrong_prefix(attends, skipped, lambda tokens, b: tokens // b) is None
    assert wrong_prefix(attends, skipped, arith.cdiv)
    assert wrong_prefix(attends, lambda c, size: c - skipped(c, size), lambda tokens, b: tokens // b)


def exceeded(skipped, cap, divides=False):
    """T4, T6: blocks held in a step of at most `batched` tokens, and a cap below them."""
    for size, b, batched, max_len in product(SOME, SOME, range(1, 9), (5, 14, 40)):
        if divides and size % b:
            continue
        for c in range(max_len):
            end = min(c + batched, max_len)
            held = arith.cdiv(end, b) - skipped(c, size) // b
            if held > cap(size, b, batched, max_len):
                return size, b, batched, max_len, c, held
    return None


def reference_chunked_cap(k, b, batched, max_len):
    """Without the block that a chunk starting inside it drags along."""
    return arith.cdiv(min(k + batched, max_len), b)


def test_the_sliding_window_cap_is_never_exceeded():
    assert exceeded(arith.skipped_sliding, arith.cap_sliding) is None
    assert exceeded(arith.skipped_sliding, lambda w, b, n, m: arith.cap_sliding(w, b, n, m) - 1)
    assert exceeded(arith.skipped_sliding, lambda w, b, n, m: arith.cdiv(min(w - 1 + n, m), b))


def test_the_chunked_cap_is_never_exceeded_and_the_reference_s_is_unless_the_block_divides_the_chunk():
    assert exceeded(arith.skipped_chunked, arith.cap_chunked) is None
    assert exceeded(arith.skipped_chunked, reference_chunked_cap)
    assert exceeded(arith.skipped_chunked, reference_chunked_cap, divides=True) is None


def test_the_counterexample_of_the_specification_to_the_reference_s_chunked_cap():
    k, b, batched = 2, 5, 7
    held = max(arith.cdiv(c + batched, b) - arith.skipped_chunked(c, k) // b for c in range(40))
    assert (reference_chunked_cap(k, b, batched, 100), held, arith.cap_chunked(k, b, batched, 100)) == (2, 3, 3)


def wrong_window(blocks):
    """T8: the blocks before a boundary hold all that the query at the boundary reads, and one fewer would not."""
    for w, b, end in product(range(1, 14), SOME, range(1, 16)):
        read = {t // b for t in range(end * b) if arith.attends_sliding(end * b, t, w)}
        if read != set(range(max(0, end - blocks(w, b)), end)):
            return w, b, end
    return None


def held_most(rule, batched, lookahead):
    """The most blocks that steps of up to so many tokens hold, with lookahead behind them."""
    steps = product(range(40), range(1, batched + 1))
    return max(arith.cdiv(c + n + lookahead, rule.b) - max(0, rule.skipped(c)) // rule.b for c, n in steps)


@pytest.mark.parametrize("kind", ["sliding", "chunked"])
def test_the_caps_with_lookahead_are_exact(kind):
    for size, b, batched, lookahead in product(SOME, SOME, (1, 2, 5), (1, 2, 3, 6)):
        group = Group("sliding", b, window=size) if kind == "sliding" else Group("chunked", b, chunk=size)
        shape = Shape((group,), 9, 10_000, b, b, batched)
        rule = rule_for(group, shape)
        assert rule.cap(lookahead) == held_most(rule, batched, lookahead), (size, b, batched, lookahead)
        assert rule.cap(1) == rule.cap()


def test_a_window_hit_needs_exactly_the_blocks_that_the_next_query_reads():
    assert wrong_window(arith.window_blocks) is None
    assert wrong_window(lambda w, b: arith.cdiv(w, b))
    assert wrong_window(lambda w, b: (w - 1) // b)
    assert wrong_window(lambda w, b: w // b)


def wrong_cut(down):
    """T12."""
    for length, unit in product(range(40), SOME):
        if down(length, unit) != max(n for n in range(length + 1) if n % unit == 0):
            return length, unit
    return None


def test_cutting_ends_at_the_largest_aligned_length_not_above_the_start():
    assert wrong_cut(arith.down) is None
    assert wrong_cut(lambda length, unit: arith.cdiv(length, unit) * unit)
    assert wrong_cut(lambda length, unit: max(0, length - unit) // unit * unit)


def test_rounding_up_is_the_least_number_of_units_that_cover():
    for x, y in product(range(30), SOME):
        assert arith.cdiv(x, y) == min(n for n in range(31) if n * y >= x)


def test_usage_is_a_share_of_the_blocks_that_can_be_used():
    assert [arith.usage(free, 5) for free in (4, 2, 0)] == [0.0, 0.5, 1.0]
    assert arith.usage(0, 1) == 0.0
    assert all(0 <= arith.usage(free, n) <= 1 for n in range(2, 30) for free in range(n))
