"""The model and our core side by side: put into a state, moved by one operation, looked at.

Nothing is built anew for a state: one `Model` and one `KVCacheManager` are made for a scope, and the fields that a
state consists of are set. What a part of the state is already, by the look that was taken last, is left as it is; looks
are taken of every field that is set, so nothing that an operation changed can stay unnoticed. The operation itself is
carried out by the two sides' own methods.
"""

from collections import Counter
from collections import defaultdict
from typing import Any

from ...impl import Request as CoreRequest
from ...model import ops
from ...model.attention import CoreError, Mamba
from ...model.core import _METHODS, Model, Refusal
from ...model.ops import Operation
from ...model.requests import Request
from ...model.state import Cleared, Key, Removed
from .contents import Contents
from .core_look import CoreLook, UnreadableError
from .core_side import REFUSED, Answer, CoreSide, Live
from .packing import LOOKED_UP, Focus, Look
from .properties import EventValue
from .scope import NAMES, Scope

_NOBODY = (0, 0, 0)
_NOTHING: list[EventValue] = []


class Pair:
    """Model and core of one scope."""

    def __init__(self, scope: Scope) -> None:
        shape = scope.shape
        self.model = Model(shape)
        self.contents = Contents(scope, self.model.identities)
        self.core = CoreSide(shape, self.contents.hasher)
        self.names = NAMES[: scope.requests]
        self.groups = range(len(shape.groups))
        self.mamba = [group for group in self.groups if isinstance(self.model.rules[group], Mamba)]
        self._managers = self.core.manager.coordinator.single_type_managers
        self._pool = self.core.manager.block_pool
        self._places: list[int] = []
        self._identity: list[tuple[int, Key]] = []
        """As they were restored last: when each block was let go, and which content it was registered as."""
        self.reached: Counter[str] = Counter()
        """How often each interesting situation came up."""
        self._methods = {kind: getattr(self.model, name) for kind, name in _METHODS.items()}
        self._submits = {(name, prompt): ops.Submit(name, prompt) for name in self.names for prompt in scope.prompts}
        self._core_look = CoreLook(self.core, self.contents, self.names, self.mamba)
        self._spare = {name: CoreRequest(name, [0], block_hasher=self.contents.hasher) for name in self.names}

    # One operation.

    def step_model(self, op: Operation) -> Answer:
        """Carry an operation out on the model (as `Model.step`, without its snapshot)."""
        try:
            return ("done", self._methods[type(op)](op))
        except Refusal as refusal:
            self.reached[str(refusal)] += 1
            return REFUSED
        except CoreError as error:
            return ("failed", str(error))

    def step_core(self, op: Operation) -> Answer:
        """Carry an operation out on our core."""
        return self.core.step(op)

    def events(self) -> tuple[list[EventValue], list[EventValue]]:
        """Drain the events of both sides, as plain data: contents by their numbers."""
        ours = self.model.state.events
        if not ours and not self._pool.kv_event_queue:
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
        model = self.model.new_block_ids
        core = [manager.new_block_ids for manager in self._managers]
        if any(model) or any(core):
            self.model.new_block_ids = [[] for _ in model]
            for manager in self._managers:
                manager.new_block_ids = []
        return model, core

    # Putting both sides into a state.

    def restore(self, look: Look, focus: Focus, now: Look | None) -> None:
        """Put both sides into a state; `now` is what they show, None if that is not known."""
        if now is None or now.codes is not look.codes or now.tables is not look.tables:
            self._restore_pool(look, now)
            self._places = self.model.state._let_go_at[:]
            self._identity = [*self.model.state.identity.items()]
        if now is None or now.requests != look.requests:
            for slot, request in enumerate(look.requests):
                if now is None or now.requests[slot] != request:
                    self._restore_request(NAMES[slot], *request)
        if focus.phase == LOOKED_UP:
            name = NAMES[focus.slot]
            self.model.requests[name].hit = focus.hit_tokens, [list(row) for row in focus.hit]
            live, own = self.core.live[name], self._pool.blocks
            live.hit_tokens = focus.hit_tokens
            blocks = tuple([[own[block] for block in row] for row in focus.hit])
            live.hit = self.core.manager.create_kv_cache_blocks(blocks)

    def _restore_pool(self, look: Look, now: Look | None) -> None:
        """Everything but the requests."""
        model, state = self.model, self.model.state
        if now is None or now.codes != look.codes or now.duplicates != look.duplicates:
            self._restore_contents(look)
        if now is None or now.queue != look.queue or now.counts != look.counts:
            self._restore_blocks(look)
        own = self._pool.blocks
        for group, manager in enumerate(self._managers):
            table = look.tables[group]
            if now is None or state.tables[group] != table or len(manager.req_to_blocks) != len(table):
                state.tables[group] = {name: blocks[:] for name, blocks in table.items()}
                tables = {name: [own[block] for block in blocks] for name, blocks in table.items()}
                manager.req_to_blocks = defaultdict(list, tables)
            known = look.registered[group]
            if now is None or model.registered[group] != known:
                model.registered[group] = known.copy()
                manager.num_cached_block = known.copy()
        if self.mamba and (now is None or now.states != look.states or now.this_step != look.this_step):
            self._restore_states(look)

    def _restore_request(self, name: str, number: int, computed: int, scheduled: int) -> None:
        if not number:
            self.model.requests.pop(name, None)
            self.core.live.pop(name, None)
            return
        contents = self.contents
        tokens, prompt = contents.sequences[number]
        submit = self._submits[name, tokens[:prompt]]
        chain = contents.chains[number][:]
        self.model.requests[name] = Request(submit, list(tokens), computed, scheduled, chain=chain)
        request = self._spare[name]
        request._all_token_ids = list(tokens)
        request.num_prompt_tokens = prompt
        request.block_hashes = contents.hashes[number][:]
        request.num_computed_tokens = computed
        self.core.live[name] = live = Live(request)
        live.scheduled = scheduled

    def _restore_contents(self, look: Look) -> None:
        model_keys, core_keys, blocks = self.contents.model_keys, self.contents.core_keys, self._pool.blocks
        identity: dict[int, Any] = {}
        index: dict[Any, Any] = {}
        for block, code in enumerate(look.codes):
            own = blocks[block]
            own._block_hash = key = core_keys[code]
            if code:
                identity[block] = model_keys[code]
                index[key] = own
        for code, duplicates in look.duplicates.items():
            index[core_keys[code]] = {block: blocks[block] for block in duplicates}
            for block in duplicates:
                identity[block] = identity.pop(block)  # to the end: the order of registration
        self.model.state.identity = identity
        self._pool.cached_block_hash_to_block._cache = index

    def _restore_blocks(self, look: Look) -> None:
        state, blocks, free = self.model.state, self._pool.blocks, self._pool.free_block_queue
        for block, count in zip(blocks, look.counts, strict=True):
            block.ref_cnt = count
            if count:
                block.prev_free_block = block.next_free_block = None
        last = free.fake_free_list_head
        place = 0
        for number in look.queue:
            state._let_go_at[number] = place
            place += 1
            block = blocks[number]
            last.next_free_block = block
            block.prev_free_block = last
            last = block
        state._front, state._back = 0, place
        tail = free.fake_free_list_tail
        last.next_free_block = tail
        tail.prev_free_block = last
        free.num_free_blocks = place

    def _restore_states(self, look: Look) -> None:
        keys, core_keys = self.contents.model_keys, self.contents.core_keys
        started: dict[tuple[int, str], int | None] = {}
        this_step: set[Key] = set()
        for group in self.mamba:
            manager, states = self._managers[group], look.states[group]
            manager._allocated_block_reqs = set(states)
            manager.last_state_block_idx = {name: last for name, last in states.items() if last >= 0}
            for name, last in states.items():
                started[group, name] = None if last < 0 else last
            manager.cached_blocks_this_step = set()
        for code in look.this_step:
            key = keys[code]
            assert key is not None
            this_step.add(key)
            self._managers[key[0]].cached_blocks_this_step.add(core_keys[code])
        self.model.mamba_started = started
        self.model.registered_this_step = this_step

    # What can be seen.

    def look_model(self, before: Look | None = None) -> Look:
        """What the model shows. `before`: what was restored last; what follows from fields that are still the same is
        the very object from there. UnreadableError if the model shows content that nobody can have.
        """
        model, state, contents = self.model, self.model.state, self.contents
        if before is not None and state.tables == before.tables and state._let_go_at == self._places:
            counts, queue = before.counts, before.queue
        else:
            counts = state.references()
            queue = state.queue(counts)
        requests: list[tuple[int, int, int]] = []
        states: list[dict[str, int]] = [{} for _ in self.groups]
        this_step: set[int] = set()
        try:
            if before is not None and [*state.identity.items()] == self._identity:
                codes, duplicates = before.codes, before.duplicates
            else:
                codes, duplicates = self._codes()
            for name in self.names:
                request = model.requests.get(name)
                if request is None:
                    requests.append(_NOBODY)
                    continue
                number = contents.number[len(request.submit.prompt), tuple(request.tokens)]
                if request.chain != contents.chains[number]:
                    raise UnreadableError(f"the model gives {name} the chain {request.chain}")
                requests.append((number, request.computed, request.scheduled))
            if self.mamba:
                for (group, name), last in model.mamba_started.items():
                    states[group][name] = -1 if last is None else last
                this_step = {contents.code_of_model_key[key] for key in model.registered_this_step}
        except KeyError as error:
            raise UnreadableError(f"the model shows {error}") from None
        tables = [of_group if all(of_group.values()) else _filled(of_group) for of_group in state.tables]
        return Look(requests, tables, model.registered, queue, counts, codes, duplicates, states, this_step)

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
