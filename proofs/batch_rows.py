"""The free queue as a row of batches (T25): every operation on every small row, of which there are all forms.

A row has up to three batches, with up to three blocks that wait in them. A batch may have taken blocks in front of it,
a block that has left its middle, or that waits in another batch by now, and none at all that is left; the last one may
consist of blocks that do not exist yet. What an operation does to the *order*, the blocks that are left, is what a list
does. Each row is tried with the core's own limits and with limits so low that a batch is made shorter, a small one
joined, and empty ones are swept away in rows as small as these.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from .coverage import Watched
from .exhaustion import Trial, decide
from .heap_theorem import HeapTheorem
from .kernel import Evidence
from .symbolic_bytes import globals_of, seeing
from .theorem import Subject, UnavailableError
from .verdict import Verdict
from .wrong_code import changed

BOUNDED = (
    "a queue of batches: all rows of up to 3 batches with up to 3 free blocks, with stale entries, taken ones, empty "
    "batches and blocks that do not exist yet, and batches of up to 3 blocks that join; at the core's limits, and at "
    "limits of 2 blocks and 1 batch or entry"
)
_LIMITS = {"SMALL": 2, "MANY": 1, "_MAKE": 1}
_BATCH_LIMITS = {"MANY": 1, "SPARSE": 1}
_MOST, _BATCHES, _LONGEST = 3, 3, 2
_UNMADE, _HELD, _FRESH = 50, 80, 90
"""First ids of blocks that do not exist yet, that have left a batch, and that never were in one."""


class Form(NamedTuple):
    """One batch of a row."""

    left: int
    """Blocks that wait in it."""
    gone: int = -1
    """Place of the entry that does not wait in it any more, -1 for none."""
    elsewhere: bool = False
    """Whether that waits in the batch behind."""
    taken: bool = False
    """Whether one was taken from its front."""
    unmade: bool = False


def _forms() -> Iterator[Form]:
    for left in range(_LONGEST + 1):
        yield Form(left)
        yield Form(left, taken=True)
        for gone, elsewhere in product(range(left + 1), (False, True)):
            yield Form(left, gone, elsewhere)


def rows() -> Iterator[tuple[Form, ...]]:
    """All rows; of those that begin with a batch which has lost a block in its midst and one at its front, all of up to
    two batches."""
    forms = list(_forms())
    last = [*forms, *(Form(left, unmade=True) for left in (1, 2))]
    several = [[*[forms] * (number - 1), *[last] * (number > 0)] for number in range(_BATCHES + 1)]
    both = [form._replace(taken=True) for form in forms if form.gone >= 0]
    for kinds in (*several, [both], [both, last]):
        for row in product(*kinds):
            if sum(form.left for form in row) <= _MOST:
                yield row


class Made:
    """A real queue that is such a row."""

    def __init__(self, queue_kind: Any, block_kind: Any, row: Sequence[Form]) -> None:
        self._kind = block_kind
        self.queue = queue = queue_kind(())
        self.order: list[int] = []
        self.outside = [block_kind(_FRESH), block_kind(_FRESH + 1)]
        self.blocks: dict[int, Any] = {}
        """Those that wait and exist, by id."""
        batches: list[Any] = []
        missing: list[tuple[Any, int]] = []
        for number, form in enumerate(row):
            ids = list(range(10 * number, 10 * number + form.left))
            if form.unmade:
                queue.reserve(form.left, self._make)
                batches.append(queue.batches.pop())
                self.order += range(_UNMADE, _UNMADE + form.left)
                continue
            blocks = [block_kind(one) for one in ids]
            queue.append_n([*blocks, *([] if blocks else [block_kind(0)])])
            batch = queue.batches.pop()
            batch.blocks = list(blocks)
            batch.left = len(blocks)
            for entry in blocks:
                entry.state = batch
            if form.gone >= 0:
                held = block_kind(_HELD + number, 1)
                batch.blocks.insert(form.gone, held)
                if form.elsewhere:
                    missing.append((batch, form.gone + form.taken))
                self.outside.append(held)
            if form.taken:
                batch.blocks.insert(0, block_kind(_HELD + 5 + number, 1))
                self.outside.append(batch.blocks[0])
                batch.at = 1
            batches.append(batch)
            self.order += ids
            self.blocks |= dict(zip(ids, blocks, strict=True))
        for batch, place in missing:  # the entry is that of a block that waits in another batch by now
            others = [
                self.blocks[one] for one in self.order if one in self.blocks and self.blocks[one].state is not batch
            ]
            if others:
                self.outside.remove(batch.blocks[place])
                batch.blocks[place] = others[-1]
        queue.batches.extend(batches)
        queue.num_free_blocks = len(self.order)
        queue._empty = sum(not batch.left for batch in batches)
        self._unmade = _UNMADE

    def _make(self, count: int) -> list[Any]:
        made = [self._kind(self._unmade + number) for number in range(count)]
        self._unmade += count
        return made

    def require(self, order: Sequence[int], what: str) -> None:
        """AssertionError unless the queue reads like this, and what it says of itself is true."""
        queue = self.queue
        counted = queue.num_free_blocks
        read = [block.block_id for block in queue.get_all_free_blocks()]  # makes what does not exist yet
        members = [[b for b in batch.blocks[batch.at :] if b.state is batch] for batch in queue.batches]
        all_members = [block.block_id for row in members for block in row]
        waiting = {id(block) for row in members for block in row}
        others = [block for block in (*self.outside, *self.blocks.values()) if id(block) not in waiting]
        problems = {
            f"it reads {read}": read == list(order),
            f"its members are {all_members}": all_members == list(order),
            f"it counts {counted}": counted == len(order) == queue.num_free_blocks,
            "what is left of a batch": [batch.left for batch in queue.batches] == [len(row) for row in members],
            "how many batches are empty": queue._empty == sum(not row for row in members),
            "a block that waits nowhere has a batch": all(isinstance(block.state, int) for block in others),
            "its own check": _checks(queue),
        }
        wrong = [name for name, right in problems.items() if not right]
        if not wrong and [block.block_id for block in queue.popleft_n(len(order))] != list(order):
            wrong = ["what is taken from it"]
        if wrong:
            raise AssertionError(f"{what}: not {list(order)}: {', '.join(wrong)}")


def _checks(queue: Any) -> bool:
    try:
        queue.check()
    except AssertionError:
        return False
    return True


Try = Callable[[Made], Iterator[tuple[str, Callable[[Made], list[int]]]]]
"""For a row, what is to be done, in words, and how; that gives the order to be read then."""


def removals(made: Made) -> Iterator[tuple[str, Callable[[Made], list[int]]]]:
    """`remove` of each block that waits and exists."""
    for place, one in enumerate(made.order):
        if one in made.blocks:

            def remove(now: Made, place: int = place, one: int = one) -> list[int]:
                now.queue.remove(now.blocks[one])
                return now.order[:place] + now.order[place + 1 :]

            yield f"remove block {one}", remove


def refused_removals(made: Made) -> Iterator[tuple[str, Callable[[Made], list[int]]]]:
    """`remove` of what does not wait."""
    for number in range(len(made.outside)):

        def remove(now: Made, number: int = number) -> list[int]:
            return _refused(RuntimeError, now, lambda: now.queue.remove(now.outside[number]))

        yield f"remove block {made.outside[number].block_id}", remove


def takings(single: bool) -> Try:
    """`popleft`, or `popleft_n` of every number there is."""

    def ways(made: Made) -> Iterator[tuple[str, Callable[[Made], list[int]]]]:
        for count in range(1, min(2, len(made.order) + 1)) if single else range(len(made.order) + 1):

            def take(now: Made, count: int = count) -> list[int]:
                taken = [now.queue.popleft()] if single else now.queue.popleft_n(count)
                ids = [block.block_id for block in taken]
                if ids != now.order[:count] or any(block.state != 0 for block in taken):
                    raise AssertionError(f"{taken} are taken, not {now.order[:count]}")
                return now.order[count:]

            yield f"take {count}", take

    return ways


def refused_takings(made: Made) -> Iterator[tuple[str, Callable[[Made], list[int]]]]:
    """`popleft_n` of what there is not."""
    for count in (-1, len(made.order) + 1):

        def take(now: Made, count: int = count) -> list[int]:
            return _refused(AssertionError, now, lambda: now.queue.popleft_n(count))

        yield f"take {count}", take


def _empty_taken(made: Made) -> Iterator[tuple[str, Callable[[Made], list[int]]]]:
    if not made.order:
        yield "take one", lambda now: _refused(ValueError, now, now.queue.popleft)


def joining(front: bool, single: bool = False) -> Try:
    """`append`, `append_n` or `prepend_n` of blocks that do not wait, in two orders."""

    def ways(made: Made) -> Iterator[tuple[str, Callable[[Made], list[int]]]]:
        everything = range(len(made.outside))
        batches = [[one] for one in everything] if single else [[], *([one] for one in everything)]
        batches += [] if single else [list(everything)[:3], list(everything)[::-1][:3]]
        for chosen in batches:

            def join(now: Made, chosen: list[int] = chosen) -> list[int]:
                blocks = [now.outside[number] for number in chosen]
                ids = [block.block_id for block in blocks]
                if single:
                    now.queue.append(*blocks)
                elif front:
                    now.queue.prepend_n(blocks)
                else:
                    now.queue.append_n(blocks)
                return ids + now.order if front else now.order + ids

            yield f"join {[made.outside[number].block_id for number in chosen]}", join

    return ways


def _refused(error: type[Exception], made: Made, call: Callable[[], object]) -> list[int]:
    try:
        call()
    except error:
        return made.order
    raise AssertionError("it is not refused")


WAYS: dict[str, Try] = {
    "T25.popleft": takings(single=True),
    "T25.popleft.empty": _empty_taken,
    "T25.popleft_n": takings(single=False),
    "T25.popleft_n.refused": refused_takings,
    "T25.remove": removals,
    "T25.remove.refused": refused_removals,
    "T25.append": joining(front=False, single=True),
    "T25.append_n": joining(front=False),
    "T25.prepend_n": joining(front=True),
}
"""By the theorem's id."""


