"""A request, with what the rule of today reads of it besides."""

from enum import IntEnum
from typing import Any

from ..request import Request


class RequestStatus(IntEnum):
    """How far a request is, as far as a core asks: whether it runs."""

    WAITING = 0
    WAITING_FOR_REMOTE_KVS = 1
    RUNNING = 2
    PREEMPTED = 3


class TodayRequest(Request):
    """As before; the scheduler sets these fields."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self.status = RequestStatus.WAITING
        self.num_in_flight_tokens = 0
        """Computed tokens of steps whose outcome is not known."""
        self.shared_prefix_boundary = 0
        """Tokens up to which others share its prefix, behind its hit; what the last lookup said."""
        super().__init__(*given, **named)
