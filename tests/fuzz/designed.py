"""A small engine with designs of its own to choose from (`declarations.DESIGNS`), and mistakes to plant beside them.

Blocks 1, 2, ... of one pool, each cached as the tokens up to its end; of equal blocks one is found. What it does is a
set of words, so that a test says in one line which engine it wants.
"""

from collections.abc import Collection

from blockproof.fuzz.targets.base import failed
from blockproof.model import ops
from blockproof.model.attention import rule_for
from blockproof.model.ops import NULL, Done, Failed, Refused, Value
from blockproof.model.snapshot import Labels, Snapshot

LACKS = frozenset(
    {"Arrive", "CommonPrefix", "Evict", "Release", "TakeEvents", "TakeNewBlockIds", "TakeStats"}
    | {"Submit.adapter", "Submit.salt", "Submit.items", "Submit.embeds"}
    | {"Allocate.external", "Allocate.encoder_tokens", "Allocate.reserved", "hybrids"}
    | {"Shape.eagle", "Shape.events", "Shape.stats", "Shape.decode_parallel", "Shape.prefill_parallel"}
)
HIDES = frozenset({"usage", "registered", "earliest", "num_identities", "events", "new_block_ids", "stats"})


class Request:
    """What the engine knows of a request."""

    def __init__(self, submit: ops.Submit) -> None:
        self.submit, self.tokens = submit, list(submit.prompt)
        self.computed = self.scheduled = 0
        self.table: list[int] = []
        self.hit: list[int] = []


