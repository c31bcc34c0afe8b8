"""The target over a core with vLLM's KV-cache API, in this process: calls our core or a release as its scheduler
would."""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import redirect_stdout
from functools import partial
from typing import Any

from ....model import ops
from ....model.features import inside
from ....model.ops import DONE, Operation, Outcome, Shape
from ....model.snapshot import Snapshot, new_ids_value
from ...findings.cause import failed
from ...findings.starved import Starved
from ...targets.refusing import Refusals
from ...targets.unsaid import UNSAID
from .binding import Binding
from .driver import VllmStyleDriver
from .event_names import EventNames
from .hits import cut, ids_per_group, read_besides
from .live_request import LiveRequest
from .observe import Observer, unreadable, unseen_in
from .pools import host_pool
from .public import PublicObserver, shows_parts, unseen_of

_REFUSED = ops.Refused()
_UNSAID = UNSAID["KVCacheManager.allocate_slots"]
"""A scheduler leaves these out for a request that runs already; for one that it admits it names every argument."""


class VllmStyleTarget:
    """The `Target` for a `Binding`. What the core prints at its construction goes to stderr."""

    def __init__(
        self,
        name: str,
        binding: Binding,
        *,
        hides: Collection[str] = (),
        lacks: Collection[str] = (),
        like: str = "",
        refuses: Collection[str] = (),
    ) -> None:
        """`hides` and `lacks`: what the core does not show and does not have besides what its release leaves out;
        `like`: the release whose known deviations it has (`targets.base.likeness`); `refuses`: calls that can be made
        to fail (`targets.refusing`), with which it offers `Starved`. ValueError for one that is not there."""
        self.name = name
        self.like = like
        self._hides = frozenset(hides)
        self.lacks = binding.release.lacks | frozenset(lacks)
        self.loses = binding.release.loses
        self.offers = binding.release.offers
        self.designs: frozenset[str] = frozenset()
        self.block_sizes: frozenset[int] = frozenset()
        """These five: see what `targets.base` has by these names, and `Release`."""
        self.hides = self._hides
        """See `targets.base.hidden_fields` and `Release.hides`; all of it is known once a core is built."""
        self.copies: tuple[tuple[int, int], ...] = ()
        self.handed: tuple[ops.Value, ...] = ()
        """See `targets.base.copies_of`, and `handed_of`."""
        self._binding = binding
        self._called = binding.release
        self._requests: dict[str, LiveRequest] = {}
        self._adapters: dict[str, int] = {}
        self._hashers: dict[tuple[Any, ...], Any] = {}
        self._refusals: Refusals | None = None
        self._reused: list[Any] = []
        """Blocks of which somebody who reads on is told in this operation."""
        self.declare(refuses=refuses)

    @property
    def version(self) -> str:
        """Version of the core."""
        return self._binding.version

    def declare(
        self,
        *,
        hides: Collection[str] = (),
        lacks: Collection[str] = (),
        designs: Collection[str] = (),
        block_sizes: Collection[int] = (),
        refuses: Collection[str] = (),
    ) -> None:
        """Say what else the core does not show, does not have and does by design, in tokens the only sizes of its
        blocks, and which calls can be made to fail. Errors as of the constructor."""
        self._hides |= frozenset(hides)
        self.hides |= self._hides
        self.lacks |= frozenset(lacks)
        self.designs |= frozenset(designs)
        self.block_sizes |= frozenset(block_sizes)
        if refuses:
            self._refusals = Refusals(refuses)
            self.offers |= {Starved.__name__}

    def driver(self) -> VllmStyleDriver:
        """See `targets.driver.driver_of`."""
        return VllmStyleDriver(self._binding)

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """Build a new core in place of the last one. Failed, without a snapshot, if it cannot be built."""
        self._requests = {}
        self._shape = shape
        self.copies = self.handed = ()
        self._around = self._binding.around(shape)
        try:
            with redirect_stdout(sys.stderr):
                with self._around:
                    self._manager = self._binding.manager(shape)
                self._hasher = self._hasher_of(shape) if shape.caching else None
        except Exception as error:
            return failed(error), None
        self._names = EventNames(shape.event_digests, self._hashes) if shape.events else None
        try:
            self._observer = self._observe(shape)
        except AttributeError as error:
            raise unreadable(error) from error
        return DONE, self.look()

    def _observe(self, shape: Shape) -> Observer | PublicObserver:
        """What reads the state of the new core: from the parts that vLLM's has, else by its methods."""
        manager = self._manager
        self._host = host_pool(manager, shape)
        if not shows_parts(manager):
            self.hides = self._hides | unseen_of(manager)
            return PublicObserver(manager, shape, self._requests)
        self._pool = manager.block_pool
        self.hides = self._hides | self._called.hides(manager) | unseen_in(self._pool)
        return Observer(manager, self._adapters, self.hides, self._names)

    def _hasher_of(self, shape: Shape) -> Any:
        """What computes the hashes of blocks; it knows nothing of a core, so those of one block size share it."""
        ahead, options = inside.drafts(shape) * (not shape.old_names), self._binding.hasher_options_of(shape)
        if (key := (shape.hash_block_size, ahead, *sorted(options.items()))) not in self._hashers:
            self._hashers[key] = self._binding.block_hasher(shape)
        return self._hashers[key]

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """Apply one operation and look at the state afterwards."""
        return self._apply(operation), self.look()

    def glance(
        self, operation: Operation, last: Snapshot, expected: Snapshot | None = None
    ) -> tuple[Outcome, Snapshot]:
        """Apply one operation and look at what it can have changed since `last` (`targets.glance`)."""
        outcome = self._apply(operation)
        try:
            return outcome, self._observer.glance(operation, last, expected)
        except Exception as error:
            raise unreadable(error) from error

    def answer(self, operation: Operation) -> Outcome:
        """Apply one operation and look at nothing."""
        return self._apply(operation)

    def close(self) -> None:
        """Forget the core."""
        self._requests = {}
        self.__dict__.pop("_manager", None)
        self.__dict__.pop("_pool", None)
        self.__dict__.pop("_observer", None)

    def look(self) -> Snapshot:
        """The present state. TargetLostError if it cannot be read any more."""
        try:
            return self._observer.snapshot()
        except Exception as error:
            raise unreadable(error) from error

    def _apply(self, operation: Operation, is_within: bool = False) -> Outcome:
        self.copies = self.handed = ()
        if self._host is not None and not is_within:
            live = self._requests.get(getattr(operation, "request", ""))
            called = partial(self._apply, is_within=True)
            outcome, self.handed = self._host.around(operation, live, self._statuses, called)
            return outcome
        try:
            if type(operation) not in self._around.operations:
                return _HANDLERS[type(operation)](self, operation)
            with self._around:
                return _HANDLERS[type(operation)](self, operation)
        except Exception as error:
            return failed(error)
        finally:
            if self._reused:
                self.handed += tuple([block.block_id for block in self._reused])
                self._reused.clear()

    def _live(self, name: str) -> LiveRequest:
        """The request of this name; for an unknown name a new one, which is not kept."""
        if (live := self._requests.get(name)) is None:
            live = LiveRequest(self._new_request(ops.Submit(name, (0,))), self._called.in_flight)
            self._named(live)
        return live

    @property
    def _statuses(self) -> Any:
        return self._binding.names("RequestStatus")

    def _new_request(self, op: ops.Submit) -> Any:
        return self._binding.request(
            op, self._hasher, lambda adapter: self._adapters.setdefault(adapter, len(self._adapters) + 1)
        )

    # Requests.

    def _submit(self, op: ops.Submit) -> Outcome:
        request = self._new_request(op)
        self._requests[op.request] = live = LiveRequest(request, self._called.in_flight)
        return self._named(live)

    def _lookup(self, op: ops.Lookup) -> Outcome:
        live, manager = self._live(op.request), self._manager
        ask = manager.get_computed_blocks_for_connector if op.for_connector else manager.get_computed_blocks
        found = ask(live.request) if op.limit is None else ask(live.request, op.limit)
        live.hit, live.hit_tokens = found[:2]
        if self._called.boundary:
            live.request.shared_prefix_boundary = found[2]
        self.handed = found[3:]
        return ops.Done((live.hit_tokens, ids_per_group(live.hit)))

    def _allocate(self, op: ops.Allocate) -> Outcome:
        live, release = self._live(op.request), self._called
        request = live.request
        hit, hit_tokens = (live.hit, live.hit_tokens) if op.hit else (None, 0)
        if (whole := self._shape.taken(op, hit_tokens)) < hit_tokens:
            hit, hit_tokens = cut(self._manager, hit, whole, by_manager=release.cuts_hits), whole
        start = {
            "num_new_computed_tokens": hit_tokens,
            "new_computed_blocks": hit,
            "num_external_computed_tokens": op.external,
            "num_encoder_tokens": op.encoder_tokens,
        }
        more: dict[str, object] = {"reserved_blocks": op.reserved} if release.reserved_blocks else {}
        if release.gate == "argument":
            more["full_sequence_must_fit"] = op.gate
        elif op.gate and not self._manager.can_fit_full_sequence(request, **start):
            return _REFUSED
        named = {"num_lookahead_tokens": op.lookahead, "delay_cache_blocks": op.delay, **start, **more}
        if "Allocate.in_flight" in release.offers:
            live.tell(op.in_flight)
        if not op.hit:
            named = {name: value for name, value in named.items() if value != _UNSAID[name]}
        if op.alone:
            named["has_scheduled_reqs"] = False
        if op.unzeroed:
            named["skip_zeroing_group_ids"] = op.unzeroed
        new = self._manager.allocate_slots(request, op.new_tokens, **named)
        if new is None:
            live.settle()  # what the operation has told of tokens in flight is over
            return _REFUSED
        if release.records_lookups and op.hit:
            self._manager.record_prefix_cache_stats(request, hit_tokens)
        request.num_computed_tokens += hit_tokens + op.external
        live.scheduled = op.new_tokens
        if release.watermark and not op.delay:
            request.status = self._statuses.RUNNING
        live.settle()
        self._end_scheduling()
        return ops.Done(new_ids_value(new.get_block_ids(allow_none=True), len(self._shape.groups)))

    def _starved(self, op: Starved) -> Outcome:
        assert self._refusals is not None  # else it is not offered
        with self._refusals.after(op.served):
            return self._apply(op.allocation)

    def _allocate_batch(self, op: ops.AllocateBatch) -> Outcome:
        asked = [self._live(name) for name in op.requests]
        for live in asked:
            live.tell(op.in_flight)
        given = self._manager.allocate_slots_batch([live.request for live in asked], op.new_tokens, op.lookahead)
        answers: list[ops.Value] = []
        for live, new in zip(asked, given, strict=True):
            live.settle()
            if new is not None:
                live.scheduled = op.new_tokens
                if self._binding.release.watermark:
                    live.request.status = self._statuses.RUNNING
            answers.append(new and new_ids_value(new.get_block_ids(allow_none=True), len(self._shape.groups)))
        self._end_scheduling()
        return ops.Done(tuple(answers))

    def _end_scheduling(self) -> None:
        """Drain what the scheduler drains at the end of a step; here every allocation is a step of its own."""
        if self._called.offers_boundary_states:
            offers = self._manager.take_boundary_state_offloads()
            self.handed = tuple([(name, *offer) for name, of_request in offers.items() for offer in of_request])
        if self._called.copies:
            copies, retained = self._manager.take_kv_cache_block_copies()
            self.copies = tuple([(copy.src_block_id, copy.dst_block_id) for copy in copies])
            if copies:
                self._pool.free_blocks(retained)

    def _advance(self, op: ops.Advance) -> Outcome:
        live = self._live(op.request)
        request = live.request
        request.num_computed_tokens += live.scheduled - op.rejected
        live.scheduled = 0
        if op.sampled:
            request.append_output_token_ids(list(op.sampled))
        live.settle()
        return self._named(live)

    def _hashes(self) -> Iterator[bytes]:
        """Those of the full blocks of all requests."""
        return (digest for live in self._requests.values() for digest in live.request.block_hashes)

    def _named(self, live: LiveRequest) -> Outcome:
        """How many full blocks of the request have a hash; the names in events are made of them."""
        hashes = live.request.block_hashes
        if self._names is not None and len(hashes) > live.named:
            self._names.add(hashes[live.named :])
            live.named = len(hashes)
        return ops.Done(len(hashes))

    def _reject(self, op: ops.Reject) -> Outcome:
        live = self._live(op.request)
        live.request.num_computed_tokens -= op.count
        live.settle()
        return DONE

    def _arrive(self, op: ops.Arrive) -> Outcome:
        request = self._live(op.request).request
        request.num_computed_tokens -= op.missing
        self._manager.cache_blocks(request, request.num_computed_tokens)
        if (
            op.missing
            and self._called.zeroes_again
            and request.num_computed_tokens % self._shape.least_scheduler_block_size == 0
        ):
            self._manager.record_blocks_for_zeroing(op.request, request.num_computed_tokens)
        if request.num_computed_tokens == request.num_tokens:
            request.num_computed_tokens -= 1
        self._live(op.request).settle()
        return DONE

    def _free(self, op: ops.Free) -> Outcome:
        if self._called.offers_last_state:
            request = self._live(op.request).request
            offers = self._manager.finalize_partial_tail_offloads(request)
            self.handed = tuple([(op.request, *offer) for offer in offers])
        request, kept = self._live(op.request).request, None
        if op.keep:
            blocks = self._manager.pop_blocks_for_free(request)
            kept = tuple([block.block_id for block in blocks if not block.is_null])
        else:
            self._manager.free(request)
        self._requests.pop(op.request, None)
        return DONE if kept is None else ops.Done(kept)

    def _preempt(self, op: ops.Preempt) -> Outcome:
        live = self._live(op.request)
        self._manager.free(live.request)
        live.request.num_computed_tokens = 0
        live.request.num_preemptions += 1
        if self._called.watermark:
            live.request.status = self._statuses.PREEMPTED
        live.scheduled = 0
        live.settle()
        return DONE

    def _remove_skipped(self, op: ops.RemoveSkipped) -> Outcome:
        live = self._requests.get(op.request)
        computed = prompt = 0
        if live:
            known = min(live.request.num_computed_tokens, live.request.num_tokens - 1)  # the rest may be taken back
            computed = live.settled if self._called.in_flight else known
            prompt = live.request.num_prompt_tokens
        more = {"num_prompt_tokens": prompt} if self._called.prompt_aware_skipping else {}
        self._manager.remove_skipped_blocks(op.request, computed, **more)
        return DONE

    # The prefix cache as a whole, and calls that only read.

    def _evict(self, op: ops.Evict) -> Outcome:
        self._manager.evict_blocks(set(op.blocks))
        return DONE

    def _reset(self, op: ops.Reset) -> Outcome:
        return ops.Done(bool(self._manager.reset_prefix_cache()))

    def _step_start(self, op: ops.StepStart) -> Outcome:
        self._manager.new_step_starts()
        return DONE

    def _common_prefix(self, op: ops.CommonPrefix) -> Outcome:
        return ops.Done(tuple(self._manager.get_num_common_prefix_blocks(op.request)))

    def _read_table(self, op: ops.ReadTable) -> Outcome:
        if self._called.zeroes_again and (live := self._requests.get(op.request)) is not None:
            self.handed = read_besides(self._manager, live.request)
        return ops.Done(tuple([tuple(ids) for ids in self._manager.get_block_ids(op.request)]))

    def _take_events(self, op: ops.TakeEvents) -> Outcome:
        return ops.Done(self._observer.event_values(self._manager.take_events()))

    def _take_new_block_ids(self, op: ops.TakeNewBlockIds) -> Outcome:
        return ops.Done(tuple(self._manager.take_new_block_ids()))

    def _take_stats(self, op: ops.TakeStats) -> Outcome:
        return ops.Done(self._observer.stats_values(self._manager.make_prefix_cache_stats()))

    # Holders outside the tables.

    def _take(self, op: ops.Take) -> Outcome:
        return ops.Done(tuple([block.block_id for block in self._pool.get_new_blocks(op.count)]))

    def _touch(self, op: ops.Touch) -> Outcome:
        self._pool.touch(self._blocks(op.blocks))
        return DONE

    def _release(self, op: ops.Release) -> Outcome:
        blocks = self._blocks(op.blocks)
        if op.watched:
            self._pool.unpin_blocks(blocks, self._reused.append)
        elif op.prepend:
            self._pool.free_blocks(blocks, prepend=True)
        else:
            self._pool.free_blocks(blocks)
        return DONE

    def _blocks(self, ids: tuple[int, ...]) -> list[Any]:
        return [self._pool.blocks[block] for block in ids]


