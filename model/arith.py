"""Every closed form of the core, as plain arithmetic on integers.

These functions use only `+ - * // %`, `min`, `max` and comparisons, so that the proofs can run them on symbolic
integers. Letters as in core.md: `b` tokens per block table entry, `c` computed tokens, `w` window, `k` chunk.
"""

from collections.abc import Sequence


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


def cap_chunked(k: int, b: int, common: int, max_batched: int, max_len: int) -> int:
    """Most blocks a chunked-local request holds at once; `common` is gcd(b, k) (T6, S-13).

    A chunk that starts inside a block drags up to `b - common` dead tokens along.
    """
    return cdiv(min(k + max_batched + b - common, max_len), b)


def up(x: int, unit: int) -> int:
    """Smallest multiple of `unit` not below `x`."""
    return cdiv(x, unit) * unit


def nvfp4_width(width: int) -> int:
    """Bytes of `width` 4-bit numbers and of one scale byte for 16 of them (specs-and-config.md §3, S-11)."""
    return cdiv(width, 2) + cdiv(width, 16)


def page_keys_values(b: int, h: int, d: int, v: int, z: int) -> int:
    """Bytes of `b` tokens with `h` heads, a key `d` and a value `v` wide each, `z` bytes a number (§3)."""
    return b * h * (d + v) * z


def page_latent(t: int, h: int, d: int, z: int) -> int:
    """Bytes of `t` stored tokens with one compressed vector `d` wide for each of `h` heads (§3)."""
    return t * h * d * z


def scale_bytes(b: int, h: int) -> int:
    """Bytes of two float32 scales for each of `b` tokens and `h` heads (§3)."""
    return 8 * b * h


def blocks_full(max_len: int, parallel: int, b: int) -> int:
    """Blocks of a whole sequence that is spread over `parallel` ranks (§3, I12)."""
    return cdiv(cdiv(max_len, parallel), b)


def blocks_that_fit(memory: int, block_bytes: int) -> int:
    """Blocks of so many bytes in so much memory; none where there is less than none (§11, I1, C-11)."""
    return max(0, memory // block_bytes)


def blocks_per_layer(memory: int, page: int, num_layers: int) -> int:
    """Blocks for each of `num_layers` layers that share the memory evenly (§11)."""
    return max(0, memory // page // num_layers)


def group_size(lo: int, hi: int) -> int:
    """Layers of a group where the rarest type has `lo` layers and the most frequent one `hi` (§10.1)."""
    return hi if 2 * hi < 3 * lo else lo


def padding(values: Sequence[int], unit: int) -> int:
    """Sum of what must be added to the values to make each a multiple of `unit` (§10.2)."""
    return sum(up(x, unit) - x for x in values)


def approximate_gcd(values: Sequence[int], lower_bound: int) -> int:
    """The unit from `lower_bound` to the largest value with the least padding, the largest such unit on ties; the
    lower bound where it exceeds every value (§10.2, I6). Values and bound are positive."""
    units = range(lower_bound, max(values) + 1)
    return min(units, key=lambda unit: (padding(values, unit), -unit), default=lower_bound)


def usage(num_free: int, num_blocks: int) -> float:
    """Share of the pool in use, the null block left out; 0 for a pool of one block (T24)."""
    return 1.0 - num_free / (num_blocks - 1) if num_blocks > 1 else 0.0
