"""The page of a run while it goes on: started beside the run, told now and then, and never waited for.

The server is a process of its own (`live_server`). A thread writes to it what is the newest, so a server that is slow,
hangs or dies costs the run nothing; the run is told in a line that nobody is shown anything any more.
"""

import json
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from types import TracebackType
from typing import Any

MISSING = "--serve needs starlette, uvicorn and jinja2: pip install '/path/to/blockproof[serve]'"
NEEDED = ("starlette", "uvicorn", "jinja2")
HOST = "127.0.0.1"
LAST_S = 7.0
"""How long the end of the run waits at most for pages that are open to take the last document."""


class LiveError(ValueError):
    """The page cannot be served. The text is one line."""


class LivePage:
    """A page on this machine, and how it is told what to show. To be closed; after that it is gone."""

    def __init__(self, port: int = 0) -> None:
        """Port 0 stands for one that is free. LiveError if the port is taken, or a library is missing."""
        if any(find_spec(name) is None for name in NEEDED):
            raise LiveError(MISSING)
        token = secrets.token_urlsafe(32)
        with socket.socket() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind((HOST, port))
                listening.listen(64)
            except OSError as error:
                raise LiveError(f"--port: {port} on {HOST}: {error.strerror}; choose another one") from None
            self.address = f"http://{HOST}:{listening.getsockname()[1]}/{token}/"
            number = listening.fileno()
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", f"{__package__}.live_server", str(number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(number,),
                start_new_session=True,  # Ctrl-C is for the run
            )
        self._first = {"token": token}  # not an argument, which others on the machine can read
        self._news: Mapping[str, Any] | None = None
        self._over = self._told_of_loss = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def __enter__(self) -> "LivePage":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def show(self, told: Mapping[str, Any]) -> None:
        """Show this (`live_document.Told`), unless something newer comes before it is sent. Returns at once."""
        with self._wake:
            if not self._over:
                self._news = told
                self._wake.notify()

    def loss(self) -> str:
        """Once, if the server has ended before the run: a line that says so. Else empty."""
        if self._told_of_loss or self._over or self.process.poll() is None:
            return ""
        self._told_of_loss = True
        assert self.process.stderr is not None
        said = self.process.stderr.read().decode(errors="replace").strip().splitlines()[-1:]
        why = said[0] if said else f"exit status {self.process.returncode}"
        return f"the page is no longer served ({why}); the run goes on"

    def close(self) -> None:
        """Wait until pages that are open have the last document, or Ctrl-C; then nothing is left of the server."""
        with self._wake:
            self._over = True
            self._wake.notify()
        end = time.monotonic() + LAST_S
        try:
            self._thread.join(LAST_S)
            self.process.wait(max(0.0, end - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            pass
        finally:
            self.process.kill()
            self.process.wait()
            assert self.process.stderr is not None
            self.process.stderr.close()

    def _write(self) -> None:
        """The thread: what is the newest, one after the other, until it is over."""
        stream = self.process.stdin
        assert stream is not None
        news: Mapping[str, Any] | None = self._first
        with suppress(OSError):
            while news is not None:
                stream.write(json.dumps(news, ensure_ascii=False).encode(errors="replace") + b"\n")
                stream.flush()
                with self._wake:
                    self._wake.wait_for(lambda: self._news is not None or self._over)
                    news, self._news = self._news, None
        with suppress(OSError):
            stream.close()
