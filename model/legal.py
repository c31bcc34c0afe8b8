"""Which operations are allowed in a state: what a scheduler promises, and misuse.

A trace contains only what `allows` accepts; other operations are left out when it is replayed. `misuse` are those that
break a precondition on purpose: every core must answer them with an error that changes nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from . import ops
from .attention import RULES, Mamba, rules_for
from .ops import NULL, Operation, Shape
from .state import Request

CHECKED = frozenset({ops.Allocate, ops.Take, ops.Touch, ops.Release, ops.Evict})  # a core checks preconditions


class _Holders(Protocol):
    """Who holds which block: what a scheduler knows of `State`."""

    @property
    def tables(self) -> Sequence[Mapping[str, Sequence[int]]]: ...
    @property
    def outside(self) -> Sequence[int]: ...
    @property
    def sinks(self) -> Sequence[int]: ...
    def references(self) -> list[int]: ...


class _Scene(Protocol):
    """A core as its scheduler knows it: the model, or what the answers of another core tell."""

    @property
    def shape(self) -> Shape: ...
    @property
    def requests(self) -> Mapping[str, Request]: ...
    @property
    def state(self) -> _Holders: ...
    @property
    def just_looked_up(self) -> str | None: ...


def allows(scene: _Scene, op: Operation) -> bool:
    """True if a trace may contain this operation now."""
    if type(op) in CHECKED and misuse(scene, op):
        return True
    match op:
        case ops.Submit(name):
            return name not in scene.requests and _sound(scene.shape, op)
        case ops.Free() | ops.Landed() | ops.ReadTable() | ops.CommonPrefix():
            return True  # of an unknown request, too
        case ops.OnRequest(name) if name not in scene.requests:
            return False
        case ops.Lookup(name, limit):
            return _fresh(scene, name) and (limit is None or 0 <= limit < len(scene.requests[name].tokens))
        case ops.Allocate(name):
            return _allocatable(scene, op, scene.requests[name])
        case ops.AllocateBatch(names):
            apart = 0 < len(names) == len(set(names)) and op.lookahead >= 0 < op.new_tokens
            return apart and all(allows(scene, one) for one in op.allocations)
        case ops.Advance(name):
            return _advances(scene.shape, op, scene.requests[name])
        case ops.Reject(name, count):
            return 0 < count <= scene.requests[name].drafts
        case ops.Arrive(name):
            return _arrives(scene, op, scene.requests[name])
        case ops.Touch(blocks):
            return _exist(scene, blocks) and NULL not in blocks and not set(blocks) & set(scene.state.sinks)
        case ops.Release(blocks):
            return _releasable(scene, blocks)
    return True


def misuse(scene: _Scene, op: Operation) -> bool:
    """True if every core must answer this operation with an error, or ignore it, and change nothing."""
    match op:
        case ops.Touch(blocks):
            return NULL in blocks and _exist(scene, blocks)
        case ops.Release(blocks) if _releasable(scene, blocks):
            return NULL in blocks or len(set(blocks)) < len(blocks)
    return error_of(scene, op) is not None


def error_of(scene: _Scene, op: Operation) -> str | None:
    """The kind of error with which every core answers a broken precondition; None if the preconditions hold."""
    if type(op) not in CHECKED:
        return None
    match op:
        case ops.Allocate():
            numbers = (op.new_tokens, op.external, op.lookahead, op.reserved, op.encoder_tokens)
            return "ValueError" if min(numbers) < 0 or op.new_tokens + op.external == 0 else None
        case ops.Take(count):
            return "ValueError" if count < 0 else None
        case ops.Evict(blocks):
            return None if _exist(scene, blocks) else "AssertionError"
        case ops.Release(blocks) if _exist(scene, blocks):
            return "ValueError" if _exceed(blocks, scene.state.references()) else None
    return None


def _exist(scene: _Scene, blocks: Sequence[int]) -> bool:
    return all(0 <= block < scene.shape.num_blocks for block in blocks)


def _releasable(scene: _Scene, blocks: Sequence[int]) -> bool:
    return not _exceed(blocks, Counter(scene.state.outside))  # outside holders hold all that they give back


def _exceed(blocks: Sequence[int], held: Counter[int] | list[int]) -> bool:
    return any(times > held[block] for block, times in Counter(blocks).items() if block != NULL)


def _sound(shape: Shape, op: ops.Submit) -> bool:
    """True if the request is well-formed: of legal length, items inside the prompt, a row or a token everywhere."""
    return (
        0 < len(op.prompt) <= shape.max_model_len
        and all(item.offset >= 0 < item.length and item.offset + item.length <= len(op.prompt) for item in op.items)
        and (op.adapter is not None or not op.adapter_version)
        and (op.embeds is None or len(op.embeds) == len(op.prompt))
        and all(row is None or token == 0 for token, row in zip(op.prompt, op.embeds or (), strict=False))
    )


def _fresh(scene: _Scene, name: str) -> bool:
    """True if the request has no computed or scheduled tokens and no blocks."""
    request, tables = scene.requests[name], any(tables.get(name) for tables in scene.state.tables)
    return not (request.computed or request.scheduled or request.arriving or tables)


def _allocatable(scene: _Scene, op: ops.Allocate, request: Request) -> bool:
    found = request.hit[0] if op.hit and request.hit else 0
    taken = scene.shape.taken(op, found)
    total = request.computed + taken + op.external
    return (
        not request.arriving
        and not request.scheduled
        and (not op.hit or (scene.just_looked_up == op.request and _fresh(scene, op.request)))
        and (
            _fresh(scene, op.request) and op.external > found - taken if op.external else not (op.hit and request.lags)
        )
        and (not op.delay or op.external > 0)
        and (op.new_tokens == 0) <= op.delay
        and taken + op.external <= len(request.tokens)
        and total + op.new_tokens <= scene.shape.max_model_len
        and 0 <= op.in_flight <= request.computed
        and (not op.encoder_tokens or any(RULES[group.kind].by_encoder for group in scene.shape.groups))
        and _states_allow(scene.shape, op, total, len(request.tokens))
    )


def _states_allow(shape: Shape, op: ops.Allocate, total: int, known: int) -> bool:
    """True if Mamba layers have states for the step, a block for each draft, and no state comes from outside whose
    last token will be computed again."""
    drafts = total + op.new_tokens > max(known, total + 1)  # the first token of a step is never a draft
    states = [group for group in shape.groups if RULES[group.kind] is Mamba] if drafts or op.external else []
    again = op.external > 0 and total >= known
    return not any(again or (drafts and op.new_tokens > 1 + group.speculative_blocks) for group in states)


def _arrives(scene: _Scene, op: ops.Arrive, request: Request) -> bool:
    """True if a load is under way that may bring so much less: no step waits for it, something is left, and there are
    blocks for what the query behind that reads and later steps write. Before the window of the whole load there are
    none, and the only state that comes from outside is that behind it all."""
    left = request.computed - op.missing
    if not 0 < op.missing <= request.arriving or left <= 0 or request.scheduled:
        return op.missing == 0 < request.arriving
    for rule, tables in zip(rules_for(scene.shape), scene.state.tables, strict=True):
        if isinstance(rule, Mamba) or (not rule.by_encoder and NULL in tables.get(op.request, ())[rule.first(left) :]):
            return False
    return True


def _advances(shape: Shape, op: ops.Advance, request: Request) -> bool:
    """True if something has been computed or sampled, at least one token of the step is kept, and Mamba layers need not
    keep states of two steps whose drafts are not judged yet."""
    end, known = request.computed + request.scheduled, len(request.tokens) + len(op.sampled)
    ahead = request.scheduled and request.lead and any(RULES[group.kind] is Mamba for group in shape.groups)
    return (
        not request.arriving
        and 0 <= op.rejected <= min(max(0, end - len(request.tokens)), max(0, request.scheduled - 1))
        and (request.scheduled > 0 or len(op.sampled) > 0)
        and known <= shape.max_model_len
        and (not ahead or known >= end - op.rejected)
    )
