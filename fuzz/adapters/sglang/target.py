"""The target over SGLang's cache: calls it as its scheduler does without overlap, in batches of one request.

Each operation makes the calls that the scheduler makes at that point. A lookup matches the prefix. An allocation asks
the budget (for prefills, or for the next decode), locks the matched node and allocates, evicting as much as necessary.
The pages of a prefill are published in the tree before the next step. A finished request publishes the rest of its
pages and releases its lock; a preempted one releases it without publishing. A step over known tokens is a prefill until
all of them are computed, then a decode; a step with tokens that are not known yet is a speculative decode, which
reserves whole pages.

The budget decides about refusals; it may have evicted pages before it refuses. If memory runs out although the budget
agreed, SGLang raises and its server ends: here the outcome is `Failed`.
"""

import contextlib
import io
import traceback
from array import array
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from ....model import ops
from ....model.arith import cdiv
from ....model.ops import Done, Failed, Operation, Outcome, Refused, Shape, Value
from ....model.snapshot import Snapshot
from ...findings.cause import cause_of, failed
from ...targets.base import TargetLostError
from .driver import MANY_TOKENS, SglangDriver
from .engine import Cache, SglangEngine
from .observe import SglangObserver
from .releases import page_lengths

HIDES = frozenset(
    {
        "append_only",  # a page may be replaced by one with the same content that is in the tree already
        "free_order",  # free and evictable pages have no order
        "usage",
        "ref_cnt",  # SGLang counts locks per node of the tree; the snapshot's counts are computed from the tables
        "registered",
        "labels",
        "earliest",
        "num_identities",
        "events",
        "new_block_ids",
        "stats",
    }
)
LACKS = frozenset(
    {
        *("Evict", "Take", "Touch", "Release", "Arrive", "RemoveSkipped", "CommonPrefix"),
        *("TakeEvents", "TakeNewBlockIds", "TakeStats"),
        *("Submit.items", "Submit.embeds"),
        *("Allocate.lookahead", "Allocate.external", "Allocate.delay", "Allocate.encoder_tokens", "Allocate.reserved"),
    }
)
LOSES = frozenset({"eagle-last-block", "skipped-on-optimistic-count", "room-ahead", "pools-apart"})


class SglangRequest:
    """What the scheduler knows of a request."""

    def __init__(self, request: Any) -> None:
        self.request = request
        self.scheduled = 0
        """Tokens of the running step."""
        self.is_unpublished = False
        """True if the last step was a prefill whose pages are not in the tree yet."""
        self.is_decoding = False
        """True once a prefill has reached the last known token."""

    @property
    def known(self) -> int:
        """Number of known tokens, prompt and output."""
        return int(self.request.seqlen)

    @property
    def computed(self) -> int:
        """Number of tokens computed before the running step."""
        return self._computed

    _computed = 0

    def restart(self) -> None:
        """The request starts again with nothing computed."""
        self._computed = self.scheduled = 0
        self.is_unpublished = self.is_decoding = False

    def ran(self, rejected: int) -> None:
        """The step has run, and `rejected` of its tokens were rejected drafts."""
        self._computed += self.scheduled - rejected
        self.scheduled = 0

    def begin(self, tokens: int, scheduled: int) -> None:
        """A step of `scheduled` tokens begins after `tokens` computed ones."""
        self._computed, self.scheduled = tokens, scheduled


