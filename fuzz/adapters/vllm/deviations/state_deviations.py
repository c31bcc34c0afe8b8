"""What the reference release does with the states of Mamba layers in mode align (core.md §7)."""

from collections.abc import Collection

from .....model import arith
from .....model.attention import Mamba
from .....model.ops import NULL
from .....model.state import Request
from .....model.tables import Core, Plan, Policy, arranged, candidates, extend_states, real, renewed, stands, states
from ....targets.deviations import Deviation, Note, UndefinedStateError

PILE_UP, GATE = "mamba-states-pile-up", "mamba-gate"
LEFT_BEHIND = "states-left-behind"
NEGATIVE, EXTERNAL = "mamba-negative-demand", "mamba-external-state"
MOVED_AWAY = "draft-states-moved-away"
TWICE, AGAIN = "copy-counted-twice", "prompt-end-named-again"
HELD = (PILE_UP, GATE, NEGATIVE, EXTERNAL, MOVED_AWAY)
"""Those that say which states a request holds."""
SHARED = "shared-draft-state"
BY_SCHEDULER = "states-by-scheduler"

DEVIATIONS: tuple[Deviation, ...] = (
    Deviation(
        BY_SCHEDULER,
        reason=(
            "every block that ends within the known tokens is registered as the state there, though in mode align a "
            "step writes its last state only: the core leaves it to its scheduler to end steps where blocks end, which "
            "the scheduler does not always do; with drafts, the other modes write none where a block ends either"
        ),
        condition=(
            "mamba in align mode and a step that passes the end of a block; in the other modes a step with drafts"
        ),
        source="Found when what a worker writes was defined; vllm-project/vllm#51113, vllm-project/vllm#53479.",
        corrupts=True,
    ),
    Deviation(
        PILE_UP,
        reason=(
            "a new step gives back no state but the one that is remembered, one step late: with drafts, a request can "
            "hold more than the 2 + p states that memory is planned for, up to its end"
        ),
        condition="mamba with speculative blocks; or in align mode, a state that is needed no more before a null entry",
        source="Found by proof (T15).",
    ),
    Deviation(
        MOVED_AWAY,
        reason=(
            "where drafts reach over more than a block, a block moves to a later entry from one that a step may still "
            "write, as drafts are rejected or accepted ones copied back, or such an entry stays null: a worker, whose "
            "row only grows, has that block at two places or none there, and a state is lost"
        ),
        condition=(
            "mamba in align mode with at least as many speculative blocks as a block has tokens, and a step that takes "
            "new entries and is no longer than one with drafts"
        ),
        source="Found by the shadow memory when drafts over several blocks were modelled.",
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
            "the block for a state that comes from outside is not predicted, but the state of the hit is, which it "
            "replaces: with the pool nearly full the allocation raises half-way, after it has taken blocks"
        ),
        condition="mamba in align mode, external tokens",
        source="Found by lockstep; vllm-project/vllm#57050 (b), vllm-project/vllm-ascend#11049.",
    ),
    Deviation(
        LEFT_BEHIND,
        reason=(
            "states that a request has given up on its way stay where they are in the free queue when it ends: they "
            "are evicted before the blocks of other groups that no lookup can use without them"
        ),
        condition="mamba, and a request that ends and whose states are cached and held by nobody",
        source="Found by measuring hits on recorded traffic (docs/evidence/hits.md).",
    ),
)
"""Each with what the release does, when it shows, and where that is known from."""


def left_behind(note: Note, core: Core, name: str) -> list[int]:
    """No state counts as used again when a request ends."""
    queue = core.state.queue()
    right = [block for block in renewed(core, name) if block in queue]
    note(LEFT_BEHIND, bool(right) and queue[-len(right) :] != right)
    return []


def all_stand(quirks: Collection[str], core: Core, group: int, i: int, request: Request) -> bool:
    """Every state counts as written."""
    return bool(quirks) or stands(core, group, i, request)


