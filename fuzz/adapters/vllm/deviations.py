"""Where the reference release is known to differ from the specification (core.md, "Known deviations")."""

from ....model.arith import cdiv
from ....model.attention import Chunked, Hit, Mamba, Rule
from ....model.core import Plan
from ....model.identity import ExtraKey, overlapping_items
from ....model.lookup import Coordinator, SpecGroup
from ....model.ops import FULL_FAMILY, Failed, Lookup, Shape, Value
from ....model.requests import Request
from ...targets.deviations import Deviation, MisuseUnchecked


class UnknownRequestGetsTable(Deviation):
    """core.md, deviation 5."""

    id = "common-prefix-unknown"
    reason = "asking for the common prefix of an unknown request leaves an empty table, which counts as one more sharer"
    condition = "CommonPrefix of a request without a table, in a full-attention group"

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
        self.deviated[UnknownRequestGetsTable.id] += shared != right
        return shared

    def give_back(self, name: str) -> None:
        """The empty table goes with the request."""
        for ghosts in self._ghosts:
            ghosts.discard(name)
        super().give_back(name)


class UntaggedExtraKeys(Deviation):
    """core.md, deviation 2; vllm-project/vllm#44701."""

    id = "untagged-extra-keys"
    corrupts = True
    reason = "adapter and salt enter the hash as bare strings, so an adapter named like a salt shares its blocks"
    condition = "equal tokens with the same names of adapter and salt in another role"

    def __init__(self, shape: Shape) -> None:
        self._tagged: dict[tuple[ExtraKey, ...], tuple[ExtraKey, ...]] = {}
        super().__init__(shape)

    def content_keys(self, request: Request, start: int, end: int, restart: int) -> tuple[ExtraKey, ...]:
        """Adapter and salt lose their tags."""
        right = super().content_keys(request, start, end, restart)
        wrong = tuple(("", value) if tag in ("adapter", "salt") else (tag, value) for tag, value in right)
        self.deviated[UntaggedExtraKeys.id] += self._tagged.setdefault(wrong, right) != right
        return wrong


class ItemsLostOnRestart(Deviation):
    """Found by lockstep; close to vllm-project/vllm#49448."""

    id = "items-lost-on-restart"
    corrupts = True
    reason = (
        "a block that fills up during generation is hashed with the prompt's last multimodal item only; an earlier one "
        "in the same block is left out, so prompts that differ in it share the block"
    )
    condition = "the prompt's last, partial block holds two items or more, and fills up later"

    def content_keys(self, request: Request, start: int, end: int, restart: int) -> tuple[ExtraKey, ...]:
        """Only the last item is seen when naming goes on."""
        right = super().content_keys(request, start, end, restart)
        if not restart:
            return right
        last = request.submit.items[-1:]
        items = overlapping_items(request.submit.items, start, end)
        lost = len(items) - len(overlapping_items(last, start, end))
        self.deviated[ItemsLostOnRestart.id] += lost > 0
        at = next((i for i, (tag, _) in enumerate(right) if tag == "item"), 0)
        return right[:at] + right[at + lost :]


class ChunkedCapTooSmall(Deviation):
    """core.md, deviation 3; S-13."""

    id = "chunked-cap"
    reason = (
        "the admission cap of chunked local attention leaves out the block that a chunk starting inside it drags along"
    )
    condition = "the chunk is no multiple of the block size, and the gate asks for more than the cap"

    def capped(self, rule: Rule, required: int) -> int:
        """The cap without the extra block."""
        right = super().capped(rule, required)
        if not isinstance(rule, Chunked):
            return right
        shape = self.shape
        wrong = min(required, cdiv(min(rule.k + shape.max_num_batched_tokens, shape.max_model_len), rule.b))
        self.deviated[ChunkedCapTooSmall.id] += wrong != right
        return wrong


class NegativeMambaDemand(Deviation):
    """core.md, deviation 4."""

    id = "mamba-negative-demand"
    reason = "a table longer than needed (drafts became fewer) counts as negative demand and hides another group's"
    condition = "mamba in align mode, required entries fewer than held ones"

    def running_states(self, rule: Mamba, missing: int, started: bool) -> int:
        """Negative where the table is too long."""
        self.deviated[NegativeMambaDemand.id] += missing < 0
        return missing if missing < 0 else super().running_states(rule, missing, started)


