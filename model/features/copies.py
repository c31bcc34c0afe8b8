"""What is copied for hits that end inside a block.

A block may carry several names: that of all its tokens, and that of the end of a prompt inside it. Where a request
writes on in a block whose names are to stay true, either it gets a copy of its own (a hit), or the names get one and
the request keeps the block, since a worker's row only grows (a state that it has named itself). Until the copy has run,
both blocks are held.
"""

from .. import arith, tables
from ..attention import Full, Mamba, demand
from ..ops import NULL
from ..state import Request
from ..tables import Core, Plan
from . import checkpoints, inside
from .inside import ends_inside
from .names import give, named


def copies(core: Core, group: int, plan: Plan) -> bool:
    """Will the request need a copy of the block in which its hit ends, or of a state that it has named itself?"""
    return bool(plan.hit[group] and plan.local % core.rules[group].b) or (group, plan.op.request) in core.tails


def make_private(core: Core, group: int, name: str, is_state: bool) -> list[int]:
    """Copy the block that the request writes on in. Returns the block that is new in its table, if one is."""
    i, source = core.tails.pop((group, name))
    end = core.named_itself.pop((group, name), 0)
    state = named(core)
    copy, table = state.take(1)[0], state.tables[group][name]
    state.outside += [source, copy]
    state.copying += [source, copy]
    demand(table[i] == source)
    if end:
        state.move(source, copy)
        core.offers.append((name, group, copy, end))
        if copy in state.identity:
            core.registered_this_step.add(state.identity[copy])
        return []
    table[i] = copy
    if not is_state:
        core.new_block_ids[group].append(copy)
    return [copy]


def finish(core: Core) -> None:
    """The copies have run: their sources and targets are held for them no more."""
    state = named(core)
    copied, state.copying = state.copying, []
    core.copied = tuple(zip(copied[::2], copied[1::2], strict=True))
    offers, core.offers = sorted(core.offers, key=lambda offer: offer[1]), []  # by group, then by request
    core.offered = tuple(
        offer for name in dict.fromkeys(offer[0] for offer in offers) for offer in offers if offer[0] == name
    )
    for block in copied:
        state.outside.remove(block)
    state.let_go_by_identity(copied)


def offer(core: Core, group: int, name: str, first: int, end: int) -> None:
    """States that the request has named are offered to a connector, which may read them in this step."""
    state, rule = named(core), core.rules[group]
    if isinstance(rule, Mamba):
        for block in core.state.tables[group].get(name, [])[first:end]:
            if block in state.identity:
                core.registered_this_step.add(state.identity[block])
                if rule.align:
                    core.offers.append((name, group, block, state.covers[block]))


def last_offer(core: Core, name: str) -> None:
    """A request ends: the state at its prompt's end is offered if no later token was computed, also in a step that
    still runs."""
    request = core.requests.get(name)
    if request is not None and request.computed == request.processed:
        ends = ((group, core.named_itself.get((group, name))) for group in range(len(core.rules)))
        core.offered = tuple(
            (name, group, core.tails[group, name][1], end) for group, end in ends if end == request.computed and end
        )


def give_back(core: Core, name: str) -> None:
    """What the request has offered and nobody has taken is not offered any more: its blocks go back."""
    core.offers = [one for one in core.offers if one[0] != name]
    tables.give_back(core, name)


def watch(core: Core, blocks: list[int]) -> None:
    """The holder reads on: these blocks are reused last, whatever they are named, and he is told (`State.reused`)."""
    named(core).watched.update(dict.fromkeys(blocks))
    core.state.let_go(blocks)


def reused(core: Core) -> tuple[int, ...]:
    """Watched blocks that were handed out by the operation, or forgotten with all others."""
    state = named(core)
    told, state.reused = tuple(state.reused), []
    return told


def name_tail(core: Core, group: int, request: Request, num_tokens: int, left: int | None = None) -> None:
    """The end of the prompt gets a name, once it is computed, but for `left` tokens that a lookup of it cannot find: in
    full attention wherever it lies in its block; of a state only where it is the last one of the step."""
    rule, unit, name = core.rules[group], core.shape.hash_block_size, request.submit.request
    counted = num_tokens if len(core.rules) == 1 or ends_inside(core) else core.policy.reach(core, group, num_tokens)
    last = arith.down(len(request.submit.prompt) - (inside.left(core, rule) if left is None else left), unit)
    table = core.state.tables[group].get(name, [])
    if isinstance(rule, Full) and rule.b != unit:
        end = min(last, len(request.chain) * unit)
        if 0 < end <= counted and end % rule.b and end // rule.b < len(table):
            give(core, group, request, end, table[end // rule.b])
    elif isinstance(rule, Mamba) and rule.align and checkpoints.name(core, group, request):
        return
    elif isinstance(rule, Mamba) and rule.align and counted > 0 and counted % unit == 0:
        i = arith.cdiv(counted, rule.b) - 1
        block = table[i] if i < len(table) else NULL
        there = counted == num_tokens or core.policy.stands(core, group, i, request)
        resumed = there and (counted == last or at_junction(core, request, counted))
        if not resumed or block == NULL or named(core).covers.get(block) == counted:
            return
        give(core, group, request, counted, block)
        core.registered_this_step.add((group, request.chain[counted // unit - 1]))
        if counted % rule.b:
            core.tails[group, name], core.named_itself[group, name] = (i, block), counted
            core.registered[group][name] = i


def at_junction(core: Core, request: Request, counted: int) -> bool:
    """Does a step of the prompt end where its prefix goes on otherwise than that of other requests, and is it named?"""
    flagged = any(g.eagle for g in core.shape.groups) and core.shape.reads_ahead == 1 and ends_inside(core)
    inside = request.computed < counted <= len(request.submit.prompt)
    return core.shape.names_junctions and flagged and inside and counted == request.junction
