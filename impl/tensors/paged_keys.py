"""What paged attention reads of a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

FULL = 2**30
"""A window that no request reaches."""


@dataclass(frozen=True)
class PagedKeys:
    """What the attention of a layer reads."""

    keys: torch.Tensor
    """(blocks, tokens of a block, heads, size of a head): the view of the layer."""
    values: torch.Tensor
    table: torch.Tensor
    """int32 (rows, entries): the blocks of each request."""
    scale: float
    """What scores are multiplied by."""
    window: int = FULL
    """How many tokens a query reads, itself among them."""