class ReleaseStates:
    """What the release decides, and the indices that it remembers for it."""

    by_processed = False
    """Are states given back by the tokens whose outcome is known (from 0.26 on)?"""
    over_nulls = False
    """Are those before a null entry given back, too (from 0.30 on)?"""
    begins_without_blocks = False
    """Does a request count as begun by a step that takes no block (by 0.29)?"""

    def __init__(self, declared: Collection[str], note: Note, base: Policy) -> None:
        self.declared, self.note, self.base = declared, note, base
        self.copied: set[tuple[int, str]] = set()
        """By group and request: who gets a copy in this allocation."""
        self._before: dict[tuple[int, str], int | None] = {}
        """By group and request, once it has a running state: the index of the state before it."""

    @property
    def begun(self) -> Collection[tuple[int, str]]:
        """By group and request, those that have a running state."""
        return self._before.keys()

    def predicted(self, core: Core, group: int, plan: Plan, counts: list[int], capped: bool) -> int:
        """How many states it predicts."""
        right = states(core, group, plan, counts, capped)
        if capped and GATE not in self.declared:
            return right
        quirks = [name for name in (NEGATIVE, EXTERNAL) if capped or name in self.declared]
        quirks += [TWICE] if TWICE in self.declared else []
        given = self._predicted(core, group, plan, counts, quirks, right=None if capped else right)
        if capped:
            self.note(GATE, given != right)
        for name in () if capped else quirks:
            others = [other for other in quirks if other != name]
            self.note(name, given != self._predicted(core, group, plan, counts, others, right))
        return given

    def _predicted(
        self, core: Core, group: int, plan: Plan, counts: list[int], quirks: Collection[str], right: int | None
    ) -> int:
        """The same with some deviations of the prediction. `right`: what is right; None for the release's gate."""
        rule, key = core.rules[group], (group, plan.op.request)
        table, arriving = core.begun(group, plan)
        held = len(table) + arriving
        missing = rule.required(plan.main) - held
        if right is None or PILE_UP in self.declared:
            started = key in self._before and any(core.state.tables[group].get(plan.op.request, ()))
            nulls, moving = self._without_new(core, group, plan, held, started)
            new = max(0, missing - nulls - len(moving))
            right = arriving + new + candidates(table, counts)
        copied = core.policy.copies is not None and core.policy.copies(core, group, plan)
        if missing < 0 and NEGATIVE in quirks and not copied:
            right = arriving + missing + candidates(table, counts)
        if EXTERNAL in quirks and arriving:
            wanted = rule.required(plan.main) - len(plan.hit[group])
            most = 1 + rule.p + len(_checkpoints(core, group, plan))
            right += min(wanted, most) - max(0, min(missing, most)) - arriving
            right += candidates([block for block in plan.hit[group] if block not in table], counts)
            missing = wanted
        if TWICE in quirks and copied:
            most = 1 + (0 if key in self._before else rule.p)
            right += most - max(0, min(missing, most))
        return right

    def _without_new(self, core: Core, group: int, plan: Plan, held: int, started: bool) -> tuple[int, list[int]]:
        """Of the entries behind the first `held` ones: how many stay null, and from which others blocks move there."""
        rule = core.rules[group]
        assert isinstance(rule, Mamba)
        running = arith.cdiv(plan.main, rule.b) - 1
        end = running if MOVED_AWAY in self.declared else rule.lasting(plan.total, plan.main)
        end = min([end, *_checkpoints(core, group, plan)])
        if running + 1 + rule.p <= held:
            return 0, []
        return max(0, end - held), [i for i in range(held - rule.p, min(held, end)) if started]

    def extend(self, core: Core, group: int, plan: Plan, table: list[int]) -> None:
        """The table grows, if it does, by nulls up to the running state, and the states of drafts move behind it."""
        rule, key = core.rules[group], (group, plan.op.request)
        assert isinstance(rule, Mamba)
        before, running = len(table), arith.cdiv(plan.main, rule.b) - 1
        end, low, started = running + 1 + rule.p, rule.lasting(plan.total, plan.main), key in self._before
        if PILE_UP not in self.declared or (end <= before and MOVED_AWAY not in self.declared):
            extend_states(core, group, plan, table)
        elif end > before:
            nulls, moving = self._without_new(core, group, plan, before, started)
            right = arranged(core, group, plan, table, core.state.references())
            self.check_moving(core, table, moving)
            away = [i for i in moving if i >= low]
            self.note(PILE_UP, [i for i in moving if i < low] != right.moved or bool(right.dropped))
            gone, least = bool(away) or before + nulls > max(before, low), _least(core, rule, plan)
            harmless = not any(i >= least for i in away) and before + nulls <= max(before, least)
            if MOVED_AWAY in self.declared:
                self.note(MOVED_AWAY, gone, harmless)
            table += [NULL] * nulls
            for old in moving:
                table.append(table[old])
                table[old] = NULL
            core.grow(group, table, end - len(table))
        if end > before or key in self.copied:
            self._before[key] = before - 1 - (rule.p if started else 0) if before else None
        elif self.begins_without_blocks:
            self._before.setdefault(key, None)
        self.copied.discard(key)

    def make_private(self, core: Core, group: int, name: str, is_state: bool) -> list[int]:
        """A copy is a step of its own to the release."""
        if is_state:
            self.copied.add((group, name))
            i, source = core.tails[group, name]
            if AGAIN in self.declared and core.state.tables[group][name][i] != source:
                self.note(AGAIN, True)
                raise UndefinedStateError
        return self.base.make_private(core, group, name, is_state) if self.base.make_private else []

    def check_moving(self, core: Core, table: list[int], moving: list[int]) -> None:
        """Blocks move wherever they are held."""

    def null(self, core: Core, group: int, name: str, settled: int) -> None:
        """States that p tokens less than the computed ones need no more are given back up to the first null entry, and
        the one that is remembered."""
        rule, table, key = core.rules[group], core.state.tables[group].get(name, []), (group, name)
        if not table:
            self._before.pop(key, None)
        if PILE_UP not in self.declared or not isinstance(rule, Mamba):
            self.base.null_skipped(core, group, name, settled)
            return
        computed = settled if self.by_processed else max(0, settled - rule.p)
        end = min(rule.first(computed), len(table))
        run = end if self.over_nulls and rule.align else _run_before(table, end)
        gone, table[end - run : end] = real(table[end - run : end])[::-1], [NULL] * run
        core.state.let_go_by_identity(gone)
        last = self._before.get(key)
        is_past = last is not None and last < arith.cdiv(computed, rule.b) - 1
        if last is not None and is_past and table[last] != NULL:
            block, table[last] = table[last], NULL
            core.policy.let_go(core, group, [block], False)
            self.note(PILE_UP, block not in core.state.identity)
        unneeded = table[end : rule.first(settled)] if rule.align else []
        stays = any(block in core.state.identity for block in unneeded)
        self.note(PILE_UP, stays or any(table[: rule.first(computed)]))


