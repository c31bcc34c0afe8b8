"""Connections to the page of a run: whoever opens one and asks for nothing keeps nobody else from the page."""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_WAITING = 32
"""Connections at a time over which no whole request has come; one more, and the oldest of them is closed."""
PATIENCE_S = 3.0
"""Within which a request must have come, and the next one behind it."""


class Patient(H11Protocol):
    """A connection that is closed if nothing is asked over it."""

    _waiting: ClassVar[dict["Patient", None]] = {}

    def connection_made(self, transport: Any) -> None:
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._asked: object = None
        while len(self._waiting) >= MOST_WAITING:
            next(iter(self._waiting)).give_up()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._waiting.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        super().data_received(data)
        if self.cycle is not self._asked:
            self._waiting.pop(self, None)

    def give_up(self) -> None:
        """Close it."""
        self._waiting.pop(self, None)
        if not self.transport.is_closing():
            self.transport.abort()

    def _wait(self) -> None:
        self._waiting[self] = None
        asyncio.get_running_loop().call_later(PATIENCE_S, self._look)

    def _look(self) -> None:
        """Some time has passed: close it if no new request has come, unless one is being answered."""
        if self.transport.is_closing():
            return
        answering = self.cycle is not None and not self.cycle.response_complete
        if not answering and self.cycle is self._asked:
            self.give_up()
            return
        if not answering:
            self._asked = self.cycle
            self._waiting[self] = None
        asyncio.get_running_loop().call_later(PATIENCE_S, self._look)
