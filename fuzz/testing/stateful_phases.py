"""The phases in the life of a request, from which follows what may happen to it next."""

from ..workload.bounds import holds_nothing, sampled_late
from .stateful_run import Handle


def live(handle: Handle) -> bool:
    """The request has not ended."""
    return handle.request is not None


def fresh(handle: Handle) -> bool:
    """It has computed nothing and holds nothing, so it may look up the cache."""
    request = handle.request
    if request is None or request.computed or request.scheduled or request.arriving:
        return False
    return holds_nothing(handle.scene, handle.name)


def endable(handle: Handle) -> bool:
    """It has begun, or waits with others: one that has just come is aborted only then."""
    return live(handle) and (not fresh(handle) or len(handle.scene.requests) > 3)


def with_blocks(handle: Handle) -> bool:
    """It holds blocks."""
    return handle.request is not None and not holds_nothing(handle.scene, handle.name)


def ready(handle: Handle) -> bool:
    """A step may be allocated for it."""
    request = handle.request
    if request is None or request.scheduled or request.arriving:
        return False
    return request.computed < handle.scene.shape.max_model_len


def scheduled(handle: Handle) -> bool:
    """A step is allocated and runs."""
    request = handle.request
    return request is not None and request.scheduled > 0 and not request.arriving


def drafting(handle: Handle) -> bool:
    """The step that runs has drafts."""
    request = handle.request
    return request is not None and scheduled(handle) and request.computed + request.scheduled > len(request.tokens)


def awaiting_news(handle: Handle) -> bool:
    """Tokens were sampled that are not known yet."""
    request = handle.request
    if request is None or request.scheduled or request.arriving or not request.computed:
        return False
    return sampled_late(request, handle.scene.shape.max_model_len) > 0


def undecided(handle: Handle) -> bool:
    """Drafts count as computed, and may still be rejected."""
    request = handle.request
    return request is not None and request.drafts > 0 and not request.scheduled


def arriving(handle: Handle) -> bool:
    """A connector loads tokens of it."""
    request = handle.request
    return request is not None and request.arriving