class Wrong(NamedTuple):
    """A line of the queue's own code changed."""

    what: str
    owner: str
    """The queue, or a batch: `queue` or `batch`."""
    method: str
    line: str
    instead: str


@dataclass(frozen=True, kw_only=True)
class QueueTheorem(HeapTheorem):
    """A statement about a free queue: of linked blocks as it stands; a row of batches is tried in all small forms.

    What is about loops along links (`.any`) says nothing of a row, which has other loops.
    """

    batches: tuple[Wrong, ...] = ()
    """What must be refuted of a queue of batches."""

    def settle(self, subject: Subject, seconds: float = 5.0, with_controls: bool = True) -> Verdict:
        """As every theorem about linked blocks; of batches, by trying all small rows."""
        try:
            kinds = subject.find("queue_kind"), subject.find("block_kind")
        except UnavailableError:
            return super().settle(subject, seconds, with_controls)
        if not hasattr(kinds[0], "lose"):
            return super().settle(subject, seconds, with_controls)
        start = time.perf_counter()
        verdict = Verdict(self.id, subject.name, "undecided", bounded=BOUNDED)
        if self.id not in WAYS:
            verdict.status, verdict.message = "unavailable", "a queue of batches has no loop along links"
            return verdict
        watched, ways = Watched(subject.modules()), WAYS[self.id]
        with watched:
            trial = Trial(*tried(ways, *kinds))
        verdict.covered = watched.functions()
        wrong = self.batches if with_controls else ()
        decide(verdict, trial, ((one.what, _is_refuted(one, ways, kinds)) for one in wrong))
        if not self.batches:
            verdict.status, verdict.message = "undecided", "it has no negative controls"
        verdict.seconds = time.perf_counter() - start
        return verdict


