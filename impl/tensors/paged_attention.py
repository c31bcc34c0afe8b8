"""Attention over paged keys and values, read through the tables on a device (core.md §11).

It is there to judge tables, slots and views by what they are for; engines have faster kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .kernel_choice import kernel_module
from .torch_kernels import PagedKeys

if TYPE_CHECKING:
    import torch


def attention(
    query: torch.Tensor, cache: PagedKeys, rows: torch.Tensor, positions: torch.Tensor, kernels: str | None = None
) -> torch.Tensor:
    """What each query gets from the keys and values up to its own: (tokens, heads, size of a head).

    `query` has that shape; heads are a multiple of those of the keys. `rows` and `positions` say for each token of
    which request it is, and which of its tokens. Keys and values of these tokens are written before. Scores are
    computed in 32 bits. The kernels are Triton's on a GPU and torch's elsewhere unless named. ValueError for shapes,
    types and windows that do not fit. Rows and positions are on the device, and not looked at.
    """
    _check_types(query, cache)
    (tokens, heads, width), (of_keys, key_width) = query.shape, cache.keys.shape[2:]
    if heads % of_keys or width != key_width or not tokens == len(rows) == len(positions):
        raise ValueError(
            f"query {[*query.shape]}, keys {[*cache.keys.shape]}, {len(rows)} rows, {len(positions)} positions: "
            "give each token a row and a position, and heads as wide as those of the keys, a multiple of them"
        )
    answer: torch.Tensor = kernel_module(query.device, kernels).attention(query, cache, rows, positions)
    return answer


def _check_types(query: torch.Tensor, cache: PagedKeys) -> None:
    if query.dim() != 3 or cache.keys.dim() != 4 or cache.table.dim() != 2 or cache.keys.shape != cache.values.shape:
        shapes = ", ".join(str([*each.shape]) for each in (query, cache.keys, cache.values, cache.table))
        raise ValueError(
            f"query, keys, values and table are {shapes}: give tokens, heads and width, and see `PagedKeys`"
        )
    if not query.dtype == cache.keys.dtype == cache.values.dtype or not query.is_floating_point():
        types = f"{query.dtype}, {cache.keys.dtype} and {cache.values.dtype}"
        raise ValueError(f"query, keys and values are of {types}: give one type of floating-point numbers")
    if cache.table.is_floating_point() or cache.window < 1:
        raise ValueError(f"a table of {cache.table.dtype}, a window of {cache.window}: give block ids, and 1 at least")
    if cache.keys.stride(3) != 1 or cache.values.stride(3) != 1 or cache.table.stride(1) != 1:
        raise ValueError("the numbers of a head, and the entries of a row, must lie side by side")
