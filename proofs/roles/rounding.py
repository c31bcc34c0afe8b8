"""Rounding, and the share of the pool in use (T17, T24)."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ...model import arith
from ..bare import bare

MODEL: dict[str, Any] = {"cdiv": arith.cdiv, "down": arith.down, "up": arith.up, "usage": arith.usage}


def _api_usage(names: Any) -> Callable[..., Any]:
    kind = names("BlockPool")

    def usage(num_free: Any, num_blocks: Any) -> Any:
        return bare(
            kind, num_gpu_blocks=num_blocks, free_block_queue=SimpleNamespace(num_free_blocks=num_free)
        ).get_usage()

    return usage


API: dict[str, Any] = {
    "cdiv": lambda names: names("cdiv"),
    "up": lambda names: names("round_up"),
    "down": lambda names: names("round_down"),
    "usage": _api_usage,
}
