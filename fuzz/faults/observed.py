"""Planted faults of what was not looked at for long: forms of an answer, the metrics of blocks, the form of hashes."""

from collections.abc import Callable
from typing import Any

from .registry import fault, wrap


class _NeverNone:
    """New blocks whose ids are lists even where there are none."""

    def __init__(self, blocks: Any) -> None:
        self.blocks = blocks.blocks
        self._ids = blocks.get_block_ids

    def get_block_ids(self, allow_none: bool = False) -> Any:
        return self._ids()


class _NoneTooOften(_NeverNone):
    """New blocks whose ids are None unless the first group has some."""

    def get_block_ids(self, allow_none: bool = False) -> Any:
        return None if allow_none and not self.blocks[0] else self._ids()


def _with_new_blocks(manager: Any, form: type[_NeverNone]) -> None:
    def allocate(original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        new = original(*args, **named)
        return None if new is None else form(new)

    wrap(manager, "allocate_slots", allocate)


@fault("a step that gets no block is told empty lists instead of None", "outcome")
def _no_new_blocks_not_none(manager: Any) -> None:
    _with_new_blocks(manager, _NeverNone)


@fault("a step is told None if only its first group gets no block", "outcome")
def _none_hides_new_blocks(manager: Any) -> None:
    _with_new_blocks(manager, _NoneTooOften)