class Designed:
    """The engine as a target. `does`: words for what it does, see the methods that ask for them."""

    name = "designed"

    def __init__(
        self,
        does: Collection[str] = (),
        designs: Collection[str] = (),
        *,
        hides: Collection[str] = (),
        lacks: Collection[str] = (),
        kinds: Collection[str] = ("full",),
        tells: bool = False,
    ) -> None:
        """`tells`: it has events."""
        self.does = frozenset(does)
        self.designs, self.hides = frozenset(designs), HIDES | frozenset(hides)
        others = {"full", "mla", "tq", "sink", "sliding", "sliding_mla", "chunked", "mamba", "cross"} - set(kinds)
        self.lacks = LACKS | frozenset(lacks) | {f"Group.kind={kind}" for kind in others}
        self.kinds = frozenset(kinds)
        if tells:
            self.hides, self.lacks = self.hides - {"events"}, self.lacks - {"Shape.events", "TakeEvents"}

    # A target.

    def start(self, shape: ops.Shape) -> tuple[ops.Outcome, Snapshot | None]:
        """A new pool."""
        if len(shape.groups) > 1 or shape.groups[0].kind not in self.kinds:
            return Failed("NotImplementedError"), None
        self.shape, self.labels = shape, Labels()
        self.size, self.rule = shape.groups[0].block_size, rule_for(shape.groups[0], shape)
        self.free = list(range(1, shape.num_blocks))
        self.holders = [0] * shape.num_blocks
        self.key: list[tuple[int, ...] | None] = [None] * shape.num_blocks
        self.found: dict[tuple[int, ...], int] = {}
        self.requests: dict[str, Request] = {}
        self.events: list[tuple[Value, ...]] = []
        return Done(), self.look()

    def step(self, operation: ops.Operation) -> tuple[ops.Outcome, Snapshot]:
        """One call."""
        try:
            outcome = self.apply(operation)
        except Exception as error:
            outcome = failed(error)
        if "evicts all at every call" in self.does:
            self.forget(self.unheld())
        return outcome, self.look()

    def close(self) -> None:
        """Nothing is open."""

    def apply(self, operation: ops.Operation) -> ops.Outcome:
        """What the call comes to."""
        name = operation.request if isinstance(operation, ops.OnRequest) else ""
        request = self.requests.get(name)
        match operation:
            case ops.Submit():
                request = self.requests[name] = Request(operation)
                return Done(self.hash_blocks(request))
            case ops.ReadTable():
                return Done((tuple(request.table if request else ()),))
            case ops.Free():
                if request is not None:
                    self.end(self.requests.pop(name))
                return Done()
            case ops.Reset():
                if any(self.holders):
                    return Done(False)
                self.forget(range(self.shape.num_blocks))
                return Done(True)
            case ops.StepStart():
                return Done()
            case ops.TakeEvents():
                told, self.events = tuple(self.events), []
                return Done(told)
        assert request is not None
        return self.on_request(request, operation)

    def on_request(self, request: Request, operation: ops.Operation) -> ops.Outcome:
        """A call about a request that is known."""
        match operation:
            case ops.Lookup():
                request.hit = self.match(request)
                shown = () if "names no blocks" in self.does else tuple(request.hit)
                return Done((len(request.hit) * self.size, (shown,)))
            case ops.Allocate():
                return self.allocate(request, operation)
            case ops.Advance():
                self.advance(request, operation)
                return Done(self.hash_blocks(request))
            case ops.Reject(_, count):
                request.computed -= count
            case ops.RemoveSkipped():
                self.skip(request)
            case ops.Preempt():
                self.preempt(request)
            case _:
                return Failed("NotImplementedError")
        return Done()

    # The engine.

    def match(self, request: Request) -> list[int]:
        """Blocks of the longest cached prefix."""
        if request.submit.skip_lookup or not self.shape.caching:
            return []
        hit: list[int] = []
        most = len(request.tokens) - ("hits the last token" not in self.does)
        for end in range(self.size, most + 1, self.size):
            if (block := self.found.get(tuple(request.tokens[:end]))) is None:
                break
            hit.append(block)
        if "hits a block too many" in self.does and len(hit) > 1 and (len(hit) + 1) * self.size <= most:
            hit.append(hit[0])
        if "hits a block too few" in self.does:
            hit = hit[:-1] if len(hit) > 1 else hit
        first = len(hit) * self.size
        return [NULL if entry < self.rule.first(first) else block for entry, block in enumerate(hit)]

    def allocate(self, request: Request, operation: ops.Allocate) -> ops.Outcome:
        """Room for the next step."""
        if operation.new_tokens <= 0:
            return Failed("ValueError")
        if "merges when it allocates" in self.does:
            self.merge(request, request.computed)
            self.publish(request, request.computed)
        hit = request.hit if operation.hit else []
        start = request.computed + len(hit) * self.size
        end = min(start + operation.new_tokens + operation.lookahead, self.shape.max_model_len)
        whole = max(end, len(request.tokens)) if operation.gate and self.rule.is_full else end
        missing = max(0, -(-whole // self.size) - len(request.table) - len(hit))
        revived = [block for block in hit if block and not self.holders[block]]
        self.skip(request)
        if missing + len(revived) > len(self.free):
            if "evicts all when refused" in self.does:
                self.forget([block for block in self.unheld() if block not in revived])
            return Refused()
        self.free = [block for block in self.free if block not in revived]
        new, self.free = self.free[:missing], self.free[missing:]
        self.evict_more(new, hit)
        self.forget(new)
        for block in (*hit, *new):
            self.holders[block] += block != NULL
        request.table += [*hit, *new]
        request.computed, request.scheduled = start, operation.new_tokens
        if "publishes when it allocates" in self.does:
            self.publish(request, min(start + operation.new_tokens, len(request.tokens)))
        return Done((() if "names no blocks" in self.does else tuple(new),))

    def evict_more(self, new: list[int], hit: Collection[int]) -> None:
        """What is evicted besides the blocks that are needed."""
        evicted = [self.key[block] for block in new if self.key[block]]
        if not evicted:
            return
        if "evicts all" in self.does:
            self.forget([block for block in self.unheld() if block not in hit])
        if "evicts nodes" in self.does:  # all blocks of the prefix behind the first of them
            nodes = [key for key in evicted if key]
            gone = [b for b in self.unheld() if b not in hit and any(self.under(self.key[b], key) for key in nodes)]
            self.forget(gone)
            self.free = [*(block for block in gone if block in self.free), *(b for b in self.free if b not in gone)]
        if "evicts what is held" in self.does:
            held = [block for block, holders in enumerate(self.holders) if holders and self.key[block]]
            self.forget(held[:1])

    @staticmethod
    def under(key: tuple[int, ...] | None, node: tuple[int, ...]) -> bool:
        """True if this content goes on from that one, or the other way round."""
        return key is not None and (key[: len(node)] == node or node[: len(key)] == key)

    def advance(self, request: Request, operation: ops.Advance) -> None:
        """The step has run."""
        request.computed += request.scheduled - operation.rejected
        request.scheduled = 0
        request.tokens += operation.sampled
        if "merges" in self.does:
            self.merge(request, request.computed)
        if not self.does & {"publishes at the end", "publishes at the end only", "merges when it allocates"}:
            self.publish(request, request.computed)

    def merge(self, request: Request, computed: int) -> None:
        """Put blocks that are found for the same content into the table, in place of the request's own."""
        for entry, block in enumerate(request.table[: min(computed, len(request.tokens)) // self.size]):
            other = self.found.get(tuple(request.tokens[: (entry + 1) * self.size]))
            if "merges other content" in self.does and other is None and entry:
                other = self.found.get(tuple(request.tokens[: entry * self.size]))
            if other in (None, block) or block == NULL or not self.shape.caching:
                continue
            if not self.holders[other] and "merges what stays free" not in self.does:
                self.free.remove(other)
            self.holders[other] += 1
            self.let_go([block], keep="merge leaks" in self.does)
            request.table[entry] = other

    def publish(self, request: Request, computed: int) -> None:
        """These tokens are in the cache: their full blocks can be found."""
        more = self.size - 1 if "publishes a block too many" in self.does else 0
        full = (min(computed, len(request.tokens)) + more) // self.size * self.shape.caching
        for entry, block in enumerate(request.table[:full]):
            key = tuple(request.tokens[: (entry + 1) * self.size])
            if block == NULL or self.key[block] is not None or ("keeps one" in self.does and key in self.found):
                continue
            self.key[block] = key
            self.tell("stored", (key,), key[: -self.size] or None, key[-self.size :], self.size, None, (), 0)
            self.found.setdefault(key, block)

    def skip(self, request: Request) -> None:
        """Give up what is behind the window; counted at launch, the step that runs counts as computed."""
        computed, known = request.computed, len(request.tokens) - 1
        if "counts at launch" in self.does and request.scheduled:
            computed += request.scheduled
        computed = computed if "counts drafts" in self.does else min(computed, known)
        computed += "counts a token too many" in self.does
        for entry in range(min(max(0, self.rule.skipped(computed)) // self.size, len(request.table))):
            if request.table[entry] != NULL:
                self.let_go([request.table[entry]])
                request.table[entry] = NULL

    def end(self, request: Request) -> None:
        """A request has ended."""
        late = {"publishes at the end", "publishes at the end only", "merges when it allocates"}
        if self.does & late and "publishes never" not in self.does:
            self.publish(request, request.computed)
        if "evicts all at the end" in self.does:
            self.forget(self.unheld())
        self.let_go(request.table[:-1] if "a block leaks" in self.does and request.table else request.table)
        if "forgets the end" in self.does:
            self.forget([block for block in request.table if not self.holders[block]])

    def preempt(self, request: Request) -> None:
        """It starts again later."""
        if "publishes at the end" in self.does:
            self.publish(request, request.computed)
        table, request.table = request.table, []
        self.let_go(table)
        request.computed = request.scheduled = 0
        if "forgets the preempted" in self.does:
            self.forget([block for block in table if not self.holders[block]])
        if "forgets others with the preempted" in self.does:
            self.forget(self.unheld())
        if "forgets what is shared with the preempted" in self.does:
            self.forget(table)

    def let_go(self, table: list[int], *, keep: bool = False) -> None:
        """One holder less of each block."""
        for block in reversed(table):
            self.holders[block] -= block != NULL
            if block != NULL and not self.holders[block] and not keep:
                self.free.append(block)

    def unheld(self) -> list[int]:
        """Blocks that are cached and nobody holds."""
        return [block for block in self.free if self.key[block] is not None]

    def forget(self, blocks: Collection[int]) -> None:
        """What these blocks hold is no longer found."""
        for block in blocks:
            key, self.key[block] = self.key[block], None
            self.tell("removed", (key,), 0) if key else None
            if key is not None and self.found.get(key) == block:
                del self.found[key]
                if key in self.key:
                    self.found[key] = self.key.index(key)

    def tell(self, *event: Value) -> None:
        """An event, if there are any."""
        if self.shape.events:
            self.events.append(event)

    def hash_blocks(self, request: Request) -> int:
        """Full hash blocks of the tokens that are known."""
        return len(request.tokens) // self.shape.hash_block_size if self.shape.caching else 0

    def look(self) -> Snapshot:
        """All that is not hidden."""
        hidden = self.hides
        tables = {name: list(each.table) for name, each in self.requests.items() if each.table}
        return Snapshot(
            free=[] if "free" in hidden else list(self.free),
            num_free=len(self.free),
            usage=0.0,
            ref_cnt=[] if "ref_cnt" in hidden else list(self.holders),
            tables=[{} if "tables" in hidden else tables],
            registered=[{}],
            labels=[] if "labels" in hidden else [self.labels(key) if key else None for key in self.key],
            earliest=[],
            num_identities=0,
            events=tuple(self.events),
            new_block_ids=[[]],
            stats=None,
        )
