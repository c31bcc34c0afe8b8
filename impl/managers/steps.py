"""What a step of a running request costs: nothing up to its horizon, and behind it only what is due.

A request needs a block, gives one back or registers one only at some of its tokens. Up to the next of these, its
*horizon*, `allocate_slots` compares two numbers; such a step is then ten times as fast. Behind the horizon
each group looks at what is due there. Lockstep compares both ways with the model after every operation.
"""

from collections.abc import Callable, Sequence
from sys import maxsize
from typing import TypeAlias

from ..hashing.extra_keys import CacheableRequest
from ..pool.block import KVCacheBlock
from ..pool.block_pool import BlockPool
from .base import SingleTypeKVCacheManager
from .lane import Lane

_BEFORE_ALL = -1
"""A horizon that no step ends before."""

Rows: TypeAlias = tuple[list[KVCacheBlock], ...]
"""For each group a list of blocks."""
KnownHit: TypeAlias = tuple[int, tuple[Sequence[KVCacheBlock], ...] | None]
"""Tokens that a lookup has found, and by group their blocks."""


class RunningSteps:
    """The steps of running requests over all groups. Empty for managers of somebody else: these may do anything.

    `horizons` holds for a running request the number of tokens up to which a step that ends there changes nothing. It
    may be less than it could be, and never is more. Where states move, such a step has no fewer tokens than `firsts`
    says.
    """

    def __init__(
        self,
        managers: Sequence[SingleTypeKVCacheManager],
        pool: BlockPool,
        max_model_len: int,
        registers: tuple[int | None, bool],
        cache_blocks: Callable[[CacheableRequest, int], None],
    ) -> None:
        """`registers`: at multiples of how many tokens, None for each group's own; whether every block, silently.

        `cache_blocks` is what the coordinator does to register blocks.
        """
        step, every_block = registers
        self.horizons: dict[str, int] = {}
        self.firsts: dict[str, int] = {}
        self.due: dict[str, int] = {}
        """Requests whose horizon is not known, with how many of their tokens were settled."""
        self._managers, self._pool, self._max_model_len, self._cache_blocks = (
            managers,
            pool,
            max_model_len,
            cache_blocks,
        )
        self.lanes = [
            Lane(manager, step or manager.block_size, every_block)
            for manager in managers
            if not manager.sized_by_encoder
        ]
        self._least_size = min([lane.size for lane in self.lanes], default=1)
        self._most_extra = max([lane.extra for lane in self.lanes], default=0) + 1
        self._widest = max([lane.size for lane in self.lanes], default=1)
        self._skipping = [lane for lane in self.lanes if lane.may_skip]
        self._moving = [lane for lane in self.lanes if lane.moves]
        self.known = all(manager.is_ours for manager in managers)
        """Whether horizons are looked for at all: without them every step goes the long way."""
        self.begins = 0 < len(self.lanes) == len(managers) and all(lane.begins for lane in self.lanes)
        """Whether `begin` may be asked."""
        self._alone = self.lanes[0] if self.begins and len(self.lanes) == 1 and not self.lanes[0].may_skip else None
        self._all_single = all(lane.single for lane in self.lanes)

    def forget(self, request_id: str) -> None:
        """From now on anything may happen to this request."""
        self.horizons.pop(request_id, None)
        self.due.pop(request_id, None)
        for lane in self._skipping:
            lane.skips.pop(request_id, None)
        if self._moving:
            self.firsts.pop(request_id, None)
            for lane in self._moving:
                lane.firsts.pop(request_id, None)

    def note(self, request_id: str, num_settled_tokens: int) -> None:
        """A request has just been given what it needs. Its horizon is found when a step could use it: many a request
        that was given room takes none of the short way."""
        if self.known:
            self.horizons.pop(request_id, None)
            self.due[request_id] = num_settled_tokens

    def look(self, request_id: str, num_new_tokens: int) -> int:
        """The horizon of a request for which it is due. A step of so many tokens that it needs a block is behind every
        one: it is told one before all steps, which costs less to find. Where states move, one of more than a block is
        told none, 0, and stays due: all that it changes would have to be looked at twice."""
        if num_new_tokens > self._widest and self._moving:
            return 0
        num_settled_tokens = self.due.pop(request_id)
        for lane in self._skipping:
            lane.look_ahead(request_id, num_settled_tokens)
        if num_new_tokens >= self._widest and not self._moving:
            self.horizons[request_id] = _BEFORE_ALL
            return _BEFORE_ALL
        first, horizon = 1, self._max_model_len
        for lane in self.lanes:
            if lane.moves:
                lane.find_place(request_id)
            if self._moving:
                quiet = lane.manager.quiet_tokens(request_id, num_settled_tokens)
                first, last = max(first, quiet.start), quiet.stop - 1
            else:
                room = (len(lane.tables[request_id]) - lane.extra) * lane.size
                last = min(room, lane.skips.get(request_id, maxsize))
            horizon = min(horizon, last, lane.registers_at(request_id) - 1)
        self.horizons[request_id] = horizon
        if self._moving:
            self.firsts[request_id] = first
        return horizon

    def begin(
        self,
        request: CacheableRequest,
        hit: KnownHit,
        num_new_tokens: int,
        num_lookahead_tokens: int,
        room: int,
        whole: bool,
        register: bool,
    ) -> Rows | None:
        """The first step of a request, behind this hit, if no more than `room` blocks may be taken. Returns the blocks
        of each group, none at all if there is no room; None, with nothing changed, where the long way has to say.

        `whole`: there must be room for all tokens that the request has. What is certain to be computed is registered,
        if it is to.
        """
        lane = self._alone
        if lane is None:
            return self._begin_each(request, hit, num_new_tokens, num_lookahead_tokens, room, whole, register)
        request_id, size, (computed, blocks) = request.request_id, lane.size, hit
        found = blocks[0] if blocks else ()
        held = len(found)
        if request_id in lane.tables or request.num_computed_tokens or held * size != computed:
            return None
        tokens, cached = computed + num_new_tokens, request.num_tokens
        slots, most = tokens + num_lookahead_tokens, self._max_model_len
        slots = slots if slots < most else most
        missing = (slots + size - 1) // size - held
        if whole and slots < cached + num_lookahead_tokens:
            needed = (min(cached + num_lookahead_tokens, most) + size - 1) // size
        else:
            needed = held + missing
        if needed > room:
            return None if held or needed > missing else ()
        if missing <= 0 or request_id in lane.registered:
            return None
        if held:
            if not lane.caching:
                return None
            self._pool.touch(found)
            lane.registered[request_id] = held
            table = lane.tables[request_id]
            table += found
            row = lane.begin(missing)
            table += row
        else:
            row = lane.begin(missing)
            table = lane.tables[request_id] = row[:]
        if register:
            if cached > tokens:
                cached = tokens
            if not lane.single:
                self._cache_blocks(request, cached)
            elif cached >= size:
                lane.register_row(request, table, held, cached)
        self.due[request_id] = 0
        return (row,)

    def _begin_each(
        self,
        request: CacheableRequest,
        hit: KnownHit,
        num_new_tokens: int,
        num_lookahead_tokens: int,
        room: int,
        whole: bool,
        register: bool,
    ) -> Rows | None:
        """As `begin`, for several groups, or one that gives blocks back: what is hit goes the long way."""
        request_id, blocks, most = request.request_id, hit[1], self._max_model_len
        if hit[0] or request.num_computed_tokens or (blocks is not None and any(blocks)):
            return None
        slots, tokens, needed = num_new_tokens + num_lookahead_tokens, request.num_tokens, 0
        slots = slots if slots < most else most
        length = min(max(slots, tokens + num_lookahead_tokens), most) if whole else slots
        for lane in self.lanes:
            if request_id in lane.tables or request_id in lane.registered:
                return None
            needed += (length + lane.size - 1) // lane.size
        if needed > room:
            return () if length == slots else None
        rows = []
        for lane in self.lanes:
            row = lane.begin((slots + lane.size - 1) // lane.size)
            lane.tables[request_id] = row[:]
            rows.append(row)
        if register:
            cached = num_new_tokens if num_new_tokens < tokens else tokens
            if self._all_single:
                for lane in self.lanes:
                    lane.register_row(request, lane.tables[request_id], 0, cached)
            else:
                self._cache_blocks(request, cached)
        self.due[request_id] = 0
        return tuple(rows)

    def advance(
        self, request: CacheableRequest, request_id: str, tokens: int, num_lookahead_tokens: int, register: bool
    ) -> Rows | None:
        """One step of a request that has a horizon, up to so many tokens and the lookahead behind them.

        Gives back what no query reads any more, makes room, and registers what is certain to be computed if it is to.
        Returns the blocks that each group adds, empty if none adds one; None if there is no room.
        """
        slots = tokens + num_lookahead_tokens
        if slots > self._max_model_len:
            slots = self._max_model_len
        for lane in self._skipping:
            skips = lane.skips[request_id]
            if skips < tokens:
                settled = settled_tokens(request, request.num_computed_tokens, request.num_tokens)
                if skips <= settled:
                    lane.manager.remove_skipped_blocks(request_id, settled)
                    lane.look_ahead(request_id, settled)
        free = self._pool.free_block_queue.num_free_blocks
        if free < (slots // self._least_size + self._most_extra) * len(self.lanes) and free < self._missing(
            request, slots, tokens
        ):
            return None
        cached = 0
        if register:
            cached = request.num_tokens
            if cached > tokens:
                cached = tokens
        rows, added, moved, done, horizon = [], False, False, True, self._max_model_len
        for lane in self.lanes:
            size, table = lane.size, lane.tables[request_id]
            row: list[KVCacheBlock] = []
            room = (len(table) - lane.extra) * size
            if lane.moves:
                if not lane.firsts[request_id] <= tokens <= room:
                    row, moved = lane.arrange(request, slots, tokens), True
                    room = (len(table) - lane.extra) * size
            elif slots > room:
                row = lane.grow(table, slots)
                room = (len(table) - lane.extra) * size
            if row:
                added = True
            rows.append(row)
            if room < horizon:
                horizon = room
            if not lane.single:
                at = lane.registers_at(request_id)
                if lane.keeps_states and tokens >= at:
                    lane.manager.note_step(request_id, request.num_computed_tokens, request.num_tokens, tokens)
            else:
                known = lane.registered.get(request_id, 0)
                at = (known + 1) * size
                if lane.keeps_states and lane.caching and tokens >= at:
                    lane.manager.note_step(request_id, request.num_computed_tokens, request.num_tokens, tokens)
                if at <= cached:
                    if cached < at + size:
                        if lane.register(request, request_id, table, known):
                            at += size
                    elif not lane.keeps_states and table[known] is not self._pool.null_block:
                        at = (lane.register_row(request, table, known, cached) + 1) * size
            if at <= cached:
                done = False
            if at <= horizon:
                horizon = at - 1
            if lane.may_skip:
                skips = lane.skips[request_id]
                if skips < horizon:
                    horizon = skips
        if done:
            self.horizons[request_id] = horizon
            if moved:
                self.firsts[request_id] = max([lane.firsts[request_id] for lane in self._moving])
        else:
            self._cache_blocks(request, cached)
            self.note(request_id, settled_tokens(request, request.num_computed_tokens, request.num_tokens))
        if not added:
            return ()
        return tuple(rows) if len(rows) == len(self._managers) else self._rows(rows)

    def advance_each(
        self,
        requests: list[CacheableRequest],
        due: list[int],
        num_new_tokens: int,
        num_lookahead_tokens: int,
        register: bool,
    ) -> list[Rows | None]:
        """`advance` for these requests, by index, one after the other, up to one that has no horizon or is too long."""
        answers: list[Rows | None] = []
        for i in due:
            request = requests[i]
            tokens = request.num_computed_tokens + num_new_tokens
            if tokens > self._max_model_len or request.request_id not in self.horizons:
                break
            answers.append(self.advance(request, request.request_id, tokens, num_lookahead_tokens, register))
        return answers

    def _missing(self, request: CacheableRequest, slots: int, tokens: int) -> int:
        """How many blocks all tables together lack for a step that ends at so many tokens, with so many slots."""
        return sum([lane.missing(request, slots, tokens) for lane in self.lanes])

    def _rows(self, rows: list[list[KVCacheBlock]]) -> Rows:
        """With an empty one for each group whose blocks the encoder's tokens fill."""
        row = iter(rows)
        return tuple([[] if manager.sized_by_encoder else next(row) for manager in self._managers])


class OneGroupSteps(RunningSteps):
    """The same for a group that never gives back a block before the request ends, and registers each as it gets full.

    There is nothing to loop over, which is a little faster (docs/evidence/tricks.md, `one-group`).
    """

    def advance(
        self, request: CacheableRequest, request_id: str, tokens: int, num_lookahead_tokens: int, register: bool
    ) -> Rows | None:
        """As for every number of groups."""
        (lane,) = self.lanes
        size, table = lane.size, lane.tables[request_id]
        slots = tokens + num_lookahead_tokens
        if slots > self._max_model_len:
            slots = self._max_model_len
        rows: Rows = ()
        room = len(table) * size
        if slots > room:
            if self._pool.free_block_queue.num_free_blocks < (slots - room + size - 1) // size:
                return None
            rows = (lane.grow(table, slots),)
            room = len(table) * size
        known = lane.registered.get(request_id, 0)
        at = (known + 1) * size
        if register and at <= tokens:
            cached = request.num_tokens
            if cached > tokens:
                cached = tokens
            if at <= cached < at + size:
                if lane.register(request, request_id, table, known):
                    at += size
            elif at <= cached:
                at = (lane.register_row(request, table, known, cached) + 1) * size
        if at <= room:
            room = at - 1
        self.horizons[request_id] = room if room < self._max_model_len else self._max_model_len
        return rows


def are_simple(managers: Sequence[SingleTypeKVCacheManager], registers: tuple[int | None, bool]) -> bool:
    """Whether `OneGroupSteps` will do; `registers` as for `RunningSteps`."""
    step, every_block = registers
    if len(managers) != 1 or not every_block:
        return False
    (one,) = managers
    plain = one.registers_every_block and step in (None, one.block_size) and not one.use_eagle
    return plain and not (one.may_skip or one.extra_blocks or one.sized_by_encoder)


def settled_tokens(request: CacheableRequest, num_computed_tokens: int, num_tokens: int) -> int:
    """Of so many computed tokens those that cannot be taken back, of a request that has `num_tokens`.

    Those of steps that still run can, and so can the last known token and all behind it.
    """
    in_flight = getattr(request, "num_in_flight_tokens", 0)
    settled, known = num_computed_tokens - in_flight, num_tokens - 1
    return settled if settled < known else known


def steps_behind_horizons(requests: list[CacheableRequest], horizons: dict[str, int], tokens: int) -> list[int]:
    """Which of these requests, by index, end a step of so many tokens behind their horizon, or have none.

    A step of one of them moves no horizon of another, so that all can be looked at before any is taken.
    """
    behind: list[int] = []
    for i, request in enumerate(requests):
        horizon = horizons.get(request.request_id, 0)
        if tokens > horizon - request.num_computed_tokens:
            behind.append(i)
    return behind
