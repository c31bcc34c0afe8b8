"""The model and our core side by side: put into a state, moved by one operation, looked at.

Nothing is built anew for a state: one `Model` and one `KVCacheManager` are made for a scope, and the fields that a
state consists of are set. What a part of the state is already, by the look that was taken last, is left as it is; looks
are taken of every field that is set, so nothing that an operation changed can stay unnoticed. The operation itself is
carried out by the two sides' own methods.
"""

from typing import Any

from ...model import ops
from ...model.attention import NO_STEP, Step
from ...model.core import Model
from ...model.ops import Done, Operation, Refused
from ...model.state import Cleared, Key, Removed, Request
from .contents import Contents
from .core_look import CoreLook, CorruptStateError
from .core_side import REFUSED, Answer, CoreSide
from .packing import ARRIVING, LOOKED_UP, NOBODY, Focus, Look
from .properties import EventValue
from .scope import NAMES, Scope

_NOTHING: list[EventValue] = []


class ModelAndCore:
    """Model and core of one scope."""

    def __init__(self, scope: Scope) -> None:
        shape = scope.shape
        self.model = model = Model(shape)
        self.contents = Contents(scope, model)
        self.core = CoreSide(shape, self.contents)
        self.names = NAMES[: scope.requests]
        self.groups = range(len(shape.groups))
        self._identity: list[tuple[int, Key]] = []
        """As it was restored last: which content each block was registered as."""
        self._submits = {(name, prompt): ops.Submit(name, prompt) for name in self.names for prompt in scope.prompts}
        self._core_look = CoreLook(self.core, self.contents, self.names)

    # One operation.

    def step_model(self, op: Operation) -> Answer:
        """Carry an operation out on the model."""
        outcome = self.model.apply(op)
        if isinstance(outcome, Done):
            return ("done", outcome.value)
        return REFUSED if isinstance(outcome, Refused) else ("failed", outcome.error)

    def step_core(self, op: Operation) -> Answer:
        """Carry an operation out on our core."""
        return self.core.step(op)

    def events(self) -> tuple[list[EventValue], list[EventValue]]:
        """Drain the events of both sides, as plain data: contents by their numbers."""
        ours = self.model.state.events
        if not ours and not self.core.pool.kv_event_queue:
            return _NOTHING, _NOTHING
        prefix, other = self.contents.prefix_of_identity, self.contents.prefix_of_hash
        model: list[EventValue] = []
        for event in ours:
            if isinstance(event, Removed):
                model.append(("removed", event.group, prefix[event.identity]))
            elif isinstance(event, Cleared):
                model.append(("cleared",))
            else:
                stored = tuple([prefix[identity] for identity in event.identities])
                keys = None if event.keys is None else len(event.keys)
                model.append(
                    ("stored", event.group, stored, prefix[event.parent], event.tokens, event.block_size, keys)
                )
        core: list[EventValue] = []
        for event in self.core.manager.take_events():
            kind = type(event).__name__
            if kind == "BlockRemoved":
                core += [("removed", event.group_idx, other.get(digest, -1)) for digest in event.block_hashes]
            elif kind == "AllBlocksCleared":
                core.append(("cleared",))
            else:
                stored = tuple([other.get(digest, -1) for digest in event.block_hashes])
                parent = other.get(event.parent_block_hash, -1)
                keys = None if event.extra_keys is None else len(event.extra_keys)
                tokens = tuple(event.token_ids)
                core.append(("stored", event.group_idx, stored, parent, tokens, event.block_size, keys))
        ours.clear()
        return model, core

    def new_block_ids(self) -> tuple[list[list[int]], list[list[int]]]:
        """Drain the ids of newly handed out blocks of both sides, per group."""
        model, core = self.model.new_block_ids, self.core.new_block_ids()
        if any(model):
            self.model.new_block_ids = [[] for _ in model]
        return model, core

    # Putting both sides into a state.

    def restore(self, look: Look, focus: Focus, now: Look | None) -> None:
        """Put both sides into a state; `now` is what they show, None if that is not known."""
        if now is None or now.codes is not look.codes or now.tables is not look.tables:
            self._restore_pool(look, now)
            self._identity = [*self.model.state.identity.items()]
        if now is None or now.requests != look.requests:
            for slot, request in enumerate(look.requests):
                if now is None or now.requests[slot] != request:
                    self._restore_request(NAMES[slot], *request)
        self.core.set_horizons()
        if focus.phase == LOOKED_UP:
            name = NAMES[focus.slot]
            self.model.requests[name].hit = focus.hit_tokens, [list(row) for row in focus.hit]
            self.core.set_hit(name, focus.hit_tokens, focus.hit)

    def _restore_pool(self, look: Look, now: Look | None) -> None:
        """Everything but the requests."""
        model, state, core = self.model, self.model.state, self.core
        if now is None or now.codes != look.codes or now.duplicates != look.duplicates:
            self._restore_contents(look)
            core.set_contents(look)
        for group in self.groups:
            if now is None or now.tables[group] != look.tables[group]:
                state.tables[group] = {name: blocks[:] for name, blocks in look.tables[group].items()}
                core.set_tables(group, look.tables[group])
            if now is None or now.registered[group] != look.registered[group]:
                model.registered[group] = look.registered[group].copy()
                core.set_registered(group, look.registered[group])
        if now is None or now.queue != look.queue or now.counts != look.counts:
            state.let_go(look.queue)
            core.set_blocks(look)
        if self.core.mamba and (now is None or now.this_step != look.this_step):
            self._restore_step(look)

    def _restore_request(self, name: str, number: int, computed: int, scheduled: int) -> None:
        if not number:
            self.model.requests.pop(name, None)
        else:
            tokens, prompt = self.contents.sequences[number]
            arriving = scheduled == ARRIVING
            self.model.requests[name] = Request(
                self._submits[name, tokens[:prompt]],
                list(tokens),
                computed,
                0 if arriving else scheduled,
                arriving,
                chain=self.contents.chains[number][:],
                written=NO_STEP.then(Step(computed, computed), loaded=True) if arriving else NO_STEP,
            )
        self.core.set_request(name, number, computed, scheduled)

    def _restore_contents(self, look: Look) -> None:
        keys = self.contents.model_keys
        identity: dict[int, Any] = {block: keys[code] for block, code in enumerate(look.codes) if code}
        for duplicates in look.duplicates.values():
            for block in duplicates:
                identity[block] = identity.pop(block)  # to the end: the order of registration
        self.model.state.identity = identity

    def _restore_step(self, look: Look) -> None:
        keys = [self.contents.model_keys[code] for code in look.this_step]
        self.model.registered_this_step = {key for key in keys if key is not None}
        for group in self.core.mamba:
            self.core.set_step(group, look.this_step)

    # What can be seen.

    def look_model(self, before: Look | None = None) -> Look:
        """What the model shows. `before`: what was restored last; what follows from fields that are still the same is
        the very object from there. UnreadableError if the model shows content that nobody can have.
        """
        model, state, contents = self.model, self.model.state, self.contents
        counts = state.references()
        queue = state.queue(counts)
        if before is not None and queue == before.queue and state.tables == before.tables:
            counts, queue = before.counts, before.queue
        requests: list[tuple[int, int, int]] = []
        this_step: set[int] = set()
        try:
            if before is not None and [*state.identity.items()] == self._identity:
                codes, duplicates = before.codes, before.duplicates
            else:
                codes, duplicates = self._codes()
            for name in self.names:
                request = model.requests.get(name)
                if request is None:
                    requests.append(NOBODY)
                    continue
                number = contents.number[len(request.submit.prompt), tuple(request.tokens)]
                if request.chain != contents.chains[number]:
                    raise CorruptStateError(f"the model gives {name} the chain {request.chain}")
                requests.append((number, request.computed, ARRIVING if request.arriving else request.scheduled))
            if self.core.mamba:
                this_step = {contents.code_of_model_key[key] for key in model.registered_this_step}
        except KeyError as error:
            raise CorruptStateError(f"the model shows {error}") from None
        tables = [of_group if all(of_group.values()) else _filled(of_group) for of_group in state.tables]
        return Look(requests, tables, [*model.registered], queue, counts, codes, duplicates, this_step)

    def _codes(self) -> tuple[list[int], dict[int, list[int]]]:
        """Which content each block of the model is registered as, and which contents are registered more than once."""
        state, code_of = self.model.state, self.contents.code_of_model_key
        codes = [0] * state.num_blocks
        seen: dict[int, int] = {}
        duplicates: dict[int, list[int]] = {}
        for block, key in state.identity.items():
            codes[block] = code = code_of[key]
            if code in seen:
                duplicates.setdefault(code, [seen[code]]).append(block)
            else:
                seen[code] = block
        return codes, duplicates

    def core_shows(self, look: Look) -> bool:
        """True if our core shows exactly this."""
        return self._core_look.shows(look)

    def look_core(self) -> Look:
        """What our core shows. UnreadableError if its queue or its index contradict themselves."""
        return self._core_look.look()


def _filled(of_group: dict[str, list[int]]) -> dict[str, list[int]]:
    """Tables that have an entry."""
    return {name: table for name, table in of_group.items() if table}
