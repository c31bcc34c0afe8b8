"""Targets that misbehave on purpose at the operation `Take`; every other operation succeeds."""

import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.targets.base import Target
from blockproof.model.ops import Done, Operation, Outcome, Shape, Take
from blockproof.model.snapshot import Snapshot

BLANK = Snapshot(
    [1], 1, 0.5, [0, 0], [{"a": [0, 1]}], [{"a": 1}], [None, 3], [None, 1], 1, (("cleared",),), [[1]], None
)


class Fake:
    """Succeeds, but for what it does at `Take`."""

    name = "fake"
    version = "1.2"

    def __init__(self, misbehave: Callable[[int], object]) -> None:
        self._misbehave = misbehave
        self._shown = BLANK

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        count = shape.num_blocks - len(BLANK.labels)  # of blocks that BLANK has not: without them no run starts
        more: list[None] = [None] * count
        ref_cnt = [*BLANK.ref_cnt, *[0] * count]
        self._shown = BLANK._replace(ref_cnt=ref_cnt, labels=[*BLANK.labels, *more], earliest=[*BLANK.earliest, *more])
        return Done(), self._shown

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        value = self._misbehave(operation.count) if isinstance(operation, Take) else ((1, 2), ("text", None), True)
        return Done(value), self._shown  # type: ignore[arg-type]  # some fakes answer nonsense

    def close(self) -> None:
        pass


def exits() -> Fake:
    return Fake(lambda count: os._exit(count))


def aborts() -> Fake:
    def abort(count: int) -> None:
        print("the last words", flush=True)
        os.abort()

    return Fake(abort)


def hangs() -> Fake:
    return Fake(lambda count: time.sleep(3600))


def hangs_at_start() -> Fake:
    fake = Fake(lambda count: None)
    fake.start = lambda shape: time.sleep(3600)  # type: ignore[method-assign]
    return fake


def answers_then_hangs() -> Fake:
    """`Take(1)` answers with the id of its process; any other keeps it busy for ever."""

    def lost_in_a_loop(count: int) -> int:
        while count != 1:
            pass
        return os.getpid()

    return Fake(lost_in_a_loop)


def prints() -> Fake:
    def chatter(count: int) -> int:
        print("x" * count)
        print("y" * count, file=sys.stderr)
        os.write(1, b"z" * count)
        return count

    return Fake(chatter)


def eats() -> Fake:
    """`Take(n)` eats n MiB and goes on."""
    eaten: list[bytes] = []

    def eat(count: int) -> int:
        eaten.append(b"x" * (count << 20))
        return len(eaten)

    return Fake(eat)


def eats_for_ever() -> Fake:
    def gorge(count: int) -> None:
        eaten = []
        while len(eaten) < 1000:
            eaten.append(b"x" * (1 << 20))
            time.sleep(0.001)
        time.sleep(3600)

    return Fake(gorge)


def raises() -> Fake:
    def fail(count: int) -> None:
        raise RuntimeError("not meant to be raised")

    return Fake(fail)


def answers_bytes() -> Fake:
    """Its outcome has no form in the protocol."""
    return Fake(lambda count: b"bytes")


def scribbles() -> Fake:
    """Writes to every pipe it can find: a busy process gives its child's pipes high numbers."""

    def scribble(count: int) -> None:
        for descriptor in range(3, 4096):
            try:
                if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                    os.write(descriptor, b"\x00\x00\x00\x02{}")
            except OSError:
                continue

    return Fake(scribble)


def own_pid() -> Fake:
    return Fake(lambda count: os.getpid())


def leaves_child() -> Fake:
    """Starts a process of its own and answers with its id."""

    def fork(count: int) -> int:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        return pid

    return Fake(fork)


RUNNING = "BLOCKPROOF_TESTS_RUNNING"
"""Environment variable: a folder in which processes say that they are in the middle of their work."""


def in_the_middle(reached: int) -> None:
    """Where this count reaches 3, leave a file called as the process in `$RUNNING`, and wait there for Ctrl-C.

    A process that does not hear Ctrl-C goes on.
    """
    if reached == 3:
        (Path(os.environ[RUNNING]) / str(os.getpid())).touch()
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.pause()


def seen_from_everywhere() -> dict[str, str]:
    """Environment variables with which any process can import this module as `fakes`, and its neighbours likewise."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))}


def says_when_running() -> Target:
    """Our core, which is in the middle of its work when it is started for the third time."""
    core = open_target("impl")
    start, starts = core.start, 0

    def counted(shape: Shape) -> tuple[Outcome, Snapshot | None]:
        nonlocal starts
        starts += 1
        in_the_middle(starts)
        return start(shape)

    core.start = counted  # type: ignore[method-assign]
    return core


def hangs_at_windows() -> Target:
    """Our core, which leaves a file called as its parent process in `$RUNNING` and never answers about a window."""
    core = open_target("impl")
    start = core.start

    def guarded(shape: Shape) -> tuple[Outcome, Snapshot | None]:
        (Path(os.environ[RUNNING]) / str(os.getppid())).touch()
        while any(group.kind == "sliding" for group in shape.groups):
            signal.pause()
        return start(shape)

    core.start = guarded  # type: ignore[method-assign]
    return core


def cannot_be_made() -> Fake:
    raise TypeError("no such device")


def makes_nothing() -> None:
    return None


def copies() -> Fake:
    """Copies block n to the one behind it at `Take(n)`, and hides more once it is started."""

    class Copying(Fake):
        lacks = frozenset({"Reset"})
        hides = frozenset({"events"})
        copies: tuple[tuple[int, int], ...] = ()

        def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
            self.hides = frozenset({"events", "labels"})
            return super().start(shape)

        def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
            self.copies = ((operation.count, operation.count + 1),) if isinstance(operation, Take) else ()
            return super().step(operation)

    return Copying(lambda count: None)


def lacks_typo() -> Fake:
    """Names something that nothing can lack."""
    fake = Fake(lambda count: None)
    fake.lacks = frozenset({"Preemt"})  # type: ignore[attr-defined]
    return fake


def hides_text_once_started() -> Fake:
    """Says what it hides only once it is started, and as a text."""

    class Late(Fake):
        hides: object = ()

        def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
            self.hides = "events"
            return super().start(shape)

    return Late(lambda count: None)


def two_block_sizes() -> Fake:
    """Builds blocks of two sizes only."""
    fake = Fake(lambda count: None)
    fake.block_sizes = {256, 16}  # type: ignore[attr-defined]
    return fake
