"""The target over LMDeploy's scheduler: calls it as its engine loop does without prefetching, one request at a time.

Each operation makes the calls that the engine makes at that point. A submitted request waits. A lookup is the tentative
match of an admission, rolled back as after an admission that finds no room. The first allocation of a request, and the
one after a decode for which there was no room, admits it as a prefill, matching again; how many tokens a step may have
is set through `max_prefill_token_num`, so that LMDeploy's own planner cuts the chunk. A further chunk reserves its
blocks, and a decode asks `schedule_running`.

A decode without room is preempted by LMDeploy itself: it waits again and keeps its blocks until an admission takes them
away. The operation is refused then. `Preempt` makes both calls, the preemption and the taking away.

An admission uses all that it finds, so an allocation that leaves its hit unused is refused.
"""

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ....model import ops
from ....model.ops import Done, Failed, Operation, Outcome, Refused, Shape
from ....model.snapshot import Snapshot
from ...findings.cause import failed
from ...targets.base import TargetLostError
from .engine import Core, LmdeployEngine
from .observe import LmdeployObserver

HIDES = frozenset(
    {
        "append_only",  # a block of a step may be one that is in the trie already, with the same content
        "free_order",  # free and evictable blocks have no order
        *("usage", "registered", "labels", "earliest", "num_identities", "events", "new_block_ids", "stats"),
    }
)
LACKS = frozenset(
    {
        *("Evict", "Reset", "Take", "Touch", "Release", "Arrive", "RemoveSkipped", "CommonPrefix"),
        *("TakeEvents", "TakeNewBlockIds", "TakeStats"),
        *("Submit.adapter_version", "Submit.salt", "Submit.items", "Submit.embeds", "Submit.skip_lookup"),
        *("Allocate.lookahead", "Allocate.external", "Allocate.encoder_tokens", "Allocate.gate", "Allocate.reserved"),
        *("Shape.eagle", "Shape.retention_interval", "Shape.decode_parallel", "Shape.prefill_parallel"),
        *("Shape.scheduler_block_size", "drafts", "hybrids"),
    }
)
MANY_TOKENS = 1 << 20
"""Limit of tokens that a request generates, or that a step has; more than any does."""


class LmdeployRequest:
    """What the engine loop knows of a request."""

    def __init__(self, sequence: Any) -> None:
        self.sequence = sequence
        self.scheduled = 0
        """Tokens of the running step."""
        self.ends = False
        """True if the running step, or the last one, reaches the last known token."""

    @property
    def status(self) -> str:
        """Name of the sequence's state in LMDeploy, such as `RUNNING`."""
        return str(self.sequence.status.name)


