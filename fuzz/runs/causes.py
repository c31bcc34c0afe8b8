"""Why an operation did not return: in words, and such that many of a kind fall together."""

import re

from ...model.ops import Allocate, Failed, Operation, Outcome
from ..workload.scene import Scene

MAX_LENGTH = 120
"""Longest cause in characters."""


def why_not_done(operation: Operation, outcome: Outcome, scene: Scene) -> str:
    """Of what failed the exception, with # for its numbers; of what was refused what it asked for, drafts first.

    `scene` is the state after the outcome, which is the one before: neither changes what was asked for.
    """
    if isinstance(outcome, Failed):
        return why_failed(outcome)
    return f"asked for {_wish(operation, scene)}" if isinstance(operation, Allocate) else "refused"


def why_failed(outcome: Failed) -> str:
    """The exception in one line, with # for its numbers; its kind if the target does not say more."""
    cause = outcome.cause
    if cause is None:
        return f"{outcome.error}, no message"
    text = re.sub(r"\d+", "#", " ".join(f"{cause.type}: {cause.message}".split()))
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 4]} ..."


def _wish(operation: Allocate, scene: Scene) -> str:
    """The most unusual thing that the allocation asks for."""
    request = scene.requests.get(operation.request)
    if request is not None:
        hit_tokens = request.hit[0] if operation.hit and request.hit else 0
        end = request.computed + hit_tokens + operation.external + operation.new_tokens
        if end > len(request.tokens):
            return "drafts"
    wishes = {
        "external tokens": operation.external,
        "encoder tokens": operation.encoder_tokens,
        "reserved blocks": operation.reserved,
        "room for the whole prompt (gate)": operation.gate,
        "lookahead": operation.lookahead,
    }
    return next((wish for wish, asked in wishes.items() if asked), "room for its next tokens only")
