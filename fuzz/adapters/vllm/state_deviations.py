"""What the reference release does with the states of Mamba layers in mode align (core.md §7)."""

from collections.abc import Collection

from ....model import arith
from ....model.attention import Mamba
from ....model.ops import NULL
from ....model.tables import Core, Plan, candidates, extend_states, real, states
from ...targets.deviations import Deviation, Note

PILE_UP, MOVED_ON = "mamba-states-pile-up", "running-state-moved-on"
GATE, NEGATIVE, EXTERNAL, DROPPED = (
    "mamba-gate",
    "mamba-negative-demand",
    "mamba-external-state",
    "mamba-dropped-hit",
)

DEVIATIONS: tuple[Deviation, ...] = (
    Deviation(
        PILE_UP,
        reason=(
            "a state is given back p tokens late; before a null entry, only the one that is remembered: with drafts, "
            "a request can hold more than the 2 + p states that memory is planned for, up to its end"
        ),
        condition="mamba with speculative blocks; or in align mode, a state that is needed no more before a null entry",
        source="Found by proof (T15).",
    ),
    Deviation(
        MOVED_ON,
        reason=(
            "tables only grow: where drafts were rejected and the next step ends further left, the entry in which its "
            "running state is written can be null; a worker that keeps its own row of block ids writes into a block "
            "that the request may not hold any more"
        ),
        condition="mamba in align mode, a step that ends before the one that made the table so long",
        source="Found by the shadow memory.",
        corrupts=True,
    ),
    Deviation(
        GATE,
        reason=(
            "the gate counts 1 + p states for a request that begins, and those of its first step only: the request "
            "holds 2 + p from its second block on, so a pool that is full of admitted requests lets none of them go on"
        ),
        condition="mamba in align mode, full_sequence_must_fit",
        source="Found by proof (T16.states).",
    ),
    Deviation(
        NEGATIVE,
        reason="a table longer than needed (drafts became fewer) counts as negative demand and hides another group's",
        condition="mamba in align mode, required entries fewer than held ones",
        source="Found by lockstep.",
    ),
    Deviation(
        EXTERNAL,
        reason=(
            "the block for a state that comes from outside is not predicted: with the pool nearly full the allocation "
            "raises half-way, after it has taken blocks"
        ),
        condition="mamba in align mode, external tokens",
        source="Found by lockstep; vllm-project/vllm#57050 (b), vllm-project/vllm-ascend#11049.",
    ),
    Deviation(
        DROPPED,
        reason="the eviction candidate of a hit is counted, although a later state comes from outside instead",
        condition="mamba in align mode, external tokens behind a hit on an eviction candidate",
        source="Found by proof (T7.align).",
    ),
)
"""Each with what the release does, when it shows, and where that is known from."""


class ReleaseStates:
    """What the release decides, and the indices that it remembers for it."""

    def __init__(self, declared: Collection[str], note: Note) -> None:
        self.declared, self.note = declared, note
        self._before: dict[tuple[int, str], int | None] = {}
        """By group and request, once it has a running state: the index of the state before it."""

    def predicted(self, core: Core, group: int, plan: Plan, counts: list[int], capped: bool) -> int:
        """How many states it predicts."""
        right = states(core, group, plan, counts, capped)
        quirks = [name for name in (MOVED_ON, NEGATIVE, EXTERNAL, DROPPED) if name in self.declared]
        if (GATE if capped else MOVED_ON) not in self.declared:
            return right
        given = self._predicted(core, group, plan, counts, quirks)
        if capped:
            self.note(GATE, given != right)
            return given
        for name in quirks[1:]:
            without = self._predicted(core, group, plan, counts, [other for other in quirks if other != name])
            self.note(name, given != without)
        return given

    def _predicted(self, core: Core, group: int, plan: Plan, counts: list[int], quirks: Collection[str]) -> int:
        rule, key = core.rules[group], (group, plan.op.request)
        table, _ = core.begun(group, plan)
        hit = plan.hit[group] if DROPPED in quirks else [block for block in plan.hit[group] if block in table]
        arriving = bool(plan.op.external) and EXTERNAL not in quirks
        held = len(plan.hit[group]) + len(core.state.tables[group].get(plan.op.request, ()))
        missing = rule.required(plan.main) - (arith.cdiv(plan.total, rule.b) if arriving else held)
        new = min(missing, 1 if key in self._before else 1 + rule.p)
        return arriving + (new if NEGATIVE in quirks else max(0, new)) + candidates(hit, counts)

    def extend(self, core: Core, group: int, plan: Plan, table: list[int]) -> None:
        """The table grows, if it does, by nulls up to the running state, and the states of drafts move behind it."""
        rule, key = core.rules[group], (group, plan.op.request)
        before, running = len(table), arith.cdiv(plan.main, rule.b) - 1
        if MOVED_ON not in self.declared:
            extend_states(core, group, plan, table)
        elif running + 1 + rule.p > before:
            table += [NULL] * (running - before)
            for old in range(before - rule.p, min(before, running)) if key in self._before else ():
                table.append(table[old])
                table[old] = NULL
            core.grow(group, table, running + 1 + rule.p - len(table))
        if len(table) > before:
            self._before[key] = before - 1 - (rule.p if key in self._before else 0) if before else None
        self.note(MOVED_ON, NULL in table[running : running + 1 + rule.p])
        self.note(PILE_UP, real(table) > 2 + rule.p)

    def null(self, core: Core, group: int, name: str, settled: int) -> None:
        """States that p tokens less than the computed ones need no more are given back up to the first null entry, and
        the one that is remembered."""
        rule, table, key = core.rules[group], core.state.tables[group].get(name, []), (group, name)
        if not table:
            self._before.pop(key, None)
        if PILE_UP not in self.declared or not isinstance(rule, Mamba):
            core.null_skipped(group, name, settled)
            return
        computed = max(0, settled - rule.p)
        end = min(core.skipped_blocks(group, computed), len(table))
        run = _run_before(table, end)
        gone, table[end - run : end] = table[end - run : end][::-1], [NULL] * run
        core.state.let_go_by_identity(gone)
        last = self._before.get(key)
        is_past = last is not None and last < arith.cdiv(computed, rule.b) - 1
        if last is not None and is_past and table[last] != NULL:
            block, table[last] = table[last], NULL
            core.state.let_go([block])
        self.note(PILE_UP, any(table[: core.skipped_blocks(group, computed)]))


def _run_before(table: list[int], end: int) -> int:
    """How many entries right before `end` are real."""
    run = 0
    while run < end and table[end - 1 - run] != NULL:
        run += 1
    return run
