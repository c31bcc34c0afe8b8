"""Which operations are allowed in a state: correct calls of a scheduler, and misuse.

A trace may contain only what `allows` accepts; other operations are left out when a trace is replayed. `misuse` are
calls among these that break a precondition on purpose; a core must answer them with an error that changes nothing
(core.md, "What 0.23.0 does otherwise").
"""

from collections import Counter

from . import ops
from .ops import NULL, Operation
from .requests import Request
from .scene import Scene


def allows(model: Scene, op: Operation) -> bool:
    """True if a trace may contain this operation now."""
    return misuse(model, op) or _legal(model, op)


def misuse(model: Scene, op: Operation) -> bool:
    """True if every core must answer this operation with an error, or ignore it, and change nothing."""
    match op:
        case ops.Touch(blocks):
            return NULL in blocks and _exist(model, blocks)
        case ops.Release(blocks) if _releasable(model, blocks):
            return NULL in blocks or len(set(blocks)) < len(blocks)
    return error_of(model, op) is not None


def error_of(model: Scene, op: Operation) -> str | None:
    """The kind of error with which every core answers a broken precondition; None if the preconditions hold."""
    match op:
        case ops.Allocate():
            numbers = (op.new_tokens, op.external, op.lookahead, op.reserved, op.encoder_tokens)
            return "ValueError" if min(numbers) < 0 or op.new_tokens + op.external == 0 else None
        case ops.Take():
            return "ValueError" if op.count < 0 else None
        case ops.Evict(blocks):
            return None if _exist(model, blocks) else "AssertionError"
        case ops.Release(blocks) if _exist(model, blocks):
            counts = model.state.references()
            wanted = Counter(block for block in blocks if block != NULL)
            return "ValueError" if any(times > counts[block] for block, times in wanted.items()) else None
    return None


def _exist(model: Scene, blocks: tuple[int, ...]) -> bool:
    return all(0 <= block < model.shape.num_blocks for block in blocks)


def _releasable(model: Scene, blocks: tuple[int, ...]) -> bool:
    """True if outside holders hold all references that they give back."""
    return not Counter(block for block in blocks if block != NULL) - Counter(model.state.outside)


def _legal(model: Scene, op: Operation) -> bool:
    match op:
        case ops.Submit():
            return op.request not in model.requests and _sound(model, op)
        case ops.Lookup(name):
            return name in model.requests and _fresh(model, name)
        case ops.Allocate():
            return op.request in model.requests and _allocatable(model, op)
        case ops.Advance():
            return op.request in model.requests and _advances(model, op)
        case ops.Reject(name, count):
            return name in model.requests and 0 < count <= model.requests[name].drafts
        case ops.Arrive(name):
            return name in model.requests and model.requests[name].arriving
        case ops.Preempt(name) | ops.RemoveSkipped(name):
            return name in model.requests
        case ops.Touch(blocks):
            return _exist(model, blocks) and NULL not in blocks and not set(blocks) & set(model.state.sinks)
        case ops.Release(blocks):
            return _releasable(model, blocks)
    return True


def _sound(model: Scene, op: ops.Submit) -> bool:
    """True if the request is well-formed: of legal length, items inside the prompt, a row or a token everywhere."""
    return (
        0 < len(op.prompt) <= model.shape.max_model_len
        and all(item.offset >= 0 < item.length and item.offset + item.length <= len(op.prompt) for item in op.items)
        and (op.adapter is not None or not op.adapter_version)
        and (op.embeds is None or len(op.embeds) == len(op.prompt))
        and all(row is None or token == 0 for token, row in zip(op.prompt, op.embeds or (), strict=False))
    )


def _fresh(model: Scene, name: str) -> bool:
    """True if the request has no computed or scheduled tokens and no blocks."""
    request = model.requests[name]
    tables = any(tables.get(name) for tables in model.state.tables)
    return not (request.computed or request.scheduled or request.arriving or tables)


def _allocatable(model: Scene, op: ops.Allocate) -> bool:
    request, shape = model.requests[op.request], model.shape
    hit_tokens = request.hit[0] if op.hit and request.hit else 0
    total = request.computed + hit_tokens + op.external
    return (
        not request.arriving
        and not request.scheduled
        and (not op.hit or (model.just_looked_up == op.request and _fresh(model, op.request)))
        and (not op.external or _fresh(model, op.request))
        and (not op.delay or op.external > 0)
        and (op.new_tokens == 0) <= op.delay
        and hit_tokens + op.external <= len(request.tokens)
        and total + op.new_tokens <= shape.max_model_len
        and (not op.encoder_tokens or any(group.kind == "cross" for group in shape.groups))
        and _states_allow(model, total, op)
    )


def _states_allow(model: Scene, total: int, op: ops.Allocate) -> bool:
    """True if Mamba layers have states for the step: a block for each draft, in mode align within a block of the
    running state; and no state comes from outside whose last token will be computed again."""
    known = len(model.requests[op.request].tokens)
    drafts = total + op.new_tokens > max(known, total + 1)  # the first token of a step is never a draft
    for group in model.shape.groups if drafts or op.external else ():
        most = min(group.speculative_blocks, group.block_size - 1 if group.mamba_mode == "align" else op.new_tokens)
        if group.kind == "mamba" and ((drafts and op.new_tokens > 1 + most) or (op.external and total >= known)):
            return False
    return True


def _brings_all_news(model: Scene, request: Request, op: ops.Advance) -> bool:
    """True unless Mamba layers would have to keep states of two steps whose drafts are not judged yet."""
    ahead = request.scheduled and request.lead and any(group.kind == "mamba" for group in model.shape.groups)
    return not ahead or len(request.tokens) + len(op.sampled) >= request.computed + request.scheduled - op.rejected


def _advances(model: Scene, op: ops.Advance) -> bool:
    """True if something has been computed or sampled, and at least one token of the step is kept."""
    request = model.requests[op.request]
    drafts = max(0, request.computed + request.scheduled - len(request.tokens))
    return (
        not request.arriving
        and 0 <= op.rejected <= min(drafts, max(0, request.scheduled - 1))
        and (request.scheduled > 0 or len(op.sampled) > 0)
        and _brings_all_news(model, request, op)
        and len(request.tokens) + len(op.sampled) <= model.shape.max_model_len
    )
