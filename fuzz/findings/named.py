"""Which requests an operation is about."""

from ...model.ops import AllocateBatch, OnRequest, Operation


def requests_of(operation: Operation) -> tuple[str, ...]:
    """The requests that an operation names."""
    if isinstance(operation, OnRequest):
        return (operation.request,)
    return operation.requests if isinstance(operation, AllocateBatch) else ()
