"""The control planes of a prefill engine, a decode engine and the router before them, which may lose what they send.

A request is served in attempts, numbered by the router. Prefill computes the prompt and keeps its blocks under a lease;
decode loads them, and says so. Whatever is lost, the lease runs out, and the router begins another attempt.
"""

from dataclasses import dataclass, field
from typing import Any

from messages import Beat, Compute, Computed, Decode, Drop, Lapsed, Loaded, Tokens

LEASE = 60  # rounds that prefill keeps what it has computed
BEAT = 8  # rounds after which an engine says again what it works on
PATIENCE = 40  # rounds without a sign of a request, after which the router begins another attempt


def ended(tokens: list[int], end: int, stop: tuple[int, ...]) -> str:
    """Why a request with these tokens ends; empty if it goes on."""
    return "stop" if tokens[-1] in stop else "length" if len(tokens) >= end else ""


# The router.


@dataclass
class Job:
    """A request, as the router knows it."""

    id: str
    tokens: list[int]
    end: int
    stop: tuple[int, ...]
    attempt: int = 0
    where: str = "prefill"
    heard: int = 0  # the round of its last sign


class Router:
    """Who is where; it delivers tokens, each of them once."""

    def __init__(self, port: Any) -> None:
        self.port = port
        self.jobs: dict[str, Job] = {}
        self.life = 0  # of decode, as far as is known

    def add(self, job: Job) -> None:
        """A request arrives."""
        self.jobs[job.id] = job
        self.begin(job)

    def cancel(self, id: str) -> None:
        """Its client has gone. Once decode may load, prefill must hear it from there."""
        job = self.jobs.pop(id)
        self.port.send(job.where, Drop(id, job.attempt))

    def begin(self, job: Job) -> None:
        """Another attempt, with the tokens that it has by now."""
        job.attempt += 1
        job.where, job.heard = "prefill", self.port.now
        self.port.send("prefill", Compute(job.id, job.attempt, tuple(job.tokens)))

    def tick(self) -> None:
        """Who has given no sign for long is begun anew."""
        for job in self.jobs.values():
            if self.port.now - job.heard > PATIENCE:
                self.begin(job)

    def receive(self, sender: str, message: Any) -> list[tuple[str, tuple[int, ...], str]]:
        """Returns what a client gets: of whom, tokens, and why it ends or an empty text."""
        if isinstance(message, Beat):
            if sender == "decode" and message.life > self.life:
                self.life = message.life
                for lost in [job for job in self.jobs.values() if job.where == "decode"]:
                    self.begin(lost)
            for id, attempt in message.held:
                if (job := self.current(id, attempt)) is not None:
                    job.heard = self.port.now
            return []
        job = self.current(message.id, message.attempt)
        if job is None:
            return []
        if isinstance(message, Computed) and job.where == "prefill":
            told = self.deliver(job, (message.token,))
            if job.id in self.jobs:
                job.where, job.heard = "decode", self.port.now
                tokens, life = tuple(job.tokens), self.life
                self.port.send("decode", Decode(job.id, job.attempt, tokens, job.end, job.stop, message, life))
            else:
                self.port.send("prefill", Drop(job.id, job.attempt))
            return told
        if isinstance(message, Tokens):
            job.heard = self.port.now
            return self.deliver(job, message.tokens[len(job.tokens) - message.at :])
        if isinstance(message, Lapsed):
            self.begin(job)
        return []

    def current(self, id: str, attempt: int) -> Job | None:
        """The request, if this is its last attempt."""
        job = self.jobs.get(id)
        return job if job is not None and job.attempt == attempt else None

    def deliver(self, job: Job, tokens: tuple[int, ...]) -> list[tuple[str, tuple[int, ...], str]]:
        """Its client gets these."""
        job.tokens += tokens
        end = ended(job.tokens, job.end, job.stop)
        if end:
            del self.jobs[job.id]
        return [(job.id, tokens, end)] if tokens else []


# Prefill.


@dataclass(eq=False)
class Prompt:
    """An attempt, as prefill knows it."""

    id: str
    attempt: int
    tokens: tuple[int, ...]
    blocks: list[int] = field(default_factory=list)
    computed: int = 0
    until: int = 0  # the end of its lease