_HANDLERS: Mapping[type[Operation], Callable[..., Outcome]] = {
    ops.Submit: VllmStyleTarget._submit,
    ops.Lookup: VllmStyleTarget._lookup,
    ops.Allocate: VllmStyleTarget._allocate,
    ops.AllocateBatch: VllmStyleTarget._allocate_batch,
    Starved: VllmStyleTarget._starved,
    ops.Advance: VllmStyleTarget._advance,
    ops.Reject: VllmStyleTarget._reject,
    ops.Arrive: VllmStyleTarget._arrive,
    ops.Free: VllmStyleTarget._free,
    ops.Preempt: VllmStyleTarget._preempt,
    ops.RemoveSkipped: VllmStyleTarget._remove_skipped,
    ops.CommonPrefix: VllmStyleTarget._common_prefix,
    ops.ReadTable: VllmStyleTarget._read_table,
    ops.Evict: VllmStyleTarget._evict,
    ops.Reset: VllmStyleTarget._reset,
    ops.StepStart: VllmStyleTarget._step_start,
    ops.TakeEvents: VllmStyleTarget._take_events,
    ops.TakeNewBlockIds: VllmStyleTarget._take_new_block_ids,
    ops.TakeStats: VllmStyleTarget._take_stats,
    ops.Take: VllmStyleTarget._take,
    ops.Touch: VllmStyleTarget._touch,
    ops.Release: VllmStyleTarget._release,
}
