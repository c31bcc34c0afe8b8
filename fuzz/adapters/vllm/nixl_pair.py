"""Two vLLM engines as a pair, with the release's own NixlConnector on both sides: one computes prompts, one reads their
blocks and answers.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ....model.ops import Value
from ...simulation.judges import FATE, MEMORY
from . import released_pair
from .nixl_agent import NIXL
from .nixl_half import NixlHalf
from .released_pair import Defect, ReleasedPair


def _pair_nothing_with_nothing(half: NixlHalf, pair: "NixlPair") -> None:
    """Where nothing of a group is to be read, nothing is read of the other engine."""
    trim = half.worker._apply_prefix_caching

    def trimmed(decode_block_ids: Any, prefill_block_ids: Any, *sizes: Any, **named: Any) -> Any:
        pairs = zip(decode_block_ids, prefill_block_ids, strict=True)
        return trim(decode_block_ids, [theirs if mine else [] for mine, theirs in pairs], *sizes, **named)

    half.worker._apply_prefix_caching = trimmed


def _fail_what_came_too_late(half: NixlHalf, pair: "NixlPair") -> None:
    """A read fails that ends when the other engine does not hold its blocks any more."""
    half.agent.may_read = pair.keeps


def _end_who_failed(half: NixlHalf, pair: "NixlPair") -> None:
    """Nobody goes on whose blocks could not be had."""
    half.ends_failed = True


DEFECTS: Mapping[str, Defect] = {
    **released_pair.DEFECTS,
    "nothing-to-read-of-a-group": Defect(FATE, "AssertionError", _pair_nothing_with_nothing),
    "read-behind-the-lease": Defect(MEMORY, "holds", _fail_what_came_too_late),
    "vllm-project/vllm#52234": Defect(MEMORY, "", _end_who_failed, fixed="0.30"),
}
"""Those of the halves of NixlConnector (docs/evidence/pairs.md)."""


class NixlPair(ReleasedPair):
    """The second engine reads the blocks."""

    connector_module = f"{NIXL}.pull_worker"
    half: ClassVar[Callable[..., NixlHalf]] = NixlHalf
    defects = DEFECTS
    floors: Mapping[str, int] = {**ReleasedPair.floors, "failed handshake": 1}
    options: Mapping[str, tuple[Value, ...]] = {
        **ReleasedPair.options,
        "kv_lease_duration": (30, 12, 60),
        "engine_ttl": (3600, 40),
    }
