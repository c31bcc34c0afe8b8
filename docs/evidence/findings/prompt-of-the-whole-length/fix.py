"""The change that is proposed for LMDeploy: a prompt that leaves no room for an answer is refused.

`Engine._add_message` (pytorch/engine/engine.py) cuts `max_new_tokens` to what is left of the session. Where that is
nothing, the client gets INPUT_LENGTH_ERROR, as `EngineInstance` answers to a prompt that is longer still.
"""

from typing import Any


def fix() -> None:
    """Change the engine in this process."""
    from lmdeploy.messages import ResponseType
    from lmdeploy.pytorch.disagg.config import EngineRole
    from lmdeploy.pytorch.engine.engine import Engine

    add = Engine._add_message

    def _add_message(self: Any, reqs: list[Any]) -> None:
        served = []
        for req in reqs:
            session = self.scheduler.get_session(req.data["session_id"])
            before = sum(one.num_valid_ids for one in session.sequences.values()) if session is not None else 0
            whole = before + len(req.data["token_ids"]) >= self.max_session_len
            if whole and session is not None and self.engine_config.role != EngineRole.Prefill:
                self._response(req.resp, ResponseType.INPUT_LENGTH_ERROR)
            else:
                served.append(req)
        add(self, served)

    Engine._add_message = _add_message
