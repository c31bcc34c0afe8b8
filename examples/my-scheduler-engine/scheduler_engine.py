"""The control plane of a small serving engine: a paged pool with a prefix cache, and a scheduler.

It computes prompts in pieces, preempts, takes drafts, and begins a step before the one before it has ended.
"""

from dataclasses import dataclass, field


@dataclass
class Pool:
    """Blocks of `size` tokens. One that nobody holds keeps its key, by which it is found again, until it is taken."""

    blocks: int
    size: int
    caching: bool
    references: list[int] = field(init=False)
    free: dict[int, None] = field(init=False)  # in the order in which they are taken
    keys: dict[int, int] = field(default_factory=dict)
    found: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.references = [0] * self.blocks
        self.free = dict.fromkeys(range(self.blocks))

    def take(self, block: int | None = None) -> int:
        """A block that nobody holds, or this one; what it was found by is forgotten."""
        block = next(iter(self.free)) if block is None else block
        del self.free[block]
        self.forget(block)
        self.references[block] = 1
        return block

    def share(self, block: int) -> int:
        """One more holder of a block."""
        self.free.pop(block, None)
        self.references[block] += 1
        return block

    def give_back(self, block: int) -> None:
        """One holder less."""
        self.references[block] -= 1
        if not self.references[block]:
            self.free[block] = None

    def forget(self, block: int) -> None:
        """It is not found any more."""
        key = self.keys.pop(block, None)
        if key is not None and self.found.get(key) == block:
            del self.found[key]

    def register(self, block: int, key: int) -> None:
        """It is found by this key, unless another one is already."""
        if self.caching and block not in self.keys and key not in self.found:
            self.keys[block] = key
            self.found[key] = block

    def reset(self) -> None:
        """Nothing is found any more."""
        self.keys.clear()
        self.found.clear()


@dataclass(eq=False)
class Sequence:
    """A request: what is known of it, and what it holds."""

    id: str
    tokens: list[int]
    prompt: int  # so many of them are its prompt
    asked: int  # tokens of the answer at most
    stop: tuple[int, ...] = ()
    priority: int = 0
    most: int = 0  # the same, as far as there is room
    apart: tuple = ()  # what its blocks depend on beside tokens: the adapter, the salt
    items: tuple = ()  # (name, first token, number of tokens)
    arrived: int = 0
    table: list[int] = field(default_factory=list)
    computed: int = 0  # tokens that are in memory once all steps that were begun have ended
    pending: int = 0  # tokens that steps in flight will sample
    landed: int = 0  # tokens that are in memory now
    drafts: tuple[int, ...] = ()
    guessing: bool = False  # a step with drafts is in flight
    parked: bool = False
    life: int = 0  # changes when it loses its blocks: what comes of steps begun before is of no use
    keys: list[int] = field(default_factory=list)

    @property
    def answer(self) -> int:
        """How many tokens it has been given."""
        return len(self.tokens) - self.prompt


@dataclass(eq=False)
class Piece:
    """What a step computes of a sequence."""

    sequence: Sequence
    life: int
    first: int
    count: int
    drafts: tuple[int, ...]
    samples: bool  # a token is sampled behind it
    table: list[int]


