"""Two SGLang engines as a pair: one computes prompts and writes them into the other one, which answers."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...simulation.attempts import PATIENCE, Alive, AttemptsRouter, Job, Serve, TokensTold
from ...simulation.network import Port
from ...simulation.pair import EnginePair
from ...simulation.protocol import Delivered, EngineShape
from .engine import load
from .pair_defects import DEFECTS, ELSEWHERE
from .pair_half import SglangHalf
from .pair_stand_ins import put_in
from .pair_world import World
from .releases import numbers

SINCE = "0.5.23"


class BothRouter(AttemptsRouter):
    """Gives each attempt to both engines at once, under a number that it has nowhere else: the room."""

    def __init__(self, shape: EngineShape, port: Port) -> None:
        super().__init__(shape, port)
        self._rooms = 0
        self._at_first: dict[str, int] = {}
        """The round of the last sign of the first engine, by request; none where its work is done."""

    def _begin(self, job: Job) -> None:
        job.attempt += 1
        job.where, job.heard = "decode", self._port.now
        self._rooms += 1
        self._at_first[job.request.id] = self._port.now
        for half in ("prefill", "decode"):
            self._port.send(half, Serve(job.request, job.attempt, {"room": self._rooms}))

    _answer_alone = _begin

    def tick(self) -> Sequence[Delivered]:
        """See `PairRouter`."""
        for id, heard in list(self._at_first.items()):
            if id not in self._jobs:
                del self._at_first[id]
            elif self._port.now - heard > PATIENCE:
                self._begin(self._jobs[id])
        return super().tick()

    def _hear(self, sender: str, message: Alive) -> None:
        is_new = message.life > self._lives.get(sender, 0)
        super()._hear(sender, message)
        for id in list(self._at_first) if sender == "prefill" else ():
            if (job := self._jobs.get(id)) is not None and (id, job.attempt) in message.held:
                self._at_first[id] = self._port.now
            elif is_new and job is not None:
                self._begin(job)

    def cancel(self, id: str) -> None:
        """See `PairRouter`."""
        job = self._jobs.pop(id)
        self._tell_gone(job)

    def receive(self, sender: str, message: Any) -> Sequence[Delivered]:
        """See `PairRouter`: who is refused or fails at the first engine will not be answered by the second one."""
        if isinstance(message, TokensTold):
            job = self._current(message.id, message.attempt)
            if job is not None and message.ended == "refused":
                del self._jobs[message.id]
                self._tell_gone(job)
                return (Delivered(message.id, (), "refused"),)
            if job is not None and sender == "prefill" and message.ended == "failed":
                self._begin(job)
            elif job is not None and sender == "prefill":
                self._at_first.pop(message.id, None)
        return super().receive(sender, message)


class SglangPair(EnginePair):
    """An installed SGLang, twice."""

    name = "sglang"
    offers = frozenset({"failures", "salts", "priorities"})
    attention = ("full", "full+sliding")
    block_sizes = (1, 2, 4, 16)
    separate_pools = True
    timeout = 500
    floors: Mapping[str, int] = {"hits": 5, "transfers ended": 20}
    options: Mapping[str, tuple[Any, ...]] = {
        "overlap": (False, True),
        "policy": ("fcfs", "lpm"),
        "priority": (False, True),
        "reserved": (8, 1, 32),
        "decode keeps prefixes": (False, True),
        "waiting timeout": (120, 200),
        "bootstrap timeout": (120, 200),
    }

    def __init__(self, mended: tuple[str, ...] = ()) -> None:
        """`mended`: known defects that it does not have. Errors as for `load`; ImportError for an older release."""
        self.version: str = load().version
        if numbers(self.version) < numbers(SINCE):
            raise ImportError(f"SGLang {self.version} has no pair, only {SINCE} and newer")
        put_in()
        self._mended = mended
        self._met: Counter[str] = Counter()
        self._made: dict[str, SglangHalf] = {}
        super().__init__(BothRouter, self._half, self._half)

    def suspects(self, judge: str, what: str, story: Any) -> list[str]:
        """The known defects that may lead to such a finding."""
        own = [name for name, defect in DEFECTS.items() if judge == defect.judge and defect.said in what]
        return [*own, *ELSEWHERE]

    @property
    def remedies(self) -> Mapping[str, Callable[[], "SglangPair"]]:
        """By known defect, how a pair without it is made."""
        return {
            name: partial(SglangPair, (*self._mended, name))
            for name in (*DEFECTS, *ELSEWHERE)
            if name not in self._mended
        }

    def start(self, shape: EngineShape) -> None:
        """See `Engine`."""
        self.close()
        self._depths = dict.fromkeys(self._depths, 1 + bool(shape.options["overlap"]))
        self._met = Counter()
        super().start(shape)

    def close(self) -> None:
        """See `Engine`."""
        for half in self._made.values():
            half.end()
        self._made.clear()

    def _half(self, shape: EngineShape, port: Port) -> SglangHalf:
        if (before := self._made.pop(port.name, None)) is not None:
            before.end()
        other = "decode" if port.name == "prefill" else "prefill"
        half = SglangHalf(shape, port, lambda: self._world_of(other), self._met, self._mended)
        for name in self._mended:
            if name in DEFECTS:
                DEFECTS[name].mend(half)
        self._made[port.name] = half
        return half

    def _world_of(self, name: str) -> World | None:
        """None while it is down."""
        half = self._made.get(name)
        return half.world if half is not None and self._is_up(name) else None

    def counts(self) -> Mapping[str, int]:
        """What became of messages and of writes."""
        return self._network.counts + self._met