class LmdeployTarget:
    """A `Target` over an installed LMDeploy."""

    hides = HIDES
    lacks = LACKS
    loses = frozenset({"room-ahead"})

    def __init__(self, name: str, engine: LmdeployEngine) -> None:
        self.name = name
        self._engine = engine
        self._live: dict[str, LmdeployRequest] = {}

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """Build a new scheduler. Failed, without a snapshot, if LMDeploy has none for this shape."""
        self._live = {}
        try:
            self._core: Core = self._engine.build(shape)
        except Exception as error:
            return failed(error), None
        self._observer = LmdeployObserver(self._core, shape.num_blocks)
        self._caching = shape.caching
        return Done(), self._look()

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """Apply one operation and look at the state afterwards."""
        handler = _HANDLERS.get(type(operation))
        try:
            outcome = Failed("NotImplementedError") if handler is None else handler(self, operation)
        except Exception as error:
            outcome = failed(error)
        return outcome, self._look()

    def close(self) -> None:
        """Forget the scheduler."""
        self._live = {}
        self.__dict__.pop("_core", None)
        self.__dict__.pop("_observer", None)

    def _look(self) -> Snapshot:
        try:
            return self._observer.snapshot({name: live.sequence for name, live in self._live.items()})
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error} ({place.name}, line {place.lineno})"
            raise TargetLostError("protocol", f"the state can no longer be read: {what}") from error

    # Requests.

    def _submit(self, op: ops.Submit) -> Outcome:
        """A session with this one message (`LmdeployEngine._add_message`)."""
        parameters = self._engine.messages.SamplingParam(max_new_tokens=MANY_TOKENS)
        session = self._core.scheduler.add_session(op.request)
        sequence = session.add_sequence(list(op.prompt), sampling_param=parameters, adapter_name=op.adapter)
        self._live[op.request] = LmdeployRequest(sequence)
        return Done(len(op.prompt) // self._core.block_size if self._caching else 0)

    def _lookup(self, op: ops.Lookup) -> Outcome:
        tokens, blocks = self._match(self._live[op.request].sequence)
        return Done((tokens, (blocks,)))

    def _match(self, sequence: Any) -> tuple[int, tuple[int, ...]]:
        """Tokens and blocks of the prefix that an admission would find now."""
        with self._matched(sequence):
            return int(sequence.num_history_ids), tuple(self._observer.table(sequence))

    @contextmanager
    def _matched(self, sequence: Any) -> Iterator[None]:
        """The sequence as an admission has it after its match; afterwards everything is as before."""
        scheduler = self._core.scheduler
        match = self._engine.admission._TentativePrefixMatch(
            sequence, scheduler.block_trie, scheduler.block_manager, is_ssm=False, preserve_existing_state=True
        )
        if scheduler.block_trie.enabled:
            match.match()
        try:
            yield
        finally:
            match.rollback("only asked")

    def _allocate(self, op: ops.Allocate) -> Outcome:
        live = self._live[op.request]
        if op.new_tokens <= 0:
            return Failed("ValueError")
        if op.new_tokens > live.sequence.num_token_ids:
            return Refused()  # a step is over known tokens
        before = len(self._observer.table(live.sequence))
        admit = {"WAITING": self._admit, "RUNNING": self._go_on}[live.status]
        if not admit(live, op):
            return Refused()
        live.scheduled = op.new_tokens
        if not before and op.hit:
            before = int(live.sequence.num_history_ids) // self._core.block_size
        return Done((tuple(self._observer.table(live.sequence)[before:]),))

    def _admit(self, live: LmdeployRequest, op: ops.Allocate) -> bool:
        """Admit a waiting request (`Scheduler.schedule`) and dispatch its step. False if there is no room."""
        scheduler, sequence, policy = self._core.scheduler, live.sequence, self._engine.admission._PrefillTurnPolicy
        starts = not sequence.num_blocks
        if starts and not op.hit and self._match(sequence)[0]:
            return False  # LMDeploy always uses what it finds
        if not starts and not self._fits(sequence):
            return False
        scheduler.cache_config.max_prefill_token_num = op.new_tokens if starts else MANY_TOKENS
        admitted = scheduler._prefill_scheduler.schedule(
            waiting=[sequence],
            stopped=scheduler.hanging,
            num_ready=scheduler.num_ready(),
            num_running=scheduler.num_running(),
            turn_policy=policy.STANDARD,
            prealloc_size=self._core.preallocated,
        )
        scheduler.activate_seqs(admitted)
        live.ends = sequence.kv_token_limit is None
        return bool(admitted)

    def _go_on(self, live: LmdeployRequest, op: ops.Allocate) -> bool:
        """The next chunk of a prefill (`_ForwardInputsTask._reserve_chunk`), or a decode. False if there is no room."""
        scheduler, sequence = self._core.scheduler, live.sequence
        ahead = self._core.preallocated
        if live.ends:
            if self._takes_from_others(sequence, ahead):
                return False
            (fits,) = scheduler.schedule_running([sequence], num_required_tokens=1, prealloc_size=ahead)
            return bool(fits)
        ends = op.new_tokens >= sequence.num_token_ids
        fits = scheduler._prefill_scheduler.reserve_long_context_chunk(
            sequence,
            stopped=scheduler.hanging,
            waiting=[],
            chunk_size=op.new_tokens,
            prealloc_size=ahead if ends else 0,
            is_last_chunk=ends,
        )
        live.ends = ends and bool(fits)
        return bool(fits)

    def _fits(self, sequence: Any) -> bool:
        """True if a request that waits with blocks can be admitted now. An admission that fails would take its blocks
        away, which is left to `Preempt`."""
        with self._matched(sequence):
            required = self._core.scheduler.block_manager.num_required_blocks(sequence, self._core.preallocated)
            return bool(required <= self._observer.num_free())

    def _takes_from_others(self, sequence: Any, ahead: int) -> bool:
        """True if a decode would take the blocks of a request that waits, which LMDeploy does before it evicts."""
        manager = self._core.scheduler.block_manager
        if not manager.num_required_blocks(sequence, 1):
            return False
        others = [other for other in self._core.scheduler.waiting if other.num_blocks]
        return bool(others and manager.num_required_blocks(sequence, ahead) > manager.get_num_free_gpu_blocks())

    def _advance(self, op: ops.Advance) -> Outcome:
        """The step has run: a chunk moves on (`LongContextChunker.update_step`), or a token is appended."""
        live, modes = self._live[op.request], self._engine.messages.UpdateTokenMode
        sequence, mode = live.sequence, modes.DECODE if live.scheduled else modes.INPUTS
        if live.scheduled and not live.ends:
            sequence.set_step(sequence.num_history_ids + live.scheduled)
        for token in op.sampled:
            sequence.update_token_ids([token], mode=mode)
        live.scheduled = 0
        known = int(sequence.num_valid_ids)
        return Done(known // self._core.block_size if self._caching else 0)

    def _free(self, op: ops.Free) -> Outcome:
        """The request is finished if its last step has run; then, or if it is aborted, its session ends."""
        live = self._live.pop(op.request, None)
        if live is not None:
            if live.status == "RUNNING" and not live.scheduled:
                live.sequence.finish()
            self._core.scheduler.end_session(op.request)
        return Done()

    def _preempt(self, op: ops.Preempt) -> Outcome:
        """No room for its decode, and an admission that takes its blocks (`RecomputeEvictionHelper`)."""
        live, scheduler = self._live[op.request], self._core.scheduler
        if live.status == "RUNNING":
            scheduler.preempt_seqs([live.sequence])
        scheduler.eviction_helper._reclaim_candidate(live.sequence)
        live.scheduled, live.ends = 0, False
        return Done()

    # Calls that only read.

    def _read_table(self, op: ops.ReadTable) -> Outcome:
        live = self._live.get(op.request)
        return Done((tuple(self._observer.table(live.sequence)),) if live else ((),))

    def _step_start(self, op: ops.StepStart) -> Outcome:
        self._core.scheduler.tick()
        return Done()


_HANDLERS: Mapping[type[Operation], Callable[[LmdeployTarget, Any], Outcome]] = {
    ops.Submit: LmdeployTarget._submit,
    ops.Lookup: LmdeployTarget._lookup,
    ops.Allocate: LmdeployTarget._allocate,
    ops.Advance: LmdeployTarget._advance,
    ops.Free: LmdeployTarget._free,
    ops.Preempt: LmdeployTarget._preempt,
    ops.ReadTable: LmdeployTarget._read_table,
    ops.StepStart: LmdeployTarget._step_start,
}
