"""Shows, by trying every cache in small scopes, that the hit of several groups is their longest common one (T14).

A *scope* is a set of groups and a greatest limit. `exhaust` goes through every limit up to it and, for each, through
every set of registered blocks that lie within the limit; a block that ends one token behind the limit is always
registered, since a search that looks too far is tempted most by it (of a group that drafts need, both is tried). A
search that says which blocks it asked about is run once for all sets that agree in these: it answers the same to all.
Each answer is held against a definition that asks attention about tokens and knows no search:

* a length `L` is *sound* (S7) if it is a multiple of the scheduler block size, at most the limit, and in every group
  each block with a token that the query at position `L` attends to is registered; a Mamba query reads the state of
  token `L - 1`;
* it is *backed* if, moreover, each group that drafts need has block `L / b` registered too, which may end with the
  request's last token;
* length 0 is both. The *longest common hit* is the greatest sound and backed length.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from itertools import product
from typing import NamedTuple, Protocol, TypeAlias

from ..model.attention import rule_for
from ..model.core import Model
from ..model.ops import NULL, Allocate, Evict, Group, Lookup, Operation, Shape, Submit
from .hybrid_scopes import Scope
from .kernel import Evidence

Registered: TypeAlias = tuple[int, ...]
"""Per group, a number whose bit `i` says that block `i` is registered."""


Asked: TypeAlias = tuple[tuple[int, int], ...]
"""Group and block, in the order in which a search asked whether it is registered; some perhaps more than once."""


class Answer(NamedTuple):
    """What a search found: tokens, and block ids per group (0: null)."""

    length: int
    rows: tuple[tuple[int, ...], ...]
    asked: Asked | None = None
    """All that it has looked at of what is registered; None if that is not known."""


class Search(Protocol):
    """A subject with this scope's groups: the hit of at most `limit` tokens, where so much is registered."""

    def __call__(self, limit: int, registered: Registered) -> Answer:
        """What the subject finds. Any exception counts as `SearchEnd.RAISED`."""


class SearchEnd(StrEnum):
    """What an answer is worth; the first that applies."""

    RAISED = "raised an exception"
    UNSOUND = "not a hit: something that the next query reads is not there"
    UNBACKED = "an eagle group has no block to give up"
    SHORTER = "a hit, but a longer one exists"
    LONGEST = "the longest common hit"


class Counterexample(NamedTuple):
    """One cache and one limit, and what a search makes of them."""

    limit: int
    registered: tuple[tuple[int, ...], ...]  # block indices per group
    found: int | None  # tokens; None if it raised
    longest: int  # tokens
    rows: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        return f"limit {self.limit}, registered {list(self.registered)}: {self.found} tokens, longest {self.longest}"


@dataclass
class Searches:
    """What came of one scope."""

    scope: Scope
    verdicts: Counter[SearchEnd] = field(default_factory=Counter)
    smallest: dict[SearchEnd, Counterexample] = field(default_factory=dict)
    """The least one of each bad verdict, by limit, then by the number of registered blocks."""
    most_lost: int = 0  # tokens by which a hit was too short
    untidy: int = 0  # answers with a row of another length than the hit, or a real block that is not needed

    @property
    def searches(self) -> int:
        """How many caches and limits were tried."""
        return self.verdicts.total()

    @property
    def good(self) -> int:
        """In how many the answer is the longest common hit, and tidy, as far as is counted."""
        return self.verdicts[SearchEnd.LONGEST] - self.untidy

    @property
    def holds(self) -> bool:
        """True if every answer is the longest common hit, and tidy."""
        return self.verdicts[SearchEnd.LONGEST] == self.searches and not self.untidy

    def note(self, verdict: SearchEnd, example: Counterexample) -> None:
        """Remember a bad answer if it is smaller than the one known."""
        known = self.smallest.get(verdict)
        if known is None or _size(example) < _size(known):
            self.smallest[verdict] = example


def _size(example: Counterexample) -> tuple[int, int, tuple[tuple[int, ...], ...]]:
    return example.limit, sum(map(len, example.registered)), example.registered


_ANY_SHAPE = Shape((), 1, 1, 1, 1, 1)
"""What is read depends on the group alone."""


