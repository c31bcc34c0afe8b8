"""Recorded traffic through one small scheduler, the same for every core, in blocks of 16 tokens.

A trace is JSON lines as of the Mooncake project: `input_length`, `output_length` in tokens, and `hash_ids`, one for
each 512 tokens of the prompt. Equal ids at equal places are equal tokens, so the ids say what can be hit.
"""

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..findings.reading import json_of
from .running import TOKEN
from .workload import BLOCK, BenchPiece, BenchWorkload, Facts, require, shape_of

SPAN = 512
"""Tokens that an id of a trace names."""
MAX_ROW_BYTES = 2**22
MAX_TOKENS = 2**27
"""Of a prompt, and of what is generated for it."""


class TrafficRow(NamedTuple):
    """A request of a trace."""

    prompt: int
    """Tokens of the prompt."""
    output: int
    """Tokens that are generated; at least 1."""
    ids: tuple[int, ...]
    """What each `SPAN` tokens of the prompt are."""


def read_trace(path: Path, count: int) -> list[TrafficRow]:
    """The first rows of a trace. ValueError, in a line, for what is none; OSError if it cannot be read."""
    rows = []
    if not path.is_file() and path.exists():
        raise ValueError(f"{path} is no regular file; name a trace")
    with path.open("rb") as lines:
        for number, line in enumerate(iter(lambda: lines.readline(MAX_ROW_BYTES), b""), 1):
            try:
                raw: Any = json_of(line)
                row = TrafficRow(
                    int(raw["input_length"]), max(1, int(raw["output_length"])), tuple(map(int, raw["hash_ids"]))
                )
                if row.prompt < 1 or len(row.ids) != -(-row.prompt // SPAN):
                    raise ValueError(f"{len(row.ids)} hash_ids do not name {row.prompt} tokens, {SPAN} each")
                if row.prompt > MAX_TOKENS or row.output > MAX_TOKENS:
                    raise ValueError(f"more than {MAX_TOKENS} tokens")
            except (ValueError, KeyError, TypeError, OverflowError) as error:
                raise ValueError(
                    f"{path}, line {number}: no row of a trace ({type(error).__name__}: {error}); "
                    "expected input_length, output_length and hash_ids"
                ) from None
            rows.append(row)
            if len(rows) == count:
                break
    if not rows:
        raise ValueError(f"{path} has no rows; expected a line of JSON for each request")
    return rows


def ideal_hits(rows: Sequence[TrafficRow]) -> int:
    """Tokens that would be hit if nothing were ever evicted. The last token of a prompt is always computed.

    >>> ideal_hits([Row(1024, 1, (1, 2)), Row(1024, 1, (1, 3)), Row(513, 1, (1, 3)), Row(512, 1, (1,))])
    1520
    """
    seen: dict[tuple[int, ...], int] = {}
    hits = 0
    for row in rows:
        hit, spans = 0, [(row.ids[: at + 1], min(SPAN, row.prompt - at * SPAN)) for at in range(len(row.ids))]
        for prefix, tokens in spans:
            cached = min(seen.get(prefix, 0), tokens // BLOCK * BLOCK)
            hit += cached
            if cached < SPAN:
                break
        hits += min(hit, (row.prompt - 1) // BLOCK * BLOCK)
        seen.update({prefix: max(seen.get(prefix, 0), tokens // BLOCK * BLOCK) for prefix, tokens in spans})
    return hits


class Traffic(BenchWorkload):
    """The rows of a trace, first come, first served. One operation is one request that has ended.

    Timed are all calls of the core: requests made and hashed, lookups, allocations, tokens appended, releases.
    Parameters: `rows` of the trace, `pool` blocks, `running` requests at most, `budget` tokens of a step, and how many
    requests `end` in a piece. After the last row it begins again with an empty core.
    """

    def prepare(self) -> None:
        """See `BenchWorkload.prepare`."""
        self._rows = [TrafficRow(int(prompt), int(output), tuple(ids)) for prompt, output, ids in self.params["rows"]]
        self._names = {name: index for index, name in enumerate({name: 0 for row in self._rows for name in row.ids})}
        self._begin()

    def _begin(self, events: bool = False) -> None:
        self.driver.build(shape_of(self.params, int(self.params["pool"]), events))
        self._waiting: deque[_Live] = deque(map(_Live, self._rows))
        self._running: list[_Live] = []
        self._counts: Facts = {"ended": 0, "prompt": 0, "hit": 0, "preempted": 0}
        self._ns = 0
        self.driver.decode([])  # says so if there is no such step

    def piece(self) -> BenchPiece:
        """See `BenchWorkload.piece`."""
        if not self._waiting and not self._running:
            self._begin()
        before, self._ns = dict(self._counts), 0
        goal = min(len(self._rows), self._counts["ended"] + int(self.params["end"]))
        while self._counts["ended"] < goal:
            self._step()
        did = {name: count - before[name] for name, count in self._counts.items()}
        return BenchPiece(self._ns, did["ended"], {}, did)

    def summary(self) -> Facts:
        """All rows once more, with events: prompt and hit tokens, evicted blocks, preemptions, and the ideal hits."""
        self._begin(events=True)
        removed = 0
        while self._waiting or self._running:
            self._step()
            removed += self.driver.removed(self.driver.take_events())
        counts = self._counts
        ideal = ideal_hits(self._rows)
        return {**{name: counts[name] for name in ("prompt", "hit", "preempted")}, "evicted": removed, "ideal": ideal}

    # The scheduler.

    def _step(self) -> None:
        """One step: a token for each request that decodes, chunks for those that prefill, then new requests, unless
        one had to make room."""
        budget, driver, preempted = int(self.params["budget"]), self.driver, self._counts["preempted"]
        decoding = [live for live in self._running if live.left == 0]
        if decoding:
            budget -= self._decode(decoding)
        for live in [live for live in self._running if live.left]:
            step = min(budget, live.left)
            if step and live in self._running:
                self._until_it_fits(live, step)
                budget -= step
        most = int(self.params["running"]) if self._counts["preempted"] == preempted else 1
        while self._waiting and budget > 0 and len(self._running) < most:
            used = self._admit(self._waiting[0], budget)
            if not used:
                break
            self._running.append(self._waiting.popleft())
            budget -= used
        require(bool(self._running), "no request runs and the first one does not fit into the empty pool")
        ended = []
        for live in self._running:
            if live.step:
                driver.ran([live.request], live.step)
                live.step = 0
            if live.left == 0:
                live.sampled += 1
                if live.sampled >= live.row.output:
                    ended.append(live)
        going_on = [live for live in self._running if live.left == 0 and live not in ended]
        self._clocked(driver.append, [live.request for live in going_on], TOKEN)
        self._clocked(driver.free, [live.request for live in ended])
        self._running = [live for live in self._running if live not in ended]
        self._counts["ended"] += len(ended)

    def _decode(self, decoding: "list[_Live]") -> int:
        """Tokens of the decode steps that fit; whoever came last makes room for those before."""
        left = list(decoding)
        while left:
            refused = self._clocked(self.driver.decode, [live.request for live in left])
            done = left if refused is None else left[: [live.request for live in left].index(refused)]
            for live in done:
                live.step = 1
            left = left[len(done) :]
            if left:
                self._preempt_last()
                left = [live for live in left if live in self._running]
        return sum(live.step for live in decoding)

    def _until_it_fits(self, live: "_Live", step: int) -> None:
        while not self._clocked(self.driver.proceed, live.request, step):
            self._preempt_last()
            if live not in self._running:
                return
        live.step, live.left = step, live.left - step

    def _preempt_last(self) -> None:
        live = self._running.pop()
        self._clocked(self.driver.preempt, live.request)
        live.step, live.left = 0, live.row.prompt + live.sampled
        self._counts["preempted"] += 1
        self._waiting.appendleft(live)

    def _admit(self, live: "_Live", budget: int) -> int:
        """Tokens of its first step; 0 if there is no room."""
        driver = self.driver
        if live.request is None:
            live.request = self._clocked(driver.request, f"t{self.number()}", self._tokens(live.row))
        total = live.row.prompt + live.sampled
        hit = int(self._clocked(driver.lookup, live.request))
        step = min(budget, total - hit)
        if not self._clocked(driver.admit, live.request, hit, step):
            return 0
        if not live.counted:  # not again when it comes back
            self._counts["prompt"] += total
            self._counts["hit"] += hit
            live.counted = True
        live.step, live.left = hit + step, total - hit - step
        return step

    def _tokens(self, row: TrafficRow) -> list[int]:
        starts = [self._names[name] * SPAN for name in row.ids]
        return [token for start in starts for token in range(start, start + SPAN)][: row.prompt]

    def _clocked(self, call: Any, *arguments: object) -> Any:
        """What the call returns; its time counts."""
        clock = self.driver.clock
        begin = clock()
        answer = call(*arguments)
        self._ns += clock() - begin
        return answer


class _Live:
    """A request that waits or runs."""

    __slots__ = ("counted", "left", "request", "row", "sampled", "step")

    def __init__(self, row: TrafficRow) -> None:
        self.row = row
        self.request: Any = None
        self.sampled = 0
        """Output tokens so far."""
        self.left = row.prompt
        """Known tokens not scheduled yet."""
        self.step = 0
        """Tokens of the running step, with its hit."""
        self.counted = False
