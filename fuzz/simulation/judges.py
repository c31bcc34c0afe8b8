"""What judges an engine by what its clients get: tokens, fates, progress, capacity. What its device reads it checks
itself (`device`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from .contents import TokenContents
from .protocol import ClientRequest, Delivered, EngineView

TOKENS, MEMORY, PROGRESS, FATE, CAPACITY = "tokens", "memory", "progress", "fate", "capacity"
CHECKS, TIER = "checks", "tier"
JUDGES: Mapping[str, str] = {
    TOKENS: "each request ends with the tokens that it would have had alone",
    MEMORY: "every read is right, and nothing is written where somebody else reads",
    PROGRESS: "with room, every request ends",
    FATE: "nothing is raised, and no request's fate takes another one with it",
    CAPACITY: "when nothing runs, all capacity is back",
    CHECKS: "the engine's own checks object to nothing",
    TIER: "what was stored in a lower tier and not evicted is found there, and is right",
}
"""The judges of a simulation, and what they judge."""
QUIET = 25
"""Rounds in a row in which nothing at all happens, though somebody waits: then it stands still."""
PATIENCE = 200
"""Rounds, beside four for each token that somebody is still owed, in which nobody gets a token."""
AGAIN = 50
"""So many of them at least compute or transfer something: in the others only what was begun goes on."""
FOR_NOBODY = 1000
"""Rounds that compute something, since somebody was owed something."""


@dataclass
class Client:
    """Who asked for something, and what came of it."""

    request: ClientRequest
    contents: list[TokenContents]
    """What is right under each version of the weights that there were since it came."""
    got: list[int] = field(default_factory=list)
    ended: str = ""
    why: str = ""
    gone: bool = False
    """It has cancelled: nothing is owed any more."""
    silent: int = 0
    """Rounds that have ended since it came or got something, that one counted."""
    patience: int = 0
    """It goes away after so many of them; 0: never."""
    paused: bool = False
    forked: bool = False
    cut: bool = False
    """Its tokens were replaced while it ran: what it would get alone is not asked of the engine itself."""

    @property
    def live(self) -> bool:
        """True while it is owed something."""
        return not (self.ended or self.gone)

    @property
    def tokens(self) -> tuple[int, ...]:
        """Its prompt and what it got."""
        return (*self.request.prompt, *self.got)

    @property
    def owed(self) -> int:
        """Tokens that are still to come at most, those of its prompt counted."""
        return len(self.request.prompt) + self.request.max_tokens - len(self.got)


class ClientJudge:
    """Follows the clients of one engine. Findings are pairs of a judge and a line; what stands before its colon says
    who it is about."""

    def __init__(self, max_length: int, *, samples: bool, timeout: int = 0) -> None:
        """`samples`: the engine computes itself, so that nobody here knows which tokens are right. `timeout`: rounds
        that it may wait by itself for what was lost."""
        self._max_length, self._samples, self._timeout = max_length, samples, timeout
        self.clients: dict[str, Client] = {}
        self.past: list[Client] = []
        """Those whose id was used again."""
        self.found: list[tuple[str, str]] = []
        self.reached: Counter[str] = Counter()
        self.weights = self._quiet = self._barren = self._begun = self._for_nobody = 0
        self._capacity: int | None = None

    # Clients.

    def add(self, request: ClientRequest, *, branch: int = 0, patience: int = 0) -> Client:
        """It asks."""
        if request.id in self.clients:
            self.past.append(self.clients[request.id])
            self.reached["ids used again"] += 1
        client = self.clients[request.id] = Client(request, [TokenContents(request, self.weights, branch)])
        client.forked, client.patience = bool(branch), patience
        return client

    def truncate(self, client: Client, length: int, then: tuple[int, ...]) -> None:
        """What it has got is its prompt from now on, up to `length`, and these tokens behind it."""
        prompt = client.tokens[:length] + then
        branch = client.contents[0].branch
        client.request = replace(client.request, prompt=prompt, external=0)
        client.got, client.cut = [], True
        client.contents = [TokenContents(client.request, self.weights, branch)]

    def reweigh(self) -> None:
        """There are new weights: a token that is to come may be sampled under them, or under those before by a step in
        flight."""
        self.weights += 1
        for client in self.clients.values():
            if client.live:
                client.contents.append(client.contents[-1].under(self.weights))

    @property
    def live(self) -> list[Client]:
        """Those who are owed something."""
        return [client for client in self.clients.values() if client.live]

    def fates(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """How each ended who was not cancelled, and its tokens, by its id, and by which of this id it was."""
        times: Counter[str] = Counter()
        fates: dict[str, tuple[str, tuple[int, ...]]] = {}
        for client in (*self.past, *self.clients.values()):
            name = client.request.id
            times[name] += 1
            if client.ended and not client.gone:
                fates[f"{name}, the {times[name]}." if times[name] > 1 else name] = client.ended, tuple(client.got)
        return fates

    # What they get.

    def deliver(self, delivered: Iterable[Delivered]) -> bool:
        """True if somebody has got something."""
        moved = False
        for one in delivered:
            client = self.clients.get(one.request)
            if client is None:
                self.found.append((TOKENS, f"{one.request}: something is delivered to nobody"))
            elif not client.gone:
                moved = True
                client.silent = 0
                self._deliver(client, one)
        return moved

    def _deliver(self, client: Client, one: Delivered) -> None:
        name, request = one.request, client.request
        for token in one.tokens:
            if client.ended or self._full(client):
                self.found.append((TOKENS, f"{name}: gets token {token} behind its end"))
                return
            if not self._samples:
                right = {contents.next_token() for contents in client.contents}
                if token not in right:
                    at, wanted = len(client.tokens), " or ".join(map(str, sorted(right)))
                    self.found.append((TOKENS, f"{name}: gets token {token} at position {at}, alone it gets {wanted}"))
                    client.gone = True  # what follows depends on it
                    return
                for contents in client.contents:
                    contents.extend((token,))
            client.got.append(token)
        self.reached["tokens delivered"] += len(one.tokens)
        if not one.ended:
            return
        client.ended, client.why = one.ended, one.why
        self.reached[f"ended: {one.ended}"] += 1
        at_stop = bool(client.got) and client.got[-1] in request.stop
        full = len(client.got) >= request.max_tokens or len(client.tokens) >= self._max_length - 1
        if one.ended == "cancelled":
            self.found.append((FATE, f"{name}: ends as cancelled, and nobody has cancelled it"))
        elif one.ended == "stop" and not at_stop:
            self.found.append((TOKENS, f"{name}: ends with stop, its last token is none of {list(request.stop)}"))
        elif one.ended == "length" and not full:
            what = f"{len(client.got)} of {request.max_tokens} tokens"
            self.found.append((TOKENS, f"{name}: ends with length after {what}"))

    def _full(self, client: Client) -> bool:
        request, got = client.request, client.got
        return len(got) >= request.max_tokens or bool(got and got[-1] in request.stop)

    # Progress and capacity.

    def round(self, *, computed: int, moved: bool, waiting: bool) -> None:
        """A round is over in which so many tokens were computed, or else transfers begun; `moved`: somebody has got
        something, or a client has done something; `waiting`: more happens by itself, as a transfer goes on."""
        live = self.live
        for client in live:
            client.silent += 1
        is_barren = bool(live) and not moved
        self._barren, self._begun = (self._barren + 1, self._begun + bool(computed)) if is_barren else (0, 0)
        self._for_nobody = self._for_nobody + bool(computed) if not live else 0
        self._quiet = 0 if moved or computed or waiting or not live else self._quiet + 1
        names = ", ".join(client.request.id for client in live)
        if self._quiet >= QUIET + self._timeout:
            self.found.append((PROGRESS, f"{names}: nothing happens any more, in {self._quiet} rounds"))
        elif self._begun >= AGAIN and self._barren >= PATIENCE + self._timeout + 4 * sum(one.owed for one in live):
            self.found.append((PROGRESS, f"{names}: computed again and again, and nobody gets anything"))
        elif self._for_nobody >= FOR_NOBODY:
            self.found.append((PROGRESS, "the engine: computes on and on, and nobody is owed anything"))

    def over(self, is_idle: bool) -> None:
        """Nothing is left to happen."""
        for client in self.live:
            self.found.append((PROGRESS, f"{client.request.id}: never ends, the engine has nothing to do"))
        if not is_idle and not self.live:
            self.found.append((CAPACITY, "the engine: is not idle, and all requests have ended"))

    def look(self, view: EngineView | None) -> None:
        """The engine says of itself, when nothing runs, how much room it has."""
        if view is None or view.free is None:
            return
        self.reached["looks at an idle engine"] += 1
        if self._capacity is None:
            self._capacity = view.free
        elif view.free != self._capacity:
            what = f"{view.free} blocks are free when nothing runs, {self._capacity} were at the start"
            self.found.append((CAPACITY, f"the engine: {what}"))
