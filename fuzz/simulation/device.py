"""The device under an engine: it computes nothing, but knows what every slot stands for, and checks what is read.

Steps run in the order in which they are launched, as on a device's queue. A token is sampled from what was read: where
that was wrong, another token comes out, and what the step writes is wrong for everybody who reads it later.
"""

from collections.abc import Iterator, Mapping, Sequence

from ...model.attention import Mamba, Rule, Step, rule_for
from .contents import ALPHABET, JUNK, TokenContents, branch_of, mixed, sampled
from .device_records import DRAFTS_RIGHT, DeviceTransfer, OnDevice, RanStep, Voids
from .memory import NOTHING, Placed, Slot, SlotMemory, half_of_block, said
from .protocol import ClientRequest, EngineShape, Scheduled, ScheduledBatch, SlotCopy, Slots, SlotTransfer, StepResults


class SimulatedDevice:
    """The device of one engine, from its start on."""

    def __init__(
        self, shape: EngineShape, *, separate: bool, reads_first: bool, delays: Sequence[int], halves: bool = False
    ) -> None:
        """`separate` and `reads_first` as the engine declares them; `delays`: how many rounds one transfer after the
        other takes, repeated; -1: it fails in the next. `halves`: two engines share it, and may compute the same."""
        self.shape, self.reads_first, self._delays, self._halves = shape, reads_first, delays, halves
        self.rules: list[Rule] = [rule_for(group, shape.core) for group in shape.groups]
        self.cells = SlotMemory(max(rule.b for rule in self.rules))
        self._memories = [f"device {g}" if separate else "device" for g in range(len(self.rules))]
        self.requests: dict[str, OnDevice] = {}
        self.weights = self.transfers = self.hidden = 0
        self.states_read = self.reads = self.copied = self.hits = 0
        self._under_way: list[DeviceTransfer] = []
        self._by_slot = [False] * len(self.rules)
        self._changed: list[str] = []
        """What was not kept, a line each."""
        self._written: list[Slot] = []
        self.voids = Voids()

    @property
    def reached(self) -> dict[str, int]:
        """What was read, copied, transferred and found."""
        return {
            "hits": self.hits,
            "reads checked": self.reads,
            "states read": self.states_read,
            "blocks copied": self.copied,
            "transfers begun": self.transfers,
            "tokens computed again": self.cells.again,
            "parts without slots": self.hidden,
        }

    # Requests.

    def add(self, request: ClientRequest, rights: Sequence[int] = (), branch: int = 0) -> None:
        """It is known from now on, in place of an earlier one of that name."""
        self.requests[request.id] = OnDevice(
            TokenContents(request, self.weights, branch), rights or DRAFTS_RIGHT, len(request.prompt)
        )

    def fork(self, request: ClientRequest) -> None:
        """The same for one that goes on from another one's tokens, its prompt, in its own way."""
        self.add(request, branch=branch_of(request.id))

    def truncate(self, id: str, length: int, then: Sequence[int]) -> None:
        """Its tokens from `length` on are others."""
        one = self.requests[id]
        one.contents.cut(length)
        one.contents.extend(then)
        one.computed, one.fixed = min(one.computed, length), len(one.contents.tokens)
        one.tags.clear()

    def reweigh(self) -> None:
        """All that is written was computed under other weights."""
        self.weights += 1
        for one in self.requests.values():
            one.contents = one.contents.under(self.weights)
            one.tags.clear()

    # Transfers.

    @property
    def busy(self) -> bool:
        """True while something is transferred."""
        return bool(self._under_way)

    @property
    def under_way(self) -> list[str]:
        """The ids of what is transferred."""
        return [one.told.id for one in self._under_way]

    def ended(self, now: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Transfers that end by this round, and those that fail."""
        done, failed = list[str](), list[str]()
        for one in [one for one in self._under_way if one.ends <= now]:
            self._under_way.remove(one)
            right = one.ends >= 0
            self._end(one, right)
            (done if right else failed).append(one.told.id)
        return tuple(done), tuple(failed)

    def _end(self, one: DeviceTransfer, right: bool) -> None:
        if one.is_over:
            return
        one.is_over = True
        if other := [slot for slot, tag in one.kept.items() if tag > NOTHING and self.cells.get(slot) != tag]:
            block = other[0][1] // self.cells.width
            self._changed.append(f"{one.told.id}: block {block} is written over while it is stored")
        self.transfer(one.told, one.overtaken, right)

    def _await(self, ids: Sequence[str], now: int) -> None:
        """These end at once, unless they fail."""
        for one in self._under_way:
            if one.told.id in ids and one.ends >= 0:
                one.ends = now
                self._end(one, right=True)

    def _end_within(self, one: DeviceTransfer, now: int) -> None:
        """It ends before the step computes. If it has failed, the engine hears that with the results of the step, which
        nobody may use."""
        self._await((one.told.id,), now)
        if one.ends < 0:
            one.is_over = True
            self.voids.add(self.cells.get(slot) for slot in self._slots_of(one.told))

    def _begin(self, told: SlotTransfer, now: int, flying: frozenset[Slot], within: bool = False) -> None:
        slots = self._slots_of(told)
        delay = self._delays[self.transfers % len(self._delays)] if self._delays else 0
        self.transfers += 1
        overtaken = {slot: self.cells.get(slot) if within else NOTHING for slot in slots if slot in flying}
        kept = {slot: self.cells.get(slot) for slot in slots if told.kept and not slot[1] % self.cells.width}
        self._under_way.append(DeviceTransfer(told, -1 if told.fails or delay < 0 else now + delay, overtaken, kept))
        if told.kind == "load":
            for slot in slots:
                self.cells.put(slot, self.cells.junk())

    def transfer(self, told: SlotTransfer, overtaken: Mapping[Slot, int] | None = None, right: bool = True) -> None:
        """Its slots get what they are to hold; what nobody reads where it was overtaken, or has gone wrong."""
        cells, slots = self.cells, self._slots_of(told)
        if told.kind == "store":
            for slot, other in zip(slots, told.other, strict=True):
                tag, there = cells.get(slot), (told.tier, other)
                if right or cells.get(there) != tag:  # what fails over the same content leaves that
                    cells.put(there, tag if right else cells.junk())
            return
        tags = [cells.get((told.tier, other)) for other in told.other]
        if told.request:
            one = self.requests.get(told.request)
            own = [] if one is None else self.tags_of(one, told.group)
            tags = [own[position] if position < len(own) else cells.junk() for position in told.positions]
        for slot, tag in zip(slots, tags, strict=True):
            before = (overtaken or {}).get(slot, tag)
            same = right and before == tag
            cells.put(slot, tag if same else before if before in self.voids else cells.junk())

    def lose(self, half: int, of: int) -> None:
        """A half of so many that share the blocks has crashed: nothing is in its blocks, no transfer gets there any
        more, and each from there fails."""
        width, kept, total = self.cells.width, list[DeviceTransfer](), self.shape.num_blocks
        for memory, block in self.cells.pages:
            if memory in self._memories and half_of_block(block, of, total) == half:
                self.cells.fill(memory, block, NOTHING)
        for one in self._under_way:
            there = one.told.other if one.told.tier in self._memories else ()
            if not one.is_over and any(half_of_block(slot // width, of, total) == half for slot in there):
                one.ends, one.is_over = -1, one.told.kind == "store"
            own = one.told.device
            if not any(half_of_block(slot // width, of, total) == half for slot in own):
                kept.append(one)
        self._under_way = kept

    def _slots_of(self, told: SlotTransfer) -> list[Slot]:
        return [(told.above or self._memories[told.group], slot) for slot in told.device]

    # Steps.

    def prepare(self, batch: ScheduledBatch, now: int, flying: frozenset[Slot]) -> None:
        """What is done before a step computes: what is awaited ends, blocks are cleared, then copied, then loaded."""
        for told in batch.transfers:
            if told.id in batch.awaited and told.kind == "store":
                self._begin(told, now, flying)
        self._await(batch.awaited, now)
        for block in batch.cleared:
            for memory in self._memories:
                self.cells.fill(memory, block, NOTHING)
        for copy in batch.copies:
            self._copy(copy, batch)
        for told in batch.transfers:
            if told.now:
                self.transfer(told)
            elif told.kind == "load":
                self._begin(told, now, flying, within := told.id in batch.awaited)
                if within:
                    self._end_within(self._under_way[-1], now)

    def launch(self, batch: ScheduledBatch, now: int = 0, flying: frozenset[Slot] = frozenset()) -> RanStep:
        """Run a step in round `now`; `flying`: what steps in flight write."""
        self._written = []
        self.voids.launched()
        self.prepare(batch, now, flying)
        wrong, self._changed = [*self._changed, *self._breaches(batch)], []
        pieces = [piece for part in batch.parts if (piece := self._piece(part, wrong)) is not None]
        for early in (True, False):
            for piece in pieces:
                piece.read(early, wrong)
            if early:
                for piece in pieces:
                    piece.write()
        tokens = {piece.part.request: piece.finish() for piece in pieces}
        drafts = {piece.part.request: self.proposed(piece.one) for piece in pieces if tokens[piece.part.request]}
        for told in batch.transfers:
            if told.kind == "store" and not told.now and told.id not in batch.awaited:
                self._begin(told, now, flying)
        results = StepResults(tokens, drafts if self.shape.drafts else {})
        return RanStep(results, tuple(wrong), frozenset(self._written))

    def _breaches(self, batch: ScheduledBatch) -> Iterator[str]:
        """What no worker could run."""
        parts, limit = batch.parts, self.shape.max_tokens
        if sum(part.count for part in parts) > limit:
            yield f"the batch: {sum(part.count for part in parts)} tokens in a step, {limit} are allowed"
        if len(parts) > self.shape.max_requests:
            yield f"the batch: {len(parts)} requests in a step, {self.shape.max_requests} are allowed"
        if len({part.request for part in parts}) < len(parts):
            yield "the batch: a request stands twice in a step"
        most = self.shape.num_blocks
        for part in parts:
            for slots in part.slots or ():
                if stray := [block for block in slots.table if block is not None and not 0 <= block < most]:
                    yield f"{part.request}: block {stray[0]} of its table is none of the pool, which has {most}"

    def _piece(self, part: Scheduled, wrong: list[str]) -> "_Piece | None":
        one = self.requests.get(part.request)
        if one is None:
            wrong.append(f"{part.request}: scheduled, but nobody has asked for it")
            return None
        if part.begins:
            one.states.clear()
        start = one.computed if part.first is None else part.first
        self.hits += start > one.computed
        known, end = len(one.contents.tokens), start + part.count
        first_end = end - len(part.drafts)
        if part.count < 1 or start < 0 or first_end <= start or first_end > known:
            what = f"computes positions {start} to {end - 1}, {len(part.drafts)} of them drafts"
            wrong.append(f"{part.request}: {what}, and has {known} tokens")
            return None
        if part.samples and not self._halves and one.fixed <= first_end < known:
            one.contents.cut(first_end)  # what was sampled behind was dropped
            known, one.tags = first_end, []
        if part.drafts and first_end < known:
            wrong.append(f"{part.request}: has drafts behind token {first_end}, and {known} known ones")
            return None
        if len(part.drafts) > self.shape.drafts:
            wrong.append(f"{part.request}: {len(part.drafts)} drafts, {self.shape.drafts} are allowed")
        given = zip(part.tokens or (), one.contents.tokens[start:], strict=False)
        if other := [at for at, (is_told, token) in enumerate(given) if is_told not in (-1, token)]:
            wrong.append(f"{part.request}: the worker is given another token at position {start + other[0]}")
        if part.slots is None:
            self.hidden += 1
        elif len(part.slots) != len(self.rules):
            wrong.append(f"{part.request}: slots of {len(part.slots)} groups, there are {len(self.rules)}")
            return None
        return _Piece(self, part, one, start)

    def proposed(self, one: OnDevice) -> tuple[int, ...]:
        """Drafts behind all its tokens: so many right ones as its pattern says, then wrong ones."""
        right, content, tokens = one.rights[one.steps % len(one.rights)], one.contents.values[-1], []
        for number in range(self.shape.drafts):
            token = sampled(content, one.contents.branch)
            content = mixed(content, token)
            tokens.append(token if number < right else token % ALPHABET + 1)
        return tuple(tokens)

    def tags_of(self, one: OnDevice, group: int) -> list[int]:
        """What the slots of its tokens must hold in this group."""
        groups, values = len(self.rules), one.contents.values
        if groups == 1:
            return values
        if not one.tags:
            one.tags = [[] for _ in range(groups)]
        tags = one.tags[group]
        if len(tags) < len(values):
            tags += [value * groups + group for value in values[len(tags) :]]
        return tags

    def placed(self, group: int, slots: Slots) -> Placed:
        """Where these slots of the group are."""
        if slots.at is not None:
            self._by_slot[group] = True
        return Placed(self._memories[group], self.rules[group].b, slots, self.cells.width)

    def note(self, slot: Slot) -> None:
        """A step in flight writes here."""
        self._written.append(slot)

    def _copy(self, copy: SlotCopy, batch: ScheduledBatch) -> None:
        group, memory, cells = copy.group, self._memories[copy.group], self.cells
        self.copied += 1
        if any(part.slots and part.slots[group].at is not None for part in batch.parts):
            self._by_slot[group] = True
        if self._by_slot[group]:
            cells.put((memory, copy.target), cells.get((memory, copy.source)))
            return
        many = cells.width if copy.tokens is None else copy.tokens
        cells.page(memory, copy.target)[:many] = cells.page(memory, copy.source)[:many]


class _Piece:
    """One request's part of a step: positions `start .. end - 1`; from `right` on they are rejected drafts."""

    def __init__(self, device: SimulatedDevice, part: Scheduled, one: OnDevice, start: int) -> None:
        self.device, self.part, self.one, self.start = device, part, one, start
        self.end = start + part.count
        self.known = len(one.contents.tokens)
        self.first_end = self.right = self.end - len(part.drafts)
        self.samples = self.first_end == self.known if part.samples is None else part.samples
        self.is_wrong = self.is_void = False
        self._accepted: list[int] = []
        self._places = [device.placed(group, slots) for group, slots in enumerate(part.slots or ())]
        if self.samples:
            self._judge_drafts()

    def _judge_drafts(self) -> None:
        one, contents = self.one, self.one.contents
        proposed = self.device.proposed(one) if -1 in self.part.drafts else ()
        if self.part.drafts:
            one.steps += 1
        for number, draft in enumerate(self.part.drafts):
            token = proposed[number] if draft == -1 else draft
            if token != contents.next_token():
                break
            contents.extend((token,))
            self._accepted.append(token)
        self.right += len(self._accepted)

    def read(self, early: bool, wrong: list[str]) -> None:
        """Check what its queries read: states before anything is written, tokens as the engine does."""
        for group, place in enumerate(self._places):
            rule, before = self.device.rules[group], len(self.device.cells.misread)
            named = f"(group {group}, {rule.group.kind})"
            if isinstance(rule, Mamba):
                line = self._state_read(group, rule, place) if early and self.start else ""
                line = line and f"{line} {named}"
            elif early == self.device.reads_first:
                end = self.start if early else self.right
                tags = self.device.tags_of(self.one, group)
                self.device.reads += 1
                line = place.wrong(self.device.cells, tags, max(0, rule.skipped(self.start)), end, named)
                line = line and f"the query at {self.start} or behind reads {line}"
            else:
                continue
            if line:
                self.is_wrong = True
                self.is_void |= any(tag in self.device.voids for _, tag in self.device.cells.misread[before:])
                if not self.is_void:
                    wrong.append(f"{self.part.request}: {line}")

    def _junk(self) -> int:
        """Something wrong to be written."""
        tag = self.device.cells.junk()
        if self.is_void:
            self.device.voids.add((tag,))
        return tag

    def write(self) -> None:
        """Write what it computes; rejected drafts write what nobody may read."""
        cells = self.device.cells
        for group, place in enumerate(self._places):
            rule = self.device.rules[group]
            if isinstance(rule, Mamba):
                self._write_states(group, rule, place)
                continue
            tags = self.device.tags_of(self.one, group)
            for position in range(self.start, self.end):
                slot = place.target(position)
                if slot is not None:
                    is_right = position < self.right and not self.is_wrong
                    cells.compute(slot, tags[position] if is_right else self._junk(), self.part.request, position)
                    self.device.note(slot)

    def finish(self) -> tuple[int, ...]:
        """What is sampled; empty if its known tokens do not end in the step."""
        one, contents = self.one, self.one.contents
        one.computed = self.right
        if self.is_wrong:
            self._spoil()
        if not self.samples:
            return ()
        if self.first_end < self.known:  # in the midst of a prompt
            return (self.is_void * JUNK + sampled(contents.values[self.first_end - 1], contents.branch),)
        token = contents.next_token()
        other = JUNK + token if self.is_wrong else token
        contents.extend((token if self.is_void else other,))  # what is void is sampled again
        return (*self._accepted, other)

    def _spoil(self) -> None:
        """What it wrote depends on what it read wrong."""
        cells = self.device.cells
        for group, place in enumerate(self._places):
            if not isinstance(self.device.rules[group], Mamba):
                for position in range(self.start, self.right):
                    if (slot := place.target(position)) is not None:
                        cells.put(slot, self._junk())

    # States.

    def _state_read(self, group: int, rule: Mamba, place: Placed) -> str:
        device, one, start = self.device, self.one, self.start
        device.states_read += 1
        tag, where = device.tags_of(one, group)[start - 1], f"reads the state before position {start}"
        if place.slots.at is not None:
            number = place.slots.at.get(start)
            if number is None:
                return f"{where}, for which there is no slot"
            slot, named = (place.memory, number), f"slot {number}"
        else:
            table = place.slots.table
            seen, entry, held = one.states.get(group, (0, 0, None))
            if seen != start:
                entry, held = (start - 1) // rule.b, None
            block = table[entry] if entry < len(table) else None
            if block is None:  # it may be moved to where the step writes: a step reads before that
                block = held
            if block is None:
                return f"{where}, for which there is no block"
            slot, named = (place.memory, block * device.cells.width), f"block {block}"
        found = device.cells.get(slot)
        if found == tag:
            return ""
        device.cells.misread.append((slot, found))
        return f"{where} in {named}, which holds {said(found)}"

    def _write_states(self, group: int, rule: Mamba, place: Placed) -> None:
        cells, tags = self.device.cells, self.device.tags_of(self.one, group)
        at = place.slots.at
        if at is not None:
            for after, number in at.items():
                if after > self.start:
                    good = after <= self.right and not self.is_wrong
                    cells.put((place.memory, number), tags[after - 1] if good else self._junk())
            return
        table, step = place.slots.table, Step(self.start, self.end, self.end - self.first_end)
        writes = rule.writes(step, self.right)
        for entry, after in writes.items():
            block = table[entry] if entry < len(table) else None
            if block is not None:
                good = after <= self.right and not self.is_wrong
                cells.fill(place.memory, block, tags[after - 1] if good else self._junk())
        read = max(entry for entry, after in writes.items() if after == self.right)
        held = table[read] if read < len(table) else None
        if held is not None:
            self.one.states[group] = (self.right, read, held)
