"""The rules of the state machine: one for each operation of a scheduler, with what must hold before it.

Arguments say what is wanted. What there is no room for is cut off, as a scheduler cuts a step down to its budget; what
is printed of a step is what the core was asked for.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, consumes, multiple, precondition, rule

from ...model import ops
from ...model.attention import RULES
from ..workload.bounds import (
    failures,
    keeps_states,
    most_rejected,
    new_tokens_for,
    sampled_by_step,
    sampled_late,
    without_rows,
)
from ..workload.operations import UNKNOWN_REQUEST
from ..workload.prompts import NO_ADAPTER
from .stateful_draws import batches, evictable, items_of, offered, prompts_of, touchable
from .stateful_phases import (
    MOST_OUTSIDE,
    ahead_of_news,
    arriving,
    awaiting_news,
    batchable,
    can,
    endable,
    fresh,
    has_cached,
    has_room,
    has_worked,
    holds_outside,
    is_idle,
    is_not_again,
    live,
    may_hold_outside,
    ready,
    scheduled,
    undecided,
    with_blocks,
)
from .stateful_run import Handle, MachineRun
from .stateful_strategies import ADAPTED, SALT_NAMES, TOKENS, of_machine

MOST_TOKENS = 64
"""Of a step: more than most requests have, so that whole prompts come often."""
EMBEDDED = st.sampled_from((0,) * 6 + (1, 2))
SELDOM = st.sampled_from((False,) * 7 + (True,))
FEW = st.integers(1, 8)
NEW_TOKENS = FEW | st.just(MOST_TOKENS)
DRAFTS = st.integers(0, 3)
LOOKAHEAD = st.sampled_from((0, 0, 1, 4))
RESERVED = st.sampled_from((0, 0, 0, 0, 1, 2, 4))
LIMIT = offered("Lookup.limit", st.none() | st.integers(0, MOST_TOKENS), None)
REPORTS = offered("Submit.reports_hits", SELDOM, False)
FOR_CONNECTOR = offered("Lookup.for_connector", st.booleans(), False)
SPARED = offered("Allocate.unzeroed", st.frozensets(st.integers(0, 2)).map(tuple), ())
ALONE, KEEP = offered("Allocate.alone", st.booleans(), False), offered("Free.keep", st.booleans(), False)
WATCHED = offered("Release.watched", st.booleans(), False)


class KVCacheMachine(MachineRun):
    """A scheduler that drives a KV-cache core. `stateful.kv_cache_machine` makes one for a target."""

    requests = Bundle("requests")

    # Requests come and go.

    @can()
    @precondition(has_room)
    @rule(target=requests, prompt=of_machine(prompts_of), skip_lookup=SELDOM, reports_hits=REPORTS)
    def submit(
        self, prompt: tuple[int, ...], skip_lookup: bool = False, reports_hits: bool = False
    ) -> Handle | MultipleResults[Handle]:
        """A request arrives."""
        submit = ops.Submit(self.next_name(), prompt, skip_lookup=skip_lookup, reports_hits=reports_hits)
        return self._submitted(submit)

    @can()
    @precondition(has_room)
    @rule(
        target=requests,
        prompt=of_machine(prompts_of),
        adapter=ADAPTED,
        salt=SALT_NAMES,
        items=of_machine(items_of),
        embedded=EMBEDDED,
    )
    def submit_with(
        self,
        prompt: tuple[int, ...],
        adapter: tuple[str | None, str] = NO_ADAPTER,
        salt: str | None = None,
        items: tuple[ops.Item, ...] = (),
        embedded: int = 0,
    ) -> Handle | MultipleResults[Handle]:
        """A request with an adapter (name and version), a cache salt, multimodal items or, where `embedded` is not 0, a
        row of embeddings at every `embedded`-th position instead of the token."""
        embeds = None
        if embedded:
            embeds = tuple(None if at % embedded else token for at, token in enumerate(prompt))
            items = ()
        name, version = adapter
        submit = ops.Submit(
            self.next_name(),
            without_rows(prompt, embeds),
            adapter=name,
            adapter_version=version,
            salt=salt,
            items=tuple(item for item in items if item.offset + item.length <= len(prompt)),
            embeds=embeds,
        )
        return self._submitted(submit)

    def _submitted(self, submit: ops.Submit) -> Handle | MultipleResults[Handle]:
        self.ask(submit)
        return self.admitted(submit.request) or multiple()

    @can(to=endable)
    @rule(request=consumes(requests.filter(endable)), keep=KEEP)
    def free(self, request: Handle, keep: bool = False) -> None:
        """It has finished, or is aborted."""
        self.ask(ops.Free(request.name, keep=keep))

    @can()
    @precondition(is_idle)
    @precondition(is_not_again(ops.Free))
    @rule()
    def free_unknown(self) -> None:
        """A request that nobody knows is freed: nothing happens."""
        self.ask(ops.Free(UNKNOWN_REQUEST))

    @can("Preempt", to=with_blocks)
    @rule(request=requests.filter(with_blocks))
    def preempt(self, request: Handle) -> None:
        """It gives its blocks back and starts again."""
        self.ask(ops.Preempt(request.name))

    # A step: room is allocated, it runs, and its tokens become known.

    @can("Lookup", to=fresh)
    @rule(request=requests.filter(fresh))
    def lookup(self, request: Handle) -> None:
        """Ask for the longest cached prefix."""
        self.ask(ops.Lookup(request.name))

    @can(to=ready)
    @rule(
        request=requests.filter(ready),
        new_tokens=NEW_TOKENS,
        drafts=DRAFTS,
        lookahead=LOOKAHEAD,
        gate=SELDOM,
        reserved=RESERVED,
        encoder_tokens=FEW,
    )
    def allocate(
        self,
        request: Handle,
        new_tokens: int,
        drafts: int = 0,
        lookahead: int = 0,
        gate: bool = False,
        reserved: int = 0,
        encoder_tokens: int = 0,
    ) -> None:
        """Room for the next tokens, all that are known or a part, and for drafts behind them. Nothing is looked up."""
        self._allocate(
            request,
            new_tokens,
            drafts,
            lookahead=lookahead,
            gate=gate,
            reserved=reserved,
            encoder_tokens=encoder_tokens,
        )

    @can("Lookup", "Allocate.hit", to=fresh)
    @rule(
        request=requests.filter(fresh),
        new_tokens=NEW_TOKENS,
        drafts=DRAFTS,
        lookahead=LOOKAHEAD,
        gate=SELDOM,
        limit=LIMIT,
        alone=ALONE,
    )
    def allocate_hit(
        self,
        request: Handle,
        new_tokens: int,
        drafts: int = 0,
        lookahead: int = 0,
        gate: bool = False,
        limit: int | None = None,
        alone: bool = False,
    ) -> None:
        """Look up the cache, then allocate room behind what was hit: how a scheduler admits a request."""
        known = request.request
        most = None if limit is None or known is None else min(limit, len(known.tokens) - 1)
        if self.ask(ops.Lookup(request.name, limit=most)):
            alone = alone and self.run.shape.watermark > 0
            self._allocate(request, new_tokens, drafts, hit=True, lookahead=lookahead, gate=gate, alone=alone)

    @can("Allocate.external", to=fresh)
    @rule(
        request=requests.filter(fresh),
        external=FEW,
        new_tokens=NEW_TOKENS,
        hit=st.booleans(),
        delay=st.booleans(),
        for_connector=FOR_CONNECTOR,
        unzeroed=SPARED,
    )
    def allocate_external(
        self,
        request: Handle,
        external: int,
        new_tokens: int,
        hit: bool = False,
        delay: bool = False,
        for_connector: bool = False,
        unzeroed: tuple[int, ...] = (),
    ) -> None:
        """Admit a request of which a connector brings some tokens; with `delay` it brings them later."""
        hit = hit and self.has("Lookup", "Allocate.hit")
        spared = tuple(sorted(group for group in unzeroed if delay and group < len(self.run.shape.groups)))
        if not hit or self.ask(ops.Lookup(request.name, for_connector=for_connector)):
            self._allocate(request, new_tokens, 0, hit=hit, external=external, delay=delay, unzeroed=spared)

    def _allocate(self, handle: Handle, new_tokens: int, drafts: int, **options: Any) -> None:
        """Ask for a step. Its options are fields of `Allocate`, cut down to what may be asked for."""
        request, shape = handle.request, self.run.shape
        assert request is not None
        hit = options.get("hit", False) and request.hit is not None and self.scene.just_looked_up == handle.name
        start = request.computed + (request.hit[0] if hit and request.hit else 0)
        delays = self.has("Allocate.delay")
        missing = len(request.tokens) - start - (not delays)  # a step without new tokens is one that waits
        missing -= delays and keeps_states(shape)  # a state is of no use if its last token is computed again
        external = max(0, min(options.get("external", 0), missing))
        if external and hit and request.hit:  # behind whole blocks of it only
            tail = request.hit[0] % shape.least_scheduler_block_size
            start, external = start - tail, external + tail
        if hit and request.lags and not external:
            return  # nobody brings the states
        drafts = drafts if self.has("drafts") else 0
        new = new_tokens_for(request, start + external, new_tokens, drafts, shape)
        delay = external > 0 and delays and (not new or options.get("delay", False))
        if not any(RULES[group.kind].by_encoder for group in shape.groups) or not fresh(handle):
            options.pop("encoder_tokens", 0)
        if new or delay:
            options |= {"hit": hit, "external": external, "delay": delay}
            self.ask(ops.Allocate(handle.name, 0 if delay else new, **options))

    @can(to=ready)
    @rule(
        request=requests.filter(ready),
        new_tokens=NEW_TOKENS,
        drafts=DRAFTS,
        lookahead=LOOKAHEAD,
        rejected=DRAFTS,
        late=st.booleans(),
        token=TOKENS,
    )
    def step(
        self,
        request: Handle,
        new_tokens: int,
        drafts: int = 0,
        lookahead: int = 0,
        rejected: int = 0,
        late: bool = False,
        token: int = 0,
    ) -> None:
        """A whole step of one request: the cache is looked up if it is new, room is allocated, and the step has run.

        `late`: which drafts are rejected will be known later (asynchronous scheduling), before the next such step.
        """
        if undecided(request) and rejected and self.has("Reject"):
            self._reject(request, rejected)
        hit = fresh(request) and self.has("Lookup", "Allocate.hit")
        if not hit or self.ask(ops.Lookup(request.name)):
            self._allocate(request, new_tokens, drafts, hit=hit, lookahead=lookahead)
        if self.is_over or not scheduled(request):
            return
        if late and ahead_of_news(request) and self.has("Reject"):
            self.ask(ops.Advance(request.name))
        else:
            self._advance(request, rejected, token)

    @can("AllocateBatch", to=batchable)
    @rule(requests=of_machine(batches), new_tokens=FEW, lookahead=LOOKAHEAD)
    def allocate_batch(self, requests: tuple[str, ...], new_tokens: int, lookahead: int = 0) -> None:
        """Room for the next step of several running requests in one call; those that cannot take as many tokens are
        left out. Whoever is given room runs its step by itself."""
        drafts = new_tokens - 1 if self.has("drafts") else 0
        wanted = {name: self._new_tokens_in_batch(name, new_tokens, drafts) for name in requests}
        least = min(wanted.values(), default=0)
        names = tuple(name for name, most in wanted.items() if most == least)
        if least > 0:
            self.ask(ops.AllocateBatch(names, least, lookahead))

    def _new_tokens_in_batch(self, name: str, new_tokens: int, drafts: int) -> int:
        request = self.scene.requests[name]
        return new_tokens_for(request, request.computed, new_tokens, drafts, self.run.shape)

    @can("Arrive", to=arriving)
    @rule(request=requests.filter(arriving), missing=DRAFTS)
    def arrive(self, request: Handle, missing: int = 0) -> None:
        """The tokens that a connector loads have arrived; of those that may fail, about so many from the end have."""
        waits = request.request
        assert waits is not None
        may_fail = failures(self.scene, waits, 1) if missing and self.has("Arrive.missing") else []
        self.ask(ops.Arrive(request.name, max((count for count in may_fail if count <= missing), default=0)))

    @can(to=scheduled)
    @rule(request=requests.filter(scheduled), rejected=DRAFTS, token=TOKENS)
    def advance(self, request: Handle, rejected: int = 0, token: int = 0) -> None:
        """The step has run. Drafts are rejected from the end; what is sampled are so many times `token`."""
        self._advance(request, rejected, token)

    def _advance(self, handle: Handle, rejected: int, token: int) -> None:
        request = handle.request
        assert request is not None
        refused = min(rejected, most_rejected(request))
        sampled = sampled_by_step(request, refused, self.run.shape.max_model_len)
        self.ask(ops.Advance(handle.name, (token,) * sampled, refused))

    @can("Reject", to=ahead_of_news)
    @rule(request=requests.filter(ahead_of_news))
    def advance_without_news(self, request: Handle) -> None:
        """The step has run, but what was sampled will be known later (asynchronous scheduling)."""
        self.ask(ops.Advance(request.name))

    @can(to=awaiting_news)
    @rule(request=requests.filter(awaiting_news), token=TOKENS)
    def news(self, request: Handle, token: int = 0) -> None:
        """Tokens that were sampled before become known."""
        known = request.request
        assert known is not None
        self.ask(ops.Advance(request.name, (token,) * sampled_late(known, self.run.shape.max_model_len)))

    @can("Reject", to=undecided)
    @rule(request=requests.filter(undecided), count=st.integers(1, 3))
    def reject(self, request: Handle, count: int) -> None:
        """Drafts that count as computed are rejected."""
        self._reject(request, count)

    def _reject(self, handle: Handle, count: int) -> None:
        request = handle.request
        assert request is not None
        self.ask(ops.Reject(handle.name, min(count, request.drafts)))

    @can("RemoveSkipped", to=with_blocks)
    @rule(request=requests.filter(with_blocks))
    def remove_skipped(self, request: Handle) -> None:
        """Blocks that no token attends to any more are given up."""
        self.ask(ops.RemoveSkipped(request.name))

    # The pool.

    @can("Evict")
    @precondition(has_cached)
    @rule(blocks=of_machine(evictable))
    def evict(self, blocks: tuple[int, ...]) -> None:
        """Forget what these blocks hold."""
        self.ask(ops.Evict(blocks))

    @can("Reset")
    @precondition(has_cached)
    @rule()
    def reset(self) -> None:
        """Forget what all blocks hold."""
        self.ask(ops.Reset())

    @can("StepStart")
    @precondition(is_not_again(ops.StepStart))
    @rule()
    def step_start(self) -> None:
        """A step of the scheduler begins."""
        self.ask(ops.StepStart())

    @can("Take")
    @precondition(may_hold_outside)
    @rule(count=st.integers(0, 3))
    def take(self, count: int) -> None:
        """An outside holder takes blocks."""
        self.ask(ops.Take(count))

    @can("Touch")
    @precondition(may_hold_outside)
    @rule(blocks=of_machine(touchable))
    def touch(self, blocks: tuple[int, ...]) -> None:
        """An outside holder holds these blocks, too."""
        self.ask(ops.Touch(blocks))

    @can("Release")
    @precondition(holds_outside)
    @rule(count=st.integers(1, MOST_OUTSIDE), prepend=st.booleans(), watched=WATCHED)
    def release(self, count: int, prepend: bool = False, watched: bool = False) -> None:
        """An outside holder gives back so many blocks, those it took first."""
        blocks = tuple(dict.fromkeys(self.scene.state.outside))[:count]
        self.ask(ops.Release(blocks, prepend=prepend and not watched, watched=watched))

    # Calls that read, or drain.

    @can("CommonPrefix", to=with_blocks)
    @rule(request=requests.filter(with_blocks))
    def common_prefix(self, request: Handle) -> None:
        """How many leading blocks all running requests share."""
        self.ask(ops.CommonPrefix(request.name))

    @can("ReadTable", to=live)
    @rule(request=requests.filter(live))
    def read_table(self, request: Handle) -> None:
        """The block ids of a request."""
        self.ask(ops.ReadTable(request.name))

    @can("TakeEvents")
    @precondition(has_worked)
    @rule()
    def take_events(self) -> None:
        """Drain the events."""
        self.ask(ops.TakeEvents())

    @can("TakeNewBlockIds")
    @precondition(has_worked)
    @rule()
    def take_new_block_ids(self) -> None:
        """Drain the ids of new blocks."""
        self.ask(ops.TakeNewBlockIds())

    @can("TakeStats")
    @precondition(has_worked)
    @rule()
    def take_stats(self) -> None:
        """Drain the statistics."""
        self.ask(ops.TakeStats())

    @precondition(lambda self: self.is_over)
    @rule()
    def nothing(self) -> None:
        """A known deviation of the target has left its state undefined: no step means anything any more."""
