"""Blocks, places in the allocation, lengths and workers as cores of today want them, and their answers (`rules_today`).

All layers lie in one allocation. Groups alias, since a block is one group's; so a block costs what the largest group
takes. What a request needs is told without the null block, which the check takes off the memory.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TypeAlias

from .....model.attention import demand
from .....model.config.capacity import Rules
from .....model.config_json import (
    MANAGED,
    NOT_ATTENTION,
    WINDOWS,
    Config,
    Configured,
    Json,
    Layer,
    LayerGroup,
    Layers,
    Spec,
    WorkerConfig,
)
from .....model.ops import Shape
from ....targets.configuration_answers import config_from_groups, uniform_info, uniformity
from ....targets.configuration_question import ConstructedQuestion
from .parts_today import PARTS_TODAY, build
from .record_answers import RECORDS_TODAY, RecordRules
from .rules_today import ConfigToday, LayersToday

Place: TypeAlias = tuple[int, tuple[str, ...], int, int, int]
"""Bytes of the allocation; layers; bytes from one layer to the next, from one block to the next, and to the first."""


class RulesToday(LayersToday, RecordRules):
    """All rules of today."""

    def layer_specs(self, group: LayerGroup) -> list[tuple[str, Layer]]:
        """The layers of a group that are there, with their specs."""
        members = dict(group.spec.kv_cache_specs)
        return [(name, members.get(name, group.spec)) for name in group.names]

    def bytes_per_block(self, groups: Sequence[LayerGroup]) -> int:
        """Those of the largest group."""
        return max((sum(self.page(x) for _, x in self.layer_specs(group)) for group in groups), default=0)

    def worker_config(self, config: Config, groups: Sequence[LayerGroup], memory: int) -> WorkerConfig:
        """As many blocks as fit, or the override."""
        blocks = self.num_blocks(config, memory, self.bytes_per_block(groups)) if groups else 1
        return self.placed(config, groups, blocks)

    def placed(self, config: Config, groups: Sequence[LayerGroup], num_blocks: int) -> WorkerConfig:
        """So many blocks, and where their layers lie."""
        self.check_layout(config, groups)
        places = [place for group in groups for place in self.places(config, groups, group, num_blocks)]
        return WorkerConfig(num_blocks, tuple(places), tuple(groups))  # type: ignore[arg-type]  # places, not slots

    def check_layout(self, config: Config, groups: Sequence[LayerGroup]) -> None:
        """Mixed pages lie side by side in a block: whole ones, and not layer after layer if groups alias."""
        assert isinstance(config, ConfigToday)
        mixed = len({self.page(x) for group in groups for _, x in self.layer_specs(group)}) > 1
        able = config.whole_pages and (config.by_blocks or len(groups) == 1)
        demand(not mixed or able, "ValueError")

    def places(self, config: Config, groups: Sequence[LayerGroup], group: LayerGroup, num_blocks: int) -> list[Place]:
        """Equal layers of a group in a row, one such row behind the other."""
        assert isinstance(config, ConfigToday)
        rows: dict[Layer, list[str]] = {}
        for name, x in self.layer_specs(group):
            rows.setdefault(x, []).append(name)
        cost, begin, places = self.bytes_per_block(groups), 0, list[Place]()
        for x, names in rows.items():
            layer, block = self.strides(config, x, num_blocks)
            if config.by_blocks:
                block = cost
            places.append((cost * num_blocks, tuple(names), layer, block, begin))
            begin += len(names) * (self.page(x) if config.by_blocks else layer)
        return places

    def strides(self, config: ConfigToday, x: Layer, num_blocks: int) -> tuple[int, int]:
        """From layer to layer and from block to block of such a row. A padding has no place where heads are outside."""
        page = self.page(x)
        if config.whole_pages:
            return (page, page) if config.by_blocks else (page * num_blocks, page)
        heads = 1 if x.type == Spec.MAMBA else x.num_kv_heads
        demand(x.page_size_padded is None or heads == 1 or not num_blocks)
        part = page // heads if x.page_size_padded is None else page
        return (part, page) if config.by_blocks else (page * num_blocks, part)

    def cost(self, config: Config, groups: Sequence[LayerGroup]) -> int:
        """Bytes of a block of groups that can be placed."""
        self.placed(config, groups, 1)
        return self.bytes_per_block(groups)

    def needed(self, config: Config, groups: Sequence[LayerGroup]) -> int:
        """Without the null block."""
        return self.cost(config, groups) * sum(self.pages(config, group.spec) for group in groups)

    def plain_needed(self, config: Config, layers: Layers) -> int:
        """Without the null block."""
        return sum(self.memory(config, x) for x in layers.values())

    def project(self, groups: Sequence[LayerGroup], local: Collection[str]) -> list[LayerGroup]:
        """Eagle's mark stays on a worker without a layer of the group."""
        parts = super().project(groups, local)
        return [replace(part, eagle=whole.eagle) for part, whole in zip(parts, groups, strict=True)]

    def marked(self, config: Config, groups: Sequence[LayerGroup]) -> list[LayerGroup]:
        """Eagle's mark on each group with a layer of the draft model."""
        return [
            replace(group, eagle=config.use_eagle and any(name.startswith(DRAFT) for name in group.names))
            for group in groups
        ]

    def room(self, config: Config, groups: Sequence[LayerGroup], memory: int) -> int:
        """Bytes of the pool: the memory, or what the override comes to."""
        override = config.num_gpu_blocks_override
        return memory if override is None else override * self.cost(config, groups)

    def configs(self, config: Config, workers: Sequence[Layers], memory: Sequence[int]) -> Configured:
        """The configuration of every worker, and the engine's, with the length that auto-fit found."""
        demand(len(workers) == len(memory) > 0, "ValueError")
        layers: Layers = {}
        for name, x in chain.from_iterable(worker.items() for worker in workers):
            demand(layers.setdefault(name, x) == x)
        demand(all(x.type in MANAGED for x in layers.values()), "ValueError")
        groups = self.marked(config, self.groups(config, chained(config, layers)))
        parts = [self.project(groups, worker) for worker in workers]
        room = {i: self.room(config, parts[i], memory[i]) for i, worker in enumerate(workers) if worker}
        usable = {i: bytes_ - self.cost(config, parts[i]) for i, bytes_ in room.items()}
        if config.original_max_model_len == -1 and room:
            fits = [self.longest(config, partial(self.needed, groups=parts[i]), usable[i]) for i in room]
            demand(min(fits) > 0, "ValueError")
            config = replace(config, max_model_len=min(fits))
        for i, available in usable.items():
            demand(available > 0 and self.needed(config, parts[i]) <= available, "ValueError")
        own = [self.worker_config(config, parts[i], available).num_blocks for i, available in room.items()]
        return config, [self.placed(config, part, min(own, default=1)) for part in parts]

    def hash_at(self, hashes: Sequence[str], times: int, index: int, is_int: bool) -> str:
        """The last of the hashes in a row, which covers all that is before it."""
        length = len(hashes) // times
        demand(-length <= index < length, "IndexError")
        return hashes[(index % length + 1) * times - 1]

    def build(self, shape: Shape) -> None:
        """See `parts_today`."""
        build(shape)

    def zeroed(self, groups: Sequence[LayerGroup]) -> bool:
        """Whether new blocks are zeroed: states are read before they are written, and what was written in one
        precision may be read in another."""
        specs = [x for group in groups for x in (group.spec.members or [group.spec])]
        attention = {(x.dtype, x.kv_quant_mode) for x in specs if x.type not in NOT_ATTENTION}
        return self.has_mamba(groups) or len(attention) > 1

    def is_possible(self, config: Config, layers: Layers, memory: int) -> bool:
        """Whether a request of the full length fits beside the null block, by layers."""
        groups = self.split(config, layers)
        usable = memory - self.bytes_per_block(groups)
        return usable > 0 and self.plain_needed(config, layers) <= usable


