"""Requests that a server refuses when it already has a place for them: their prompt is too long."""

from typing import Any

NEVER = 0
"""The only token that is computed in place of the prompt."""


def is_refused(request: Any) -> bool:
    """True of the server's request, which ends with an error behind that token."""
    return bool(request.origin_input_ids[0] == NEVER)
