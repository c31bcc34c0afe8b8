"""The engine's KV cache as a target of blockproof: this file is all that somebody with an engine writes."""

from typing import get_args

from blockproof.fuzz.targets.base import failed
from blockproof.model import ops
from blockproof.model.ops import Done, Failed, Kind, Refused
from blockproof.model.snapshot import Labels, Snapshot
from my_engine import KVCache


class MyTarget:
    """Says what it hides and lacks, builds a cache, makes the calls of a scheduler, shows the state."""

    name = "my-engine"
    hides = frozenset({"usage", "registered", "events", "new_block_ids", "stats"})
    lacks = frozenset(
        {"Arrive", "CommonPrefix", "Evict", "Release", "RemoveSkipped", "Take", "Touch"}
        | {"TakeEvents", "TakeNewBlockIds", "TakeStats"}
        | {"Submit.adapter", "Submit.salt", "Submit.items", "Submit.embeds"}
        | {"Allocate.external", "Allocate.delay", "Allocate.encoder_tokens", "Allocate.reserved"}
        | {"hybrids", "Shape.eagle", "Shape.decode_parallel", "Shape.prefill_parallel"}
        | {f"Group.kind={kind}" for kind in get_args(Kind) if kind != "full"}
    )

    def start(self, shape):
        """A new cache; `Failed` for what this one is not made for."""
        self.shape, self.requests, self.labels = shape, {}, Labels()
        if [group.kind for group in shape.groups] != ["full"]:
            return Failed("NotImplementedError"), None
        usable = shape.num_blocks - 1  # block 0 is blockproof's null block, which this engine does not have
        self.core = KVCache(usable, shape.groups[0].block_size, shape.caching)
        return Done(), self.look()

    def step(self, operation):
        """One call, and the state afterwards. An exception of the engine is part of its behaviour."""
        try:
            outcome = self.apply(operation)
        except Exception as error:
            outcome = failed(error)
        return outcome, self.look()

    def close(self):
        """Nothing was started that must be ended."""

    def apply(self, operation):
        """The outcome of an operation."""
        request = self.requests.get(getattr(operation, "request", None))
        match operation:
            case ops.Submit(name, prompt):
                self.requests[name] = Request(name, list(prompt), operation.skip_lookup)
                return Done(self.full_hash_blocks(prompt))
            case ops.Lookup():
                request.hit = [] if request.skips_lookup else self.core.match(request.tokens)
                return Done((len(request.hit) * self.core.block_size, (shown(request.hit),)))
            case ops.Allocate():
                return self.allocate(request, operation)
            case ops.Advance():
                request.computed += request.scheduled - operation.rejected
                request.scheduled = 0
                request.tokens += operation.sampled
                self.core.publish(request.name, request.tokens[: request.computed])
                return Done(self.full_hash_blocks(request.tokens))
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
                return Done(self.core.clear())
            case ops.StepStart():
                return Done()
        return Failed("NotImplementedError")

    def allocate(self, request, operation):
        """Room for the tokens of the next step."""
        hit = request.hit if operation.hit else []
        start = request.computed + len(hit) * self.core.block_size
        end = start + operation.new_tokens + operation.lookahead
        if operation.gate:  # the scheduler asks for room for the whole prompt
            end = max(end, len(request.tokens))
        new = self.core.allocate(request.name, min(end, self.shape.max_model_len), hit)
        if new is None:
            return Refused()
        request.computed, request.scheduled = start, operation.new_tokens
        return Done((shown(new),))

    def full_hash_blocks(self, tokens):
        """What `Submit` and `Advance` answer."""
        return len(tokens) // self.shape.hash_block_size if self.shape.caching else 0

    def look(self):
        """All that can be seen, with empty values for what is hidden."""
        pool = self.core.pool
        return Snapshot(
            free=list(shown(pool.free)),
            num_free=len(pool.free),
            usage=0.0,
            ref_cnt=[0, *pool.holders],
            tables=[{name: list(shown(table)) for name, table in self.core.tables.items()}],
            registered=[{}],
            labels=[None, *(key and self.labels(key) for key in pool.keys)],
            earliest=[None, *(key and pool.cached[key][0] + 1 for key in pool.keys)],
            num_identities=len(pool.cached),
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
    """Block ids as blockproof counts them: 0 is the null block, which this engine does not have."""
    return tuple(block + 1 for block in blocks)


def make_target():
    """What `--target my_target:make_target` calls."""
    return MyTarget()
