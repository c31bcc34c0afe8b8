"""States that a step leaves inside it: a long step of a prompt passes places at which a hit may end, and some workers
write the state at the last of them into the entry before that of the step's own last state."""

from functools import cache

from .. import arith
from ..attention import Mamba, Rule, Step, rules_for
from ..ops import NULL, Shape
from ..state import Request
from ..tables import Core, Plan, stands
from . import inside
from .names import give, named


@cache
def unit(shape: Shape) -> int:
    """Checkpoints stand at multiples of so many tokens."""
    rules = rules_for(shape)
    return shape.scheduler_block_size if len(rules) == 1 else inside.alignment(shape, rules)


def resumed(shape: Shape, tokens: int) -> int:
    """Where a request of so many tokens can be resumed: drafts need what is behind it, too, or its names cover that."""
    behind = unit(shape) if shape.old_names and inside.drafts(shape) else max(1, inside.names_ahead(shape))
    return arith.down(tokens - behind, unit(shape))


def left(rule: Rule, step: Step) -> dict[int, int]:
    """By table entry, tokens of the state that stands there after the step besides those of `Mamba.writes`: of one, or
    of none. It lies behind a hash block of the step at least, and between the entries of its first and last states."""
    shape, grid = rule.shape, rule.group.checkpoint
    if not grid or not isinstance(rule, Mamba) or not rule.align or not shape.caching or step.drafts:
        return {}
    at = resumed(shape, step.end)
    entry, start = arith.cdiv(step.end, rule.b) - 2, step.start
    begins = start % shape.hash_block_size == 0 and entry > (start - 1) // rule.b
    return {entry: at} if begins and at >= start + shape.hash_block_size and (at - start) % grid == 0 else {}


def wanted(core: Core, group: int, request: Request, step: Step) -> dict[int, int]:
    """Those that get a block: all; where only ends of prompts are kept, that of the step which ends the prompt."""
    ends = step.end >= max(len(request.submit.prompt), len(request.tokens) - 1)
    return left(core.rules[group], step) if ends or core.shape.retention_interval != 0 else {}


def entries(core: Core, group: int, plan: Plan) -> list[int]:
    """The table entries of an allocation that get a block for one."""
    return [*wanted(core, group, core.requests[plan.op.request], Step(plan.total, plan.main))]


def stand(core: Core, group: int, i: int, request: Request) -> bool:
    """Is the state at the end of block `i` in its entry?"""
    at = left(core.rules[group], request.written.last).get(i)
    return at == (i + 1) * core.rules[group].b or (at is None and stands(core, group, i, request))


def name(core: Core, group: int, request: Request) -> bool:
    """Name the checkpoint of the last step, if it made one, where a hit can resume: at the end of a prompt, at a
    junction, and at the end of a block that is kept. Else its block keeps no name. True if there is one."""
    table, b = core.state.tables[group].get(request.submit.request, []), core.rules[group].b
    interval = core.shape.retention_interval
    for entry, at in wanted(core, group, request, request.written.last).items():
        block, state = table[entry], named(core)
        kept = at % b == 0 and (interval is None or (interval > 0 and at % interval == 0))
        if not kept and at not in (resumed(core.shape, len(request.submit.prompt)), request.junction):
            state.forget(block)
            state.metrics.evicted(block)
        elif block != NULL and state.covers.get(block) != at:
            state.forget(block)
            give(core, group, request, at, block)
            core.registered_this_step.add((group, request.chain[at // core.shape.hash_block_size - 1]))
        return True
    return False
