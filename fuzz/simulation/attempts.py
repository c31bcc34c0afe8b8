"""What stands before two engines, one that computes prompts and one that answers: it knows the clients, and may lose
what it sends.

A request is served in attempts. What the first engine says of the blocks of a prompt, the second one is given; of whom
nothing is heard any more is begun anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .network import HALVES, Node, Port
from .protocol import ClientRequest, Delivered, Ended, EngineShape

BEAT = 8
"""Rounds after which an engine says again what it works on."""
PATIENCE = 40
"""Rounds without a sign of a request, after which another attempt begins."""


@dataclass(frozen=True)
class Serve:
    """Router to an engine: serve this request. `parameters`: where its prompt lies, or that it is for others."""

    request: ClientRequest
    attempt: int
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Abort:
    """Router to an engine: nobody wants this attempt any more."""

    id: str
    attempt: int


@dataclass(frozen=True)
class TokensTold:
    """An engine to the router: all tokens of an attempt so far, why it has ended, and where its blocks are kept."""

    id: str
    attempt: int
    tokens: tuple[int, ...]
    ended: Ended = ""
    parameters: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Alive:
    """An engine to the router: which life it has, and the attempts that it works on."""

    life: int
    held: tuple[tuple[str, int], ...]


@dataclass
class Job:
    """A request, as the router knows it."""

    request: ClientRequest
    attempt: int = 0
    where: Node = "prefill"
    heard: int = 0
    """The round of its last sign."""
    delivered: int = 0
    """Tokens."""


class AttemptsRouter:
    """See `PairRouter`. A request that fails is begun anew, so nobody is given up."""

    def __init__(self, shape: EngineShape, port: Port) -> None:
        self._most, self._port = shape.max_length, port
        self._jobs: dict[str, Job] = {}
        self._lives: dict[str, int] = {}

    def add(self, request: ClientRequest) -> Sequence[Delivered]:
        """See `PairRouter`."""
        if len(request.prompt) >= self._most:
            return (Delivered(request.id, ended="refused", why="the prompt leaves no room for an answer"),)
        self._jobs[request.id] = job = Job(request)
        self._begin(job)
        return ()

    def cancel(self, id: str) -> None:
        """See `PairRouter`."""
        job = self._jobs.pop(id)
        self._port.send(job.where, Abort(id, job.attempt))

    def _tell_gone(self, job: Job) -> None:
        """Both engines: nobody wants this attempt any more."""
        for half in HALVES:
            self._port.send(half, Abort(job.request.id, job.attempt))

    def tick(self) -> Sequence[Delivered]:
        """See `PairRouter`."""
        for job in self._jobs.values():
            if self._port.now - job.heard > PATIENCE:
                self._begin(job)
        return ()

    def idle(self) -> bool:
        """See `PairRouter`."""
        return not self._jobs

    def receive(self, sender: str, message: Any) -> Sequence[Delivered]:
        """See `PairRouter`."""
        if isinstance(message, Alive):
            self._hear(sender, message)
            return ()
        job = self._current(message.id, message.attempt)
        if job is None or job.where != sender:
            return ()
        job.heard = self._port.now
        if sender == "prefill":
            self._computed(job, message)
            return ()
        new, ended = message.tokens[job.delivered :], message.ended
        job.delivered += len(new)
        if ended in ("stop", "length"):
            del self._jobs[job.request.id]
        elif ended:
            self._answer_alone(job)
            ended = ""
        return (Delivered(job.request.id, new, ended),) if new or ended else ()

    def _begin(self, job: Job) -> None:
        job.attempt += 1
        job.where, job.heard = "prefill", self._port.now
        self._port.send("prefill", Serve(job.request, job.attempt, {"do_remote_decode": True}))

    def _answer_alone(self, job: Job) -> None:
        """Where the blocks could not be had, the prompt is computed where it is answered."""
        job.attempt += 1
        self._port.send("decode", Serve(job.request, job.attempt, {}))

    def _computed(self, job: Job, message: TokensTold) -> None:
        """The prompt is computed; its first token is sampled again where it is answered."""
        if not message.parameters and message.ended != "stop":
            self._begin(job)
            return
        job.where = "decode"
        if not message.parameters:  # it is kept for nobody whose first token ends it
            self._answer_alone(job)
            return
        self._port.send("decode", Serve(job.request, job.attempt, message.parameters))

    def _hear(self, sender: str, message: Alive) -> None:
        if message.life > self._lives.get(sender, 0):
            self._lives[sender] = message.life
            for lost in [job for job in self._jobs.values() if job.where == sender]:
                if (lost.request.id, lost.attempt) not in message.held:
                    self._begin(lost)
        for id, attempt in message.held:
            if (job := self._current(id, attempt)) is not None and job.where == sender:
                job.heard = self._port.now

    def _current(self, id: str, attempt: int) -> Job | None:
        job = self._jobs.get(id)
        return job if job is not None and job.attempt == attempt else None


@dataclass
class HeldAttempt:
    """An attempt, as an engine has it."""

    id: str
    attempt: int
    tokens: list[int] = field(default_factory=list)


class AttemptsHalf:
    """What an engine behind such a router does with attempts, whatever engine it is: see `HalfEngine`."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._held: dict[str, HeldAttempt] = {}
        """By the name that its scheduler has for it."""
        self._newest: dict[str, int] = {}
        self._beat = 0

    def _name(self, id: str, attempt: int) -> str:
        """What its scheduler calls an attempt."""
        return f"{id}/{attempt}"

    def _serve(self, name: str, request: ClientRequest, parameters: Mapping[str, Any]) -> bool:
        """Give it to the scheduler; False if that refuses it."""
        raise NotImplementedError

    def _stop(self, name: str) -> None:
        """The scheduler is to give it up."""
        raise NotImplementedError

    def _hear(self, message: Any) -> None:
        """A message of the other engine."""
        raise NotImplementedError

    def receive(self, sender: str, message: Any) -> None:
        """See `HalfEngine`. An attempt is served unless it or a newer one was there already; an older one ends."""
        match message:
            case Serve(request, attempt, parameters):
                before = self._newest.get(request.id, 0)
                if attempt <= before:
                    return
                self._newest[request.id] = attempt
                self._abort(self._name(request.id, before))
                name = self._name(request.id, attempt)
                if self._serve(name, request, parameters):
                    self._held[name] = HeldAttempt(request.id, attempt)
                else:
                    self._port.send("router", TokensTold(request.id, attempt, (), "refused"))
            case Abort(id, attempt):
                self._newest[id] = max(attempt, self._newest.get(id, 0))
                self._abort(self._name(id, attempt))
            case _:
                self._hear(message)

    def _abort(self, name: str) -> HeldAttempt | None:
        """It ends here, if it is here."""
        if (held := self._held.pop(name, None)) is not None:
            self._stop(name)
        return held

    def _fail(self, name: str) -> None:
        """It ends here, and the router is told so."""
        if (held := self._abort(name)) is not None:
            self._port.send("router", TokensTold(held.id, held.attempt, (), "failed"))

    def _tell_alive(self) -> None:
        """Now and then, what it works on; a new life at once."""
        if (self._held or not self._beat) and self._port.now >= self._beat:
            self._beat = self._port.now + BEAT
            held = tuple((one.id, one.attempt) for one in self._held.values())
            self._port.send("router", Alive(self._port.life, held))

    def _tell_tokens(self, name: str, new: Sequence[int], ended: Ended, where: Mapping[str, Any] | None = None) -> None:
        """The second engine tells of all tokens, the first one of attempts that end."""
        if (held := self._held.get(name)) is None:
            return
        held.tokens += new
        if ended:
            del self._held[name]
        if ended or self._port.name == "decode":
            self._port.send("router", TokensTold(held.id, held.attempt, tuple(held.tokens), ended, where))
