"""Two vLLM engines as a pair, with the release's own NixlConnector on both sides: one computes prompts, one reads their
blocks and answers.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from .....model.ops import Value
from ....simulation.judges import FATE, MEMORY
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


def _shorten_before_it_is_looked_up(half: NixlHalf, pair: "NixlPair") -> None:
    """Where the last token of a prompt is left out, it is before its hit is looked for."""
    add, connector = half.scheduler.add_request, half.connector
    shorten: Any = getattr(connector, "_truncate_mamba_request_for_prefill", None)

    def added(request: Any) -> None:
        if connector._has_mamba and (request.kv_transfer_params or {}).get("do_remote_decode"):
            shorten(request)
        add(request)

    if shorten is not None:
        half.scheduler.add_request = added


def _hear_of_nobody_who_has_gone(half: NixlHalf, pair: "NixlPair") -> None:
    """A report of a transfer whose request has gone is nothing to anybody."""
    scheduler = half.scheduler
    update = scheduler._update_from_kv_xfer_finished

    def updated(told: Any) -> None:
        for name in ("finished_recving", "finished_sending"):
            setattr(told, name, {one for one in getattr(told, name) or () if one in scheduler.requests})
        update(told)

    scheduler._update_from_kv_xfer_finished = updated


DEFECTS: Mapping[str, Defect] = {
    **released_pair.DEFECTS,
    "nothing-to-read-of-a-group": Defect(FATE, "AssertionError", _pair_nothing_with_nothing),
    "vllm-project/vllm#53514": Defect(
        FATE, "schedule raises AssertionError", _shorten_before_it_is_looked_up, fixed="0.29"
    ),
    "read-behind-the-lease": Defect(MEMORY, "holds", _fail_what_came_too_late),
    "vllm-project/vllm#43226": Defect(FATE, "update raises AssertionError", _hear_of_nobody_who_has_gone, fixed="0.30"),
    "vllm-project/vllm#52234": Defect(MEMORY, "", _end_who_failed, fixed="0.30"),
}
"""Those of the halves of NixlConnector (docs/evidence/pairs.md)."""


class NixlPair(ReleasedPair):
    """The second engine reads the blocks."""

    connector_module = f"{NIXL}.pull_worker"
    half: ClassVar[Any] = NixlHalf
    defects = DEFECTS
    floors: Mapping[str, int] = {**ReleasedPair.floors, "failed handshake": 1}
    options: Mapping[str, tuple[Value, ...]] = {
        **ReleasedPair.options,
        "kv_lease_duration": (30, 12, 60),
        "engine_ttl": (3600, 40),
    }