def chained(config: Config, layers: Layers) -> Layers:
    """The layers, whose windows keep what a chain of draft models prefills again."""
    assert isinstance(config, ConfigToday)
    extra = {"extra_retained_tokens": config.retained}
    return {name: replace(x, **extra) if x.type in WINDOWS else x for name, x in layers.items()}  # type: ignore[arg-type]


DRAFT = "draft"
"""How the names of a draft model's layers begin."""


def _rules(rules: Rules) -> RulesToday:
    assert isinstance(rules, RulesToday)
    return rules


def _page(rules: Rules, q: ConstructedQuestion) -> Json:
    x = q.spec
    shown: dict[str, Json] = {"page_size_bytes": rules.page(x)}
    if x.type not in (Spec.UNIFORM, Spec.BASE):
        shown |= {"page_size_padded": x.page_size_padded, "real_page_size_bytes": rules.real_page(x)}
    if x.type not in NOT_ATTENTION:
        shown |= {"states": x.block_size // x.compress_ratio, "kernel_states": 2 * x.block_size // x.compress_ratio}
    return shown


def _uniformity(rules: Rules, q: ConstructedQuestion) -> Json:
    return uniformity(rules, q, ("spec", "type"))


def _uniform_info(rules: Rules, q: ConstructedQuestion) -> Json:
    return uniform_info(rules, q, with_pages=False)


def _uniform_pages(rules: Rules, q: ConstructedQuestion) -> Json:
    x = q.spec
    return {"tuples": rules.num_layer_tuples(x), "pages": rules.blocks(q.config, x)}


def _check_memory(rules: Rules, q: ConstructedQuestion) -> Json:
    if layers := q.layers:
        demand(_rules(rules).is_possible(q.config, layers, q.given.available_memory), "ValueError")
    return None


def _config_from_groups(rules: Rules, q: ConstructedQuestion) -> Json:
    return config_from_groups(rules, q, _rules(rules).zeroed)


def _needed(rules: Rules, q: ConstructedQuestion) -> Json:
    by_layers, groups = rules.plain_needed(q.config, q.layers), q.groups
    from_groups = rules.needed(q.config, groups)
    block = _rules(rules).cost(q.config, groups)
    needs = {"sum_over_layers": by_layers, "from_groups": from_groups}
    return {**needs, "pool_bytes_per_block": block, "beside": block}


RulesToday.questions = {
    **PARTS_TODAY,
    **RECORDS_TODAY,
    "page": _page,
    "uniformity": _uniformity,
    "uniform_info": _uniform_info,
    "uniform_pages": _uniform_pages,
    "needed": _needed,
    "check_memory": _check_memory,
    "config_from_groups": _config_from_groups,
}
