"""Workloads in which tricks of a core do not apply: blocks that are shared and held, duplicates, parts of prompts.

Each piece goes on from the state that the last one left, in a pool whose blocks were all used before.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from .workload import BLOCK, BenchPiece, BenchWorkload, Facts, require, shape_of, table_facts, use_every_block

TOKEN = 7
OWN = 256
"""Tokens of a prompt that no other prompt has, where most of it is shared."""
ODD = 100
"""Tokens of a chunk that ends inside a block."""


class Patterns(BenchWorkload):
    """One pattern, `which`; one operation is one block of a prompt, or a request's step where it decodes.

    Parameters: `which` (`PATTERNS`), `tokens` of a prompt, `requests` of a piece, `pool` blocks, `groups`, `events`,
    `reports`: events tell of hits, too, and those of `workload.shape_of`.
    """

    def prepare(self) -> None:
        """See `BenchWorkload.prepare`."""
        params = self.params
        self._tokens, self._each = int(params["tokens"]), int(params["requests"])
        self._events, self._reports = bool(params.get("events")), bool(params.get("reports"))
        shape = shape_of(params, int(params["pool"]), self._events)
        self.driver.build(shape)
        use_every_block(self.driver, shape)
        if self._events:
            self.driver.take_events()
        if params["which"] in DECODING:
            self.driver.decode([])  # says so if there is no such step
        if self._reports:
            self.driver.report_hits(self.driver.request("", [0]))  # as here
        self._draw = Random(1)
        self._lengths = [self._draw.randrange(self._tokens) for _ in range(self._each)]
        self._common = list(range(1000, 1000 + self._tokens))
        self._running: list[Any] = []
        self._kept: list[list[int]] = []
        self._of_piece = PATTERNS[str(params["which"])]
        self._ns, self._hit = 0, 0
        self._facts: Facts = {}
        self._notes: Facts = {}

    def piece(self) -> BenchPiece:
        """See `BenchWorkload.piece`."""
        self._ns, self._hit = 0, 0
        self._facts, self._notes = {"entries": 0}, {"blocks": 0}
        operations = self._of_piece(self)
        if self._events:
            self._clocked(self.driver.take_events)
        return BenchPiece(self._ns, operations, {"hit": self._hit, **self._facts}, self._notes)

    # What is done; all returns the number of operations.

    def held(self) -> int:
        """Prompts of which most is held by a request that runs."""
        shared = self._common[:-OWN]
        if not self._running:
            self._running = [self._admitted(self._common)]
        for _ in range(self._each):
            self._leave([self._admitted([*shared, *self._new(OWN)])])
        return self._blocks(self._each)

    def system(self) -> int:
        """One prompt of the system before all others: admission, 48 steps, release."""
        requests = [self._admitted([*self._common, *self._new(OWN)]) for _ in range(self._each)]
        for _ in range(3 * BLOCK):
            self._decoded(requests, 1)
        self._leave(requests)
        return 3 * BLOCK * self._each

    def twins(self) -> int:
        """The same prompt is computed by two requests at once."""
        for _ in range(self._each):
            prompt = self._new(self._tokens)
            self._leave(self._both(prompt))
        return 2 * self._blocks(self._each)

    def turns(self) -> int:
        """Prompts prefilled in turns, by small chunks; they come again when all have ended."""
        prompts = [self._new(self._tokens) for _ in range(self._each)]
        requests = [self._admitted(prompt, OWN) for prompt in prompts]
        for _ in range(OWN, self._tokens, OWN):
            for request in requests:
                self._further(request, OWN)
        self._leave(requests)
        self._leave([self._admitted(prompt) for prompt in prompts])
        return 2 * self._blocks(self._each)

    def drafts(self) -> int:
        """Steps with three drafts, of which half are rejected."""
        requests = [self._admitted([*self._new(BLOCK), *self._common]) for _ in range(self._each)]
        for step in range(8 * BLOCK):
            self._decoded(requests, 2 + step % 2, rejected=2 - step % 2)
        self._leave(requests)
        return 8 * BLOCK * self._each

    def midway(self) -> int:
        """Prompts are given up in the middle of their prefill, and come again."""
        for _ in range(self._each):
            prompt = self._new(self._tokens)
            request = self._admitted(prompt, self._tokens // 4)
            self._further(request, self._tokens // 4)
            self._leave([request])
            self._leave([self._admitted(prompt)])
        return self._blocks(self._each)

    def tree(self) -> int:
        """Hits of every length on one long prompt, each with an end of its own."""
        self._leave([self._admitted(self._common)])
        for length in self._lengths:
            self._leave([self._admitted([*self._common[:length], *self._new(OWN)])])
        return sum(length + OWN for length in self._lengths) // BLOCK

    def scattered(self) -> int:
        """Prompts come again, or not, in a pool that holds the last ones: what is evicted is of many prompts."""
        for _ in range(self._each):
            again = self._kept and self._draw.random() < 0.5
            prompt = self._draw.choice(self._kept) if again else self._new(self._tokens)
            self._kept = [*self._kept[-31:], prompt]
            self._leave([self._admitted(prompt)])
        return self._blocks(self._each)

    def shuffled(self) -> int:
        """Requests end in another order than they came, and what they had is evicted."""
        requests = [self._admitted(self._new(self._tokens)) for _ in range(self._each)]
        self._draw.shuffle(requests)
        self._leave(requests)
        return self._blocks(self._each)

    def inside(self) -> int:
        """Prompts that end inside a block, and go on: what follows is hit up to there, and the block is copied."""
        for _ in range(self._each):
            prompt = self._new(self._tokens - BLOCK)
            request = self._admitted(prompt, len(prompt) - BLOCK)
            self._further(request, BLOCK)
            self._leave([request])
            self._leave([self._admitted([*prompt, *self._new(OWN)])])
        return self._blocks(self._each)

    def junctions(self) -> int:
        """Three prompts with one beginning: the second one shows where they part, the third one finds the state."""
        for _ in range(self._each):
            shared = self._new(self._tokens)
            for _ in range(3):
                request = self.driver.request(f"p{self.number()}", [*shared, *self._new(OWN)])
                hit = int(self._clocked(self.driver.lookup, request))
                rest = self._tokens - hit
                self._prefilled(request, hit, rest or OWN)
                if rest:
                    self._further(request, OWN)
                self._leave([request])
        return 3 * self._blocks(self._each)

    def refused(self) -> int:
        """The pool is full of what runs: who waits is looked up and refused, step after step."""
        while True:
            waiting = self.driver.request(f"p{self.number()}", self._new(self._tokens))
            if not self.driver.admit(waiting, self.driver.lookup(waiting), self._tokens):
                break
            self._running.append(waiting)
        for _ in range(self._each):
            hit = self._clocked(self.driver.lookup, waiting)
            require(not self._clocked(self.driver.admit, waiting, hit, self._tokens), "a full pool had room")
        return self._each

    def resets(self) -> int:
        """What is cached is forgotten after every prompt."""
        for _ in range(self._each):
            self._leave([self._admitted(self._new(self._tokens))])
            require(self._clocked(self.driver.reset), "a reset was refused")
        return self._each

    def brief(self) -> int:
        """Prompts of one to three blocks, of which one token is asked."""
        for at in range(self._each):
            self._leave([self._admitted(self._new(1 + at * 7 % self._tokens))])
        return self._each

    def odd(self) -> int:
        """Prompts prefilled in turns, by chunks that end anywhere in a block."""
        prompts = [self._new(self._tokens) for _ in range(self._each)]
        requests = [self._admitted(prompt, ODD) for prompt in prompts]
        for done in range(ODD, self._tokens, ODD):
            for request in requests:
                self._further(request, min(ODD, self._tokens - done))
        self._leave(requests)
        return self._blocks(self._each)

    def server(self) -> int:
        """In every step all running requests decode, one comes and one ends."""
        if not self._running:
            self._running = [self._admitted(self._new(length + 1)) for length in self._lengths]
        for at in range(2 * BLOCK):
            self._decoded(self._running, 1)
            self._leave([self._running.pop(at * 5 % self._each)])
            self._running.append(self._admitted(self._new(1 + at * 37 % self._tokens)))
        return 2 * BLOCK * self._each

    # Steps.

    def _new(self, tokens: int) -> list[int]:
        return [2_000_000 + self.number(), *range(5000, 4999 + tokens)]

    def _blocks(self, prompts: int) -> int:
        return prompts * self._tokens // BLOCK

    def _clocked(self, call: Callable[..., Any], *about: object) -> Any:
        clock = self.driver.clock
        begin = clock()
        answer = call(*about)
        self._ns += clock() - begin
        return answer

    def _admitted(self, prompt: list[int], most: int = 0) -> Any:
        """A request whose prompt is prefilled, in one step or as far as so many tokens."""
        request = self.driver.request(f"p{self.number()}", prompt)
        if self._reports:
            self.driver.report_hits(request)
        hit = int(self._clocked(self.driver.lookup, request))
        self._prefilled(request, hit, min(most or len(prompt), len(prompt) - hit))
        return request

    def _both(self, prompt: list[int]) -> list[Any]:
        """Two requests with this prompt; both are looked up before either is prefilled."""
        requests = [self.driver.request(f"p{self.number()}", prompt) for _ in range(2)]
        for request in requests:
            require(self._clocked(self.driver.lookup, request) == 0, "a new prompt was found")
        for request in requests:
            self._prefilled(request, 0, len(prompt))
        return requests

    def _prefilled(self, request: Any, hit: int, tokens: int) -> None:
        self._hit += hit
        require(self._clocked(self.driver.admit, request, hit, tokens), "a prefill was refused")
        self.driver.ran([request], hit + tokens)

    def _further(self, request: Any, tokens: int) -> None:
        require(self._clocked(self.driver.proceed, request, tokens), "a chunk of a prefill was refused")
        self.driver.ran([request], tokens)

    def _decoded(self, requests: Sequence[Any], tokens: int, rejected: int = 0) -> None:
        """A step of each: so many tokens, and drafts that are rejected."""
        if not rejected:
            self.driver.append(requests, TOKEN)
            require(self._clocked(self.driver.decode, requests) is None, "a decode step was refused")
        else:
            for request in requests:
                require(self._clocked(self.driver.proceed, request, tokens + rejected), "a step was refused")
            for _ in range(tokens):
                self.driver.append(requests, TOKEN)
        self.driver.ran(requests, tokens)

    def _leave(self, requests: Sequence[Any]) -> None:
        for total, new in zip((self._facts, self._notes), table_facts(self.driver, requests), strict=True):
            total.update({name: total[name] + count for name, count in new.items()})
        self._clocked(self.driver.free, requests)


PATTERNS: Mapping[str, Callable[[Patterns], int]] = {
    "held": Patterns.held,
    "system": Patterns.system,
    "twins": Patterns.twins,
    "turns": Patterns.turns,
    "drafts": Patterns.drafts,
    "midway": Patterns.midway,
    "tree": Patterns.tree,
    "scattered": Patterns.scattered,
    "shuffled": Patterns.shuffled,
    "refused": Patterns.refused,
    "resets": Patterns.resets,
    "brief": Patterns.brief,
    "odd": Patterns.odd,
    "server": Patterns.server,
    "inside": Patterns.inside,
    "junctions": Patterns.junctions,
}
DECODING = ("system", "drafts", "server")
