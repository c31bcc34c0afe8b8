"""Where the reference release is known to differ from the specification (core.md, "Known deviations")."""

from ....model.arith import cdiv
from ....model.attention import Chunked, Hit, Mamba, Rule
from ....model.core import Plan
from ....model.identity import ExtraKey, overlapping_items
from ....model.lookup import Coordinator, SpecGroup
from ....model.ops import FULL_FAMILY, Failed, Lookup, Shape, Value
from ....model.requests import Request
from ...targets.deviations import DeviatingModel, Deviation, MisuseUnchecked


class UnknownRequestGetsTable(DeviatingModel):
    """An unknown request has an empty table once its common prefix was asked for."""

    deviation = Deviation(
        "common-prefix-unknown",
        reason=(
            "asking for the common prefix of an unknown request leaves an empty table, which counts as one more sharer"
        ),
        condition="CommonPrefix of a request without a table, in a full-attention group",
        source="core.md, deviation 5.",
    )

    def __init__(self, shape: Shape) -> None:
        self._ghosts: list[set[str]] = [set() for _ in shape.groups]
        super().__init__(shape)

    def common_prefix_in(self, group: int, name: str, counts: list[int]) -> int:
        """Shared by all tables and the empty ones."""
        right = super().common_prefix_in(group, name, counts)
        if self.shape.groups[group].kind not in FULL_FAMILY or not self.shape.caching:
            return right
        tables, ghosts = self.state.tables[group], self._ghosts[group]
        if not tables.get(name):
            ghosts.add(name)
        sharers = len(tables.keys() | ghosts)
        shared = 0
        for block in tables.get(name, ()):
            if counts[block] != sharers:
                break
            shared += 1
        self.note(UnknownRequestGetsTable.deviation, shared != right)
        return shared

    def give_back(self, name: str) -> None:
        """The empty table goes with the request."""
        for ghosts in self._ghosts:
            ghosts.discard(name)
        super().give_back(name)


class UntaggedExtraKeys(DeviatingModel):
    """Adapter and salt are not told apart."""

    deviation = Deviation(
        "untagged-extra-keys",
        reason="adapter and salt enter the hash as bare strings, so an adapter named like a salt shares its blocks",
        condition="equal tokens with the same names of adapter and salt in another role",
        source="core.md, deviation 2; vllm-project/vllm#44701.",
        corrupts=True,
    )

    def __init__(self, shape: Shape) -> None:
        self._tagged: dict[tuple[ExtraKey, ...], tuple[ExtraKey, ...]] = {}
        super().__init__(shape)

    def content_keys(self, request: Request, start: int, end: int, restart: int) -> tuple[ExtraKey, ...]:
        """Adapter and salt lose their tags."""
        right = super().content_keys(request, start, end, restart)
        wrong = tuple(("", value) if tag in ("adapter", "salt") else (tag, value) for tag, value in right)
        self.note(UntaggedExtraKeys.deviation, self._tagged.setdefault(wrong, right) != right)
        return wrong


class ItemsLostOnRestart(DeviatingModel):
    """Naming that goes on after the prompt sees its last multimodal item only."""

    deviation = Deviation(
        "items-lost-on-restart",
        reason=(
            "a block that fills up during generation is hashed with the prompt's last multimodal item only; an earlier "
            "one in the same block is left out, so prompts that differ in it share the block"
        ),
        condition="the prompt's last, partial block holds two items or more, and fills up later",
        source="Found by lockstep; close to vllm-project/vllm#49448.",
        corrupts=True,
    )

    def content_keys(self, request: Request, start: int, end: int, restart: int) -> tuple[ExtraKey, ...]:
        """Only the last item is seen when naming goes on."""
        right = super().content_keys(request, start, end, restart)
        if not restart:
            return right
        last = request.submit.items[-1:]
        items = overlapping_items(request.submit.items, start, end)
        lost = len(items) - len(overlapping_items(last, start, end))
        self.note(ItemsLostOnRestart.deviation, lost > 0)
        at = next((i for i, (tag, _) in enumerate(right) if tag == "item"), 0)
        return right[:at] + right[at + lost :]


class ChunkedCapTooSmall(DeviatingModel):
    """The admission cap of chunks is a block smaller where chunks and blocks do not align."""

    deviation = Deviation(
        "chunked-cap",
        reason=(
            "the admission cap of chunked local attention leaves out the block that a chunk starting inside it drags "
            "along"
        ),
        condition="the chunk is no multiple of the block size, and the gate asks for more than the cap",
        source="core.md, deviation 3; S-13.",
    )

    def capped(self, rule: Rule, required: int) -> int:
        """The cap without the extra block."""
        right = super().capped(rule, required)
        if not isinstance(rule, Chunked):
            return right
        shape = self.shape
        wrong = min(required, cdiv(min(rule.k + shape.max_num_batched_tokens, shape.max_model_len), rule.b))
        self.note(ChunkedCapTooSmall.deviation, wrong != right)
        return wrong


class NegativeMambaDemand(DeviatingModel):
    """A mamba table that is too long asks for a negative number of blocks."""

    deviation = Deviation(
        "mamba-negative-demand",
        reason="a table longer than needed (drafts became fewer) counts as negative demand and hides another group's",
        condition="mamba in align mode, required entries fewer than held ones",
        source="core.md, deviation 4.",
    )

    def running_states(self, rule: Mamba, missing: int, started: bool) -> int:
        """Negative where the table is too long."""
        self.note(NegativeMambaDemand.deviation, missing < 0)
        return missing if missing < 0 else super().running_states(rule, missing, started)


