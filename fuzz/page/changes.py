"""From one snapshot to the next: what has changed, as `document.Change` writes it down; and what is known of requests
after each step: lengths, tokens, the prefix tree, and which label stands for which content.

Pools may have 100,000 blocks, so what is as long as the pool is compared in arrays. A target may show anything: what
does not fit into the pool is replaced, never an error.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from ...model.attention import Rule
from ...model.features.names import NamedState
from ...model.identity import Identities, Identity, extra_keys
from ...model.ops import Allocate, Done, Lookup, OnRequest, Operation, Outcome, Preempt, Shape
from ...model.snapshot import Snapshot
from ...model.state import Request
from ..reports.document import Change, Node, RequestState, Step
from ..targets.answers import hit_of
from .words import RequestNumbers, cut, field_words

Numbers = npt.NDArray[np.int64]
SMALL = ("num_free", "usage", "num_identities", "events", "new_block_ids", "stats")
"""Fields of a snapshot that are kept as text."""
MAX_TOKENS = 65_536
"""Tokens of one request that are kept."""
MAX_NODES = 20_000
"""Contents that are kept."""
MAX_FIELD = 240
"""Longest text that is kept of a field, in characters."""
MOST = 2**31
"""Greatest number that is kept of a block id, a label or a count; a float holds each exactly."""
LEAST_RUN = 4
"""From so many on, blocks that follow one another are packed."""


def _end(text: str) -> str:
    """The end of a text, where what is new stands; the beginning of what is not drained is known already."""
    return text if len(text) <= MAX_FIELD else f"... {text[-MAX_FIELD:]}"


_FIELDS = {"ref": "ref_cnt", "label": "labels", "named": "labels", "first": "earliest", "tables": "tables"}


def visible_part(change: Change, hidden: Collection[str]) -> Change:
    """The change without what one of two sides hides, so that the other one can be compared with it."""
    fields: dict[str, Any] = {name: [] for name, field in _FIELDS.items() if field in hidden}
    fields |= {"queue": []} if {"free", "free_order"}.intersection(hidden) else {}
    fields |= {"registered": []} if "registered" in hidden else {}
    fields["small"] = {name: text for name, text in change.small.items() if name not in hidden}
    return replace(change, **fields)


def packed(blocks: Sequence[int]) -> list[int]:
    """Block ids with `-n, b` for `n` blocks that follow one another from `b` on.

    >>> packed([7, 3, 4, 5, 6])
    [7, -4, 3]
    """
    written: list[int] = []
    for _, run in groupby(enumerate(blocks), lambda pair: pair[1] - pair[0]):
        ids = [block for _, block in run]
        written += [-len(ids), ids[0]] if len(ids) >= LEAST_RUN else ids
    return written


def blocks_in(runs: Sequence[int]) -> set[int]:
    """The blocks in the runs of a row of `Change.tables`: each with its first place, its length and packed blocks.

    >>> sorted(blocks_in([0, 2, 7, 9, 5, 4, -4, 20]))
    [7, 9, 20, 21, 22, 23]
    """
    found: set[int] = set()
    rest = iter(runs)
    for _ in rest:  # the first place
        missing = next(rest)
        while missing > 0:
            block = next(rest)
            ids = range(block, block + 1) if block >= 0 else range(start := next(rest), start - block)
            found.update(ids)
            missing -= len(ids)
    return found


def queue_edits(old: Numbers, new: Numbers, size: int) -> list[list[int]]:
    """What turns one free queue into the other, for `Change.queue`; all ids are below `size`.

    Blocks that stay keep their order among themselves in nearly every step; where they do not, what lies between the
    places at which they part is taken out and put in again.

    >>> queue_edits(np.array([1, 2, 3]), np.array([2, 3, 9]), 10)
    [[3, 0, 9], [0, 1]]
    """
    stays_old, stays_new = _among(old, new, size), _among(new, old, size)
    kept_old, kept_new = old[stays_old], new[stays_new]
    if len(kept_old) != len(kept_new) or (kept_old != kept_new).any():
        same = int(np.argmax(_differs(kept_old, kept_new)))
        moved = np.zeros(size, dtype=bool)
        moved[kept_old[same : _common_end(kept_old, kept_new)]] = True
        stays_old, stays_new = stays_old & ~moved[old], stays_new & ~moved[new]
        if not (len(old[stays_old]) == len(new[stays_new]) and (old[stays_old] == new[stays_new]).all()):
            return [[0, len(old), *packed(new.tolist())]]  # a block stands in the queue twice
    return _edits(stays_old, stays_new, new)


def _edits(stays_old: npt.NDArray[np.bool_], stays_new: npt.NDArray[np.bool_], new: Numbers) -> list[list[int]]:
    """The edits at each gap between blocks that stay, the last first."""
    ahead_old, ahead_new = np.cumsum(stays_old), np.cumsum(stays_new)
    gone_at, come_at = np.flatnonzero(~stays_old), np.flatnonzero(~stays_new)
    gone: dict[int, int] = {}
    come: dict[int, list[int]] = {}
    for place in gone_at.tolist():
        gap = int(ahead_old[place])
        gone[gap] = gone.get(gap, 0) + 1
    for place in come_at.tolist():
        come.setdefault(int(ahead_new[place]), []).append(int(new[place]))
    kept_at = np.flatnonzero(stays_old)
    edits = []
    for gap in sorted(gone.keys() | come.keys(), reverse=True):
        place = int(kept_at[gap - 1]) + 1 if gap else 0
        edits.append([place, gone.get(gap, 0), *packed(come.get(gap, []))])
    return edits


def _among(these: Numbers, those: Numbers, size: int) -> npt.NDArray[np.bool_]:
    there = np.zeros(size, dtype=bool)
    there[those] = True
    return there[these]


def _differs(one: Numbers, other: Numbers) -> npt.NDArray[np.bool_]:
    least = min(len(one), len(other))
    return np.append(one[:least] != other[:least], True)


def _common_end(one: Numbers, other: Numbers) -> int:
    """The place in `one` from which on both end alike."""
    return len(one) - int(np.argmax(_differs(one[::-1], other[::-1])))


def _numbers(values: Sequence[int | None], none: int) -> Numbers:
    """The numbers as an array, `none` for None, and the nearest that are kept for those that are out of all bounds."""
    try:
        exact = np.array(values, dtype=np.float64)  # writes None as a value that is not a number
    except OverflowError:
        exact = np.array([none if value is None else max(-1, min(value, MOST)) for value in values], dtype=np.float64)
    return np.where(np.isnan(exact), none, exact.clip(-MOST, MOST)).astype(np.int64)


class Changes:
    """The changes of one core. Requests are numbered by `number`."""

    def __init__(self, num_blocks: int, requests: "RequestNumbers", hidden: Collection[str] = ()) -> None:
        """`hidden`: fields of a snapshot that mean nothing, of which those that are kept as text are left out."""
        self.num_blocks, self.requests = num_blocks, requests
        self._small = [name for name in SMALL if name not in hidden]
        self.last: Snapshot | None = None
        self._ref = np.zeros(num_blocks, dtype=np.int64)
        self._label = np.full(num_blocks, -1, dtype=np.int64)
        self._first = np.full(num_blocks, -1, dtype=np.int64)
        self._queue = np.zeros(0, dtype=np.int64)
        self._tables: Sequence[Mapping[str, Sequence[int]]] = ()
        self._registered: Sequence[Mapping[str, int]] = ()

    def to(self, after: Snapshot) -> Change:
        """What has changed since the last snapshot."""
        change, last = Change(), self.last
        if last is None or after.ref_cnt != last.ref_cnt:  # lists of the same numbers are soon found to be equal
            self._ref, change.ref = self._pairs(self._ref, after.ref_cnt, 0)
        if last is None or after.labels != last.labels:
            self._label, change.label = self._pairs(self._label, after.labels, -1)
        if last is None or after.earliest != last.earliest:
            self._first, change.first = self._pairs(self._first, after.earliest, -1)
        if last is None or after.free != last.free:
            queue = self._blocks(after.free)
            if len(queue) != len(self._queue) or (queue != self._queue).any():
                change.queue = queue_edits(self._queue, queue, self.num_blocks + 1)
            self._queue = queue
        if after.tables is not self._tables:
            change.tables, self._tables = list(self._rows(after.tables)), after.tables
        if after.registered is not self._registered:
            change.registered, self._registered = self._counts(after.registered), after.registered
        change.small = {
            name: _end(field_words(name, getattr(after, name)))
            for name in self._small
            if last is None or getattr(last, name) != getattr(after, name)
        }
        self.last = after
        return change

    def take_over(self, other: "Changes") -> None:
        """The other core, of the same pool, has come to the very same: it need not be looked at again."""
        self.__dict__.update(other.__dict__)  # nothing in it is ever changed, only replaced

    def _pairs(self, old: Numbers, new: Sequence[int | None], none: int) -> tuple[Numbers, list[int]]:
        now = np.full(self.num_blocks, none, dtype=np.int64)
        values = _numbers(new[: self.num_blocks], none)
        now[: len(values)] = values
        changed = np.flatnonzero(old != now)
        return now, np.stack([changed, now[changed]], axis=1).ravel().tolist()

    def _blocks(self, ids: Sequence[int]) -> Numbers:
        """Block ids as an array; those that the pool does not have are `num_blocks`."""
        blocks, size = _numbers(ids, -1), self.num_blocks
        blocks[(blocks < 0) | (blocks > size)] = size
        return blocks

    def _existing(self, ids: Sequence[int]) -> list[int]:
        size = self.num_blocks
        return [block if 0 <= block < size else size for block in ids]

    def _rows(self, tables: Sequence[Mapping[str, Sequence[int]]]) -> "list[list[int]]":
        rows = []
        for group, now in enumerate(tables):
            before = self._tables[group] if group < len(self._tables) else {}
            for name in [*before, *(name for name in now if name not in before)]:
                old, new = before.get(name), now.get(name)
                if old is new or old == new:
                    continue
                head = [group, self.requests(name)]
                rows.append([*head, -1] if new is None else [*head, len(new), *self._runs(old or (), new)])
        return rows

    def _runs(self, old: Sequence[int], new: Sequence[int]) -> list[int]:
        """First place, length and packed blocks of each run of entries that differ."""
        written, places = [], [i for i, block in enumerate(new) if i >= len(old) or old[i] != block]
        for _, run in groupby(enumerate(places), lambda pair: pair[1] - pair[0]):
            changed = [place for _, place in run]
            blocks = self._existing(new[changed[0] : changed[-1] + 1])
            written += [changed[0], len(blocks), *packed(blocks)]
        return written

    def _counts(self, registered: Sequence[Mapping[str, int]]) -> list[int]:
        written = []
        for group, now in enumerate(registered):
            before = self._registered[group] if group < len(self._registered) else {}
            for name in [*before, *(name for name in now if name not in before)]:
                if before.get(name) != now.get(name):
                    written += [group, self.requests(name), now.get(name, -1)]
        return written


def names_of(state: NamedState, sizes: Sequence[int]) -> dict[int, list[int]]:
    """Of each block that has several names, or whose first name covers a part of it: how many, the tokens in it that
    the first of them covers, and how many it holds. `sizes`: of a block of each group, in tokens."""
    found = {}
    for block, (group, _) in state.identity.items():
        count, size = 1 + len(state.also.get(block, ())), sizes[group]
        inside = state.covers.get(block, 0) % size
        if count > 1 or inside:
            found[block] = [count, inside or size, size]
    return found


class RequestContents:
    """Follows the requests of one run, as its scene knows them."""

    def __init__(self, shape: Shape, rules: Sequence[Rule], requests: RequestNumbers) -> None:
        self.shape, self.rules, self.requests = shape, rules, requests
        self.nodes: list[Node] = []
        self._identities = Identities()
        self._number_of: dict[Identity, int] = {}
        self._chains: dict[str, list[Identity]] = {}
        self._shown: dict[str, RequestState] = {}
        self._same: dict[str, Request] = {}
        self._tokens: dict[str, list[int]] = {}
        self._attached: dict[str, int] = {}
        self._hit: dict[str, int] = {}

    def follow(self, step: Step, operation: Operation, outcome: Outcome | None, live: Mapping[str, Request]) -> None:
        """Write into the step what it has changed."""
        self._note_hit(operation, outcome)
        for name, shown in self._shown.items():
            if name not in live and shown.live:
                self._end(step, name)
        for name, request in live.items():
            if self._same.get(name) is not request:
                self._begin(name, request)
            state = self._state(name, request)
            if state != self._shown.get(name):
                self._shown[name] = state
                step.requests.append(state)
            self._learn(step, name, request)

    def _note_hit(self, operation: Operation, outcome: Outcome | None) -> None:
        if not isinstance(operation, OnRequest) or not isinstance(outcome, Done):
            return
        name = operation.request
        if isinstance(operation, Lookup) and (found := hit_of(outcome)):
            self._hit[name] = found[0]
        elif isinstance(operation, Allocate) and operation.hit:
            self._attached[name] = max(0, self._hit.get(name, 0))
        elif isinstance(operation, Preempt):
            self._attached[name], self._hit[name] = 0, -1

    def _begin(self, name: str, request: Request) -> None:
        """The request is new, maybe under a name that another one had."""
        self._same[name], self._chains[name], self._tokens[name] = request, [], []
        self._attached[name], self._hit[name] = 0, -1

    def _end(self, step: Step, name: str) -> None:
        number = self.requests(name)
        self._shown[name] = RequestState(number, False, 0, 0, 0, 0, -1, False, 0, [])
        step.requests.append(self._shown[name])
        self._same.pop(name, None)

    def _state(self, name: str, request: Request) -> RequestState:
        reads = [max(0, rule.skipped(request.computed)) for rule in self.rules]
        return RequestState(
            self.requests(name),
            True,
            request.computed,
            request.scheduled,
            len(request.tokens),
            self._attached[name],
            self._hit[name],
            bool(request.arriving),
            request.preemptions,
            reads,
        )

    def _learn(self, step: Step, name: str, request: Request) -> None:
        """Tokens that became known, and the blocks that they have filled."""
        number, known, chain = self.requests(name), self._tokens[name], self._chains[name]
        if len(request.tokens) > len(known) and len(known) < MAX_TOKENS:
            new = request.tokens[len(known) : MAX_TOKENS]
            step.tokens.append([number, len(known), *new])
            known += new
        size = self.shape.hash_block_size
        first = len(chain)
        while self.shape.caching and (len(chain) + 1) * size <= len(known) and len(self.nodes) < MAX_NODES:
            start = len(chain) * size
            keys = extra_keys(request.submit, start, start + size)
            chain.append(self._identities(chain[-1] if chain else None, known[start : start + size], keys))
            self._number(chain[-1])
        if len(chain) > first:
            step.chain.append([number, first, *(self._number_of[one] for one in chain[first:])])

    def _number(self, identity: Identity) -> None:
        if identity not in self._number_of:
            parent = -1 if identity.parent is None else self._number_of[identity.parent]
            keys = cut(", ".join(f"{tag} {value}" for tag, value in identity.keys), 200)
            self._number_of[identity] = len(self.nodes)
            self.nodes.append(Node(parent, list(identity.tokens), keys))

    def naming(self, snapshot: Snapshot, labels: Sequence[int]) -> list[int]:
        """Triples of `Change.named` for blocks with labels that are new (pairs: block, label): the content that the
        request there has, in whose table the block is."""
        wanted = {block: label for block, label in zip(labels[::2], labels[1::2], strict=True) if label >= 0}
        named: list[int] = []
        for group, tables in enumerate(snapshot.tables if wanted else ()):
            size = self.rules[group].b
            for name, table in tables.items():
                chain = self._chains.get(name, [])
                for place, block in enumerate(table):
                    at = (place + 1) * size // self.shape.hash_block_size - 1
                    if block in wanted and 0 <= at < len(chain):
                        named += [wanted.pop(block), group, self._number_of[chain[at]]]
        return named
