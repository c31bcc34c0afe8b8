"""The toy core as a target of blockproof."""

from blockproof.model import ops
from blockproof.model.ops import Done, Failed, Refused, error_kind
from blockproof.model.snapshot import Snapshot
from toy_core import ToyCore


class ToyTarget:
    """Says what it hides and lacks, builds a core, applies operations, shows its state."""

    name = "toy"
    hides = frozenset(
        {"usage", "registered", "labels", "earliest", "num_identities", "events", "new_block_ids", "stats"}
    )
    lacks = frozenset(
        {"Arrive", "CommonPrefix", "Evict", "Release", "RemoveSkipped", "Take", "Touch"}
        | {"TakeEvents", "TakeNewBlockIds", "TakeStats"}
        | {"Submit.adapter", "Submit.salt", "Submit.items", "Submit.embeds"}
        | {"Allocate.external", "Allocate.delay", "Allocate.encoder_tokens", "Allocate.reserved"}
    )

    def start(self, shape):
        """A new core; `Failed` for what this one is not made for."""
        self.shape, self.requests = shape, {}
        if [group.kind for group in shape.groups] != ["full"] or shape.eagle or shape.parallel > 1:
            return Failed("NotImplementedError"), None
        self.core = ToyCore(shape.num_blocks - 1, shape.groups[0].block_size)  # block 0 is blockproof's null block
        return Done(), self.look()

    def step(self, operation):
        """One operation, and the state afterwards. An exception of the core is part of its behaviour."""
        try:
            outcome = self.apply(operation)
        except Exception as error:
            outcome = Failed(error_kind(error))
        return outcome, self.look()

    def close(self):
        """Nothing was started that must be ended."""

    def apply(self, operation):
        """The outcome of an operation."""
        request = self.requests.get(getattr(operation, "request", None))
        match operation:
            case ops.Submit(name, prompt):
                self.requests[name] = Request(name, list(prompt), operation.skip_lookup)
                return Done(len(prompt) // self.shape.hash_block_size if self.shape.caching else 0)
            case ops.Lookup():
                usable = self.shape.caching and not request.skips_lookup
                request.hit = self.core.match(request.tokens) if usable else []
                return Done((len(request.hit) * self.core.block_size, (shown(request.hit),)))
            case ops.Allocate():
                return self.allocate(request, operation)
            case ops.Advance():
                request.computed += request.scheduled - operation.rejected
                request.scheduled = 0
                request.tokens += operation.sampled
                if self.shape.caching:
                    self.core.publish(request.name, request.tokens[: request.computed])
                return Done(len(request.tokens) // self.shape.hash_block_size if self.shape.caching else 0)
            case ops.Reject():
                request.computed -= operation.count
                return Done()
            case ops.Free(name):
                self.core.release(name)
                self.requests.pop(name, None)
                return Done()
            case ops.Preempt(name):
                self.core.release(name)
                request.computed = request.scheduled = 0
                return Done()
            case ops.ReadTable(name):
                return Done((shown(self.core.tables.get(name, [])),))
            case ops.Reset():
                if self.core.tables:
                    return Done(False)
                self.core.content_of, self.core.block_of = {}, {}
                return Done(True)
            case ops.StepStart():
                return Done()
        return Failed("NotImplementedError")

    def allocate(self, request, operation):
        """Room for the tokens of the next step."""
        if operation.new_tokens <= 0:
            return Failed("ValueError")
        hit = request.hit if operation.hit else []
        start = request.computed + len(hit) * self.core.block_size
        end = start + operation.new_tokens + operation.lookahead
        if operation.gate:  # the scheduler asks for room for the whole prompt
            end = max(end, len(request.tokens))
        new = self.core.grow(request.name, hit, min(end, self.shape.max_model_len))
        if new is None:
            return Refused()
        request.computed, request.scheduled = start, operation.new_tokens
        return Done((shown(new),))

    def look(self):
        """All that can be seen, with empty values for what is hidden."""
        core = self.core
        return Snapshot(
            free=list(shown(core.free)),
            num_free=len(core.free),
            usage=0.0,
            ref_cnt=[0, *core.holders],
            tables=[{name: list(shown(table)) for name, table in core.tables.items()}],
            registered=[{}],
            labels=[],
            earliest=[],
            num_identities=0,
            events=(),
            new_block_ids=[[]],
            stats=None,
        )


class Request:
    """What a scheduler remembers of a request."""

    def __init__(self, name, tokens, skips_lookup):
        self.name, self.tokens, self.skips_lookup = name, tokens, skips_lookup
        self.computed = self.scheduled = 0
        self.hit = []


def shown(blocks):
    """Block ids as blockproof counts them: 0 is the null block, which this core does not have."""
    return tuple(block + 1 for block in blocks)


def make_target():
    """What `--target toy_target:make_target` calls."""
    return ToyTarget()
