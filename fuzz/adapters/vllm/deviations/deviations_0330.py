"""Where vLLM 0.33.0 is known to differ from the specification of today (`model.features.today`)."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

from .....model import arith, lookup
from .....model.attention import CoreError, Full, Mamba, demand
from .....model.features import copies, inside, queries, reports, today
from .....model.identity import overlapping_items
from .....model.kinds import rswa
from .....model.ops import NULL, Item, Shape, Submit, Value
from .....model.state import Request
from .....model.tables import BlockIds, Core, Policy
from ....targets.deviations import Deviation, Note, UndefinedStateError
from . import deviations_0230 as deviations
from . import kept_blocks, state_deviations
from .fine_search import (
    APART,
    FINE_SEARCH,
    PAST,
    FineSearch,
    fine_for_connector,
    of_one_group,
    today_hit,
    today_junction,
)
from .identity_deviations import OVERLAPPING, Keys, items_ahead
from .kept_blocks import EARLY, IN_PART

REPORTED, UNREPORTED = "reported-as-whole", "connector-unreported"
CHAIN_LATE, BEYOND = "registers-chains-late", "replay-boundary-beyond"
BY_RANK = "computed-blocks-by-rank"
OF_CHAINS = (PAST, CHAIN_LATE, BEYOND)
"""Those of chains of draft models."""
OF_KINDS = OUTPUT_NAMED, LATE = "output-named-as-prompt", "gap-a-token-late"
"""Those of kinds that few cores have."""
FOR_CONNECTOR = (UNREPORTED, *APART)
"""Those of lookups for a connector."""
STILL = (
    *("chunked-cap", "states-by-scheduler", "mamba-states-pile-up", "draft-states-moved-away", "mamba-gate"),
    *("mamba-negative-demand", "mamba-external-state", "states-left-behind", "sink-construction"),
    *("chunk-astride-block", "chunked-refuses", "window-of-one", "registers-unreadable"),
    *("eagle-cut-twice", "eagle-in-turn", "eagle-last-block"),
    *("registers-by-scheduler-block", "cut-by-all-computed", "gate-behind-hit", "gate-lookahead", "gate-reserved"),
    *("overlapping-items", "item-lengths", "embeddings-mask", "misuse-unchecked"),
)
"""Those of vLLM 0.23.0 that are left."""
DEVIATIONS: tuple[Deviation, ...] = (
    *(one for one in deviations.DEVIATIONS if one.id in STILL),
    Deviation(
        state_deviations.SHARED,
        reason=(
            "the block of a draft's state that moves to a later entry must be held by its request alone, and have no "
            "name: else the allocation ends in an assertion half-way, with the blocks of other groups taken"
        ),
        condition="mamba in align mode with speculative blocks, one of which somebody else holds or has named",
        source="Found by lockstep.",
    ),
    Deviation(
        REPORTED,
        reason=(
            "a full report tells of every entry of a hit as of a whole block that is cached: of entries that are null, "
            "and of a block of which the hit has a part; where the prompt ends in that block, the lookup ends in an "
            "IndexError, and on several ranks in an AssertionError"
        ),
        condition="`kv_cache_report_mode=full`, events, a hit with null entries, inside a block, or on several ranks",
        source="Found by lockstep; vllm-project/vllm#57358, vllm-project/vllm#49971.",
    ),
    Deviation(
        UNREPORTED,
        reason="of a hit for a connector that groups look for apart from each other, a full report tells nothing",
        condition="`kv_cache_report_mode=full`, events, a connector, full attention with Mamba",
        source="Found by lockstep.",
    ),
    Deviation(
        BY_RANK,
        reason=(
            "over several ranks, the blocks with computed tokens are counted as if each held what one rank has of it: "
            "a connector is given blocks of a request that has ended in which nothing has been computed"
        ),
        condition="context parallelism; blocks for tokens that are not computed, such as lookahead",
        source="Found by reading.",
    ),
    Deviation(
        "windows-left-behind",
        reason=(
            "a lookup for a connector takes the hit of full attention, also where that of a window ends before it. A "
            "connector that says it can complete such a hit is asked to restore states; one that does no more leaves "
            "blocks of the window unwritten. Where the hit is cut for tokens from outside, the cut ends in an "
            "AssertionError"
        ),
        condition="a lookup for a connector, full attention with Mamba and a window whose blocks were evicted",
        source="Found by lockstep; of states: vllm-project/vllm#46453, vllm-project/vllm#54302.",
        corrupts=True,
    ),
    Deviation(
        "states-ahead-of-attention",
        reason=(
            "where any group holds more than full attention, a lookup for a connector takes what all groups hold, "
            "though the connector would bring the state at the end of what full attention holds"
        ),
        condition="a lookup for a connector, Mamba or a window with a longer hit than full attention",
        source="Found by lockstep.",
    ),
    Deviation(
        "rings-lag-behind",
        reason=(
            "a ring counts as a group without a hit, so every hit for a connector seems to run ahead of the states: "
            "without tokens from outside, the scheduler makes each lookup twice"
        ),
        condition="a lookup for a connector, full attention with Mamba and a ring",
        source="Found by lockstep.",
    ),
    Deviation(
        EARLY,
        reason=(
            "with eagle, the boundaries kept for a replay of the prompt are counted in scheduler blocks, of which one "
            "is given up: a replay could resume later, at a boundary that is not kept"
        ),
        condition="a retention interval, eagle, and groups whose blocks are smaller than the scheduler's; or states "
        "alone that are said to be read by drafts, which gives up the block before the end of a prompt, too",
        source="Found by lockstep.",
    ),
    Deviation(
        IN_PART,
        reason=(
            "of a request that goes on otherwise right behind a junction the hit ends before it, as drafts need a "
            "block behind: windows that they read are kept for it, others and states are not, so there is no hit"
        ),
        condition="a retention interval; drafts that read some windows only, and names that do not look ahead",
        source="Found by reading; confirmed with the release's manager.",
    ),
    Deviation(
        PAST,
        reason=(
            "names cover several tokens behind a block, so fewer blocks have names than a hit could have; a lookup of "
            "windows, chunks or states that is not cut by full attention asks for one of the others: an IndexError"
        ),
        condition="a chain of two and more draft models, a prompt that ends right behind a block, no full attention or "
        "a lookup for a connector",
        source="Found by lockstep.",
    ),
    Deviation(
        CHAIN_LATE,
        reason=(
            "a core of one group registers what a chain of draft models could still prefill again only later, though a "
            "block has no name before the tokens are known that these models read"
        ),
        condition="a chain of two and more draft models, and a core of one group",
        source="Found by lockstep.",
    ),
    Deviation(
        BEYOND,
        reason=(
            "what a replay of the prompt needs is kept under a retention interval, and named in full attention, up to "
            "its last token but one, though names cover several tokens behind a block: no lookup of this prompt finds "
            "it there, and what it could find is not kept, or loses its name"
        ),
        condition="a chain of two and more draft models; a retention interval, or hits inside blocks",
        source="Found by reading; seen in lockstep.",
    ),
    Deviation(
        OUTPUT_NAMED,
        reason=(
            "with R-SWA a generated token behind the window has not read what lies in the gap, yet its block is named "
            "like one of a prompt with the same tokens, which has: whoever sends the answer back as part of a prompt "
            "is served it. The release leaves it to the configuration of its only model with R-SWA to turn the prefix "
            "cache off"
        ),
        condition="R-SWA with caching on, an answer longer than the window, and a longer prompt that begins with it",
        source="Found by the shadow memory.",
        corrupts=True,
    ),
    Deviation(
        LATE,
        reason="the gap of R-SWA ends one token before the window: its last block is given back a token later",
        condition="R-SWA, and a window that begins where a block does",
        source="Found by lockstep.",
    ),
)


def named_as_prompt(quirks: Collection[str], core: Core, request: Request, end: int) -> Keys:
    """What names a block besides: nothing, wherever the prompt ends."""
    return () if quirks else rswa.prompt_key(core, request, end)


def named_beyond(note: Note, core: Core, group: int, request: Request, num_tokens: int) -> None:
    """Full attention names the end of a prompt as if names covered one token behind it."""
    rule, unit, prompt = core.rules[group], core.shape.hash_block_size, len(request.submit.prompt)
    ends = [arith.down(prompt - least, unit) for least in (1, inside.left(core))]
    if not isinstance(rule, Full) or core.ahead < 2 or ends[0] == ends[1]:
        return copies.name_tail(core, group, request, num_tokens)
    note(BEYOND, any(min(end, len(request.chain) * unit, num_tokens) % rule.b for end in ends))
    return copies.name_tail(core, group, request, num_tokens, 1)


def named_early(
    tail: Callable[..., None], note: Note, core: Core, group: int, request: Request, num_tokens: int
) -> None:
    """The state at the end of a prompt is named a hash block before, though no group needs what is behind it."""
    shape, prompt = core.shape, len(request.submit.prompt)
    needed = not shape.old_names or not inside.drafts(shape) or any(one.behind for one in core.rules)
    if needed or not isinstance(core.rules[group], Mamba):
        return tail(core, group, request, num_tokens)
    unit = shape.hash_block_size
    note(EARLY, any(0 < arith.down(prompt - left, unit) <= num_tokens for left in (1, unit)))
    return copies.name_tail(core, group, request, num_tokens, unit)


def null_late(note: Note, core: Core, group: int, name: str, settled: int) -> None:
    """Entries of the gap become null as if the query before were still to come."""
    rule, prompt = core.rules[group], len(core.requests[name].submit.prompt)
    if not rswa.has_gap(rule):
        return rswa.null_unread(core, group, name, settled)
    rswa.null_unread(core, group, name, settled - 1)
    dead, table = rswa.unread(rule, prompt, settled), core.state.tables[group].get(name, [])
    return note(LATE, any(table[dead.start : dead.stop]))


def report_all(note: Note, core: Core, request: Request, length: int, rows: BlockIds) -> None:
    """Every entry is told as a whole block, of the size that one rank sees."""
    unit = core.shape.hash_block_size
    for group, row in enumerate(rows):
        b = core.rules[group].group.block_size
        places = [(i * b, (i + 1) * b) for i in range(len(row))]
        note(REPORTED, NULL in row or bool(row and (length % b or core.shape.parallel > 1)))
        demand(not row or b % unit == 0)
        if places and places[-1][1] > len(request.chain) * unit:
            raise CoreError("IndexError")
        if places:
            reports.tell(core, request, group, places, places[-1][1])


class _Unsaid:
    """A lookup that ends in an error says of no junction: nobody has what it would have returned."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self._before = policy, 0

    def junction(self, core: Core, request: Request, hit: int) -> int:
        """That of any lookup."""
        self._before = request.junction
        assert self._policy.junction is not None
        return self._policy.junction(core, request, hit)

    def report(self, core: Core, request: Request, length: int, rows: BlockIds) -> None:
        """Tell of the blocks found."""
        assert self._policy.report is not None
        said, request.junction = request.junction, self._before
        self._policy.report(core, request, length, rows)
        request.junction = said


