"""Requests and contents after each step: lengths, tokens, the prefix tree, and which label stands for which content."""

from collections.abc import Mapping, Sequence

from ...model.attention import Rule
from ...model.identity import Identities, Identity, extra_keys
from ...model.ops import Allocate, Done, Lookup, OnRequest, Operation, Outcome, Preempt, Shape
from ...model.shown.snapshot import Snapshot
from ...model.state import Request
from ..targets.answers import hit_of
from .changes import Names, cut
from .document import Node, RequestState, Step

MAX_TOKENS = 65_536
"""Tokens of one request that are kept."""
MAX_NODES = 20_000
"""Contents that are kept."""


class Contents:
    """Follows the requests of one run, as its scene knows them."""

    def __init__(self, shape: Shape, rules: Sequence[Rule], requests: Names) -> None:
        self.shape, self.rules, self.requests = shape, rules, requests
        self.nodes: list[Node] = []
        self._identities = Identities()
        self._number_of: dict[Identity, int] = {}
        self._chains: dict[str, list[Identity]] = {}
        self._shown: dict[str, RequestState] = {}
        self._same: dict[str, Request] = {}
        self._tokens: dict[str, list[int]] = {}
        self._attached: dict[str, int] = {}
        self._hit: dict[str, int] = {}

    def follow(self, step: Step, operation: Operation, outcome: Outcome | None, live: Mapping[str, Request]) -> None:
        """Write into the step what it has changed."""
        self._note_hit(operation, outcome)
        for name, shown in self._shown.items():
            if name not in live and shown.live:
                self._end(step, name)
        for name, request in live.items():
            if self._same.get(name) is not request:
                self._begin(name, request)
            state = self._state(name, request)
            if state != self._shown.get(name):
                self._shown[name] = state
                step.requests.append(state)
            self._learn(step, name, request)

    def _note_hit(self, operation: Operation, outcome: Outcome | None) -> None:
        if not isinstance(operation, OnRequest) or not isinstance(outcome, Done):
            return
        name = operation.request
        if isinstance(operation, Lookup) and (found := hit_of(outcome)):
            self._hit[name] = found[0]
        elif isinstance(operation, Allocate) and operation.hit:
            self._attached[name] = max(0, self._hit.get(name, 0))
        elif isinstance(operation, Preempt):
            self._attached[name], self._hit[name] = 0, -1

    def _begin(self, name: str, request: Request) -> None:
        """The request is new, maybe under a name that another one had."""
        self._same[name], self._chains[name], self._tokens[name] = request, [], []
        self._attached[name], self._hit[name] = 0, -1

    def _end(self, step: Step, name: str) -> None:
        number = self.requests(name)
        self._shown[name] = RequestState(number, False, 0, 0, 0, 0, -1, False, 0, [])
        step.requests.append(self._shown[name])
        self._same.pop(name, None)

    def _state(self, name: str, request: Request) -> RequestState:
        reads = [max(0, rule.skipped(request.computed)) for rule in self.rules]
        return RequestState(
            self.requests(name),
            True,
            request.computed,
            request.scheduled,
            len(request.tokens),
            self._attached[name],
            self._hit[name],
            request.arriving,
            request.preemptions,
            reads,
        )

    def _learn(self, step: Step, name: str, request: Request) -> None:
        """Tokens that became known, and the blocks that they have filled."""
        number, known, chain = self.requests(name), self._tokens[name], self._chains[name]
        if len(request.tokens) > len(known) and len(known) < MAX_TOKENS:
            new = request.tokens[len(known) : MAX_TOKENS]
            step.tokens.append([number, len(known), *new])
            known += new
        size = self.shape.hash_block_size
        first = len(chain)
        while self.shape.caching and (len(chain) + 1) * size <= len(known) and len(self.nodes) < MAX_NODES:
            start = len(chain) * size
            keys = extra_keys(request.submit, start, start + size)
            chain.append(self._identities(chain[-1] if chain else None, known[start : start + size], keys))
            self._number(chain[-1])
        if len(chain) > first:
            step.chain.append([number, first, *(self._number_of[one] for one in chain[first:])])

    def _number(self, identity: Identity) -> None:
        if identity not in self._number_of:
            parent = -1 if identity.parent is None else self._number_of[identity.parent]
            keys = cut(", ".join(f"{tag} {value}" for tag, value in identity.keys), 200)
            self._number_of[identity] = len(self.nodes)
            self.nodes.append(Node(parent, list(identity.tokens), keys))

    def naming(self, snapshot: Snapshot, labels: Sequence[int]) -> list[int]:
        """Triples of `Change.named` for blocks with labels that are new (pairs: block, label): the content that the
        request there has, in whose table the block is."""
        wanted = {block: label for block, label in zip(labels[::2], labels[1::2], strict=True) if label >= 0}
        named: list[int] = []
        for group, tables in enumerate(snapshot.tables if wanted else ()):
            size = self.rules[group].b
            for name, table in tables.items():
                chain = self._chains.get(name, [])
                for place, block in enumerate(table):
                    at = (place + 1) * size // self.shape.hash_block_size - 1
                    if block in wanted and 0 <= at < len(chain):
                        named += [wanted.pop(block), group, self._number_of[chain[at]]]
        return named
