"""What a core with a pool of the host has room for, and what it finds there (`pools`)."""

from dataclasses import replace
from itertools import takewhile

from .. import arith, tables
from ..kinds.pool_kinds import Hot, Resident, Source
from ..ops import NULL
from ..state import Request
from ..tables import BlockIds, Core, Plan
from .given_up import give_back, last_offer
from .pools import Pools, pages_of, pools
from .written_back import behind


def begin(core: Core) -> None:
    """A core of these kinds decides so."""
    core.state = Pools(core)
    core.policy = replace(
        core.policy,
        hit=hit,
        junction=None,
        predicted=predicted,
        attach=lambda core, plan: None,
        extend=extend,
        reach=reach,
        last_offer=last_offer,
        give_back=give_back,
        reused=behind,
        read=None,
    )


def hit(core: Core, request: Request) -> tuple[int, BlockIds]:
    """What both pools have. The host's blocks are kept beyond it, as tokens from outside may reach there."""
    state, b, unit = pools(core), core.rules[0].b, core.shape.scheduler_block_size
    earliest = {**state.earliest(), **state.host.earliest()}  # names of different groups are different
    limit = arith.down(min(request.limit, len(request.chain) * b), unit)
    rows: BlockIds = []
    for group, rule in enumerate(core.rules):
        found = (
            earliest.get((group, identity), NULL) for identity in request.chain[: 0 if rule.scratch else limit // b]
        )
        row = [*takewhile(bool, found)]
        rows.append(row[: len(row) * b // unit * unit // b])
    length = min(len(row) for rule, row in zip(core.rules, rows, strict=True) if not rule.scratch)
    return length * b, [row if group == state.source else row[:length] for group, row in enumerate(rows)]


def predicted(core: Core, group: int, plan: Plan, counts: list[int], capped: bool) -> int:
    """Blocks of the device's pool. Without room in the host's, there is none."""
    state, rule, name = pools(core), core.rules[group], plan.op.request
    table, external = state.tables[group].get(name, []), plan.op.external > 0
    if isinstance(rule, Source):
        hit = [row[: rule.required(plan.total)] for row in plan.hit]
        missing = tables.predicted(core, group, plan._replace(hit=hit), state.host.references(), False)
        return core.shape.num_blocks + 1 if missing > state.host.num_free() else 0
    if isinstance(rule, Hot):
        resumes = plan.local > 0 and name not in core.registered[group]
        return state.lacking(group, name) if external or resumes or name in state.reads_host else 0
    if not isinstance(rule, Resident):
        return tables.predicted(core, group, plan, counts, capped)
    required = rule.required(plan.need)
    if external:  # the last page is written on in
        pages = rule.required(plan.total)
        return (state.row(group, name)[pages - 1 : pages] in ([], [NULL])) + max(0, required - max(pages, len(table)))
    most = min(required, rule.cap()) if capped else required
    return max(0, most - max(len(table), rule.required(plan.local)))


def admit(core: Core, plan: Plan) -> None:
    """The hit becomes the start of the tables; pages of it are read from the host as yet. What comes from outside comes
    to the host: of these pages the last one alone, which is written on in, gets a block of the device."""
    state, name, external = pools(core), plan.op.request, plan.op.external > 0
    if any(name in registered for registered in core.registered):
        return
    pages = plan.local // core.rules[0].b
    for group, rule in enumerate(core.rules):
        known = plan.hit[group][: rule.required(plan.total)]
        if not isinstance(rule, Hot):
            state.tables[group][name] = [NULL] * pages if isinstance(rule, Resident) else [*known]
        core.registered[group][name] = 0 if rule.scratch else len(known)
    if plan.local > 0 or external:
        state.reads_host.add(name)
    if pages:
        of = pages_of(core, name)
        of.whole, of.ready, of.taken_up, of.indexed = {*range(pages)}, pages, pages, pages
    if not external:
        return
    state.imports[name] = plan.total
    for group, rule in enumerate(core.rules):
        table, end = state.tables[group].setdefault(name, []), rule.required(plan.total)
        if isinstance(rule, Resident):
            table += [NULL] * (end - len(table))
            table[end - 1 :] = state.take(1)
        elif not isinstance(rule, Hot):
            table += (state.host if group == state.source else state).take(max(0, end - len(table)))


def extend(core: Core, group: int, plan: Plan) -> tuple[int, ...]:
    """The table grows; a region is there as a whole or not at all."""
    state, rule, name = pools(core), core.rules[group], plan.op.request
    if group == 0 and (plan.op.hit or plan.op.external):
        admit(core, plan)
    if not isinstance(rule, Source | Hot):
        return core.extend(group, plan)
    table = state.tables[group].setdefault(name, [])
    if isinstance(rule, Hot):
        core.registered[group][name] = 0
        count = state.lacking(group, name) if name in state.reads_host else 0
    else:
        count = arith.missing_blocks(rule.required(plan.need), len(table))
    new = (state.host if isinstance(rule, Source) else state).take(count)
    table += new
    return tuple(new)


def reach(core: Core, group: int, num_tokens: int) -> int:
    """Blocks of the host get their names once they are whole (`publish`), pages get none."""
    return 0 if isinstance(core.rules[group], Source | Hot | Resident) else tables.reach(core, group, num_tokens)
