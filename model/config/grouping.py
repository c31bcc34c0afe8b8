"""Layers into groups: one page size for all, one kind of layer for all, groups, a worker's part of them (§§7 to 10).

A group is one block table, so its layers hold the same blocks. Any group may get a block, so all have one page size.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import gcd, lcm
from typing import TypeVar

from ..arith import cdiv
from ..attention import demand
from ..config_json import FULL, MLA, V4, Config, Layer, LayerGroup, Layers, Spec
from .arith import approximate_gcd, group_size
from .layers import LayerRules, uniform_of

T = TypeVar("T")


class GroupingRules(LayerRules):
    """§§7 to 10."""

    def block_sizes(self, config: Config, specs: Sequence[Layer]) -> tuple[int, int]:
        """§7: tokens of a scheduler block, which all blocks divide [C-03], and of a hash, which divides them [C-02]."""
        if len(specs) <= 1:
            return ((specs[0].block_size if specs else config.block_size) * config.parallel,) * 2
        demand(config.parallel == 1, "ValueError")
        sizes = [x.block_size for x in specs]
        size, hashed = lcm(*sizes), config.enable_prefix_caching or config.kv_connector
        if not hashed or any(x.type == Spec.MAMBA and x.block_size != config.block_size for x in specs):
            return size, size
        common = gcd(*sizes) if config.hash_block_size is None else config.hash_block_size
        demand(common >= 1 and all(b % common == 0 for b in sizes), "ValueError")
        return size, common

    def unify_page_size(self, layers: Layers) -> Layers:
        """§8: the same layers with pages all as large as the largest."""
        largest = max(map(self.page, layers.values()), default=0)
        return {name: x if self.page(x) == largest else self.with_page(x, largest) for name, x in layers.items()}

    def with_page(self, x: Layer, page: int) -> Layer:
        """§8: `x` with a larger page: more tokens in it, or padding, as a state does not grow with the block [C-04]."""
        if x.type == Spec.MAMBA:
            return replace(x, page_size_padded=page)
        times, rest = divmod(page, self.page(x))
        demand(not rest, "NotImplementedError")
        padded = None if x.page_size_padded is None else x.page_size_padded * times
        return self.construct(replace(x, block_size=x.block_size * times, page_size_padded=padded))

    def unify_hybrid(self, layers: Layers) -> Layers:
        """§9: the layers with windows and chunks as full attention, where there is any: their blocks are kept."""
        full = next((x for x in layers.values() if x.type in FULL), None)
        if full and not self.is_one_kind(layers):
            layers = {name: self.as_full(x, full.block_size) for name, x in layers.items()}
        demand(self.is_one_kind(layers), "ValueError")
        return layers

    def is_one_kind(self, layers: Layers) -> bool:
        """§9: True if the layers can form one group."""
        return self.is_spec_uniform(layers) or self.is_type_uniform(layers)

    def as_full(self, x: Layer, block_size: int) -> Layer:
        """§9: full attention that stores the same, and records the window or chunk [C-13]."""
        if x.type != Spec.WINDOW_MLA:
            return self.construct(x.as_full()) if x.is_narrow else x
        padded = x.page_size_padded if x.alignment is None else None
        padded = None if padded is None else padded * block_size // x.block_size
        changed = replace(x, type=Spec.MLA, block_size=block_size, page_size_padded=padded, head_size_v=None)
        return self.construct(changed)

    def groups(self, config: Config, layers: Layers) -> list[LayerGroup]:
        """§10: the groups of a model, by the first rule that applies: the fewer kinds of blocks, the less is wasted."""
        if config.disable_hybrid_kv_cache_manager:
            layers = self.unify_hybrid(layers)
        if not layers:
            return []
        if self.is_spec_uniform(layers):
            return [LayerGroup(tuple(layers), self.merge(list(layers.values())))]
        if self.is_type_uniform(layers):
            return [LayerGroup(tuple(layers), uniform_of(layers))]
        if types := self.uniform_types(layers):
            marked = config.use_eagle and any(x.model_version == V4 for x in layers.values())
            groups = self.groups_of_tuples(types)
            return [replace(group, eagle=marked and list(layers)[-1] in group.names) for group in groups]
        return self.groups_of_one_page(layers)

    def groups_of_one_page(self, layers: Layers) -> list[LayerGroup]:
        """§10, step 6, and §10.1: equal specs, spread over groups of at most g layers; hidden-state layers follow their
        page, one group each [C-05]."""
        others = self.unify_page_size({name: x for name, x in layers.items() if x.type != Spec.HIDDEN} or layers)
        types: dict[Layer, list[str]] = {}
        for name, x in others.items():
            types.setdefault(x, []).append(name)
        counts = [len(names) for names in types.values()]
        size, page = group_size(min(counts), max(counts)), self.page(next(iter(types)))
        groups = [LayerGroup(part, self.merge([x])) for x, names in types.items() for part in strided(names, size)]
        hidden = [(name, x) for name, x in layers.items() if name not in others]
        return groups + [LayerGroup((name,), self.fit_hidden(x, page)) for name, x in hidden]

    def fit_hidden(self, x: Layer, page: int) -> Layer:
        """§10, step 6: as many rows as a page of the pool holds, and at least one."""
        rows = max(page // (x.num_kv_heads * x.head_size * x.dtype), 1)
        fitted = self.construct(replace(x, block_size=rows, page_size_padded=None, alignment=None))
        demand(self.page(fitted) <= page, "ValueError")
        return replace(fitted, page_size_padded=page)

    def uniform_types(self, layers: Layers) -> list[Layer] | None:
        """§10.2: the MLA layers as one type, window ones as one for each block size and window; or None [C-06]."""
        types: dict[object, Layers] = {None: {}}
        for name, x in layers.items():
            windowed = x.type == Spec.WINDOW_MLA
            types.setdefault((x.block_size, x.sliding_window) if windowed else None, {})[name] = x
        both = len(types) > 1 and all(x.type in MLA for x in types[None].values())
        return [*map(uniform_of, types.values())] if both and self.is_type_uniform(types[None]) else None

    def groups_of_tuples(self, types: Sequence[Layer]) -> list[LayerGroup]:
        """§10.2: the first type as it is; the others padded to its pages and spread over groups of D layer tuples."""
        tuples = [self.num_layer_tuples(x) for x in types]
        size, pages = self.depth(tuples, tuples[0]), {self.page(x) for x in types[0].members}
        parts = [part for x in types[1:] for part in strided(self.layer_tuples(x, pages), size)]
        merged = [dict(member for layer_tuple in part for member in layer_tuple) for part in parts]
        return [LayerGroup(tuple(layers), uniform_of(layers)) for layers in (dict(types[0].kv_cache_specs), *merged)]

    def depth(self, values: Sequence[int], lower_bound: int | None) -> int:
        """§10.2: D, the depth that wastes the fewest slots."""
        demand(min(values, default=0) > 0, "ValueError")
        return approximate_gcd(values, max(1, lower_bound or 1))

    def layer_tuples(self, x: Layer, pages: Collection[int]) -> list[tuple[tuple[str, Layer], ...]]:
        """§10.2, step 3: one layer of each padded page, in order of first appearance [C-07]."""
        columns: dict[int, list[tuple[str, Layer]]] = {}
        for name, member in x.kv_cache_specs:
            own = self.page(member)
            demand(own <= max(pages))
            page = min(p for p in pages if p >= own)
            padded = member if page == own else self.construct(replace(member, page_size_padded=page))
            columns.setdefault(page, []).append((name, padded))
        demand(len({len(column) for column in columns.values()}) == 1)
        return list(zip(*columns.values(), strict=True))

    def project(self, groups: Sequence[LayerGroup], local: Collection[str]) -> list[LayerGroup]:
        """§13, step 3: the groups with the layers of one worker; a uniform spec is cut to them, unless none is left."""
        projected = []
        for group in groups:
            names = tuple(name for name in group.names if name in local)
            members = tuple((name, x) for name, x in group.spec.kv_cache_specs if name in names or not names)
            spec = replace(group.spec, kv_cache_specs=members)
            projected.append(LayerGroup(names, spec, group.eagle and bool(names)))
        return projected


def strided(items: Sequence[T], size: int) -> list[tuple[T, ...]]:
    """§10.1: the items on as few lists of at most `size` as it takes, strided so that runs of them lie evenly (I5)."""
    k = cdiv(len(items), size)
    return [tuple(items[j::k]) for j in range(k)]
