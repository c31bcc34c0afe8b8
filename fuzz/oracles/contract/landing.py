"""Steps that still run on the device, loads that still write into blocks, and the blocks that these use although nobody
holds them any more (S13).

A step runs from its allocation, or from the arrival of the tokens it waits for, until `Landed` says that it has left
the device, or its tokens count as computed and, where it reaches the last known one, the next token is known. Of a
request that goes on, running steps read and write; of one that was freed or preempted only what they write matters:
nobody uses their output. A load that a request waits for runs until its tokens arrive, or until `Landed`; in any case
beyond the end of its request. It writes beside the device's queue.

Whose duty it is that nobody gets such a block: that of the core, if it gives up by itself what it was told is in use (a
load that has not ended, tokens in flight) or says that it waits (`held_back`); else that of the scheduler, which knows
what runs and waits before it frees, preempts, or lets somebody write beside the queue.
"""

import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ....model import ops
from ....model.attention import Rule
from ....model.kinds.rswa import unread
from ....model.ops import NULL
from .moves import Move
from .run_record import RunRecord
from .tracked import Tracked

NEVER = sys.maxsize
_BEGIN = (ops.Allocate, ops.Arrive)
"""Operations with which a step or a load begins."""
_HOW: Mapping[type[ops.Operation], str] = {ops.Free: "freed", ops.Preempt: "preempted"}


@dataclass(eq=False, slots=True)
class Flight:
    """A step on the device, or a load."""

    name: str
    start: int
    """Its first token."""
    end: int
    """The one behind its last token."""
    prompt: int
    """How many tokens the prompt of its request has."""
    told_by: int | None = None
    """Position of the token with which the step is known to have landed; None until its tokens count as computed,
    `NEVER` for a request that has gone."""
    is_load: bool = False
    landed: bool = False

    def uses(self, rule: Rule, entry: int, reads: bool) -> bool:
        """True if it writes this table entry, or, if that matters, reads it."""
        if self.is_load:
            return entry in loaded_entries(rule, self.start, self.end)
        if rule.by_encoder:
            return reads
        written = entry >= self.start // rule.b
        return written or (reads and entry not in unread(rule, self.prompt, self.start))