class Scheduler:
    """Who gets which blocks, and who is computed when."""

    def __init__(self, pool: Pool, max_length: int, max_tokens: int, max_requests: int) -> None:
        self.pool, self.max_length = pool, max_length
        self.max_tokens, self.max_requests = max_tokens, max_requests
        self.sequences: dict[str, Sequence] = {}
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.copies: list[tuple[int, int]] = []
        self.in_flight = self.arrivals = self.weights = 0
        self.preempted: list[str] = []

    # Requests.

    def add(self, sequence: Sequence) -> bool:
        """False if it can never be served."""
        sequence.most = self.most_of(sequence)
        if not sequence.most:
            return False
        self.arrivals += 1
        sequence.arrived = self.arrivals
        self.sequences[sequence.id] = sequence
        self.wait(sequence)
        return True

    def most_of(self, sequence: Sequence) -> int:
        """How many tokens its answer may have; 0 if it can never be served."""
        longest = min(sequence.prompt + sequence.asked, self.max_length)
        return 0 if self.blocks_for(longest) > self.pool.blocks else max(0, longest - sequence.prompt)

    def wait(self, sequence: Sequence) -> None:
        """The queue goes by priority, then by arrival."""
        self.waiting.append(sequence)
        self.waiting.sort(key=lambda one: (one.priority, one.arrived))

    def cancel(self, id: str) -> None:
        """Its client has gone."""
        self.end(self.sequences[id])

    def end(self, sequence: Sequence) -> None:
        """It leaves."""
        self.give_back(sequence)
        (self.running if sequence in self.running else self.waiting).remove(sequence)
        del self.sequences[sequence.id]

    def give_back(self, sequence: Sequence) -> None:
        """It holds nothing any more; what steps in flight still bring is not taken."""
        for block in reversed(sequence.table):
            self.pool.give_back(block)
        sequence.table.clear()
        sequence.computed = sequence.landed = sequence.pending = 0
        sequence.drafts, sequence.guessing = (), False
        sequence.life += 1

    def preempt(self, sequence: Sequence) -> None:
        """It gives its blocks back and waits."""
        self.give_back(sequence)
        self.running.remove(sequence)
        self.wait(sequence)
        self.preempted.append(sequence.id)

    def reset(self) -> None:
        """Forget the prefix cache."""
        self.pool.reset()

    def reweigh(self) -> None:
        """New weights: whatever was computed is of no use."""
        self.weights += 1
        self.pool.reset()
        for sequence in list(self.running):
            self.preempt(sequence)
        for sequence in self.sequences.values():
            sequence.keys.clear()

    def park(self, id: str, parked: bool) -> None:
        """It is not computed until it is let go on; its blocks may be taken."""
        self.sequences[id].parked = parked

    def fork(self, id: str, new: str) -> None:
        """The child shares the parent's full blocks, and gets a copy of the one that is not full."""
        parent, size = self.sequences[id], self.pool.size
        child = Sequence(new, list(parent.tokens), len(parent.tokens), parent.asked - parent.answer, parent.stop)
        child.most, child.priority = parent.most - parent.answer, parent.priority
        child.apart, child.items = parent.apart, parent.items
        self.arrivals += 1
        child.arrived = self.arrivals
        self.sequences[new] = child
        computed = min(parent.landed, len(child.tokens) - 1)
        if not computed or (computed % size and not self.pool.free):
            self.wait(child)
            return
        child.computed = child.landed = computed
        child.table = [self.pool.share(block) for block in parent.table[: computed // size]]
        if computed % size:
            child.table.append(self.pool.take())
            self.copies.append((parent.table[computed // size], child.table[-1]))
        self.running.append(child)

    def truncate(self, id: str, length: int, then: tuple[int, ...]) -> bool:
        """Its tokens change, so that what it has computed behind `length` is of no use; it is computed anew. False if
        it can never be served now: then it leaves."""
        sequence = self.sequences[id]
        if sequence in self.running:
            self.preempt(sequence)
        sequence.tokens[length:] = then
        sequence.prompt = len(sequence.tokens)
        sequence.most = self.most_of(sequence)
        sequence.keys.clear()
        if not sequence.most:
            self.end(sequence)
        return bool(sequence.most)

    # Steps.

    def blocks_for(self, tokens: int) -> int:
        """Blocks for so many tokens."""
        return -(-tokens // self.pool.size)

    def schedule(self) -> list[Piece]:
        """What the next step computes; who runs comes first, then who waits."""
        pieces: list[Piece] = []
        left, short = self.max_tokens, False
        self.preempted = []
        for sequence in list(self.running):
            if sequence not in self.running or sequence.parked or sequence.guessing or not left:
                continue
            wanted = len(sequence.tokens) + sequence.pending - sequence.computed
            if wanted < 1 or sequence.answer + sequence.pending >= sequence.most or len(pieces) == self.max_requests:
                continue
            drafts = sequence.drafts[: left - 1] if wanted == 1 and not sequence.pending else ()
            drafts = drafts[: max(0, sequence.most - sequence.answer - 1)]
            count = min(wanted, left) + len(drafts)
            if self.make_room(sequence, sequence.computed + count):
                pieces.append(self.piece(sequence, count, drafts))
                left -= count
            else:
                short = True  # what becomes free is for it, and for nobody who comes
        while self.waiting and left and not (self.preempted or short) and len(pieces) < self.max_requests:
            sequence = next((one for one in self.waiting if not one.parked), None)
            if sequence is None or not self.admit(sequence, left):
                break
            count = min(len(sequence.tokens) - sequence.computed, left)
            pieces.append(self.piece(sequence, count, ()))
            left -= count
        self.in_flight += bool(pieces)
        return pieces

    def piece(self, sequence: Sequence, count: int, drafts: tuple[int, ...]) -> Piece:
        """Take it as computed from now on: steps run in the order in which they are begun."""
        first, sequence.computed = sequence.computed, sequence.computed + count
        sequence.guessing, sequence.drafts = bool(drafts), ()
        samples = sequence.computed - len(drafts) == len(sequence.tokens) + sequence.pending
        sequence.pending += samples
        return Piece(sequence, sequence.life, first, count, drafts, samples, list(sequence.table))

    def make_room(self, sequence: Sequence, tokens: int) -> bool:
        """Blocks for so many tokens; who came last gives his back, parked ones first. False if it is this one."""
        while self.blocks_for(tokens) - len(sequence.table) > len(self.pool.free):
            victim = next((one for one in self.running if one.parked), self.running[-1])
            self.preempt(victim)
            if victim is sequence:
                return False
        while len(sequence.table) < self.blocks_for(tokens):
            sequence.table.append(self.pool.take())
        return True

    def admit(self, sequence: Sequence, left: int) -> bool:
        """It gets what is cached of it, and blocks for its first piece."""
        pool, hit = self.pool, self.hit(sequence)
        tokens = len(hit) * pool.size + min(len(sequence.tokens) - len(hit) * pool.size, left)
        new = self.blocks_for(tokens) - len(hit)
        if new > len(pool.free) - sum(block in pool.free for block in hit):
            return False
        sequence.table = [pool.share(block) for block in hit]
        sequence.table += [pool.take() for _ in range(new)]
        sequence.computed = sequence.landed = len(hit) * pool.size
        self.waiting.remove(sequence)
        self.running.append(sequence)
        return True

    def hit(self, sequence: Sequence) -> list[int]:
        """The cached blocks that it begins with; at least one token is left to be computed."""
        blocks: list[int] = []
        while (len(blocks) + 1) * self.pool.size < len(sequence.tokens):
            block = self.pool.found.get(self.key(sequence, len(blocks)))
            if block is None:
                break
            blocks.append(block)
        return blocks

    def key(self, sequence: Sequence, number: int) -> int:
        """The name of a full block: all that its content depends on."""
        keys, size = sequence.keys, self.pool.size
        while len(keys) <= number:
            first = len(keys) * size
            items = [(name, at) for name, at, many in sequence.items if at < first + size and first < at + many]
            before = keys[-1] if keys else hash((self.weights, *sequence.apart))
            keys.append(hash((before, tuple(sequence.tokens[first : first + size]), *items)))
        return keys[number]

    def update(self, pieces: list[Piece], sampled: dict, drafts: dict) -> list[tuple[str, tuple[int, ...], str]]:
        """A step has ended. Returns for each sequence its new tokens, and why it ends or an empty text."""
        told = []
        self.in_flight -= bool(pieces)
        for piece in pieces:
            sequence = piece.sequence
            if self.sequences.get(sequence.id) is not sequence or sequence.life != piece.life:
                continue
            tokens = sampled[sequence.id]
            if tokens:
                sequence.pending -= 1
                sequence.computed -= len(piece.drafts) - (len(tokens) - 1)
                sequence.guessing = False
            sequence.landed = piece.first + piece.count - len(piece.drafts) + max(0, len(tokens) - 1)
            new, end = self.append(sequence, tokens)
            for number in range(sequence.landed // self.pool.size):
                if number < len(sequence.table):
                    self.pool.register(sequence.table[number], self.key(sequence, number))
            if end:
                self.end(sequence)
            elif tokens:
                sequence.drafts = drafts.get(sequence.id, ())
            if new or end:
                told.append((sequence.id, new, end))
        return told

    def append(self, sequence: Sequence, tokens: tuple[int, ...]) -> tuple[tuple[int, ...], str]:
        """The tokens that are still its own, and why it ends."""
        for number, token in enumerate(tokens):
            sequence.tokens.append(token)
            if token in sequence.stop:
                return tokens[: number + 1], "stop"
            if sequence.answer >= sequence.most:
                return tokens[: number + 1], "length"
        return tokens, ""
