"""What clients of an SGLang server ask for, and what they are told."""

from array import array
from collections.abc import Mapping
from copy import copy
from types import SimpleNamespace
from typing import Any

from ...simulation.protocol import ClientRequest, Ended

BAD_REQUEST = 400


def sampling_of(params: Any, request: ClientRequest) -> Any:
    """As an object of the server's class `params`."""
    sampling = params(max_new_tokens=request.max_tokens, stop_token_ids=list(request.stop) or None)
    sampling.normalize(None)
    return sampling


def tokenized(request: ClientRequest, sampling: Any, *, priorities: bool) -> dict[str, Any]:
    """The fields of a message to the scheduler that a request is here, but for its name."""
    return {
        "input_text": None,
        "input_ids": array("q", request.prompt),
        "input_embeds": None,
        "mm_inputs": None,
        "token_type_ids": None,
        "sampling_params": sampling,
        "return_logprob": False,
        "logprob_start_len": -1,
        "top_logprobs_num": 0,
        "token_ids_logprob": None,
        "stream": True,
        "priority": request.priority if priorities else None,
        "cache_salt": request.salt,
    }


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
