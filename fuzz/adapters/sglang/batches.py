"""SGLang's scheduler without its server: its queue, its batches of several requests, and what each step does to them.

The parts are the release's own: `PrefillAdder` admits, `ScheduleBatch` allocates for a whole batch, evicts, moves
windows and retracts, the tree takes what is computed. Here are only the lines between them: who waits, which batch runs
next, when a request is finished. A request is taken in as the server takes it in: it is turned away if its prompt is as
long as the pool is, and may generate no more tokens than the pool has room for.

Nothing is computed. A listener is told what happens, in the order in which it does.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

from .engine import Cache, SglangEngine
from .releases import CacheCalls

SPARE = 5
"""Tokens by which the longest prompt that the server takes is shorter than the longest sequence."""
VOCABULARY = 1 << 20


@dataclass
class BatchJob:
    """A request, and the tokens that it will sample."""

    name: str
    prompt: Sequence[int]
    outputs: Sequence[int]
    salt: str | None = None


class Listener(Protocol):
    """Is told what the scheduler does. `request` is SGLang's object."""

    def matched(self, name: str, request: Any) -> None:
        """A waiting request has been matched with the tree."""

    def allocated(self, requests: Sequence[Any], starts: Sequence[int], ends: Sequence[int], hits: bool) -> None:
        """One call has allocated the positions from start to end of each of these requests; `hits` for a prefill, in
        which requests that held nothing begin behind what was matched."""

    def runs(self, requests: Sequence[Any], starts: Sequence[int], ends: Sequence[int], batch: Any) -> None:
        """The batch is computed now."""

    def ran(self, request: Any, sampled: tuple[int, ...]) -> None:
        """Its step has run."""

    def published(self, request: Any) -> None:
        """What it has computed was put into the tree."""

    def left(self, request: Any, *, preempted: bool) -> None:
        """It holds nothing any more: finished, or retracted."""

    def objects(self, what: str, request: Any) -> None:
        """Something that must not happen: `what` says what."""


