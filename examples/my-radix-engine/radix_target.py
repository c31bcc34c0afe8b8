"""The radix tree as a target of blockproof, with what it does otherwise than most (`designs`)."""

from typing import get_args

import radix_engine as engine
from blockproof.fuzz.targets.base import failed
from blockproof.model import ops
from blockproof.model.ops import Done, Failed, Kind, Refused
from blockproof.model.snapshot import Labels, Snapshot


class RadixTarget:
    """Says what it hides, lacks and does otherwise, builds a cache, makes the calls of a scheduler, shows the state."""

    name = "my-radix-engine"
    # The tree has an order of its own in which pages are evicted.
    hides = frozenset(
        {"free_order", "usage", "registered", "earliest", "num_identities", "events", "new_block_ids", "stats"}
    )
    # Whole nodes are evicted, and pages can be found when their request ends. That nobody is preempted is in `lacks`.
    designs = frozenset({"evicts_more", "publishes_at_end"})
    lacks = frozenset(
        {"Preempt", "drafts", "Arrive", "CommonPrefix", "Evict", "Release", "RemoveSkipped", "Take", "Touch"}
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
        self.core = engine.RadixCache(usable, shape.groups[0].block_size, shape.caching)
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
                self.requests[name] = Request(list(prompt), operation.skip_lookup)
                return Done(self.full_hash_blocks(prompt))
            case ops.Lookup():
                request.hit = None if request.skips_lookup else self.core.lookup(request.tokens)
                pages = request.hit[0] if request.hit else []
                return Done((len(pages) * self.core.page, (shown(pages),)))
            case ops.Allocate(name):
                return self.allocate(name, request, operation)
            case ops.Advance():
                request.computed += request.scheduled
                request.scheduled = 0
                request.tokens += operation.sampled
                return Done(self.full_hash_blocks(request.tokens))
            case ops.Free(name):
                request = self.requests.pop(name, None)
                self.core.finish(name, request.tokens[: request.computed] if request else [])
                return Done()
            case ops.ReadTable(name):
                return Done((shown(self.table(name)),))
            case ops.Reset():
                return Done(self.core.clear())
            case ops.StepStart():
                return Done()
        return Failed("NotImplementedError")

    def allocate(self, name, request, operation):
        """Room for the tokens of the next step."""
        hit = request.hit if operation.hit else None
        start = request.computed + (len(hit[0]) * self.core.page if hit else 0)
        end = start + operation.new_tokens + operation.lookahead
        if operation.gate:  # the scheduler asks for room for the whole prompt
            end = max(end, len(request.tokens))
        new = self.core.allocate(name, min(end, self.shape.max_model_len), hit)
        if new is None:
            return Refused()
        request.computed, request.scheduled = start, operation.new_tokens
        return Done((shown(new),))

    def full_hash_blocks(self, tokens):
        """What `Submit` and `Advance` answer."""
        return len(tokens) // self.shape.hash_block_size if self.shape.caching else 0

    def table(self, name):
        """The pages of a request."""
        running = self.core.running.get(name)
        return running.pages if running else []

    def look(self):
        """All that can be seen, with empty values for what is hidden. What runs holds what it has not shared itself."""
        tree, running = self.core.tree, self.core.running
        pages = self.shape.num_blocks - 1
        holders, keys, evictable = [0] * pages, [None] * pages, []
        for node in tree.nodes():
            before = tuple(token for each in reversed(list(node.path())) for token in each.tokens)
            before = before[: len(before) - len(node.tokens)]
            for index, page in enumerate(node.pages):
                holders[page] += node.locks
                keys[page] = before + node.tokens[: (index + 1) * tree.page]
                evictable += [] if node.locks else [page]
        for request in running.values():
            for page in request.pages[request.shared :]:
                holders[page] += 1
        return Snapshot(
            free=list(shown([*self.core.free, *evictable])),
            num_free=self.core.room,
            usage=0.0,
            ref_cnt=[0, *holders],
            tables=[{name: list(shown(each.pages)) for name, each in running.items()}],
            registered=[{}],
            labels=[None, *(key and self.labels(key) for key in keys)],
            earliest=[],
            num_identities=0,
            events=(),
            new_block_ids=[[]],
            stats=None,
        )


class Request:
    """What a scheduler remembers of a request."""

    def __init__(self, tokens, skips_lookup):
        self.tokens, self.skips_lookup = tokens, skips_lookup
        self.computed = self.scheduled = 0
        self.hit = None


def shown(pages):
    """Page ids as blockproof counts them: 0 is the null block, which this engine does not have."""
    return tuple(page + 1 for page in pages)


def make_target():
    """What `--target radix_target.py:make_target` calls."""
    return RadixTarget()
