"""Every closed form of the core, as plain arithmetic on integers.

These functions use only `+ - * // %`, `min`, `max`, `gcd` and comparisons, so that the proofs can run them on symbolic
integers. Letters as in core.md: `b` tokens per block table entry, `c` computed tokens, `w` window, `k` chunk.
"""

from math import gcd


def cdiv(x: int, y: int) -> int:
    """`x / y` rounded up, for `y > 0`."""
    return -(-x // y)


def down(x: int, unit: int) -> int:
    """Largest multiple of `unit` not above `x` (T12)."""
    return x // unit * unit


def attends_full(q: int, t: int) -> bool:
    """True if the query at position `q` reads the token at `t`. Full attention: everything up to the query itself."""
    return t <= q


def attends_sliding(q: int, t: int, w: int) -> bool:
    """The same for a sliding window: the query reads itself and the `w - 1` tokens before it."""
    return t <= q and t > q - w


def attends_chunked(q: int, t: int, k: int) -> bool:
    """The same for chunked local attention: the query reads its chunk of `k` tokens, up to itself."""
    return t <= q and t // k == q // k


def skipped_sliding(c: int, w: int) -> int:
    """Leading tokens that no query at `c` or later reads: those before the window of the query at `c` (T1)."""
    return max(0, c - w + 1)


def skipped_chunked(c: int, k: int) -> int:
    """The same for chunks: the tokens before the chunk of the query at `c` (T2)."""
    return down(c, k)


def skipped_mamba(c: int) -> int:
    """All tokens but the last computed one, whose state is all that is read; -1 for `c == 0` (core.md §6)."""
    return c - 1


def window_blocks(w: int, b: int) -> int:
    """Blocks before a block boundary that the query at the boundary reads (core.md §7, T8)."""
    return cdiv(w - 1, b)


def missing_blocks(required: int, present: int) -> int:
    """Blocks to take so that a table of `present` entries has `required` ones (core.md §6)."""
    return max(required - present, 0)


def cap_sliding(w: int, b: int, max_batched: int, max_len: int) -> int:
    """Most blocks a sliding-window request holds at once, as the admission gate counts (T4)."""
    return cdiv(min(w - 1 + max_batched, max_len), b) + 1


def cap_chunked(k: int, b: int, max_batched: int, max_len: int) -> int:
    """Most blocks a chunked-local request holds at once (T6, S-13): a chunk that starts inside a block drags up to
    `b - gcd(b, k)` dead tokens along."""
    return cdiv(min(k + max_batched + b - gcd(b, k), max_len), b)


def up(x: int, unit: int) -> int:
    """Smallest multiple of `unit` not below `x`."""
    return cdiv(x, unit) * unit


def usage(num_free: int, num_blocks: int) -> float:
    """Share of the pool in use, the null block left out; 0 for a pool of one block (T24)."""
    return 1.0 - num_free / (num_blocks - 1) if num_blocks > 1 else 0.0