class BatchScheduler:
    """Schedules on one cache."""

    def __init__(
        self, engine: SglangEngine, cache: Cache, listener: Listener, *, chunk: int, ratio: float, most: int
    ) -> None:
        """`chunk` tokens are prefilled in a step; `ratio` is the share of a request's possible output for which room is
        kept; at most `most` requests run at once."""
        self._engine, self._cache, self._listener = engine, cache, listener
        self._calls: CacheCalls = engine.calls
        self._chunk, self._ratio, self._most = chunk, ratio, most
        self._model = SimpleNamespace(is_encoder_decoder=False, vocab_size=VOCABULARY)
        self.waiting: list[Any] = []
        self.running: list[Any] = []
        """Requests that decode."""
        self._decoding: Any = None
        self._prefilled: Any = None
        """The prefill batch of the last step, whose requests decode from now on."""
        self._partial: Any = None
        """The request whose prompt is computed in part."""
        self._outputs: dict[str, list[int]] = {}

    # Requests.

    def add(self, job: BatchJob, longest: int) -> int | None:
        """Queue a request, as the server does with sequences of at most `longest` tokens. Returns how many tokens it
        may sample; None if it is turned away."""
        room, page = self._cache.full_pages * self._cache.page, self._cache.page
        most = min(longest, room) - 1
        if len(job.prompt) >= most - SPARE:
            return None
        paged = -(-len(job.prompt) // page) * page
        outputs = max(0, min(len(job.outputs), most - len(job.prompt) - 1, room - paged - page - 1))
        parameters = self._engine.sampling.SamplingParams(max_new_tokens=outputs)
        parameters.normalize(None)
        request = self._engine.batch.Req(
            job.name, "", array("q", job.prompt), parameters, vocab_size=VOCABULARY, cache_salt=job.salt
        )
        self._outputs[job.name] = list(job.outputs[:outputs])
        self.waiting.append(request)
        return outputs

    @property
    def idle(self) -> bool:
        """True if no request is left."""
        return not (self.waiting or self.running or self._partial is not None)

    # Steps.

    def step(self) -> bool:
        """One step. False if nothing could be scheduled although requests wait."""
        if self._partial is not None:
            self._publish(self._partial, chunked=True)
        self._join()
        batch = self._prefill()
        if batch is not None:
            self._run_prefill(batch)
            return True
        before = len(self.running)
        if self._decode():
            self._run_decode()
            return True
        return not self.waiting or len(self.running) < before

    def _join(self) -> None:
        """The requests whose prompts are computed decode from now on."""
        batch, self._prefilled = self._prefilled, None
        if batch is None:
            return
        keep = [i for i, request in enumerate(batch.reqs) if request in self.running]
        batch.filter_batch(keep_indices=keep)
        if not batch.reqs:
            return
        if self._decoding is None or not self._decoding.reqs:
            self._decoding = batch
        else:
            self._decoding.merge_batch(batch)

    def _prefill(self) -> Any:
        """A batch of waiting requests, admitted and allocated; None if there is none."""
        if self._partial is None and (not self.waiting or len(self.running) >= self._most):
            return None
        adder = self._new_adder()
        if self._partial is not None:
            self._partial.init_next_round_input()
            self._partial = adder.add_chunked_req(self._partial)
        self._admit(adder)
        chosen = adder.can_run_list
        if not chosen:
            return None
        self.waiting = [request for request in self.waiting if request not in chosen]
        if adder.new_chunked_req is not None:
            self._partial = adder.new_chunked_req
        batch = self._new_batch(chosen)
        starts = [self._calls.prefix(request) for request in chosen]
        batch.prepare_for_extend()
        self._listener.allocated(chosen, starts, [request.kv.kv_allocated_len for request in chosen], hits=True)
        return batch

    def _new_adder(self) -> Any:
        cache, chunk = self._cache, self._chunk
        return self._engine.policy.PrefillAdder(
            cache.page, cache.tree, cache.allocator, self._decoding, self._ratio, chunk, chunk
        )

    def _admit(self, adder: Any) -> None:
        """Admit waiting requests in their order, until one finds no room."""
        goes_on = self._engine.policy.AddReqResult.CONTINUE
        for request in self.waiting:
            if len(self.running) + len(adder.can_run_list) >= self._most:
                return
            request.init_next_round_input(self._cache.tree)
            self._listener.matched(request.rid, request)
            result = adder.add_one_req(request, has_chunked_req=self._partial is not None, truncation_align_size=None)
            if result != goes_on:
                if request not in adder.can_run_list:
                    self._forget_state(request)
                return

    def _forget_state(self, request: Any) -> None:
        """Give back the state that was taken for a request that is not admitted after all."""
        request.kv.mamba_cow_src_index, request.kv.mamba_needs_clear = None, False
        if request.kv.holds_mamba:
            self._cache.rows.mamba_allocator.free(request.kv.mamba_pool_idx.unsqueeze(-1))
            request.kv.mamba_pool_idx = None

    def _new_batch(self, requests: list[Any]) -> Any:
        cache = self._cache
        none = self._engine.speculative.SpeculativeAlgorithm.NONE
        return self._engine.batch.ScheduleBatch.init_new(
            requests, cache.rows, cache.allocator, cache.tree, self._model, False, none
        )

    def _run_prefill(self, batch: Any) -> None:
        starts = [self._calls.prefix(request) for request in batch.reqs]
        self._listener.runs(batch.reqs, starts, [request.kv.kv_allocated_len for request in batch.reqs], batch)
        for request in batch.reqs:
            if request is self._partial:
                self._listener.ran(request, ())
            elif self._sample(request):
                self.running.append(request)
                self._publish(request)
        self._prefilled = batch

    def _decode(self) -> bool:
        """Allocate a token for each running request, retracting some if there is no room. False if none is left."""
        batch = self._decoding
        if batch is None:
            return False
        batch.filter_batch(keep_indices=[i for i, request in enumerate(batch.reqs) if request in self.running])
        if not batch.reqs:
            return False
        if not batch.check_decode_mem():
            self._retract(batch)
        if not batch.reqs:
            return False
        starts = [request.kv.kv_committed_len for request in batch.reqs]
        batch.prepare_for_decode()
        self._listener.allocated(batch.reqs, starts, [start + 1 for start in starts], hits=False)
        return True

    def _retract(self, batch: Any) -> None:
        retracted, _, aborted = batch.retract_decode()
        for request in aborted:
            self.running.remove(request)
            self._listener.left(request, preempted=False)
            self._listener.objects("aborted: there is no room for it alone", request)
        for request in retracted:
            self.running.remove(request)
            self._listener.left(request, preempted=True)
            self.waiting.append(request)

    def _run_decode(self) -> None:
        requests = list(self._decoding.reqs)
        ends = [request.kv.kv_committed_len for request in requests]
        self._listener.runs(requests, [end - 1 for end in ends], ends, self._decoding)
        for request in requests:
            if not self._sample(request):
                self.running.remove(request)

    def _sample(self, request: Any) -> bool:
        """The request gets its next token. False if it is finished."""
        rest = self._outputs[request.rid]
        token = (rest.pop(0),) if rest else (0,)
        request.output_ids.extend(token)
        self._listener.ran(request, token)
        if rest:
            return True
        request.finished_reason = self._engine.batch.FINISH_LENGTH(length=request.seqlen)
        self._calls.release(request, self._cache.tree, publish=True)
        self._listener.left(request, preempted=False)
        return False

    def _publish(self, request: Any, *, chunked: bool = False) -> None:
        self._calls.publish(request, self._cache.tree, chunked=chunked)
        self._listener.published(request)
