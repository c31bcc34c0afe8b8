"""Every state of small scopes of the rule of today, in which our core of today is held to it by lockstep and the shadow
memory.

States are met breadth first, as by `exploration.search`, but none is put back: the shortest way to it is walked again.
So each feature may keep what it likes, at the price of scopes of some thousand states. A state is what the model keeps,
up to renaming blocks; what lockstep compares and the shadow memory reads holds in all of them.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...model import ops
from ...model.core import Model
from ...model.features.names import NamedState
from ...model.identity import Identity
from ...model.legal import allows
from ...model.ops import NULL, Done, Operation, Shape
from ..exploration.scope import NAMES
from ..exploration.search import BROKEN, EXHAUSTED, STATES, Exploration, ExploredFinding, Limits
from ..findings.oracle_names import LOCKSTEP, SHADOW
from ..runs.judging import Judging
from ..runs.lockstep import LockstepRun
from ..targets.base import Target

Move: TypeAlias = Sequence[Operation]
"""Operations that nothing comes between."""


@dataclass(frozen=True)
class TodayScope:
    """A core, and what may happen to it."""

    name: str
    shape: Shape
    prompts: tuple[tuple[int, ...], ...]
    must_reach: tuple[str, ...]
    requests: int = 2
    outputs: int = 1
    chunks: tuple[int, ...] = (1, 9)
    """How many new tokens a step may compute; at most those that are left."""
    external: tuple[int, ...] = ()
    """How many tokens a connector may bring behind a hit, later."""
    for_connector: bool = False
    alone: bool = False
    """Steps may be said to have nobody else in them."""
    keeps: bool = False
    """Blocks may outlive their request, and be read on by who gives them back."""
    evicts: bool = False


@dataclass
class Way:
    """How a state was met first: from which one, by which operations."""

    parent: int
    move: Move
    depth: int


@dataclass
class TodaySearch:
    """The states of one scope as far as they are known."""

    scope: TodayScope
    target: Target
    states: dict[Any, int] = field(default_factory=dict)
    ways: list[Way] = field(default_factory=list)
    reached: Counter[str] = field(default_factory=Counter)
    transitions: int = 0
    depth: int = 0
    seconds: float = 0.0
    finding: ExploredFinding | None = None

    def __post_init__(self) -> None:
        self._contents: dict[Any, int] = {}
        self._run = LockstepRun(self.target, Judging((LOCKSTEP, SHADOW)))
        self._walked: Sequence[Operation] | None = None

    def run(self, limits: Limits = Limits(), on_progress: Callable[[Any], None] = lambda search: None) -> Exploration:  # noqa: B008  # immutable
        """Go on until all states are visited, something is found, or the limit is reached."""
        started, cpu, at, ended = time.monotonic(), time.process_time(), 0, EXHAUSTED
        self._met(self.walk(()), Way(0, (), 0))
        while at < len(self.ways) and self.finding is None:
            if limits.states is not None and len(self.ways) >= limits.states:
                ended = STATES
                break
            path, self.depth = self.path(at), self.ways[at].depth
            for move in [*moves(self.scope, deepcopy(self.walk(path)))]:  # which asks it, and the next walk goes on
                model = self.walk(path, move)
                self.transitions += 1
                if self.finding is not None:
                    ended = BROKEN
                    break
                self._met(model, Way(at, move, self.depth + 1))
            at += 1
            self.seconds = time.monotonic() - started
            on_progress(self)
        missing = [name for name in self.scope.must_reach if not self.reached[name]]
        return Exploration(
            scope=self.scope.name,
            states=len(self.ways),
            resting=len(self.ways),
            transitions=self.transitions,
            depth=self.depth,
            seconds=time.monotonic() - started,
            cpu_seconds=time.process_time() - cpu,
            ended=ended,
            reached={name: count for name, count in sorted(self.reached.items()) if count},
            missing=tuple(missing) if ended == EXHAUSTED else (),
            finding=self.finding,
        )

    def walk(self, path: Sequence[Operation], move: Move = ()) -> Model:
        """The model behind these operations, as far as they are possible: a step ends where there was no room. Lockstep
        has judged them; what the last ones reach counts. Where the last walk ended without a move, this one goes on."""
        found, walked = None, self._walked
        self._walked = None if move else path
        if walked is None or walked != path:
            found = self._run.start(self.scope.shape)
            for operation in path:
                if found is None and allows(self._run.model, operation):
                    found = self._run.step(operation)
        before = self._run.reached()
        for operation in move:
            if found is None and allows(self._run.model, operation):
                found = self._run.step(operation)
        if move and found is None:
            self.reached.update(self._run.reached() - before)
        if found is not None:
            self.finding = ExploredFinding(((found.observable, str(found)),), tuple(self._run.operations))
        return self._run.model

    def path(self, number: int) -> tuple[Operation, ...]:
        """The shortest way to a state."""
        parts: list[Move] = []
        while number:
            parts.append(self.ways[number].move)
            number = self.ways[number].parent
        return tuple(operation for part in reversed(parts) for operation in part)

    def _met(self, model: Model, way: Way) -> None:
        state = self.state_of(model)
        if state not in self.states:
            self.states[state] = len(self.ways)
            self.ways.append(way)

    def _content(self, identity: Identity | None) -> int:
        """A number for a content, the same in all walks."""
        if identity is None:
            return 0
        key = (self._content(identity.parent), identity.tokens, identity.keys)
        return self._contents.setdefault(key, len(self._contents) + 1)

    def state_of(self, model: Model) -> Any:
        """All that decides what a model does from here on, up to renaming blocks."""
        state, number = model.state, {NULL: 0}
        assert isinstance(state, NamedState)
        met = [block for tables in state.tables for name in sorted(tables) for block in tables[name]]
        for block in (*met, *state.outside, *state.queue()):
            number.setdefault(block, len(number))
        names: dict[Any, list[int]] = {}
        for block, (group, identity) in sorted(state.given, key=state.given.__getitem__):
            names.setdefault((group, self._content(identity)), []).append(number[block])
        return (
            tuple([self._request(model, name) for name in NAMES[: self.scope.requests]]),
            tuple([tuple(sorted((n, *(number[b] for b in t)) for n, t in tables.items())) for tables in state.tables]),
            tuple([tuple(sorted(registered.items())) for registered in model.registered]),
            tuple([number[block] for block in state.queue()]),
            tuple([number[block] for block in state.outside]),
            frozenset((key, tuple(blocks)) for key, blocks in names.items()),
            frozenset((number[block], covers) for block, covers in state.covers.items()),
            frozenset(number[block] for block in state.watched),
            frozenset((group, self._content(one)) for group, one in model.registered_this_step),
            frozenset((*key, i, number[block]) for key, (i, block) in model.tails.items()),
            frozenset((*key, end) for key, end in model.named_itself.items()),
        )

    def _request(self, model: Model, name: str) -> Any:
        request = model.requests.get(name)
        if request is None:
            return None
        kept = (request.computed, request.processed, request.scheduled, request.arriving, request.runs)
        return (len(request.submit.prompt), *request.tokens), kept, request.junction, request.written


def moves(scope: TodayScope, model: Model) -> Iterator[Move]:
    """What may happen in a state."""
    names = NAMES[: scope.requests]
    absent = [name for name in names if name not in model.requests][:1]  # one is like another
    for name in absent:
        yield from ([ops.Submit(name, prompt)] for prompt in scope.prompts)
    for name in [name for name in names if name in model.requests]:
        yield from _of_request(scope, model, name)
    outside = tuple(dict.fromkeys(model.state.outside))
    if outside:
        yield [ops.Release(outside)]
        yield [ops.Release(outside[:1], watched=True)]
    if model.registered_this_step:
        yield [ops.StepStart()]
    if scope.evicts:
        yield from ([ops.Evict((block,))] for block in sorted(model.state.identity))


def _of_request(scope: TodayScope, model: Model, name: str) -> Iterator[Move]:
    request = model.requests[name]
    known, prompt = len(request.tokens), len(request.submit.prompt)
    if request.arriving:
        yield [ops.Arrive(name)]
        return
    if known >= prompt + scope.outputs:
        yield [ops.Free(name)]
        if scope.keeps and not model.state.outside:
            yield [ops.Free(name, keep=True)]
        return
    if request.computed:
        yield [ops.Preempt(name)]
        for new in sorted({min(chunk, known - request.computed) for chunk in scope.chunks}):
            yield _stepped(ops.Allocate(name, new), known, request.computed)
        return
    for connects in (False, True) if scope.for_connector else (False,):
        lookup = ops.Lookup(name, for_connector=connects)
        outcome = model.apply(lookup)
        assert isinstance(outcome, Done)
        hit, lags = model.requests[name].hit, request.lags
        found = hit[0] if hit else 0
        for alone in (False, True) if scope.alone else (False,):
            sizes = sorted({min(chunk, known - found) for chunk in scope.chunks}) if not lags else []
            for new in sizes:
                yield [lookup, *_stepped(ops.Allocate(name, new, hit=True, alone=alone), known, found)]
        whole = found - found % scope.shape.least_scheduler_block_size
        for external in scope.external:
            if whole + external < known and whole + external > found:
                yield [lookup, ops.Allocate(name, 0, hit=True, external=external, delay=True)]


def _stepped(op: ops.Allocate, known: int, computed: int) -> Move:
    """A step, and what it samples."""
    samples = (0,) if computed + op.new_tokens >= known else ()
    return [op, ops.Advance(op.request, samples)]