class _Reports:
    """Of hits that a lookup for a connector took group by group, a full report tells nothing."""

    def __init__(self, policy: Policy, quirks: Collection[str], note: Note) -> None:
        self._policy, self._quirks, self._note = policy, quirks, note
        self._apart = False

    def hit(self, core: Core, request: Request) -> tuple[int, BlockIds]:
        """That of any other lookup."""
        self._apart = False
        return self._policy.hit(core, request)

    def connector_hit(self, core: Core, request: Request) -> tuple[int, BlockIds, bool]:
        """That of a lookup for a connector."""
        assert self._policy.connector_hit is not None
        found = self._policy.connector_hit(core, request)  # first, as it says whose fault it is if there is none
        self._apart = FineSearch(core, request, of_one_group(self._quirks, core)).apart() is not None
        return found

    def report(self, core: Core, request: Request, length: int, rows: BlockIds) -> None:
        """Tell of the blocks found, or not."""
        self._note(UNREPORTED, self._apart)
        if not self._apart:
            assert self._policy.report is not None
            self._policy.report(core, request, length, rows)


def all_processed(quirks: Collection[str], request: Request, computed: int) -> int:
    """Windows are cut by all tokens of steps whose outcome is known, the last one of a loaded prompt among them."""
    return computed - (request.computed - request.processed) if quirks else today.settled(request, computed)


