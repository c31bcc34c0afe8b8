"""The change that is proposed for SGLang: an abort that waits for a prompt's next piece is not dropped with the piece.

`Scheduler.process_pending_chunked_abort` (managers/scheduler.py) drops it where the request holds no memory any more,
taking it for one that is gone. One that was set back holds none and waits: it is aborted in the queue.
"""

from typing import Any


def fix() -> None:
    """Change the engine in this process."""
    from sglang.srt.managers.io_struct import AbortReq
    from sglang.srt.managers.scheduler import Scheduler

    process = Scheduler.process_pending_chunked_abort

    def process_pending_chunked_abort(self: Any) -> None:
        request = self._pending_chunked_abort_req
        if request is not None and request in self.waiting_queue:
            self._pending_chunked_abort_req = None
            self.abort_request(AbortReq(rid=request.rid))
            return
        process(self)

    Scheduler.process_pending_chunked_abort = process_pending_chunked_abort