class ProcessedStates(ReleaseStates):
    """The same of vLLM 0.33."""

    by_processed = over_nulls = begins_without_blocks = True

    def check_moving(self, core: Core, table: list[int], moving: list[int]) -> None:
        """A block that moves must be the request's alone, and have no name; else nothing more is said."""
        counts = core.state.references()
        if SHARED in self.declared and any(counts[table[i]] != 1 or table[i] in core.state.identity for i in moving):
            self.note(SHARED, True)
            raise UndefinedStateError


def _checkpoints(core: Core, group: int, plan: Plan) -> list[int]:
    """Entries that get a block for a state inside the step."""
    return core.policy.checkpoints(core, group, plan) if core.policy.checkpoints is not None else []


def _least(core: Core, rule: Mamba, plan: Plan) -> int:
    """The first entry that this step or a later one may still write, where it is known which tokens are drafts: the one
    in which the last known token lies, also where it ends there, as the state behind it is copied into it."""
    known = len(core.requests[plan.op.request].tokens)
    return arith.cdiv(min(plan.main, known + (plan.total >= known)), rule.b) - 1


def _run_before(table: list[int], end: int) -> int:
    """How many entries right before `end` are real."""
    run = 0
    while run < end and table[end - 1 - run] != NULL:
        run += 1
    return run