def loaded_entries(rule: Rule, start: int, end: int) -> range:
    """Table entries into which a connector loads these tokens."""
    return range(0) if rule.by_encoder else range(start // rule.b, rule.required(end) - rule.p)


class EarlyUse(NamedTuple):
    """A block that was handed out while a step or a load uses it."""

    block: int
    flight: Flight
    how: str
    """How the block was given up."""
    by_core: bool
    """True if the core gave it up, though it was told that the block is in use; else the scheduler did not wait."""
    second: bool
    """True if the new owner writes beside the device's queue: a connector that loads, an outside holder."""

    @property
    def kind(self) -> str:
        """What it is, whichever block and request it is about."""
        return f"{self.how}{' while it was loaded' * self.flight.is_load} and handed out"

    @property
    def may_race(self) -> bool:
        """True if one of the two writes beside the device's queue, so that the order of their writes is open."""
        return self.second or self.flight.is_load

    def __str__(self) -> str:
        to = "somebody who writes beside the device's queue" if self.second else "a later step"
        flight, was = self.flight, f"block {self.block} was {self.how} and handed out to {to}, while"
        if flight.is_load:
            return f"{was} tokens {flight.start} to {flight.end} of {flight.name} are still loaded into it"
        return f"{was} the step of {flight.name} from token {flight.start} on, which uses it, has not landed"


class Flights:
    """The running steps of one run, and the blocks that were given up while one of them uses them."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._running: dict[str, list[Flight]] = {}
        self._last: dict[int, tuple[Flight, str, bool]] = {}
        """Per block that was given up: the last step that uses it, how it was given up, and whether by the core."""
        self._kept: dict[int, Flight] = {}
        """Per block that was given up while steps of its request ran, used by them or not: the last of these steps."""

    def give_up(self, move: Move) -> None:
        """Note which of the blocks that a request gives up its steps still use."""
        running = self._running.get(move.name)
        if not running or not move.given_up:
            return
        gone, how = set(move.given_up), _HOW.get(type(move.operation), "skipped")
        self._kept |= dict.fromkeys(gone, running[-1])
        for rule, tables in zip(self._record.rules, move.before.tables, strict=True):
            for entry, block in enumerate(tables.get(move.name, ())):
                for flight in running if block in gone and block != NULL else ():
                    if flight.uses(rule, entry, reads=how == "skipped" and flight.told_by != NEVER):
                        self._last[block] = flight, how, how == "skipped" and _is_told(flight, move)

    def handed_out(self, move: Move) -> list[EarlyUse]:
        """The blocks that an operation hands out although steps use them. They belong to others from now on."""
        for block in self._kept.keys() & move.taken:
            del self._kept[block]
        early = self._last.keys() & move.taken
        if not early:
            return []
        loaded = set(move.taken) if isinstance(move.operation, ops.Take) else set(self._loaded(move))
        return [EarlyUse(block, *self._last.pop(block), block in loaded) for block in sorted(early)]

    def _loaded(self, move: Move) -> Iterator[int]:
        """Blocks of the request into which a connector loads."""
        operation, request = move.operation, move.request
        if not isinstance(operation, ops.Allocate) or request is None or not operation.external:
            return
        start = request.computed + (request.hit[0] if operation.hit and request.hit else 0)
        for rule, tables in zip(self._record.rules, move.after.tables, strict=True):
            entries, table = loaded_entries(rule, start, start + operation.external), tables.get(move.name, ())
            yield from table[entries.start : entries.stop]

    def held_back(self, held: Counter[int], free: Collection[int], references: list[int]) -> list[int]:
        """Blocks that a core keeps from being free since steps of their request run, once for each reference;
        `references` are empty if they are not shown. `held` counts all other holders."""
        if references:
            return [block for block in self._kept for _ in range(references[block] - held[block])]
        return [block for block in self._kept if block not in free and not held[block]]

    def follow(self, operation: ops.Operation, request: Tracked | None) -> None:
        """An operation has returned; `request` is its record as it is now."""
        if not isinstance(operation, ops.OnRequest):
            return
        name = operation.request
        if isinstance(operation, ops.Landed):
            self._record.reached["contract: landed"] += name in self._running
            self._land(name, self._running.get(name, [])[:1])
        elif request is None:
            return
        elif isinstance(operation, _BEGIN):
            if isinstance(operation, ops.Arrive):
                self._land(name, [one for one in self._running.get(name, ()) if one.is_load and one.told_by is None])
            self._launch(name, request, operation)
        elif running := self._running.get(name):
            match operation:
                case ops.Advance(_, sampled) if running[-1].told_by is None:
                    flight, known = running[-1], len(request.contents) - len(sampled)
                    flight.told_by = max(flight.start + 1, min(flight.end, known))
                case ops.Reject(_, count):
                    _take_back(running, count)
                case ops.Free() | ops.Preempt():
                    for flight in running:
                        flight.told_by = NEVER
            self._learn(running, len(request.contents))

    def _launch(self, name: str, request: Tracked, operation: ops.Allocate | ops.Arrive) -> None:
        """The step begins, or the load that it waits for."""
        computed, prompt = request.computed, len(request.submit.prompt)
        begun: list[Flight] = []
        if not request.arriving and request.scheduled:
            begun = [Flight(name, computed, computed + request.scheduled, prompt)]
        elif request.arriving and isinstance(operation, ops.Allocate) and operation.external:
            begun = [Flight(name, computed - operation.external, computed, prompt, is_load=True)]
        if begun:
            self._running.setdefault(name, []).extend(begun)

    def _learn(self, running: list[Flight], known: int) -> None:
        """So many tokens are known: land the steps that have sampled them, and all before these."""
        for count in range(len(running), 0, -1):
            by = running[count - 1].told_by
            if by is not None and (by < known or self._record.shape.max_model_len <= by < NEVER):
                self._land(running[0].name, [flight for flight in running[:count] if not flight.is_load])
                return

    def _land(self, name: str, flights: Collection[Flight]) -> None:
        """These steps of a request have left the device, these loads have ended."""
        for flight in flights:
            flight.landed = True
        left = [flight for flight in self._running.pop(name, ()) if not flight.landed]
        if left:
            self._running[name] = left
        if self._kept:
            self._kept = {block: flight for block, flight in self._kept.items() if not flight.landed}
            self._last = {block: use for block, use in self._last.items() if not use[0].landed}


def _is_told(flight: Flight, move: Move) -> bool:
    """True if a core that gives blocks up in this move knows that the flight is on."""
    if flight.is_load:
        return flight.told_by is None  # of a request that is there, its tokens have not arrived
    operation, request = move.operation, move.request
    told = operation.in_flight if isinstance(operation, ops.Allocate) else 0
    return request is not None and flight.start >= request.computed - told


def _take_back(running: list[Flight], count: int) -> None:
    """So many tokens are not computed after all: what comes behind them comes as much earlier."""
    for flight in running:
        if flight.is_load:
            continue
        if flight.told_by is None:
            flight.start, flight.end = flight.start - count, flight.end - count
        elif flight.told_by != NEVER:
            flight.told_by -= count