class SglangTarget:
    """A `Target` over an installed SGLang."""

    hides = HIDES
    lacks = LACKS
    loses = LOSES

    def __init__(self, name: str, engine: SglangEngine) -> None:
        self.name = name
        self._engine = engine
        self._calls = engine.calls
        self._live: dict[str, SglangRequest] = {}

    def driver(self) -> SglangDriver:
        """See `targets.driver.driver_of`."""
        return SglangDriver(self._engine)

    def start(self, shape: Shape) -> tuple[Outcome, Snapshot | None]:
        """Build a new cache. Failed, without a snapshot, if SGLang has none for this shape."""
        self._live = {}
        try:
            self._cache: Cache = self._engine.build(shape)
        except Exception as error:
            return failed(error), None
        self._shape = shape
        self._observer = SglangObserver(self._cache, self._engine.calls, len(shape.groups), shape.num_blocks)
        return Done(), self._look()

    def step(self, operation: Operation) -> tuple[Outcome, Snapshot]:
        """Apply one operation and look at the state afterwards."""
        handler = _HANDLERS.get(type(operation))
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # SGLang prints its tree when it runs out of memory
                outcome = Failed("NotImplementedError") if handler is None else handler(self, operation)
        except Exception as error:
            outcome = failed(error)
            self.last_error = error
        return outcome, self._look()

    def close(self) -> None:
        """Forget the cache."""
        self._live = {}
        self.__dict__.pop("_cache", None)
        self.__dict__.pop("_observer", None)

    last_error: Exception | None = None
    """The exception behind the last `Failed`, for debugging."""

    def _look(self) -> Snapshot:
        try:
            return self._observer.snapshot({name: live.request for name, live in self._live.items()})
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error} ({place.name}, line {place.lineno})"
            raise TargetLostError("protocol", f"the state can no longer be read: {what}", cause_of(error)) from error

    # Requests.

    def _submit(self, op: ops.Submit) -> Outcome:
        parameters = self._engine.sampling.SamplingParams(max_new_tokens=MANY_TOKENS)
        adapter = (
            op.adapter and f"{op.adapter}@{op.adapter_version}"
        )  # each adapter that is loaded gets an id of its own
        request = self._engine.batch.Req(
            op.request, "", array("q", op.prompt), parameters, lora_id=adapter, cache_salt=op.salt
        )
        if op.skip_lookup:  # a request for the prompt's log probabilities computes all of it
            request.return_logprob, request.logprob_start_len = True, 0
        self._live[op.request] = SglangRequest(request)
        return Done(len(op.prompt) // self._cache.page if self._shape.caching else 0)

    def _lookup(self, op: ops.Lookup) -> Outcome:
        request = self._live[op.request].request
        request.init_next_round_input(self._cache.tree)
        return Done((self._calls.prefix(request), self._observer.prefix(request)))

    def _allocate(self, op: ops.Allocate) -> Outcome:
        live = self._live[op.request]
        if op.new_tokens <= 0:
            return Failed("ValueError")
        before = self._observer.table_lengths(live.request)
        accepted = self._first(live, op) if not live.request.kv.holds_kv else self._next(live, op)
        if not accepted:
            return Refused()
        tables = self._observer.tables(live.request)
        before = max(before, cdiv(0 if before else self._calls.prefix(live.request), self._cache.page))
        return Done(tuple(tuple(table[before:]) for table in tables))

    def _first(self, live: SglangRequest, op: ops.Allocate) -> bool:
        """The first step of a request that holds nothing."""
        request, tree = live.request, self._cache.tree
        if not op.hit:
            with self._engine.environ.envs.SGLANG_RADIX_FORCE_MISS.override(True):
                request.init_next_round_input(tree)
        calls, start = self._calls, self._calls.prefix(request)
        needed = live.known - start if op.gate else op.new_tokens
        lock = calls.lock(tree, request.last_node)  # what has been matched cannot be evicted to make room
        fits = calls.admits(self._cache, request, op.new_tokens, max(needed, op.new_tokens), live.known)
        calls.unlock(tree, request.last_node, lock)
        if not fits:
            return False
        calls.holds_lock(request, calls.lock(tree, request.last_node))
        self._prefill(live, start, op.new_tokens)
        return True

    def _next(self, live: SglangRequest, op: ops.Allocate) -> bool:
        """A further step of a request that holds memory."""
        start, new, kv = live.computed, op.new_tokens, live.request.kv
        settled = kv.kv_allocated_len == start
        if live.is_decoding and settled and new == 1 and start + 1 == live.known:
            return self._decode(live, start)
        if live.is_decoding or not settled:
            return self._speculate(live, start, new)
        if not self._calls.continues(self._cache, new):
            return False
        self._publish(live)
        self._calls.refresh(live.request)
        self._prefill(live, start, new)
        return True

    def _prefill(self, live: SglangRequest, start: int, new: int) -> None:
        """A step over known tokens; slots for drafts behind them are reserved as in a speculative step."""
        known = min(new, live.known - start)
        request, torch = live.request, self._engine.torch
        self._calls.extends(request, self._cache.rows, start, start + known)
        batch = self._batch(request, self._engine.modes.ForwardMode.EXTEND)
        batch.prefix_lens, batch.extend_lens, batch.extend_num_tokens = [start], [known], known
        batch.seq_lens = batch.seq_lens_cpu = torch.tensor([start + known], dtype=torch.int64)
        self._engine.allocation.alloc_for_extend(batch)
        request.extend_batch_idx += 1
        if new > known:
            self._reserve(request, batch, start + new - request.kv.kv_committed_len)
        live.begin(start, new)
        live.is_unpublished = True
        live.is_decoding = start + known == live.known

    def _decode(self, live: SglangRequest, start: int) -> bool:
        """A step of one token. False if there is no room."""
        batch = self._running(live.request, start)
        if not batch.check_decode_mem():
            return False
        self._publish(live)
        self._engine.allocation.alloc_for_decode(batch, token_per_req=1)
        live.request.decode_batch_idx += 1
        live.begin(start, 1)
        return True

    def _speculate(self, live: SglangRequest, start: int, new: int) -> bool:
        """A step with tokens that are not known yet, or in slots left over from such a step. False if there is no
        room."""
        request, tree = live.request, self._cache.tree
        batch = self._running(request, start)
        _, _, needed = page_lengths(self._engine.sizing, [request], new, self._cache.page)
        if needed and not self._cache.allocator.check_decode_capacity(num_tokens=needed, tree_cache=tree):
            return False
        self._publish(live)
        batch.maybe_evict_swa()
        self._reserve(request, batch, new)
        request.decode_batch_idx += 1
        live.begin(start, new)
        return True

    def _reserve(self, request: Any, batch: Any, new: int) -> None:
        """Reserve slots for `new` tokens behind the committed ones, in whole pages."""
        torch = self._engine.torch
        current, following, needed = page_lengths(self._engine.sizing, [request], new, self._cache.page)
        starts, ends = (torch.tensor(lengths, dtype=torch.int64) for lengths in (current, following))
        self._engine.allocation.alloc_for_spec_decode(
            self._cache.tree,
            self._cache.rows,
            reqs=[request],
            req_pool_indices=torch.tensor([request.kv.req_pool_idx], dtype=torch.int64),
            cur_kv_lens=starts,
            cur_kv_lens_cpu=starts,
            nxt_kv_lens=ends,
            nxt_kv_lens_cpu=ends,
            num_needed_tokens=needed,
            batch=batch,
        )

    def _running(self, request: Any, computed: int) -> Any:
        """A decode batch with this one request."""
        torch = self._engine.torch
        batch = self._batch(request, self._engine.modes.ForwardMode.DECODE)
        batch.seq_lens = batch.seq_lens_cpu = torch.tensor([computed], dtype=torch.int64)
        batch.req_pool_indices = torch.tensor([request.kv.req_pool_idx], dtype=torch.int64)
        batch.req_pool_indices_cpu = batch.req_pool_indices
        return batch

    def _batch(self, request: Any, mode: Any) -> Any:
        return self._engine.batch.ScheduleBatch(
            reqs=[request],
            req_to_token_pool=self._cache.rows,
            token_to_kv_pool_allocator=self._cache.allocator,
            tree_cache=self._cache.tree,
            model_config=SimpleNamespace(is_encoder_decoder=False),
            forward_mode=mode,
            device="cpu",
            spec_algorithm=self._engine.speculative.SpeculativeAlgorithm.NONE,
        )

    def _advance(self, op: ops.Advance) -> Outcome:
        live = self._live[op.request]
        ran = live.scheduled > 0
        live.ran(op.rejected)
        live.request.output_ids.extend(op.sampled)
        if ran:
            live.request.kv.kv_committed_len = live.computed
        return Done(live.known // self._cache.page if self._shape.caching else 0)

    def _publish(self, live: SglangRequest) -> None:
        """Put the pages of a finished prefill into the tree. Where the tree already has the same content, the row is
        changed to the tree's pages, and the request's own become free."""
        if live.is_unpublished and not live.scheduled:
            live.is_unpublished = False
            self._calls.publish(live.request, self._cache.tree)

    def _reject(self, op: ops.Reject) -> Outcome:
        live = self._live[op.request]
        live.begin(live.computed - op.count, live.scheduled)
        live.request.kv.kv_committed_len = live.computed
        return Done()

    def _free(self, op: ops.Free) -> Outcome:
        """The request is finished if its last step has run, and aborted if it is in the middle of a step."""
        live = self._live.pop(op.request, None)
        if live is not None and live.request.kv.holds_kv:
            live.request.finished_reason = self._engine.batch.FINISH_LENGTH(length=live.known)
            self._calls.release(live.request, self._cache.tree, publish=not live.scheduled)
        return Done()

    def _preempt(self, op: ops.Preempt) -> Outcome:
        live, cache = self._live[op.request], self._cache
        if live.request.kv.holds_kv:
            self._publish(live)
            self._engine.batch.release_req(
                req=live.request,
                remaing_req_count=0,
                req_to_token_pool=cache.rows,
                token_to_kv_pool_allocator=cache.allocator,
                tree_cache=cache.tree,
                hisparse_coordinator=None,
            )
        live.restart()
        return Done()

    # The pool, and calls that only read.

    def _reset(self, op: ops.Reset) -> Outcome:
        """Flush the cache. SGLang does so only while no request holds memory."""
        if any(live.request.kv.holds_kv for live in self._live.values()):
            return Done(False)
        for part in (self._cache.tree, self._cache.rows, self._cache.allocator):
            (part.reset if part is self._cache.tree else part.clear)()
        return Done(True)

    def _read_table(self, op: ops.ReadTable) -> Outcome:
        live = self._live.get(op.request)
        empty: Value = tuple(() for _ in self._shape.groups)
        if live is None or not live.request.kv.holds_kv:
            return Done(empty)
        return Done(tuple(map(tuple, self._observer.tables(live.request))))

    def _step_start(self, op: ops.StepStart) -> Outcome:
        return Done()


_HANDLERS: Mapping[type[Operation], Callable[[SglangTarget, Any], Outcome]] = {
    ops.Submit: SglangTarget._submit,
    ops.Lookup: SglangTarget._lookup,
    ops.Allocate: SglangTarget._allocate,
    ops.Advance: SglangTarget._advance,
    ops.Reject: SglangTarget._reject,
    ops.Free: SglangTarget._free,
    ops.Preempt: SglangTarget._preempt,
    ops.Reset: SglangTarget._reset,
    ops.ReadTable: SglangTarget._read_table,
    ops.StepStart: SglangTarget._step_start,
}
