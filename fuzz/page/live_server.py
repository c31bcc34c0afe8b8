"""The server of a page that grows while a run goes on: a process of its own, fed with lines of JSON by the run.

It shows, and nothing can be started or changed from it: it answers GET and HEAD, on 127.0.0.1, to whoever names a
token in the address. What it holds is bounded: one document, however long the run is, and a few streams. Where the run
ends, or dies, the process ends as well, once the pages that are open have the last document.
"""

import asyncio
import contextlib
import json
import logging
import secrets
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, MutableMapping
from typing import Any, BinaryIO, TypeAlias

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from .document import VERSION, Progress, ReportDocument
from .html import OF_LIVE, page, parts, policy
from .live_connections import MOST_WAITING, Patient
from .live_document import Live

HOST = "127.0.0.1"
MOST_STREAMS = 24
"""Open pages at a time."""
LINGER_S = 4.0
"""How long pages that are open have to take the last document."""
METHODS = ("GET", "HEAD")
CHUNK = 1 << 16
"""Bytes of a document that are sent at a time; a slow reader holds no more than that in memory."""
Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]


class Shown:
    """What the page shows now, and who waits for the next document. For one event loop."""

    def __init__(self) -> None:
        self.live = Live()
        self.document = ReportDocument(VERSION, "a run", "", "nothing was told yet", "note", [])
        self.document.progress = Progress("starting")
        self.data = msgspec.json.encode(self.document)
        self.number = 0
        self.streams = 0
        self.opened = 0.0
        """When the page was last asked for."""
        self._changed = asyncio.Event()

    @property
    def ended(self) -> bool:
        """True once nothing will change any more."""
        return self.document.progress is not None and self.document.progress.ended

    def put(self, document: ReportDocument) -> None:
        """Show this document."""
        self.document, self.data = document, msgspec.json.encode(document)
        self.number += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def next(self, number: int) -> None:
        """Returns once there is another document than the one of this number."""
        while self.number == number:
            await self._changed.wait()


def application(shown: Shown, token: str, port: int) -> "Gate":
    """What answers requests. 404 for all that has not the token, 403 for a host that is not this one, 405 for all that
    is not to be read; nothing is said with it.
    """
    no_scripts, (script, style) = "default-src 'none'; frame-ancestors 'none'", parts()
    of_a_trace = f"{policy(script, style)}; frame-ancestors 'none'"
    of_the_page = f"{policy(*parts(OF_LIVE), live=True)}; frame-ancestors 'none'"

    async def first(request: Request) -> Response:
        shown.opened = time.monotonic()
        text = page(shown.document, live=True)
        return Response(text, media_type="text/html", headers={"content-security-policy": of_the_page})

    async def events(request: Request) -> Response:
        headers = {"content-security-policy": no_scripts}
        if request.method == "HEAD" or shown.streams >= MOST_STREAMS:
            status = 200 if request.method == "HEAD" else 503
            return Response(status_code=status, media_type="text/event-stream", headers=headers)
        return StreamingResponse(_stream(shown), media_type="text/event-stream", headers=headers)

    async def finding(request: Request) -> Response:
        path = shown.live.pages.get(request.path_params["name"])
        if path is None or not path.is_file():
            return Response(status_code=404)
        return FileResponse(path, media_type="text/html", headers={"content-security-policy": of_a_trace})

    routes = [Route("/", first), Route("/events", events), Route("/finding/{name}", finding)]
    return Gate(Starlette(routes=routes), token, port)


async def _stream(shown: Shown) -> AsyncIterator[bytes]:
    """Each document as an event, until the last one. Who is slow gets the newest when it comes to the next."""
    shown.streams += 1
    try:
        number = -1
        while True:
            number, data, ended = shown.number, shown.data, shown.ended
            for part in (b"data: ", *(data[at : at + CHUNK] for at in range(0, len(data), CHUNK)), b"\n\n"):
                yield part
            if ended:
                return
            await shown.next(number)
    finally:
        shown.streams -= 1


class Gate:
    """Lets through what has the token in its address and comes from this host, without the token in the path."""

    def __init__(self, inner: Callable[..., Any], token: str, port: int) -> None:
        self._inner = inner
        self._token = token.encode()
        self._hosts = {f"{name}:{port}".encode() for name in (HOST, "localhost")}

    async def __call__(self, scope: Scope, receive: Callable[[], Any], send: Callable[[Message], Any]) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        given, slash, rest = scope["path"].removeprefix("/").partition("/")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            await _answer(send, 403)
        elif not secrets.compare_digest(given.encode(errors="replace"), self._token):
            await _answer(send, 404)
        elif scope["method"] not in METHODS:
            await _answer(send, 405, (b"allow", ", ".join(METHODS).encode()))
        elif not slash:
            await _answer(send, 307, (b"location", b"/%s/" % self._token))
        else:
            inside = {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode(errors="replace"), "root_path": ""}
            await self._inner(inside, receive, lambda message: send(_with_headers(message)))


async def _answer(send: Callable[[Message], Any], status: int, *headers: tuple[bytes, bytes]) -> None:
    start = {"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0"), *headers]}
    await send(_with_headers(start))
    await send({"type": "http.response.body", "body": b""})


def _with_headers(message: Message) -> Message:
    """What every answer says: nobody keeps it, names it to others, guesses what it is, or shows it inside a page."""
    if message["type"] == "http.response.start":
        message["headers"] = [
            *message.get("headers", []),
            (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"),
            (b"x-content-type-options", b"nosniff"),
            (b"x-frame-options", b"DENY"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cross-origin-resource-policy", b"same-origin"),
        ]
    return message


async def serve(listening: socket.socket, token: str, told: BinaryIO) -> None:
    """Answer on this socket until `told` has ended and the pages that are open have the last document."""
    shown = Shown()
    app = application(shown, token, listening.getsockname()[1])
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        loop="asyncio",
        http=Patient,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_STREAMS + MOST_WAITING + 64,
        h11_max_incomplete_event_size=1 << 14,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    over, loop = asyncio.Event(), asyncio.get_running_loop()
    threading.Thread(target=_listen, args=(told, shown, loop, over), daemon=True).start()
    answering = asyncio.create_task(server.serve(sockets=[listening]))
    await over.wait()
    end = time.monotonic() + LINGER_S
    while time.monotonic() < end and (shown.streams or time.monotonic() < shown.opened + LINGER_S / 2):
        await asyncio.sleep(0.05)
    server.should_exit = True
    await answering


def _listen(told: BinaryIO, shown: Shown, loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
    """Show what is told, in a thread of its own; a line that says nothing is passed over. The next one is read once
    this one is shown, so nothing piles up.
    """

    async def put(document: ReportDocument) -> None:
        shown.put(document)

    with contextlib.suppress(OSError, RuntimeError):  # the loop may have ended before
        for line in told:
            with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
                asyncio.run_coroutine_threadsafe(put(shown.live.read(line)), loop).result()
        if not shown.ended and (last := shown.live.lost()) is not None:
            asyncio.run_coroutine_threadsafe(put(last), loop).result()
        loop.call_soon_threadsafe(over.set)


def main() -> None:
    """The process: the number of its socket is its argument, the token the first line of what it reads."""
    logging.disable()  # nobody reads it, and a request must not fill the pipe
    token = json.loads(sys.stdin.buffer.readline())["token"]
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        asyncio.run(serve(listening, token, sys.stdin.buffer))


if __name__ == "__main__":
    main()