class ExternalStateNotCounted(DeviatingModel):
    """No block is counted for a mamba state that comes from outside."""

    deviation = Deviation(
        "mamba-external-state",
        reason=(
            "the block for a state that comes from outside is not predicted: with the pool nearly full the allocation "
            "raises half-way, after it has taken blocks"
        ),
        condition="mamba in align mode, external tokens",
        source="Found by lockstep; vllm-project/vllm#57050 (b), vllm-project/vllm-ascend#11049.",
    )

    def arriving_states(self, rule: Mamba, plan: Plan, entries: int) -> tuple[int, int]:
        """None are counted."""
        self.note(ExternalStateNotCounted.deviation, plan.op.external > 0)
        return 0, entries


class _OnlyFirstCut(Coordinator):
    """Only the first hit is cut to the common length, if it is one of full attention."""

    def end(self, spec_group: SpecGroup, hit: Hit, length: int) -> int:
        first = spec_group is self.spec_groups[0] and spec_group.rule.is_full
        return super().end(spec_group, hit, length) if first or len(self.rules) == 1 else hit.stop


class OnlyFirstHitCut(DeviatingModel):
    """Only the first hit of a lookup is cut to the common length."""

    deviation = Deviation(
        "hit-not-cut",
        reason=(
            "the common length is applied to the first full-attention group's blocks only: another group's list stays "
            "longer, its surplus blocks are pinned and stand where new tokens will be written; with external tokens a "
            "negative number of blocks is taken, which inflates the free count"
        ),
        condition="two specs of the full-attention family, or an eagle mamba group before another one",
        source="Found by lockstep; vllm-project/vllm-ascend#14283, review of vllm-project/vllm#40868.",
    )
    coordinator_type = _OnlyFirstCut

    def lookup(self, op: Lookup) -> Value:
        """Too many blocks for the tokens."""
        value = super().lookup(op)
        tokens, blocks = self.requests[op.request].hit or (0, [])
        long = any(len(row) * rule.b > tokens for row, rule in zip(blocks, self.rules, strict=True))
        self.note(OnlyFirstHitCut.deviation, long)
        return value

    def grow(self, group: int, table: list[int], count: int) -> None:
        """Taking a negative number corrupts the free count: what follows is undefined."""
        self.undefined |= count < 0
        self.dead |= count < 0
        super().grow(group, table, max(0, count))


class MambaEagleMargin(DeviatingModel):
    """An eagle mamba group is searched one block further, and drops none."""

    deviation = Deviation(
        "mamba-eagle-margin",
        reason=(
            "an eagle mamba group is searched one block beyond the common length but drops none, so the hit can be "
            "longer than what the other groups hold: tokens count as computed whose keys and values are nowhere"
        ),
        condition=(
            "eagle, a hybrid with mamba, and a mamba state registered one block further than the other groups' hit"
        ),
        source="Found by lockstep; vllm-project/vllm#43559, vllm-project/vllm#48375.",
        corrupts=True,
    )

    def rule(self, group: int) -> Rule:
        """A mamba group gets the margin."""
        rule = super().rule(group)
        rule.drops = True
        return rule

    def lookup(self, op: Lookup) -> Value:
        """Too few blocks for the tokens."""
        value = super().lookup(op)
        tokens, blocks = self.requests[op.request].hit or (0, [])
        short = any(len(row) * rule.b < tokens for row, rule in zip(blocks, self.rules, strict=True))
        self.note(MambaEagleMargin.deviation, short)
        return value


class HitTakenForExternal(DeviatingModel):
    """A group takes its blocks before the next group has attached its hit."""

    deviation = Deviation(
        "hit-taken-for-external",
        reason=(
            "group by group, the hit is attached and blocks for external tokens are taken: those of one group can be "
            "the next group's hit, which nobody holds yet; the block then stands in two tables and is overwritten"
        ),
        condition="several groups, a hit together with external tokens, and the hit's blocks first in the free queue",
        source="Found by the shadow memory.",
        corrupts=True,
    )

    def attach_all(self, plan: Plan) -> None:
        """Each group does both before the next."""
        for group in range(len(self.rules)):
            missing = self.attach(group, plan)
            next_free = self.state.queue(self.state.references())[: max(0, missing)]
            later = {block for hit in plan.hit[group + 1 :] for block in hit}
            self.note(HitTakenForExternal.deviation, not later.isdisjoint(next_free))
            self.make_room(group, plan, missing)


class SinkNotConstructible(DeviatingModel):
    """No core with attention sinks can be built."""

    deviation = Deviation(
        "sink-construction",
        reason=(
            "the constructor of the sink manager lacks a parameter that its caller passes, so no such core can be built"
        ),
        condition="any group with attention sinks",
        source="core.md, deviation 1; S-18.",
    )

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        if any(group.kind == "sink" for group in shape.groups):
            self.construction = Failed("TypeError")
            self.note(SinkNotConstructible.deviation, True)


DEVIATING_MODELS: tuple[type[DeviatingModel], ...] = (
    UnknownRequestGetsTable,
    UntaggedExtraKeys,
    ItemsLostOnRestart,
    ChunkedCapTooSmall,
    NegativeMambaDemand,
    ExternalStateNotCounted,
    OnlyFirstHitCut,
    MambaEagleMargin,
    HitTakenForExternal,
    SinkNotConstructible,
    MisuseUnchecked,
)
"""A model for each deviation that is known."""
