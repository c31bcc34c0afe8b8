"""The change that is proposed for transformers: inside, every request has a name of its own.

`ContinuousBatchingManager.add_request` and `cancel_request` (generation/continuous_batching/continuous_api.py) put a
number behind the client's name; `OutputRouter` takes it off again, and leaves out what was cancelled.
"""

from itertools import count
from typing import Any

MARK = "\0"


def fix() -> None:
    """Change the engine in this process."""
    from transformers.generation.continuous_batching.continuous_api import ContinuousBatchingManager, OutputRouter

    numbers, newest, gone = count(), dict[tuple[int, str], str](), set[str]()
    added, cancelled = ContinuousBatchingManager.add_request, ContinuousBatchingManager.cancel_request
    one, several = OutputRouter.deliver, OutputRouter.deliver_batch

    def add_request(self: Any, input_ids: list[int], request_id: str | None = None, *rest: Any, **more: Any) -> Any:
        if request_id is None:
            return added(self, input_ids, request_id, *rest, **more)
        inside = newest[id(self), request_id] = f"{request_id}{MARK}{next(numbers)}{MARK}"
        return request_id if added(self, input_ids, inside, *rest, **more) is not None else None

    def cancel_request(self: Any, request_id: str) -> None:
        inside = newest.get((id(self), request_id), request_id)
        gone.add(inside)
        cancelled(self, inside)

    def wanted(output: Any) -> bool:
        inside, parts = output.request_id, output.request_id.split(MARK)
        output.request_id = parts[0] + parts[-1] if len(parts) > 1 else inside
        return inside not in gone

    def deliver(self: Any, output: Any) -> None:
        if wanted(output):
            one(self, output)

    def deliver_batch(self: Any, outputs: list[Any]) -> None:
        several(self, [output for output in outputs if wanted(output)])

    ContinuousBatchingManager.add_request, ContinuousBatchingManager.cancel_request = add_request, cancel_request
    OutputRouter.deliver, OutputRouter.deliver_batch = deliver, deliver_batch
