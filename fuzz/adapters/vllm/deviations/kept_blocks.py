"""Which blocks vLLM keeps from 0.26 on where drafts are made and names do not look ahead."""

from collections.abc import Collection

from .....model import arith, lookup
from .....model.attention import Mamba, Rule
from .....model.features.inside import behind, first
from .....model.state import Request
from .....model.tables import Core
from . import deviations_0230 as deviations

EARLY, LOWER, IN_PART = "replay-boundary-early", "replay-boundary-eagle", "junction-kept-in-part"


def worth(
    quirks: Collection[str],
    core: Core,
    group: int,
    i: int,
    request: Request,
    *,
    by_scheduler: bool = False,
    lower: bool = False,
) -> bool:
    """Whether the release registers a block; `by_scheduler`: with several groups, too, by the scheduler's block;
    `lower`: also where hits end that lack what drafts need behind a junction."""
    rule, shape = core.rules[group], core.shape
    thinned = rule.windowed or (isinstance(rule, Mamba) and shape.retention_interval is not None)
    if not thinned and "registers-unreadable" in quirks:
        return True
    by_scheduler = (by_scheduler or len(core.rules) == 1) and "registers-by-scheduler-block" in quirks
    unit = shape.scheduler_block_size if thinned and by_scheduler else core.alignment
    interval = unit if shape.retention_interval is None else shape.retention_interval
    ends = set() if shape.retention_interval is None else resumed_at(quirks, core, request, unit)
    if lower and ends and request.junction:
        ends |= {arith.down(end, unit) for end in before_junction(quirks, core, rule, request)}
    if "registers-unreadable" not in quirks:
        return any(lookup.worth_registering(rule, i, interval, end) for end in {0, *ends})
    if isinstance(rule, Mamba):
        return i in {end // rule.b - 1 for end in ends} or bool(interval and (i + 1) * rule.b % interval == 0)
    return deviations.in_mask(rule, i, interval, ends)


def before_junction(quirks: Collection[str], core: Core, rule: Rule, request: Request) -> list[int]:
    """Tokens up to where hits end that lack what drafts need behind a junction. In part: in windows that they read; the
    unreadable: where the junction says that it is there, and in states."""
    needed = max(behind(core, one) for one in core.rules) - behind(core, first(core))
    kept = [needed] if needed and (IN_PART not in quirks or (rule.eagle and rule.windowed)) else []
    if rule.eagle and "registers-unreadable" in quirks:
        kept.append(rule.b)
    return [request.junction - tokens for tokens in kept]


def resumed_at(quirks: Collection[str], core: Core, request: Request, unit: int) -> set[int]:
    """Where the hit of a later request can end, as the release counts: tokens."""
    prompt, block = len(request.submit.prompt), core.shape.scheduler_block_size
    further = max(behind(core, rule) for rule in core.rules)
    ends = {prompt - max(1, further)}
    if further and LOWER in quirks:
        ends = {prompt - 1}
    elif EARLY in quirks and any(rule.eagle for rule in core.rules):
        ends = {max(0, arith.down(tokens, block) - block) for tokens in (prompt - 1, prompt)}
    return {arith.down(end, unit) for end in (*ends, *filter(None, [request.junction]))}
