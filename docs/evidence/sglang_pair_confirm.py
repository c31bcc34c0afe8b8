"""Defects of SGLang's disaggregation in 0.5.23, with the release alone; nothing of blockproof.

Run in an environment of that release: PYTHONPATH=docs/evidence/findings python docs/evidence/sglang_pair_confirm.py
The release's methods run; of the objects that they belong to, what they ask for is set by hand.
"""

import logging
import sys
import threading
from collections import defaultdict
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from sglang_without_device import Missing

logging.disable(logging.CRITICAL)
sys.meta_path.append(Missing())
from sglang.srt.disaggregation.base import KVPoll  # noqa: E402
from sglang.srt.disaggregation.common.utils import FastQueue, TransferKVChunk  # noqa: E402
from sglang.srt.disaggregation.decode import DecodePreallocQueue  # noqa: E402
from sglang.srt.disaggregation.mooncake.conn import MooncakeKVManager  # noqa: E402

# What is sent.


class Prefill(MooncakeKVManager):  # type: ignore[misc]
    """The first engine's connections, of which one decoding engine has registered, `known`."""

    def __init__(self) -> None:
        vars(self).update(
            enable_trace=False,
            enable_staging=False,
            enable_deferred_decode_kv_release=True,
            deferred_bootstrap=None,
            bootstrap_port=8998,
            request_status={},
            transfer_infos={},
            decode_kv_args_table={},
            req_to_decode_prefix_len={},
            session_lock=threading.Lock(),
            failed_sessions=set(),
            failed_session_probes={},
            state_layout_rejections={},
            _staging_outstanding=defaultdict(int),
            _deferred_ack_targets={},
            _deferred_ack_poisoned_rooms=set(),
        )


def registration_is_lost() -> bool:
    """Rooms are announced behind a registration, once for each engine, on a connection that may break in between."""
    prefill = Prefill()
    room = SimpleNamespace(mooncake_session_id="decode:1", is_dummy=False)
    prefill.request_status[7] = KVPoll.WaitingForInput
    prefill.transfer_infos[7] = {"decode:1": room}
    chunk = TransferKVChunk(
        room=7, prefill_kv_indices=[], index_slice=slice(0, 0), is_last_chunk=True, prefill_aux_index=0,
        state_indices=None,
    )  # fmt: skip
    queue = FastQueue()
    queue.put(chunk)
    try:
        prefill.transfer_worker(queue, MagicMock())
    except RuntimeError as error:
        print(f"  the thread that writes to all engines of this queue ends: {error}")
        return True
    return False


def given_up_is_not_told() -> bool:
    """A room is given up at the first engine; then the second one says where its blocks are."""
    prefill = Prefill()
    prefill.update_status(7, KVPoll.Bootstrapping)
    prefill.update_status(7, KVPoll.Failed)  # nobody was heard of in time
    prefill.request_status.pop(7)  # the request has ended
    prefill.update_status(7, KVPoll.WaitingForInput)  # as its thread does when it hears of the room
    print(f"  of a room that has ended the first engine notes {prefill.request_status}, and tells nobody")
    return bool(prefill.request_status)


# Who is admitted.


def never_admitted() -> bool:
    """A prompt of 3,600 tokens, a pool of 4,000, and 512 tokens that are kept for each request."""
    request = SimpleNamespace(
        rid="r", origin_input_ids=[1] * 3600, output_ids=[], sampling_params=SimpleNamespace(max_new_tokens=8)
    )
    allocator = SimpleNamespace(prealloc_ceiling_fits=lambda full, swa: None, page_size=1)
    queue: Any = SimpleNamespace(
        num_reserved_decode_tokens=512,
        max_total_num_tokens=4000,
        token_to_kv_pool_allocator=allocator,
        scheduler=SimpleNamespace(enable_hisparse=False),
        _uses_swa_tail_prealloc=lambda: False,
        _prealloc_required_tokens=lambda request: (4112, 0),
        _rebootstrap_prefill_len=lambda request: len(request.origin_input_ids),
    )
    is_refused = DecodePreallocQueue._check_if_req_exceed_kv_capacity(queue, request)
    needed = DecodePreallocQueue._required_admission_tokens(queue, request, 3600, 0, 0)
    print(f"  refused: {is_refused}; it is admitted when {needed} of 4000 slots are free")
    return not is_refused and needed > 4000


if __name__ == "__main__":
    for check in (registration_is_lost, given_up_is_not_told, never_admitted):
        print(f"{check.__name__}: {(check.__doc__ or '').splitlines()[0]}")
        print(f"  it shows: {check()}")