@dataclass
class Piece:
    """What a step computes: `count` tokens from `first` on."""

    whose: Any
    first: int
    count: int
    samples: bool


class Prefill:
    """Computes prompts in pieces, one behind the other."""

    def __init__(self, blocks: int, size: int, max_tokens: int, max_requests: int, port: Any) -> None:
        self.size, self.max_tokens, self.max_requests, self.port = size, max_tokens, max_requests, port
        self.free = list(range(blocks))
        self.queue: list[Prompt] = []
        self.leased: dict[tuple[str, int], Prompt] = {}
        self.beat = 0

    def receive(self, message: Any) -> None:
        """From whomever."""
        queued = next((one for one in self.queue if one.id == message.id), None)
        if isinstance(message, Compute):
            if queued is not None and queued.attempt >= message.attempt:
                return
            if queued is not None:
                self.leave(queued)
            if (message.id, message.attempt) not in self.leased:
                self.queue.append(Prompt(message.id, message.attempt, message.tokens))
            return
        if isinstance(message, Drop) and queued is not None and queued.attempt == message.attempt:
            self.leave(queued)
        self.release(message.id, message.attempt)

    def leave(self, one: Prompt) -> None:
        """It is not computed to its end."""
        self.queue.remove(one)
        self.free += one.blocks

    def release(self, id: str, attempt: int) -> None:
        """A lease ends."""
        one = self.leased.pop((id, attempt), None)
        if one is not None:
            self.free += one.blocks

    def step(self) -> list[Piece]:
        """What the next step computes."""
        for one in list(self.leased.values()):
            if one.until <= self.port.now:
                self.release(one.id, one.attempt)
        if self.queue and self.port.now >= self.beat:
            self.beat = self.port.now + BEAT
            self.port.send("router", Beat(self.port.life, tuple((one.id, one.attempt) for one in self.queue)))
        pieces: list[Piece] = []
        left = self.max_tokens
        for one in self.queue[: self.max_requests]:
            needed = -(-len(one.tokens) // self.size) - len(one.blocks)
            if needed > len(self.free) or not left:
                break
            one.blocks += [self.free.pop() for _ in range(needed)]
            count = min(left, len(one.tokens) - one.computed)
            pieces.append(Piece(one, one.computed, count, one.computed + count == len(one.tokens)))
            left -= count
        return pieces

    def update(self, pieces: list[Piece], sampled: dict[str, tuple[int, ...]]) -> None:
        """A step has ended; whose prompt is computed is kept for decode."""
        for piece in pieces:
            one = piece.whose
            if one not in self.queue:
                continue
            one.computed += piece.count
            if piece.samples:
                self.queue.remove(one)
                one.until = self.port.now + LEASE
                self.leased[one.id, one.attempt] = one
                (token,), blocks = sampled[one.id], tuple(one.blocks)
                self.port.send("router", Computed(one.id, one.attempt, token, blocks, self.port.life, one.until))

    def idle(self) -> bool:
        """True if nothing is computed or kept."""
        return not self.queue and not self.leased


# Decode.


@dataclass(eq=False)
class Answer:
    """An attempt, as decode knows it."""

    asked: Decode
    tokens: list[int]
    blocks: list[int] = field(default_factory=list)
    loading: int = 0  # blocks that are on their way
    is_late: bool = False  # a block came too late, or not at all
    is_loaded: bool = False
    gone: bool = False


@dataclass
class Load:
    """A block that is loaded from prefill."""

    id: str
    whose: Answer
    number: int  # of the block


class Decoder:
    """Loads prompts from prefill, and computes answers, a token a step. Who is admitted has room to its end."""

    def __init__(self, blocks: int, size: int, max_requests: int, port: Any) -> None:
        self.size, self.max_requests, self.port = size, max_requests, port
        self.free = list(range(blocks))
        self.held: dict[str, Answer] = {}
        self.waiting: list[Answer] = []
        self.loads: dict[str, Load] = {}
        self.begun: list[Load] = []  # to be told with the next step
        self.over: dict[tuple[str, int], int] = {}  # attempts that are not to be loaded again, and their leases' ends
        self.beat = self.number = 0

    def receive(self, message: Any) -> None:
        """From the router."""
        held = self.held.get(message.id)
        if isinstance(message, Drop):
            if held is not None and held.asked.attempt == message.attempt:
                self.leave(held)
            return
        if message.life != self.port.life:
            self.beat = 0
            self.tell()
            return
        if held is not None and held.asked.attempt >= message.attempt:
            return
        if (message.id, message.attempt) in self.over or message.source.until <= self.port.now:
            return
        if held is not None:
            self.leave(held)
        self.held[message.id] = one = Answer(message, list(message.tokens))
        self.waiting.append(one)

    def tell(self) -> None:
        """What it works on, and that it lives."""
        if self.port.now >= self.beat:
            self.beat = self.port.now + BEAT
            held = tuple((id, one.asked.attempt) for id, one in self.held.items())
            self.port.send("router", Beat(self.port.life, held))

    def leave(self, one: Answer) -> None:
        """It is of no use any more; its blocks are free once nothing writes them. It is not begun again, either."""
        del self.held[one.asked.id]
        self.over[one.asked.id, one.asked.attempt] = one.asked.source.until
        one.gone = True
        if one in self.waiting:
            self.waiting.remove(one)
            self.acknowledge(one)
        self.reap(one)

    def reap(self, one: Answer) -> None:
        """Free what it held."""
        if one.gone and not one.loading:
            self.free += one.blocks
            one.blocks = []

    def acknowledge(self, one: Answer) -> None:
        """Prefill may free its blocks, so they are not to be loaded again."""
        asked = one.asked
        self.over[asked.id, asked.attempt] = asked.source.until
        self.port.send("prefill", Loaded(asked.id, asked.attempt))

    def lapse(self, one: Answer) -> None:
        """Its blocks are not to be had any more."""
        self.port.send("router", Lapsed(one.asked.id, one.asked.attempt))
        self.leave(one)

    def step(self) -> tuple[list[Piece], list[Load]]:
        """What the next step computes, and what is loaded beside it."""
        now = self.port.now
        self.over = {key: until for key, until in self.over.items() if until > now}
        for one in [one for one in self.waiting if one.asked.source.until <= now]:
            self.lapse(one)
        if self.held or not self.beat:
            self.tell()
        while self.waiting:
            one = self.waiting[0]
            needed = -(-one.asked.end // self.size)
            if needed > len(self.free):
                break
            self.waiting.remove(one)
            one.blocks = [self.free.pop() for _ in range(needed)]
            for number in range(len(one.asked.source.blocks)):
                self.load(one, number)
        ready = [one for one in self.held.values() if one.is_loaded][: self.max_requests]
        begun, self.begun = self.begun, []
        return [Piece(one, len(one.tokens) - 1, 1, True) for one in ready], begun

    def load(self, one: Answer, number: int) -> None:
        """Load one block."""
        self.number += 1
        load = Load(f"load-{self.number}", one, number)
        one.loading += 1
        self.loads[load.id] = load
        self.begun.append(load)

    def loaded(self, id: str, well: bool) -> None:
        """A load has ended. What came behind the end of the lease may be of somebody else."""
        load = self.loads.pop(id)
        one = load.whose
        one.loading -= 1
        in_time = self.port.now < one.asked.source.until
        if not well and in_time and not one.gone:
            self.load(one, load.number)
        one.is_late = one.is_late or not in_time
        if one.loading:
            return
        if one.gone:
            self.acknowledge(one)
            self.reap(one)
        elif one.is_late:
            self.lapse(one)
        else:
            one.is_loaded = True
            self.acknowledge(one)

    def update(self, pieces: list[Piece], sampled: dict[str, tuple[int, ...]]) -> None:
        """A step has ended."""
        for piece in pieces:
            one, asked = piece.whose, piece.whose.asked
            if one.gone:
                continue
            one.tokens += sampled[asked.id]
            new = tuple(one.tokens[len(asked.tokens) :])
            self.port.send("router", Tokens(asked.id, asked.attempt, len(asked.tokens), new))
            if ended(one.tokens, asked.end, asked.stop):
                self.leave(one)

    def idle(self) -> bool:
        """True if it works on nothing, and nothing is loaded."""
        return not self.held and not self.loads
