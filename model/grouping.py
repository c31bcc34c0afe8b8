"""Layers into groups: one page size for all, one kind of layer for all, groups, what a worker sees of them.

Chapter "Specs and configuration arithmetic", §§7 to 10 and step 3 of §13.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import gcd, lcm
from typing import TypeVar

from . import arith
from .attention import demand
from .layers import FULL_FAMILY, MLA_FAMILY, V4, Config, Kind, Layer, LayerRules, Layers, uniform_of

T = TypeVar("T")


@dataclass(frozen=True)
class LayerGroup:
    """Layers that share one block table."""

    names: tuple[str, ...]
    spec: Layer
    eagle: bool = False


class GroupingRules(LayerRules):
    """§§7 to 10."""

    def block_sizes(self, config: Config, specs: Sequence[Layer]) -> tuple[int, int]:
        """§7: tokens of a scheduler block and of a hash, for groups with these specs."""
        if len(specs) <= 1:
            return (self.lone_block_size(config, specs) * config.parallel,) * 2
        demand(config.parallel == 1, "ValueError")
        size = lcm(*(x.block_size for x in specs))
        hashes_needed = config.enable_prefix_caching or config.kv_connector
        if not hashes_needed or any(x.type == Kind.MAMBA and x.block_size != config.block_size for x in specs):
            return size, size
        return size, self.hash_block_size(config, [x.block_size for x in specs])

    def lone_block_size(self, config: Config, specs: Sequence[Layer]) -> int:
        """§7, step 1 [C-03]."""
        return specs[0].block_size if specs else config.block_size

    def hash_block_size(self, config: Config, sizes: Sequence[int]) -> int:
        """§7, step 5 [C-02]."""
        size = gcd(*sizes) if config.hash_block_size is None else config.hash_block_size
        demand(size >= 1 and all(b % size == 0 for b in sizes), "ValueError")
        return size

    def unify_page_size(self, layers: Layers) -> Layers:
        """§8: the same layers with pages all as large as the largest."""
        largest = max((self.page(x) for x in layers.values()), default=0)
        return {name: self.with_page(x, largest) for name, x in layers.items()}

    def with_page(self, x: Layer, page: int) -> Layer:
        """§8: `x` with a larger page: a Mamba page is padded, any other grows with its block size [C-04]."""
        if self.page(x) == page:
            return x
        if x.type == Kind.MAMBA:
            return replace(x, page_size_padded=page)
        times, rest = divmod(page, self.page(x))
        demand(not rest, "NotImplementedError")
        padded = None if x.page_size_padded is None else x.page_size_padded * times
        return self.construct(replace(x, block_size=x.block_size * times, page_size_padded=padded))

    def is_page_uniform(self, layers: Layers) -> bool:
        """§8: True if there is exactly one page size."""
        return len({self.page(x) for x in layers.values()}) == 1

    def unify_hybrid(self, layers: Layers) -> Layers:
        """§9: the layers with windows and chunks turned into full attention, where there is full attention."""
        if self.is_one_kind(layers):
            return layers
        full = next((x for x in layers.values() if x.type in FULL_FAMILY), None)
        if full:
            layers = {name: self.as_full(x, full.block_size) for name, x in layers.items()}
        demand(self.is_one_kind(layers), "ValueError")
        return layers

    def is_one_kind(self, layers: Layers) -> bool:
        """§9: True if the layers can form one group."""
        return self.is_spec_uniform(layers) or self.is_type_uniform(layers)

    def as_full(self, x: Layer, block_size: int) -> Layer:
        """§9: full attention that holds the blocks of the whole sequence and records the window or chunk [C-13]."""
        if x.type in {Kind.WINDOW, Kind.CHUNK}:
            return self.construct(replace(x, type=Kind.FULL))
        if x.type != Kind.WINDOW_MLA:
            return x
        padded = None
        if x.page_size_padded is not None and x.alignment is None:
            padded = x.page_size_padded * block_size // x.block_size
        changed = replace(x, type=Kind.MLA, block_size=block_size, page_size_padded=padded, head_size_v=None)
        return self.construct(changed)

    def groups(self, config: Config, layers: Layers) -> list[LayerGroup]:
        """§10: the groups of a model, by the first rule that applies."""
        if config.disable_hybrid_kv_cache_manager:
            layers = self.unify_hybrid(layers)
        if not layers:
            return []
        if self.is_spec_uniform(layers):
            return self.merged_groups(layers, [tuple(layers)])
        if uniform := self.uniform(layers):
            return [LayerGroup(tuple(layers), uniform)]
        if types := self.uniform_types(layers):
            return self.mark_eagle(config, layers, self.groups_of_tuples(types))
        return self.general_groups(layers)

    def merged_groups(self, layers: Layers, grouped: Sequence[tuple[str, ...]]) -> list[LayerGroup]:
        """§10: one group per list of names, with the merged spec."""
        return [LayerGroup(names, self.merge([layers[name] for name in names])) for names in grouped]

    def general_groups(self, layers: Layers) -> list[LayerGroup]:
        """§10, step 6: hidden-state layers follow the page of the others, one group each [C-05]."""
        others = {name: x for name, x in layers.items() if x.type != Kind.HIDDEN} or layers
        unified = self.unify_page_size(others)
        page = self.page(next(iter(unified.values())))
        groups = self.groups_of_one_page(unified)
        hidden = {name: self.fit_hidden(x, page) for name, x in layers.items() if name not in others}
        return groups + [LayerGroup((name,), x) for name, x in hidden.items()]

    def fit_hidden(self, x: Layer, page: int) -> Layer:
        """§10, step 6: as many rows as a page of the pool holds."""
        row = arith.page_latent(1, x.num_kv_heads, x.head_size, x.dtype)
        block_size = max(page // row, 1)
        fitted = self.construct(replace(x, block_size=block_size, page_size_padded=page, alignment=None))
        demand(row <= page and self.needed_page(fitted) <= page, "ValueError")
        return fitted

    def groups_of_one_page(self, layers: Layers) -> list[LayerGroup]:
        """§10.1: equal specs, each type spread over groups of at most g layers."""
        types: dict[Layer, list[str]] = {}
        for name, x in layers.items():
            types.setdefault(x, []).append(name)
        counts = [len(names) for names in types.values()]
        size = arith.group_size(min(counts), max(counts))
        return self.merged_groups(layers, [part for names in types.values() for part in strided(names, size)])

    def uniform_types(self, layers: Layers) -> list[Layer] | None:
        """§10.2: the latent layers as one type, window ones as one for each block size and window; or None [C-06]."""
        latent = {name: x for name, x in layers.items() if x.type in MLA_FAMILY}
        windows: dict[tuple[int, int | None], Layers] = {}
        for name, x in layers.items():
            if x.type == Kind.WINDOW_MLA:
                windows.setdefault((x.block_size, x.sliding_window), {})[name] = x
        if not latent or not windows or len(latent) + sum(map(len, windows.values())) < len(layers):
            return None
        first = self.uniform(latent)
        return [first, *map(uniform_of, windows.values())] if first else None

    def groups_of_tuples(self, types: Sequence[Layer]) -> list[LayerGroup]:
        """§10.2: the first type as it is; the others padded to its pages and spread over groups of D layer tuples."""
        tuples = [self.num_layer_tuples(x) for x in types]
        depth = self.approximate_gcd(tuples, tuples[0])
        pages = {self.page(x) for _, x in types[0].kv_cache_specs}
        groups = [LayerGroup(tuple(name for name, _ in types[0].kv_cache_specs), types[0])]
        for x in types[1:]:
            for part in strided(self.layer_tuples(x, pages), depth):
                members = dict(member for layer_tuple in part for member in layer_tuple)
                groups.append(LayerGroup(tuple(members), uniform_of(members)))
        return groups

    def approximate_gcd(self, values: Sequence[int], lower_bound: int | None) -> int:
        """§10.2: the depth that wastes the fewest slots."""
        demand(min(values, default=0) > 0, "ValueError")
        return arith.approximate_gcd(values, max(1, lower_bound or 1))

    def layer_tuples(self, x: Layer, pages: Collection[int]) -> list[tuple[tuple[str, Layer], ...]]:
        """§10.2, step 3: one layer of each padded page, in order of first appearance [C-07]."""
        columns: dict[int, list[tuple[str, Layer]]] = {}
        for name, member in x.kv_cache_specs:
            demand(self.page(member) <= max(pages))
            page = min(p for p in pages if p >= self.page(member))
            columns.setdefault(page, []).append((name, self.padded(member, page)))
        demand(len({len(column) for column in columns.values()}) == 1)
        return list(zip(*columns.values(), strict=True))

    def padded(self, x: Layer, page: int) -> Layer:
        """§10.2: `x` with a page at least so large."""
        return x if self.page(x) == page else self.construct(replace(x, page_size_padded=page))

    def mark_eagle(self, config: Config, layers: Layers, groups: Sequence[LayerGroup]) -> list[LayerGroup]:
        """§10.2: the group of the model's last layer is eagle's."""
        marked = config.use_eagle and any(x.model_version == V4 for x in layers.values())
        return [replace(group, eagle=marked and list(layers)[-1] in group.names) for group in groups]

    def project(self, groups: Sequence[LayerGroup], local: Collection[str]) -> list[LayerGroup]:
        """§13, step 3: the groups with the layers of one worker; a uniform spec is cut to them, unless none is left."""
        projected = []
        for group in groups:
            names, spec = tuple(name for name in group.names if name in local), group.spec
            if spec.type == Kind.UNIFORM and names:
                members = dict(spec.kv_cache_specs)
                spec = replace(spec, kv_cache_specs=tuple((name, members[name]) for name in names))
            projected.append(LayerGroup(names, spec, group.eagle and bool(names)))
        return projected


def strided(items: Sequence[T], size: int) -> list[tuple[T, ...]]:
    """§10.1: the items spread over as few lists of at most `size` as it takes, list j with items j, j + k, ... (I5)."""
    k = arith.cdiv(len(items), size)
    return [tuple(items[j::k]) for j in range(k)]