def tried(ways: Try, queue_kind: Any, block_kind: Any) -> tuple[Evidence, str]:
    """The cases that were tried, and what is wrong in the last of them; nothing if all are right."""
    cases = Evidence()
    names = globals_of(queue_kind.append_n)
    names_of_batches = globals_of(names["Batch"].lose)
    if not (_LIMITS.keys() <= names.keys() and _BATCH_LIMITS.keys() <= names_of_batches.keys()):
        return (
            cases,
            f"the limits {[*_LIMITS, *_BATCH_LIMITS]} have other names: rows as small as these do not reach them",
        )
    for limits, of_batches in (({}, {}), (_LIMITS, _BATCH_LIMITS)):
        with seeing(names, limits), seeing(names_of_batches, of_batches):
            for row in rows():
                for what, act in ways(Made(queue_kind, block_kind, row)):
                    made, case = Made(queue_kind, block_kind, row), (bool(limits), row, what)
                    try:
                        made.require(act(made), what)
                        cases.tried(case)
                    except Exception as error:
                        cases.tried(case, right=False)
                        return cases, f"{what} in {row}: {type(error).__name__}: {error}"
    return cases, ""


def _is_refuted(wrong: Wrong, ways: Try, kinds: tuple[Any, Any]) -> bool:
    owner = kinds[0] if wrong.owner == "queue" else globals_of(kinds[0].append_n)["Batch"]
    try:
        with _changed(owner, wrong):
            return bool(tried(ways, *kinds)[1])
    except ValueError:  # the line does not stand there: nobody can say
        return False


@contextmanager
def _changed(owner: Any, wrong: Wrong) -> Iterator[None]:
    right = getattr(owner, wrong.method)
    setattr(owner, wrong.method, changed(right, wrong.line, wrong.instead))
    try:
        yield
    finally:
        setattr(owner, wrong.method, right)
