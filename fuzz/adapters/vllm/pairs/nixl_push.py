"""Two vLLM engines with the release's own NixlPushConnector between them: the second one registers its blocks with the
first one, which writes them.

The release's worker has a thread of its own that sends registrations, pairs them with prompts that are computed, and
begins to write. Here it takes one turn of its loop wherever the release wakes it.
"""

import queue
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from .....model.ops import Value
from ....simulation.judges import MEMORY, PROGRESS
from .nixl_agent import NIXL
from .nixl_half import NixlHalf
from .nixl_pair import DEFECTS, NixlPair
from .nixl_worker import nixl_worker
from .released_pair import Defect

LONGEST = 60
"""Rounds for which a request waits for its blocks at most, where it does not wait for ever."""


class _Once:
    """In place of the event that ends the loop of the thread: it ends behind each turn."""

    def __init__(self) -> None:
        self._turns = 0

    def is_set(self) -> bool:
        """False once, then True."""
        self._turns += 1
        return not self._turns % 2

    def wait(self, timeout: float) -> None:
        """Not waited for."""


class _Wake:
    """In place of the event that wakes the thread."""

    def __init__(self) -> None:
        self.is_due = False

    def set(self) -> None:
        """There is something to do."""
        self.is_due = True

    def wait(self) -> None:
        """Not waited for."""

    def clear(self) -> None:
        """A turn has begun before; what has come since is due."""


def push_worker(half: "PushHalf", counts: Counter[str]) -> Any:
    """The worker of a half, with the state of its thread."""
    worker = nixl_worker(half.connector, half.agent, half.tell_other, counts, "push")
    vars(worker).update(
        _hb_handshake_notif_only=True,
        _sending_transfers=defaultdict(list),
        _send_failures=set(),
        _sending_transfers_lock=threading.Lock(),
        _push_finished_blocks={},
        _pending_d_registrations={},
        _push_writer_wake=_Wake(),
        _push_writer_stop=_Once(),
        **{name: queue.Queue() for name in _INBOXES},
    )
    begin, write = worker._do_start_push_kv, worker._xfer_blocks

    def counted(*about: Any) -> None:
        try:
            begin(*about)
        except Exception:
            counts["pushes that raise"] += 1  # the thread logs it, and goes on
            raise

    def named(**about: Any) -> Any:
        half.agent.asked_by = about["request_id"]
        return write(**about)

    worker._do_start_push_kv, worker._xfer_blocks = counted, named
    return worker


_INBOXES = (
    "_reg_send_inbox",
    "_finished_blocks_inbox",
    "_pending_completion_notifs",
    "_evict_finished_inbox",
    "_deferred_push_inbox",
)


class PushHalf(NixlHalf):
    """One of the two engines. Its requests have names as a server gives them: of one request the two engines have
    different ones, which agree but for their ends; where the options say so, those of all its attempts do."""

    connector_name = "NixlPushConnector"
    told = (*NixlHalf.told, "push_registration_timeout")

    is_written: Callable[[str, str], bool] | None = None
    """Says whether an engine writes blocks for a request of this one; then nobody waits for ever who is not written."""

    def __init__(self, *about: Any) -> None:
        self._since: dict[str, int] = {}
        super().__init__(*about)

    def _worker(self, counts: Counter[str]) -> Any:
        return push_worker(self, counts)

    def _name(self, id: str, attempt: int) -> str:
        shared = id if self.options["attempts_share_id"] else f"{id}/{attempt}"
        return f"{shared}-{attempt:07x}{self._port.name == 'decode':x}"

    def _work_on(self) -> None:
        worker = self.worker
        self._give_up()
        while worker._push_writer_wake.is_due or worker._push_finished_blocks:
            worker._push_writer_wake.is_due = False
            worker._push_writer_loop()
            if not worker._push_writer_wake.is_due:
                break

    def _give_up(self) -> None:
        """Those fail that have waited too long."""
        worker, now = self.worker, self._port.now
        waiting = [name for name in worker._recving_metadata if name not in worker._recving_transfers]
        self._since = {name: self._since.get(name, now) for name in waiting}
        if self.is_written is None:
            return
        for name, since in self._since.items():
            remote = worker._recving_metadata[name]
            if name not in self.scheduler.requests:
                continue  # nobody waits: it was cancelled before it had blocks
            if now - since > LONGEST and not self.is_written(remote.remote.engine_id, name):
                worker._failed_recv_reqs.put(name)

    def waits(self, name: str) -> bool:
        """True if a request of this engine waits for its blocks."""
        return name in self.worker._recving_metadata


def _fail_what_came_too_late(half: NixlHalf, pair: NixlPair) -> None:
    """A write fails that ends when the engine holds its blocks no more."""
    half.agent.may_read = lambda engine, request: half.keeps(half.engine_id, request)


def _wait_no_longer(half: NixlHalf, pair: NixlPair) -> None:
    """Who waits too long for blocks that are not being written fails; they are not written behind that."""
    assert isinstance(half, PushHalf)
    assert isinstance(pair, NixlPushPair)
    half.is_written, half.agent.may_begin = pair.is_written, pair.waits


PUSH_DEFECTS: Mapping[str, Defect] = {
    **{name: DEFECTS[name] for name in ("prompt-loaded-whole", "loads-block-each-other")},
    "nothing-to-write-of-a-group": DEFECTS["nothing-to-read-of-a-group"]._replace(judge=PROGRESS, said=""),
    "push-never-comes": Defect(PROGRESS, "", _wait_no_longer),
    "write-behind-the-lease": Defect(MEMORY, "holds", _fail_what_came_too_late),
}
"""Those of the halves of NixlPushConnector (docs/evidence/pairs.md)."""


class NixlPushPair(NixlPair):
    """An installed vLLM, twice; blocks are written, not read."""

    connector_module = f"{NIXL}.push_worker"
    half: ClassVar[Any] = PushHalf
    defects = PUSH_DEFECTS
    options: Mapping[str, tuple[Value, ...]] = {
        **NixlPair.options,
        "push_registration_timeout": (40, 480),
        "attempts_share_id": (False, False, True),
    }

    def is_written(self, engine: str, name: str) -> bool:
        """True if the first engine writes blocks for a request of the second one."""
        half = self._halves["prefill"]
        assert isinstance(half, PushHalf)
        return engine == half.engine_id and half.agent.works_for(name)

    def waits(self, engine: str, name: str) -> bool:
        """True if a request of the second engine waits for blocks."""
        half = self._halves["decode"]
        assert isinstance(half, PushHalf)
        return engine == half.engine_id and half.waits(name)