def reads(group: Group, length: int) -> frozenset[int]:
    """Blocks with a token before `length` that the query at position `length` attends to."""
    rule = rule_for(group, _ANY_SHAPE)
    return frozenset(t // group.block_size for t in range(length) if rule.attends(length, t))


def needed_blocks(group: Group, length: int, gives_up: bool) -> frozenset[int]:
    """Blocks that must be registered for a hit of `length` tokens: what is read, and the block behind for drafts."""
    if not length:
        return frozenset()
    return reads(group, length) | ({length // group.block_size} if gives_up else frozenset())


class Definition:
    """The common hits of a scope, by the definition above. Sets of blocks and of lengths are bits of a number."""

    def __init__(self, scope: Scope) -> None:
        self.scope, self.alignment = scope, scope.alignment
        self.gives_up = [scope.gives_up(group) for group in range(len(scope.groups))]
        # One cache for each definition, so that they go together.
        self.read = cache(lambda group, length: bits(reads(scope.groups[group], length)))
        self.needed = cache(lambda group, length, drop: bits(needed_blocks(scope.groups[group], length, drop)))
        self.tidy_row = cache(self._tidy_row)
        self.lengths_of = cache(self._lengths_of)

    def valid(self, group: int, length: int, drop: bool, limit: int, registered: int) -> bool:
        """True if an aligned length is a hit of one group within the limit."""
        margin = self.scope.groups[group].block_size - 1 if drop and length else 0
        need = self.needed(group, length, drop)
        return length + margin <= limit and registered & need == need

    def _lengths_of(self, group: int, limit: int, registered: int) -> int:
        """The valid lengths of one group within the limit."""
        drop, lengths = self.gives_up[group], range(0, limit + 1, self.alignment)
        return bits(n for n in lengths if self.valid(group, n, drop, limit, registered))

    def common(self, limit: int, registered: Registered) -> int:
        """The lengths that are a hit of every group; bit 0 is always set."""
        lengths = -1
        for group, blocks in enumerate(registered):
            lengths &= self.lengths_of(group, limit, blocks)
        return lengths

    def _tidy_row(self, group: int, length: int) -> tuple[int, ...]:
        """A group's row for a hit: real where the hit needs the block, null elsewhere."""
        kept = self.needed(group, length, False)
        entries = range(length // self.scope.groups[group].block_size)
        return tuple([self.scope.block_id(group, i) if kept >> i & 1 else NULL for i in entries])

    def sound(self, answer: Answer, limit: int, registered: Registered) -> bool:
        """True if each group's row has all that the next query reads, within the limit and aligned."""
        length = answer.length
        if not 0 <= length <= limit or length % self.alignment or len(answer.rows) != len(registered):
            return False
        for group, (row, blocks) in enumerate(zip(answer.rows, registered, strict=True)):
            read = self.read(group, length)
            if blocks & read != read or (row != self.tidy_row(group, length) and read & ~self.held(group, row)):
                return False
        return True

    def tidy(self, answer: Answer) -> bool:
        """True if each row is as long as the hit, null where the hit needs nothing, and without foreign blocks."""
        for group, row in enumerate(answer.rows):
            if row == self.tidy_row(group, answer.length):
                continue
            held, real = self.held(group, row), sum(block != NULL for block in row)
            spare = held & ~self.needed(group, answer.length, False)
            if len(row) * self.scope.groups[group].block_size != answer.length or real != held.bit_count() or spare:
                return False
        return True

    def held(self, group: int, row: tuple[int, ...]) -> int:
        """The entries of a row that hold the group's own block of that content."""
        return bits(i for i, block in enumerate(row) if block == self.scope.block_id(group, i))


def bits(numbers: Iterable[int]) -> int:
    """A set of numbers as the bits of one."""
    return sum(1 << number for number in numbers)


def exhaust(scope: Scope, search: Search, evidence: Evidence | None = None) -> Searches:
    """Hold a search against the definition for every limit and every set of registered blocks of the scope, and record
    each answer with the sets that it is given to."""
    definition, tally = Definition(scope), Searches(scope)
    evidence, name = Evidence() if evidence is None else evidence, str(scope)
    sizes = [group.block_size for group in scope.groups]
    for limit in range(scope.tokens + 1):
        inside = [(1 << (limit + drop) // size) - 1 for size, drop in zip(sizes, definition.gives_up, strict=True)]
        behind = [((1 << (limit + 1) // size) - 1) & ~free for size, free in zip(sizes, inside, strict=True)]
        waiting = [_Caches(tuple(behind), tuple(inside))]
        while waiting:
            caches = waiting.pop()
            answer = _answer(search, limit, caches.registered)
            for group, i in _asked(answer, inside):
                if caches.free[group] >> i & 1:
                    waiting.append(caches.fixed(group, i, True))
                    caches = caches.fixed(group, i, False)
            good = tally.good
            _judge_all(definition, tally, answer, limit, caches)
            every = caches.how_many()
            evidence.tried((name, limit, *caches), tally.good - good == every, every)
    return tally


class _Caches(NamedTuple):
    """Sets of registered blocks: these, and of the free ones any."""

    registered: Registered
    free: Registered

    def fixed(self, group: int, i: int, registered: bool) -> "_Caches":
        """Those of them in which this block is registered, or is not."""
        bit = 1 << i
        others = [blocks & ~bit if g == group else blocks for g, blocks in enumerate(self.free)]
        more = [blocks | bit if registered and g == group else blocks for g, blocks in enumerate(self.registered)]
        return _Caches(tuple(more), tuple(others))

    def how_many(self) -> int:
        """How many these are."""
        return 1 << sum(blocks.bit_count() for blocks in self.free)

    def each(self) -> Iterator[Registered]:
        """One after the other."""
        for more in product(*map(_subsets, self.free)):
            yield tuple([blocks | one for blocks, one in zip(self.registered, more, strict=True)])


def _subsets(blocks: int) -> list[int]:
    return [one for one in range(blocks + 1) if not one & ~blocks]


def _answer(search: Search, limit: int, registered: Registered) -> Answer | None:
    """What the search answers; None if it raises."""
    try:
        return search(limit, registered)
    except Exception:
        return None


def _asked(answer: Answer | None, inside: Sequence[int]) -> Asked:
    """The blocks on which an answer may depend."""
    if answer is not None and answer.asked is not None:
        return answer.asked
    return tuple((group, i) for group, blocks in enumerate(inside) for i in range(blocks.bit_length()))


def _judge_all(definition: Definition, tally: Searches, answer: Answer | None, limit: int, caches: _Caches) -> None:
    """Judge an answer that is given to all of these.

    What is registered can only make more lengths a hit. So an answer that is right with none of the free blocks and
    with all of them is right with any.
    """
    everything = tuple([some | more for some, more in zip(caches.registered, caches.free, strict=True)])
    ends = [_verdict(definition, answer, limit, registered) for registered in {caches.registered, everything}]
    if answer is not None and set(ends) == {SearchEnd.LONGEST}:
        tally.verdicts[SearchEnd.LONGEST] += caches.how_many()
        tally.untidy += 0 if definition.tidy(answer) else caches.how_many()
        return
    for registered in caches.each():
        _note(definition, tally, answer, limit, registered)


def _verdict(definition: Definition, answer: Answer | None, limit: int, registered: Registered) -> SearchEnd:
    """What an answer is worth; None: the search raised."""
    if answer is None:
        return SearchEnd.RAISED
    if not definition.sound(answer, limit, registered):
        return SearchEnd.UNSOUND
    common = definition.common(limit, registered)
    if not common >> answer.length & 1:
        return SearchEnd.UNBACKED
    return SearchEnd.LONGEST if answer.length == common.bit_length() - 1 else SearchEnd.SHORTER


def _note(definition: Definition, tally: Searches, answer: Answer | None, limit: int, registered: Registered) -> None:
    """Count what an answer is worth for one cache, and remember it if it is bad."""
    verdict = _verdict(definition, answer, limit, registered)
    longest = definition.common(limit, registered).bit_length() - 1
    tally.untidy += answer is not None and not definition.tidy(answer)
    tally.verdicts[verdict] += 1
    if verdict is SearchEnd.SHORTER and answer:
        tally.most_lost = max(tally.most_lost, longest - answer.length)
    if verdict is not SearchEnd.LONGEST:
        indices = tuple(tuple(i for i in range(blocks.bit_length()) if blocks >> i & 1) for blocks in registered)
        found, rows = (answer.length, answer.rows) if answer else (None, ())
        tally.note(verdict, Counterexample(limit, indices, found, longest, rows))


def story(scope: Scope, example: Counterexample) -> tuple[Operation, ...] | None:
    """Operations on a core of `scope.shape` after which the last one, a lookup, meets this very counterexample.

    A request registers what it can, what is not wanted is evicted, and the same prompt, cut to one token more than the
    limit, is looked up. None if a core does not register one of the blocks in that way.
    """
    prompt = tuple(range(scope.tokens + 1 + 2 * scope.alignment))
    model = Model(scope.shape)
    operations: list[Operation] = [Submit("a", prompt), Allocate("a", len(prompt))]
    for operation in operations:
        model.step(operation)
    tables = [table["a"] for table in model.state.tables]
    wanted = {tables[group][i] for group, indices in enumerate(example.registered) for i in indices}
    if not wanted <= set(model.state.identity):
        return None
    unwanted = tuple(sorted(set(model.state.identity) - wanted))
    evict = (Evict(unwanted),) if unwanted else ()
    return (*operations, *evict, Submit("b", prompt[: example.limit + 1]), Lookup("b"))