class ExternalStateNotCounted(Deviation):
    """Found by lockstep; vllm-project/vllm#57050 (b), vllm-project/vllm-ascend#11049."""

    id = "mamba-external-state"
    reason = (
        "the block for a state that comes from outside is not predicted: with the pool nearly full the allocation "
        "raises half-way, after it has taken blocks"
    )
    condition = "mamba in align mode, external tokens"

    def arriving_states(self, rule: Mamba, plan: Plan, entries: int) -> tuple[int, int]:
        """None are counted."""
        self.deviated[ExternalStateNotCounted.id] += plan.op.external > 0
        return 0, entries


class _OnlyFirstCut(Coordinator):
    """Only the first hit is cut to the common length, if it is one of full attention."""

    def end(self, spec_group: SpecGroup, hit: Hit, length: int) -> int:
        first = spec_group is self.spec_groups[0] and spec_group.rule.is_full
        return super().end(spec_group, hit, length) if first or len(self.rules) == 1 else hit.stop


class OnlyFirstHitCut(Deviation):
    """Found by lockstep; vllm-project/vllm-ascend#14283, review of vllm-project/vllm#40868."""

    id = "hit-not-cut"
    reason = (
        "the common length is applied to the first full-attention group's blocks only: another group's list stays "
        "longer, its surplus blocks are pinned and stand where new tokens will be written; with external tokens a "
        "negative number of blocks is taken, which inflates the free count"
    )
    condition = "two specs of the full-attention family, or an eagle mamba group before another one"
    coordinator_type = _OnlyFirstCut

    def lookup(self, op: Lookup) -> Value:
        """Too many blocks for the tokens."""
        value = super().lookup(op)
        tokens, blocks = self.requests[op.request].hit or (0, [])
        long = any(len(row) * rule.b > tokens for row, rule in zip(blocks, self.rules, strict=True))
        self.deviated[OnlyFirstHitCut.id] += long
        return value

    def grow(self, group: int, table: list[int], count: int) -> None:
        """Taking a negative number corrupts the free count: what follows is undefined."""
        self.undefined |= count < 0
        self.dead |= count < 0
        super().grow(group, table, max(0, count))


class MambaEagleMargin(Deviation):
    """Found by lockstep; vllm-project/vllm#43559, vllm-project/vllm#48375."""

    id = "mamba-eagle-margin"
    corrupts = True
    reason = (
        "an eagle mamba group is searched one block beyond the common length but drops none, so the hit can be longer "
        "than what the other groups hold: tokens count as computed whose keys and values are nowhere"
    )
    condition = "eagle, a hybrid with mamba, and a mamba state registered one block further than the other groups' hit"

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
        self.deviated[MambaEagleMargin.id] += short
        return value


class HitTakenForExternal(Deviation):
    """Found by the shadow memory."""

    id = "hit-taken-for-external"
    corrupts = True
    reason = (
        "group by group, the hit is attached and blocks for external tokens are taken: those of one group can be the "
        "next group's hit, which nobody holds yet; the block then stands in two tables and is overwritten"
    )
    condition = "several groups, a hit together with external tokens, and the hit's blocks first in the free queue"

    def attach_all(self, plan: Plan) -> None:
        """Each group does both before the next."""
        for group in range(len(self.rules)):
            missing = self.attach(group, plan)
            next_free = self.state.queue(self.state.references())[: max(0, missing)]
            later = {block for hit in plan.hit[group + 1 :] for block in hit}
            self.deviated[HitTakenForExternal.id] += not later.isdisjoint(next_free)
            self.make_room(group, plan, missing)


class SinkNotConstructible(Deviation):
    """core.md, deviation 1; S-18."""

    id = "sink-construction"
    reason = (
        "the constructor of the sink manager lacks a parameter that its caller passes, so no such core can be built"
    )
    condition = "any group with attention sinks"

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        if any(group.kind == "sink" for group in shape.groups):
            self.construction = Failed("TypeError")
            self.deviated[SinkNotConstructible.id] += 1


DEVIATIONS: tuple[type[Deviation], ...] = (
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
"""All of them."""
