"""The `Driver` for SGLang: the calls of its scheduler, in batches of one request, for timing.

There are prefills, hits, evictions and releases. A decode step is a call for a whole batch over tensors there, and
tables, hashes and events have other forms: what has no equivalent is NotImplementedError.
"""

from array import array
from collections.abc import Mapping, Sequence
from time import thread_time_ns
from types import SimpleNamespace
from typing import Any, NoReturn

from ....model.ops import NULL, Shape
from .engine import Cache, SglangEngine
from .observe import SglangObserver

MANY_TOKENS = 1 << 20
"""Limit of tokens that a request generates; more than any does."""


class SglangDriver:
    """An installed SGLang. Methods as in `targets.driver.Driver`."""

    clock = staticmethod(thread_time_ns)

    def __init__(self, engine: SglangEngine) -> None:
        self._engine = engine

    def build(self, shape: Shape) -> object:
        """See `Driver.build`."""
        if shape.events:
            _missing("events of the form that is timed")
        self._cache: Cache = self._engine.build(shape)
        self._observer = SglangObserver(self._cache, self._engine.calls, len(shape.groups), shape.num_blocks)
        return self._cache

    def request(self, name: str, prompt: list[int]) -> Any:
        """See `Driver.request`."""
        parameters = self._engine.sampling.SamplingParams(max_new_tokens=MANY_TOKENS)
        return self._engine.batch.Req(name, "", array("q", prompt), parameters)

    def lookup(self, request: Any) -> int:
        """See `Driver.lookup`."""
        request.init_next_round_input(self._cache.tree)
        return self._engine.calls.prefix(request)

    def admit(self, request: Any, hit: int, tokens: int) -> bool:
        """See `Driver.admit`: what has been matched is locked before the budget is asked."""
        calls, tree = self._engine.calls, self._cache.tree
        calls.holds_lock(request, calls.lock(tree, request.last_node))
        if not calls.admits(self._cache, request, tokens, tokens, hit + tokens):
            return False
        self._extend(request, hit, tokens)
        return True

    def report_hits(self, request: Any) -> None:
        """See `Driver.report_hits`."""
        raise NotImplementedError("it tells nobody of hits")

    def proceed(self, request: Any, tokens: int) -> bool:
        """See `Driver.proceed`."""
        calls, start = self._engine.calls, request.kv.kv_committed_len
        if not calls.continues(self._cache, tokens):
            return False
        calls.publish(request, self._cache.tree)
        calls.refresh(request)
        self._extend(request, start, tokens)
        return True

    def _extend(self, request: Any, start: int, tokens: int) -> None:
        torch, end = self._engine.torch, start + tokens
        self._engine.calls.extends(request, self._cache.rows, start, end)
        batch = self._engine.batch.ScheduleBatch(
            reqs=[request],
            req_to_token_pool=self._cache.rows,
            token_to_kv_pool_allocator=self._cache.allocator,
            tree_cache=self._cache.tree,
            model_config=SimpleNamespace(is_encoder_decoder=False),
            forward_mode=self._engine.modes.ForwardMode.EXTEND,
            device="cpu",
            spec_algorithm=self._engine.speculative.SpeculativeAlgorithm.NONE,
        )
        batch.prefix_lens, batch.extend_lens, batch.extend_num_tokens = [start], [tokens], tokens
        batch.seq_lens = batch.seq_lens_cpu = torch.tensor([end], dtype=torch.int64)
        self._engine.allocation.alloc_for_extend(batch)
        request.extend_batch_idx += 1

    def free(self, requests: Sequence[Any]) -> None:
        """See `Driver.free`: the pages of a request that has finished go into the tree."""
        ended, release, tree = self._engine.batch.FINISH_LENGTH, self._engine.calls.release, self._cache.tree
        for request in requests:
            request.finished_reason = ended(length=request.seqlen)
            release(request, tree, publish=True)

    def ran(self, requests: Sequence[Any], tokens: int) -> None:
        """See `Driver.ran`."""
        for request in requests:
            request.kv.kv_committed_len = request.kv.kv_allocated_len

    def reset(self) -> bool:
        """See `Driver.reset`."""
        self._cache.tree.reset()
        self._cache.rows.clear()
        self._cache.allocator.clear()
        return True

    def held(self, requests: Sequence[Any]) -> tuple[int, int]:
        """See `Driver.held`."""
        tables = [table for request in requests for table in self._observer.tables(request)]
        return sum(map(len, tables)), sum(page != NULL for table in tables for page in table)

    # What has no equivalent, or another form.

    def decode(self, requests: Sequence[Any]) -> Any:
        """Not there."""
        _missing("allocation for one request at a time in a decode step: it takes a batch")

    def tables(self, requests: Sequence[Any]) -> None:
        """Not there."""
        _missing("block ids to read: the row of a request lies in a tensor")

    def take_events(self) -> Any:
        """Not there."""
        _missing("events of the form that is timed")

    def append(self, requests: Sequence[Any], token: int) -> None:
        """Not there."""
        _missing("decode step that is timed")

    def preempt(self, request: Any) -> None:
        """Not there."""
        _missing("decode step that is timed")

    def removed(self, events: Any) -> int:
        """Not there."""
        _missing("events of the form that is timed")

    def fields(self, name: str, prompt: list[int], hash_name: str) -> Mapping[str, Any]:
        """Not there."""
        _missing("hashes of blocks when a request is made")

    def make(self, fields: Mapping[str, Any]) -> Any:
        """Not there."""
        _missing("hashes of blocks when a request is made")

    def digests(self, request: Any) -> list[str]:
        """Not there."""
        _missing("hashes of blocks when a request is made")


def _missing(what: str) -> NoReturn:
    raise NotImplementedError(f"it has no {what}")
