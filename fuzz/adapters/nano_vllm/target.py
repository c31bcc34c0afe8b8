"""The target over nano-vllm's block manager: makes the calls that its scheduler makes at each point.

A first allocation takes blocks for all known tokens, even where the step computes only a piece of them. A step over one
new token asks for room for it. Where a commit registers blocks when their step has run, an advance does so.

nano-vllm has no null block, so that its block n is block n + 1 here. It cannot be asked for a hit without an
allocation: a lookup walks the chain of hashes as `can_allocate` does, with the manager's own hash function and tables.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

from ....model import ops
from ....model.ops import Done, Failed, Kind, Operation, Outcome, Refused, Shape
from ....model.snapshot import Labels, Snapshot
from ...findings.cause import failed
from .engine import NanoEngine

HIDES = frozenset({"usage", "registered", "num_identities", "events", "new_block_ids", "stats"})
LACKS = frozenset(
    {
        *("Reject", "Arrive", "RemoveSkipped", "CommonPrefix", "Evict", "Reset", "Take", "Touch", "Release"),
        *("TakeEvents", "TakeNewBlockIds", "TakeStats"),
        *("Submit.adapter", "Submit.salt", "Submit.items", "Submit.embeds", "Submit.skip_lookup"),
        *("Allocate.lookahead", "Allocate.external", "Allocate.delay", "Allocate.encoder_tokens", "Allocate.reserved"),
        *("drafts", "hybrids", "Shape.caching=False", "Shape.eagle", "Shape.decode_parallel", "Shape.prefill_parallel"),
        *(f"Group.kind={kind}" for kind in get_args(Kind) if kind != "full"),
    }
)
BLOCK_SIZES = frozenset({2, 3, 4, 5, 8, 16})
"""Sizes to try, in tokens. With 1 the engine never sees that a token begins a block; it takes multiples of 256 itself,
which only make traces longer."""


class NanoRequest:
    """What the scheduler knows of a request."""

    def __init__(self, sequence: Any) -> None:
        self.sequence = sequence
        self.computed = 0
        """Tokens that are in memory."""
        self.scheduled = 0
        """Tokens of the running step."""
        self.is_decoding = False
        """True once a step has reached the last known token: from then on each step asks for room for one token."""

    def restart(self) -> None:
        """The request holds nothing any more."""
        self.computed = self.scheduled = 0
        self.is_decoding = False


class NanoVllmTarget:
    """A `Target`. One group of full attention, blocks of any size, a prefix cache that cannot be switched off."""

    name = "nano-vllm"
    hides = HIDES
    lacks = LACKS
    block_sizes = BLOCK_SIZES

    def __init__(self, engine: NanoEngine) -> None:
        self._engine = engine

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """A new block manager with `num_blocks - 1` blocks; `Failed` for what nano-vllm has no core for."""
        if problem := _problem_with(shape):
            return failed(NotImplementedError(problem)), None
        self._size = shape.groups[0].block_size
        self._engine.sequence.block_size = self._size
        self._manager = self._engine.manager(shape.num_blocks - 1, self._size)
        self._live: dict[str, NanoRequest] = {}
        self._labels = Labels()
        return Done(), self._look()

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """Apply one operation and look at the state afterwards."""
        try:
            outcome = self._apply(operation)
        except Exception as error:
            outcome = failed(error)
        return outcome, self._look()

    def close(self) -> None:
        """Nothing was started that must be ended."""

    def _apply(self, operation: Operation) -> Outcome:
        match operation:
            case ops.Submit(name, prompt):
                self._live[name] = NanoRequest(self._engine.new_sequence(prompt))
                return Done(len(prompt) // self._size)
            case ops.Lookup(name):
                hit = self._hit(self._live[name].sequence)
                return Done((len(hit) * self._size, (tuple(block + 1 for block in hit),)))
            case ops.Allocate(name):
                return self._allocate(self._live[name], operation)
            case ops.Advance(name):
                return self._advance(self._live[name], operation.sampled)
            case ops.Free(name) if name in self._live:
                self._manager.deallocate(self._live.pop(name).sequence)
            case ops.Preempt(name):
                self._manager.deallocate(self._live[name].sequence)
                self._live[name].restart()
            case ops.ReadTable(name):
                return Done((tuple(self._tables().get(name, [])),))
            case ops.Free() | ops.StepStart():
                pass
            case _:
                return Failed("NotImplementedError")
        return Done()

    def _hit(self, sequence: Any) -> list[int]:
        """The cached blocks at the beginning of a request, as the next allocation takes them."""
        manager, found, prefix = self._manager, [], -1
        full = len(sequence) // self._size
        for index in range(min(full, sequence.num_blocks - 1) if self._engine.registers_after_step else full):
            tokens = sequence.block(index)
            prefix = _hash(manager, tokens, prefix)
            block = manager.hash_to_block_id.get(prefix, -1)
            if block == -1 or manager.blocks[block].token_ids != tokens:
                break
            found.append(block)
        return found

    def _allocate(self, live: NanoRequest, op: ops.Allocate) -> Outcome:
        if op.new_tokens <= 0:
            return Failed("ValueError")
        sequence = live.sequence
        held = len(sequence.block_table)
        start = len(self._hit(sequence)) * self._size if op.hit else live.computed
        if start + op.new_tokens > len(sequence):
            return Refused()  # its scheduler runs no step over a token that is not known yet
        if not held and not self._admit(sequence, start, op):
            return Refused()
        if not held:
            live.computed = sequence.num_cached_tokens
            held = live.computed // self._size
        elif live.is_decoding:
            if not self._manager.can_append(sequence):
                return Refused()
            self._manager.may_append(sequence)
        live.scheduled = op.new_tokens
        live.is_decoding = live.computed + live.scheduled == len(sequence)
        return Done((tuple(block + 1 for block in sequence.block_table[held:]),))

    def _admit(self, sequence: Any, start: int, op: ops.Allocate) -> bool:
        """The first allocation of a request, whose step begins at token `start`: blocks for all of its tokens.

        False if the scheduler would let the request wait.
        """
        manager = self._manager
        if not self._engine.chunks_prompts and start + op.new_tokens < len(sequence):
            return False  # a scheduler that computes prompts as a whole only
        if self._engine.registers_after_step:
            with self._cached(op.hit):
                cached = manager.can_allocate(sequence)
            if cached >= 0:
                manager.allocate(sequence, cached)
            return bool(cached >= 0)
        if not manager.can_allocate(sequence):
            return False
        with self._cached(op.hit):
            manager.allocate(sequence)
        return True

    @contextmanager
    def _cached(self, usable: bool) -> Iterator[None]:
        """Hides in the block what is cached, unless it may be used; what is registered meanwhile is kept."""
        before = self._manager.hash_to_block_id
        if not usable:
            self._manager.hash_to_block_id = {}
        try:
            yield
        finally:
            before.update(self._manager.hash_to_block_id)
            self._manager.hash_to_block_id = before

    def _advance(self, live: NanoRequest, sampled: tuple[int, ...]) -> Outcome:
        sequence = live.sequence
        if self._engine.registers_after_step:
            sequence.num_cached_tokens, sequence.num_scheduled_tokens = live.computed, live.scheduled
            self._manager.hash_blocks(sequence)
        live.computed, live.scheduled = live.computed + live.scheduled, 0
        if self._engine.chunks_prompts:  # before, whole blocks only could be said to be cached
            sequence.num_cached_tokens = live.computed
        for token in sampled:
            sequence.append_token(token)
        return Done(len(sequence) // self._size)

    def _tables(self) -> dict[str, list[int]]:
        """By request that holds blocks, their ids as blockproof counts them."""
        held = {name: live.sequence.block_table for name, live in self._live.items() if live.sequence.block_table}
        return {name: [block + 1 for block in table] for name, table in held.items()}

    def _look(self) -> Snapshot:
        manager = self._manager
        found = manager.hash_to_block_id
        hashes = [block.hash for block in manager.blocks]
        return Snapshot(
            free=[block + 1 for block in manager.free_block_ids],
            num_free=len(manager.free_block_ids),
            usage=0.0,
            ref_cnt=[0, *(block.ref_count for block in manager.blocks)],
            tables=[self._tables()],
            registered=[{}],
            labels=[None, *(None if value == -1 else self._labels(value) for value in hashes)],
            earliest=[None, *(found[value] + 1 if value in found else None for value in hashes)],
            num_identities=0,
            events=(),
            new_block_ids=[[]],
            stats=None,
        )


def _problem_with(shape: Shape) -> str:
    """Why nano-vllm has no core of this shape; empty if it has one."""
    if [group.kind for group in shape.groups] != ["full"]:
        return "there is one group of full attention"
    if shape.groups[0].block_size < 2:
        return "a block begins with a token that is not its last: it has two tokens or more"
    if shape.parallel > 1:
        return "a request's blocks lie on one rank"
    if shape.eagle or shape.groups[0].eagle:
        return "there are no draft models"
    if not shape.caching:
        return "the prefix cache cannot be switched off"
    return ""


def _hash(manager: Any, tokens: list[int], prefix: int) -> int:
    """The identity of a block behind this prefix, by the engine's own function."""
    own = getattr(manager, "compute_hash", None) or sys.modules[type(manager).__module__].compute_hash
    value: int = own(tokens, prefix)
    return value
