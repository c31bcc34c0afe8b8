"""Where vLLM 0.33.0 is known to differ from the specification of today (`model.features.today`)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

from ....model.attention import CoreError, Mamba, demand
from ....model.features import reports, today
from ....model.kinds import rswa
from ....model.ops import NULL, Shape, Submit
from ....model.state import Request
from ....model.tables import BlockIds, Core, Policy
from ...targets.deviations import Deviation, Note, UndefinedStateError
from . import deviations, state_deviations
from .fine_search import FINE_SEARCH, fine_hit, fine_junction
from .identity_deviations import OVERLAPPING, Keys

REPORTED = "reported-as-whole"
OUTPUT_NAMED = "output-named-as-prompt"
LATE = "gap-a-token-late"
STILL = (
    *("chunked-cap", "states-by-scheduler", "mamba-states-pile-up", "draft-states-moved-away", "mamba-gate"),
    *("mamba-negative-demand", "mamba-external-state", "states-left-behind", "sink-construction"),
    *("chunk-astride-block", "chunked-refuses", "window-of-one", "registers-unreadable"),
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


def all_processed(quirks: Collection[str], request: Request, computed: int) -> int:
    """Windows are cut by all tokens of steps whose outcome is known, the last one of a loaded prompt among them."""
    return computed - (request.computed - request.processed) if quirks else today.settled(request, computed)


def release_worth(quirks: Collection[str], core: Core, group: int, i: int, request: Request) -> bool:
    """Whether the release registers a block."""
    rule, shape = core.rules[group], core.shape
    thinned = rule.windowed or (isinstance(rule, Mamba) and shape.retention_interval is not None)
    if not thinned and "registers-unreadable" in quirks:
        return True
    by_scheduler = thinned and len(core.rules) == 1 and "registers-by-scheduler-block" in quirks
    unit = shape.scheduler_block_size if by_scheduler else core.alignment
    if isinstance(rule, Mamba) and "registers-unreadable" in quirks:
        last = {end // rule.b - 1 for end in today.resumed_at(core, request, unit)}  # the whole block before the end
        return i in last or bool(shape.retention_interval and (i + 1) * rule.b % shape.retention_interval == 0)
    return today.worth(core, group, i, request, unit)


DECISIONS: Mapping[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    **deviations.DECISIONS,
    "hit": (FINE_SEARCH, fine_hit),
    "junction": (FINE_SEARCH, fine_junction),
    "worth": (("registers-unreadable", "registers-by-scheduler-block"), release_worth),
    "settled": (("cut-by-all-computed",), all_processed),
    "also_named": ((OUTPUT_NAMED,), named_as_prompt),
}
"""As `deviations.DECISIONS`."""


class _KeysAhead:
    """Extra keys where names look ahead: which of several items on one token names a block depends on the blocks that
    were named in the same call, so nothing more is said."""

    def __init__(self, policy: Policy, note: Note) -> None:
        self.policy, self.note, self._ahead = policy, note, 0

    def ahead(self, shape: Shape) -> int:
        """How many tokens; asked once, as the core is built."""
        self._ahead = today.names_ahead(shape)
        return self._ahead

    def content_keys(self, submit: Submit, start: int, end: int) -> Keys:
        """Those of a block that gets its identity."""
        self._end_if_unclear(submit)
        return self.policy.content_keys(submit, start, end)

    def event_keys(self, submit: Submit, start: int, end: int) -> Keys:
        """Those that an event shows."""
        self._end_if_unclear(submit)
        return self.policy.event_keys(submit, start, end)

    def _end_if_unclear(self, submit: Submit) -> None:
        ends = accumulate((item.offset + item.length for item in submit.items), max)
        if self._ahead and any(item.offset < end for item, end in zip(submit.items[1:], ends, strict=False)):
            self.note(OVERLAPPING.id, True)
            raise UndefinedStateError


def policy_of(declared: Collection[str], note: Note) -> Policy:
    """What a core decides that has the deviations with these ids."""
    base = replace(today.TODAY, null_skipped=partial(null_late, note)) if LATE in declared else today.TODAY
    rules = deviations.Rules(base, DECISIONS, state_deviations.ProcessedStates)
    policy = deviations.policy_of(declared, note, rules)
    if REPORTED in declared:
        policy = replace(policy, report=partial(report_all, note))
    if OVERLAPPING.id not in declared:
        return policy
    keys = _KeysAhead(policy, note)
    return replace(policy, ahead=keys.ahead, content_keys=keys.content_keys, event_keys=keys.event_keys)
