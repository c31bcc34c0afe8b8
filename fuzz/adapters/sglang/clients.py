"""What clients of an SGLang server are told."""

from collections.abc import Mapping
from copy import copy
from types import SimpleNamespace
from typing import Any

from ...simulation.protocol import ClientRequest, Ended

BAD_REQUEST = 400


def clipped(scheduler: Any, request: ClientRequest, sampling: Any) -> bool:
    """True if the server would serve it, with fewer tokens than it asks for."""
    asked = copy(sampling)
    if len(request.prompt) >= scheduler.max_req_input_len:
        return False
    tried = SimpleNamespace(
        rid=request.id,
        origin_input_ids=request.prompt,
        sampling_params=asked,
        set_finish_with_abort=lambda why: None,
    )
    scheduler.init_req_max_new_tokens(tried)
    return bool(asked.max_new_tokens < sampling.max_new_tokens)


def ended_by(reason: Mapping[str, Any] | None) -> Ended:
    """How a request has ended, of which the server says this."""
    if reason is None:
        return ""
    kinds: Mapping[str, Ended] = {"stop": "stop", "length": "length"}
    return kinds.get(reason["type"], "refused" if reason.get("status_code") == BAD_REQUEST else "failed")