def release_reach(quirks: Collection[str], core: Core, group: int, num_tokens: int) -> int:
    """Leading tokens that the release registers."""
    late = max(0, inside.drafts(core.shape) - 1) if CHAIN_LATE in quirks and len(core.rules) == 1 else 0
    unreadable = [name for name in quirks if name != CHAIN_LATE]
    return deviations.release_reach(unreadable, core, group, max(0, num_tokens - late))


def resumed_at(quirks: Collection[str], core: Core, request: Request, unit: int) -> set[int]:
    """Where the hit of a later request can end, as the release counts: tokens."""
    if BEYOND not in quirks:
        return today.resumed_at(core, request, unit)
    return {arith.down(len(request.submit.prompt) - 1, unit), arith.down(request.junction, unit)}


def release_worth(quirks: Collection[str], core: Core, group: int, i: int, request: Request) -> bool:
    """Whether the release registers a block."""
    rule, shape = core.rules[group], core.shape
    if any(one.eagle for one in core.rules):
        return kept_blocks.worth(quirks, core, group, i, request, lower=True)
    thinned = rule.windowed or (isinstance(rule, Mamba) and shape.retention_interval is not None)
    if not thinned and "registers-unreadable" in quirks:
        return True
    by_scheduler = thinned and len(core.rules) == 1 and "registers-by-scheduler-block" in quirks
    unit = shape.scheduler_block_size if by_scheduler else core.alignment
    if isinstance(rule, Mamba) and "registers-unreadable" in quirks:
        last = {end // rule.b - 1 for end in resumed_at(quirks, core, request, unit)}  # the whole block before the end
        return i in last or bool(shape.retention_interval and (i + 1) * rule.b % shape.retention_interval == 0)
    if shape.retention_interval is None or BEYOND not in quirks:
        return today.worth(core, group, i, request, unit)
    ends = resumed_at(quirks, core, request, unit)
    return any(lookup.worth_registering(rule, i, shape.retention_interval, end) for end in ends)


DECISIONS: Mapping[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    **deviations.DECISIONS,
    "hit": (FINE_SEARCH, today_hit),
    "junction": (FINE_SEARCH, today_junction),
    "connector_hit": ((*FINE_SEARCH, *APART), fine_for_connector),
    "worth": (("registers-unreadable", "registers-by-scheduler-block", BEYOND, EARLY, IN_PART), release_worth),
    "reach": ((CHAIN_LATE, "registers-unreadable"), release_reach),
    "settled": (("cut-by-all-computed",), all_processed),
    "also_named": ((OUTPUT_NAMED,), named_as_prompt),
}
"""As `deviations.DECISIONS`."""


class _KeysAhead:
    """Extra keys where names look ahead: which of several items on one token names a block depends on the blocks that
    were named in the same call. Those of a prompt are; where it matters which of the later ones were, or for an event,
    nothing more is said. In the event of a prompt's end inside a block, the scan begins at an item that is found by
    halving, which needs items that stand in order."""

    def __init__(self, policy: Policy, note: Note) -> None:
        self.policy, self.note, self._ahead, self._told, self._at_end = policy, note, 0, False, False

    def ahead(self, shape: Shape) -> int:
        """How many tokens; asked once, as the core is built."""
        self._ahead, self._told = inside.names_ahead(shape), shape.events
        return self._ahead

    def content_keys(self, submit: Submit, start: int, end: int) -> Keys:
        """Those of a block that gets its identity."""
        return self.policy.content_keys(self._scanned(submit, start, end - self._ahead), start, end)

    def event_keys(self, submit: Submit, start: int, end: int) -> Keys:
        """Those that an event shows."""
        if self._told and self._ahead and _overlap(submit.items):
            self.note(OVERLAPPING.id, True)
            raise UndefinedStateError
        items = submit.items
        if self._at_end and start and items and items[-1].offset + items[-1].length > start:
            found = bisect_left(items, start + 1, key=lambda item: item.offset + item.length)
            cut = self.policy.event_keys(replace(submit, items=items[found:]), start, end)
            self.note(OVERLAPPING.id, cut != self.policy.event_keys(submit, start, end), harmless=True)
            return cut
        return self.policy.event_keys(submit, start, end)

    def name_tail(self, core: Core, group: int, request: Request, num_tokens: int) -> None:
        """Name the end of a prompt."""
        self._at_end = True
        try:
            self.policy.name_tail(core, group, request, num_tokens)
        finally:
            self._at_end = False

    def _scanned(self, submit: Submit, start: int, end: int) -> Submit:
        """The request with the items only that name the block, where some of its items are on the same tokens."""
        if not self._ahead or not _overlap(submit.items):
            return submit
        size, named = end - start, max(0, (len(submit.prompt) - self._ahead) // (end - start))  # blocks named at once
        begins = [0] if start < named * size else range(named * size, end, size)
        first, *others = (items_ahead(submit.items, start, end, self._ahead, begin) for begin in begins)
        self.note(OVERLAPPING.id, first != overlapping_items(submit.items, start, end + self._ahead))
        if any(other != first for other in others):
            self.note(OVERLAPPING.id, True)
            raise UndefinedStateError
        return replace(submit, items=tuple(first))


def _overlap(items: Sequence[Item]) -> bool:
    ends = accumulate((item.offset + item.length for item in items), max)
    return any(item.offset < end for item, end in zip(items[1:], ends, strict=False))


def read_by_rank(note: Note, core: Core, name: str) -> tuple[Value, ...]:
    """What a scheduler asks besides, by blocks of one rank."""
    said = queries.read(core, name)
    told = list(said)
    for group, rule in enumerate(core.rules if told else ()):
        if not (isinstance(rule, Mamba) or rule.by_encoder):
            held = core.state.tables[group].get(name, [])
            told[1 + group] = tuple(held[: arith.cdiv(core.requests[name].computed, rule.group.block_size)])
    note(BY_RANK, told != list(said))
    return tuple(told)


def policy_of(declared: Collection[str], note: Note) -> Policy:
    """What a core decides that has the deviations with these ids."""
    base = replace(today.TODAY, null_skipped=partial(null_late, note)) if LATE in declared else today.TODAY
    base = replace(base, name_tail=partial(named_beyond, note)) if BEYOND in declared else base
    base = replace(base, name_tail=partial(named_early, base.name_tail, note)) if EARLY in declared else base
    return policy_by(deviations.Rules(base, DECISIONS, state_deviations.ProcessedStates), declared, note)


def policy_by(rules: deviations.Rules, declared: Collection[str], note: Note) -> Policy:
    """The same by these rules."""
    policy = deviations.policy_of(declared, note, rules)
    if BY_RANK in declared:
        policy = replace(policy, read=partial(read_by_rank, note))
    if REPORTED in declared:
        said = _Unsaid(replace(policy, report=partial(report_all, note)))
        policy = replace(policy, report=said.report, junction=said.junction if policy.junction is not None else None)
    if UNREPORTED in declared:
        told = _Reports(policy, [name for name in (*FINE_SEARCH, *APART) if name in declared], note)
        policy = replace(policy, hit=told.hit, connector_hit=told.connector_hit, report=told.report)
    if OVERLAPPING.id not in declared or policy.ahead is None:
        return policy
    keys = _KeysAhead(policy, note)
    return replace(
        policy,
        ahead=keys.ahead,
        content_keys=keys.content_keys,
        event_keys=keys.event_keys,
        name_tail=keys.name_tail,
    )
