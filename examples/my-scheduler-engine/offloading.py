"""The same scheduler with a second memory: what a preempted request had computed is stored there, and loaded again.

A store is over before the step computes; a load takes its time, and nobody may touch what it writes and reads until it
has ended, whatever becomes of the request meanwhile.
"""

from dataclasses import dataclass

from scheduler_engine import Piece, Pool, Scheduler, Sequence


@dataclass(eq=False)
class Transfer:
    """Blocks of a request that are stored, or loaded."""

    id: str
    sequence: Sequence
    life: int
    blocks: list[int]  # on the device
    host: list[int]


class OffloadingScheduler(Scheduler):
    """Who gets which blocks, also of the host's memory."""

    def __init__(self, pool: Pool, max_length: int, max_tokens: int, max_requests: int, host: int) -> None:
        super().__init__(pool, max_length, max_tokens, max_requests)
        self.host_free = list(range(host))
        self.stored: dict[Sequence, list[int]] = {}
        self.stores: list[Transfer] = []  # to be told with the next step
        self.loads: list[Transfer] = []
        self.loading: dict[str, Transfer] = {}
        self.keeps = True  # False while nothing that was computed is worth it
        self.count = 0
        self.flying: list[list[Piece]] = []

    def transfer(self, sequence: Sequence, blocks: list[int]) -> Transfer:
        """One that begins now."""
        self.count += 1
        return Transfer(f"t{self.count}", sequence, sequence.life, blocks, self.stored[sequence])

    def drop(self, sequence: Sequence) -> None:
        """What is stored of it is of no use any more."""
        self.host_free += self.stored.pop(sequence, [])

    def is_loading(self, sequence: Sequence) -> bool:
        """True while blocks of it are on their way."""
        return any(one.sequence is sequence for one in self.loading.values())

    def preempt(self, sequence: Sequence) -> None:
        """Full blocks are stored, if there is room for them."""
        full = sequence.landed // self.pool.size
        if self.keeps and 0 < full <= len(self.host_free):
            self.stored[sequence] = [self.host_free.pop() for _ in range(full)]
            self.stores.append(self.transfer(sequence, sequence.table[:full]))
        super().preempt(sequence)

    def admit(self, sequence: Sequence, left: int) -> bool:
        """Who has more stored than is cached is loaded first, and computed when that has ended."""
        host = self.stored.get(sequence, [])
        if len(host) <= len(self.hit(sequence)):
            self.drop(sequence)
            return super().admit(sequence, left)
        quiet = self.quiet_blocks()
        if len(host) <= len(quiet):
            sequence.table = [self.pool.take(block) for block in quiet[: len(host)]]
            self.waiting.remove(sequence)
            load = self.transfer(sequence, list(sequence.table))
            self.loading[load.id] = load
            self.loads.append(load)
        return False

    def quiet_blocks(self) -> list[int]:
        """Those that are free, and that no step in flight writes."""
        busy = {block for pieces in self.flying for piece in pieces for block in piece.table}
        return [block for block in self.pool.free if block not in busy]

    def moves_blocks(self) -> bool:
        """True while there are blocks that nobody can give back before something has ended."""
        return bool(self.loading)

    def make_room(self, sequence: Sequence, tokens: int) -> bool:
        """Nobody gives his own blocks back while others are moved: they can, as soon as that has ended."""
        while self.moves_blocks() and self.blocks_for(tokens) - len(sequence.table) > len(self.pool.free):
            victim = next((one for one in self.running if one.parked), self.running[-1])
            if victim is sequence:
                return False
            self.preempt(victim)
        return super().make_room(sequence, tokens)

    def schedule(self) -> list[Piece]:
        """See `Scheduler`; which blocks steps in flight use is kept."""
        pieces = super().schedule()
        self.flying += [pieces] if pieces else []
        return pieces

    def update(self, pieces: list[Piece], sampled: dict, drafts: dict) -> list[tuple[str, tuple[int, ...], str]]:
        """See `Scheduler`."""
        if pieces:
            self.flying.pop(0)
        return super().update(pieces, sampled, drafts)

    def loaded(self, id: str, well: bool) -> None:
        """A load has ended. Who has gone meanwhile, or is another one by now, gives the blocks back only here."""
        load = self.loading.pop(id)
        sequence = load.sequence
        self.drop(sequence)
        if self.sequences.get(sequence.id) is not sequence:
            self.give_back(sequence)
        elif well and sequence.life == load.life:
            sequence.computed = sequence.landed = len(load.blocks) * self.pool.size
            self.running.append(sequence)
        else:
            self.give_back(sequence)
            self.wait(sequence)

    def end(self, sequence: Sequence) -> None:
        """It leaves; its blocks stay until its load has ended."""
        if self.is_loading(sequence):
            del self.sequences[sequence.id]
            return
        self.drop(sequence)
        super().end(sequence)

    def reweigh(self) -> None:
        """What is stored was computed under the old weights."""
        self.keeps = False
        super().reweigh()
        self.keeps = True
        for sequence in self.sequences.values():
            self.forget(sequence)

    def truncate(self, id: str, length: int, then: tuple[int, ...]) -> bool:
        """What is stored was computed of other tokens."""
        goes_on = super().truncate(id, length, then)
        if goes_on:
            self.forget(self.sequences[id])
        return goes_on

    def forget(self, sequence: Sequence) -> None:
        """What is stored of it, or being loaded, is of no use."""
        sequence.life += 1
        if not self.is_loading(sequence):
            self.drop(sequence)
