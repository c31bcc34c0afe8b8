"""What cores of today decide otherwise than `tables.Policy` says, which is the rule of vLLM 0.23: nothing here is wrong
of either. A core is held to one of them; a release's adapter says to which (core.md §13).
"""

from collections.abc import Sequence

from .. import arith, lookup
from ..attention import Mamba, Rule, demand
from ..identity import ExtraKey, extra_keys
from ..kinds import pool_kinds, rswa
from ..ops import Allocate, Shape, Submit
from ..state import Request
from ..tables import Core, Policy
from . import checkpoints, copies, inside, lookups, pool_room, queries, reports
from .names import NamedState


def let_go(core: Core, group: int | None, blocks: list[int], front: bool) -> None:
    """Blocks that no lookup can find are reused first, the last one freed before the others (`free_blocks`)."""
    core.state.let_go_by_identity(blocks)


def lists(core: Core, group: int) -> bool:
    """New blocks are zeroed where states are read before they are written: then those of every group of attention
    (`KVCacheConfig.needs_kv_cache_zeroing`)."""
    rule = core.rules[group]
    return any(isinstance(rule, Mamba) for rule in core.rules) and not (isinstance(rule, Mamba) or rule.scratch)


def margin(core: Core, op: Allocate) -> int:
    """The watermark, for a request that waits while others are scheduled."""
    return 0 if core.requests[op.request].runs or op.alone else core.shape.watermark


def settled(request: Request, computed: int) -> int:
    """Tokens of steps whose outcome is known; the last one of a prompt that was loaded as a whole is computed again."""
    return min(computed - (request.computed - request.processed), len(request.tokens) - 1)


def surely(request: Request) -> int:
    """The scheduler counts the tokens in flight."""
    return request.processed


def chain(core: Core) -> None:
    """What a chain of draft models prefills again (`Rule.again`) reads its window again. Its name covers all that
    these models read; so what has a name is final."""
    if core.shape.host_blocks:
        pool_room.begin(core)
    for rule in core.rules:
        rule.again = max(0, inside.drafts(core.shape) - 1) if rule.windowed else 0


def event_keys(submit: Submit, start: int, end: int) -> tuple[ExtraKey, ...]:
    """An event names an adapter without the version that its identity has: whoever listens knows the name."""
    return tuple((tag, submit.adapter if tag == "adapter" else value) for tag, value in extra_keys(submit, start, end))


def check(shape: Shape, rules: Sequence[Rule]) -> None:
    """A retention interval thins out windows and states; 0 says nothing where there are neither. Groups may be of one
    kind. A chain of draft models reads no further than a scheduler block."""
    demand(pool_kinds.fits(shape), "NotImplementedError")
    flagged = shape.caching and any(group.eagle for group in shape.groups)
    demand(not flagged or shape.reads_ahead <= shape.scheduler_block_size, "ValueError")
    retention = shape.retention_interval
    thinned = any(map(is_thinned, rules))
    if retention is not None and (thinned or retention):
        demand(thinned and retention >= 0 and retention % shape.scheduler_block_size == 0, "ValueError")
    lookup.check_groups(shape, rules)


def is_thinned(rule: Rule) -> bool:
    """Whether a retention interval says anything of such a group: of windows and states."""
    return rule.windowed or isinstance(rule, Mamba)


def worth(core: Core, group: int, i: int, request: Request, unit: int = 0) -> bool:
    """Under a retention interval, states and windows are kept where a hit can resume: behind the prompt, and where a
    prefix ends that other requests share (`Request.junction`). All else is kept as ever, and says where that is. Hits
    end at multiples of `unit` tokens, if given."""
    rule, unit, interval = core.rules[group], unit or core.alignment, core.shape.retention_interval
    if interval is None or not is_thinned(rule):
        return lookup.worth_registering(rule, i, unit, 0)
    return any(lookup.worth_registering(rule, i, interval, end) for end in resumed_at(core, request, unit))


def resumed_at(core: Core, request: Request, unit: int) -> set[int]:
    """Where a hit of a later request can end: tokens. If it goes on otherwise right behind a junction, what drafts
    need there besides what the junction says is there is none of its own: its hit ends before."""
    behind = [inside.behind(core, rule) for rule in (inside.first(core), *core.rules)]
    ends = len(request.submit.prompt) - inside.left(core), request.junction, request.junction - max(behind) + behind[0]
    return {arith.down(end, unit) for end in ends}


TODAY = Policy(
    state=NamedState,
    check=check,
    alignment=inside.alignment,
    ahead=inside.names_ahead,
    chain=chain,
    also_named=rswa.prompt_key,
    event_keys=event_keys,
    hit=inside.hit,
    connector_hit=lookups.for_connector,
    junction=inside.junction,
    counts_admitted=True,
    margin=margin,
    digests_by_size=False,
    settled=settled,
    surely=surely,
    null_skipped=rswa.null_unread,
    skips_tokens=True,
    copies=copies.copies,
    make_private=copies.make_private,
    finish=copies.finish,
    read=queries.read,
    zero_again=queries.zero_again,
    report=reports.report,
    lists=lists,
    worth=worth,
    name_tail=copies.name_tail,
    checkpoints=checkpoints.entries,
    stands=checkpoints.stand,
    watch=copies.watch,
    reused=copies.reused,
    offer=copies.offer,
    last_offer=copies.last_offer,
    give_back=copies.give_back,
    let_go=let_go,
)
"""The rule of vLLM 0.33."""
