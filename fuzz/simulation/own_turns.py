"""A function in a thread, which runs only while its caller waits for it."""

import threading
from collections.abc import Callable


class LeftError(BaseException):
    """Nobody waits for this function any more."""


class Turns:
    """A function in a thread, which runs only while its caller waits for it."""

    def __init__(self, run: Callable[[], object]) -> None:
        self._theirs, self._ours = threading.Semaphore(0), threading.Semaphore(0)
        self._left = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(run,), daemon=True)
        self._thread.start()

    def _run(self, run: Callable[[], object]) -> None:
        try:
            self._wait()
            run()
        except LeftError:
            pass
        except BaseException as error:
            self._error = error
        self._left = True
        self._ours.release()

    def _wait(self) -> None:
        self._theirs.acquire()
        if self._left:
            raise LeftError

    @property
    def is_over(self) -> bool:
        """True if it has ended."""
        return self._left

    def stop(self) -> None:
        """Called by the function: its caller goes on now."""
        self._ours.release()
        self._wait()

    def go_on(self) -> None:
        """Let it run until it stops. Raises what it raises; RuntimeError if it has ended."""
        if self._left:
            raise RuntimeError("the event loop has ended")
        self._theirs.release()
        self._ours.acquire()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def leave(self) -> None:
        """End it where it stands."""
        if not self._left:
            self._left = True
            self._theirs.release()
            self._thread.join()
