"""The arithmetic of configurations as cores of today want it, where that is a choice as good as the chapter's: nothing
here is wrong of either (specs-and-config.md, section 19). What vLLM 0.33.0 does wrong is in `configuration_0330`.

`LayersToday` is about layers and groups; `placement_today` has what is about blocks, lengths and workers.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import gcd, lcm

from .....model.arith import cdiv
from .....model.attention import CoreError, demand
from .....model.config.arith import group_size, nvfp4_width
from .....model.config.grouping import strided
from .....model.config.layers import uniform_of
from .....model.config_json import (
    FULL,
    LATENT,
    MLA,
    NOT_ATTENTION,
    PACKED,
    V4,
    WINDOWS,
    Config,
    Layer,
    LayerGroup,
    Layers,
    Spec,
)
from .....model.ops import Group
from ....targets.configuration_question import OwnRules

LAYOUTS = ("LBNHC", "LBHNC", "BLHNC", "BLNHC", "LHBNC", "BHLNC")
"""How the allocation is cut, from the outside in: layers, blocks, heads, states of a block, content of a state."""


@dataclass(frozen=True)
class ConfigToday(Config):
    """Settings of today."""

    kv_cache_layout: str = LAYOUTS[0]
    draft_models: int = 1
    """How many follow each other, where drafts are made; each reads one token further."""

    @property
    def retained(self) -> int:
        """Tokens before a window that a chain of draft models prefills again."""
        return max(0, self.draft_models - 1) if self.use_eagle else 0

    @property
    def parallel(self) -> int:
        """Only decode parallelism spreads the tokens of a sequence over ranks."""
        return self.decode_context_parallel_size

    @property
    def by_blocks(self) -> bool:
        """Whether all layers' parts of a block lie together."""
        return self.kv_cache_layout.startswith("B")

    @property
    def whole_pages(self) -> bool:
        """Whether what a layer has of a block lies together."""
        return set(self.kv_cache_layout[:2]) == {"L", "B"}


@dataclass(frozen=True)
class LayerToday(Layer):
    """A spec of today."""

    state_content_bytes: int | None = None
    """Bytes of a state of one head, where the backend packs them; else they follow from the sizes of the heads."""
    extra_retained_tokens: int = 0
    """Tokens before a window that are kept, too."""

    def as_full(self) -> Layer:
        """Which keeps all tokens."""
        return replace(super().as_full(), extra_retained_tokens=0)  # type: ignore[call-arg]  # it is one of today

    def group(self, block_size: int) -> Group:
        """Of which a request holds what is kept as well."""
        group = super().group(block_size)
        return replace(group, window=group.window + self.extra_retained_tokens) if self.extra_retained_tokens else group


class LayersToday(OwnRules):
    """Layers and groups (sections 2 to 10)."""

    settings, layer = ConfigToday, LayerToday

    def construct(self, x: Layer) -> Layer:
        """The backend says what a packed state takes; latent layers have one version beside the usual one."""
        demand(x.type != Spec.WINDOW_MLA or x.model_version in (None, V4))
        if isinstance(x, LayerToday) and x.state_content_bytes is None:
            x = replace(x, state_content_bytes=self.packed_state(x))
        return super().construct(x)

    def packed_state(self, x: Layer) -> int | None:
        """Bytes of a state of one head, None where they follow from the sizes."""
        width, value = x.head_size, x.head_size if x.head_size_v is None else x.head_size_v
        if x.type in LATENT:
            if x.cache_dtype_str == PACKED:
                return 584 if x.model_version == V4 else 656
            return width * x.dtype + 4 if x.kv_quant_mode.endswith("PER_TOKEN_HEAD") else None
        if x.kv_quant_mode.endswith("PER_TOKEN_HEAD"):
            return (width + value) * x.dtype + 8
        return (nvfp4_width(width) + nvfp4_width(value)) * x.dtype if x.kv_quant_mode == "NVFP4" else None

    def real_page(self, x: Layer) -> int:
        """States of all heads, with their scales."""
        if x.type in NOT_ATTENTION or not isinstance(x, LayerToday):
            return super().real_page(x)
        value = 0 if x.type in LATENT else x.head_size if x.head_size_v is None else x.head_size_v
        content = x.state_content_bytes
        content = (x.head_size + value) * x.dtype if content is None else content
        return x.num_kv_heads * (x.block_size // x.compress_ratio) * content

    def scales(self, x: Layer) -> int:
        """They are part of the states."""
        return 0

    def is_type_uniform(self, layers: Layers) -> bool:
        """States of one type are of one size, too, since a block has room for so many of them."""
        alike = super().is_type_uniform(layers)
        return alike and (self.first(layers).type != Spec.MAMBA or len(set(map(self.page, layers.values()))) == 1)

    def first(self, layers: Layers) -> Layer:
        """The first layer's spec."""
        return next(iter(layers.values()))

    def span(self, config: Config, x: Layer) -> int:
        """Tokens of a block over all ranks: states are on each of them as a whole."""
        inner = x.members[0] if x.members else x
        return x.block_size * (1 if inner.type in (Spec.MAMBA, Spec.BASE) else config.parallel)

    def block_sizes(self, config: Config, specs: Sequence[Layer]) -> tuple[int, int]:
        """Ranks may be several with several groups. States in mode align only are hashed by parts of a block. Hits end
        where compressed states do. A size of hashes that a lone group cannot have is refused."""
        sizes = [self.span(config, x) for x in specs]
        hashed, unit = config.enable_prefix_caching or config.kv_connector, config.hash_block_size
        if len(specs) <= 1:
            size = sizes[0] if sizes else config.block_size * config.parallel
            demand(not (specs and hashed) or unit in (None, size), "ValueError")
            return size, size
        whole, every = lcm(*sizes), [y for x in specs for y in (x.members or [x])]
        states = [x for x in every if x.type == Spec.MAMBA]
        if not hashed or any(x.mamba_cache_mode != "align" for x in states):
            return whole, whole
        unit = gcd(*sizes) if unit is None else unit
        demand(unit >= 1 and all(size % unit == 0 for size in sizes), "ValueError")
        inside = any(x.block_size >= unit + (config.parallel == 1) for x in states)
        demand(all(x.type != Spec.BASE for x in every), "NotImplementedError")
        ratios = [x.compress_ratio for x in every]
        demand(not any((unit if inside else whole) % ratio for ratio in ratios if ratio > 1), "ValueError")
        return whole, unit

    def with_page(self, x: Layer, page: int) -> Layer:
        """Where whole blocks do not fill the page, attention is padded; but not the tokens of a latent layer, which
        its kernel reads in a row."""
        if x.type == Spec.MAMBA or page % self.page(x) == 0:
            return super().with_page(x, page)
        demand(x.type not in MLA, "NotImplementedError")
        padded = self.construct(replace(x, page_size_padded=page))
        demand(self.page(padded) == page, "NotImplementedError")
        return padded

    def unify_hybrid(self, layers: Layers) -> Layers:
        """What becomes full attention gets the blocks of that, where these are of one size."""
        sizes = {x.block_size for x in layers.values() if x.type in FULL}
        if sizes and not self.is_one_kind(layers):
            size = sizes.pop() if len(sizes) == 1 else None
            layers = {name: self.as_full(x, size or x.block_size) for name, x in layers.items()}
        demand(self.is_one_kind(layers), "ValueError")
        return layers

    def as_full(self, x: Layer, block_size: int) -> Layer:
        """A padding stays, or gives way to what the blocks store now."""
        if not x.is_narrow:
            return x
        full = replace(x.as_full(), type=Spec.MLA) if x.type == Spec.WINDOW_MLA else x.as_full()
        padded = x.page_size_padded if x.alignment is None else None
        full = replace(full, block_size=block_size, page_size_padded=None)
        padded = None if padded is None else max(padded, self.real_page(full))
        return self.construct(replace(full, page_size_padded=padded))

    def groups(self, config: Config, layers: Layers) -> list[LayerGroup]:
        """Each layer is in one of them."""
        groups = self.split(config, layers)
        demand(sorted(name for group in groups for name in group.names) == sorted(layers))
        return groups

    def split(self, config: Config, layers: Layers) -> list[LayerGroup]:
        """As in the chapter, but that mixed pages are packed side by side where blocks are outermost; and what cannot
        have one page may be allocated as full attention."""
        if config.disable_hybrid_kv_cache_manager:
            layers = self.unify_hybrid(layers)
        if not layers:
            return []
        if self.is_spec_uniform(layers):
            return [LayerGroup(tuple(layers), self.merge(list(layers.values())))]
        if self.is_type_uniform(layers):
            return [LayerGroup(tuple(layers), uniform_of(layers))]
        others, hidden = self.apart(layers)
        assert isinstance(config, ConfigToday)
        if config.by_blocks and len({self.page(x) for x in others.values()}) > 1:
            return self.packed_groups(others) + [LayerGroup((name,), x) for name, x in hidden.items()]
        try:
            others = self.unify_page_size(others)
        except CoreError as error:
            if str(error) != "NotImplementedError" or not (promoted := self.promoted(layers)):
                raise
            return [LayerGroup(tuple(promoted), uniform_of(promoted))]
        return self.with_hidden(self.groups_of_one_page(others), hidden)

    def apart(self, layers: Layers) -> tuple[Layers, Layers]:
        """Hidden-state layers follow the others, if there are any."""
        others = {name: x for name, x in layers.items() if x.type != Spec.HIDDEN}
        return (others, {name: layers[name] for name in layers if name not in others}) if others else (layers, {})

    def promoted(self, layers: Layers) -> Layers | None:
        """Windows next to latent layers as full attention, where that makes them one type."""
        kinds = {x.type for x in layers.values()}
        if kinds & {Spec.HIDDEN, Spec.WINDOW_MLA, Spec.CHUNK} or not (Spec.WINDOW in kinds and kinds & MLA):
            return None
        try:
            promoted = self.unify_hybrid(layers)
        except CoreError as error:
            if str(error) != "ValueError":
                raise
            return None
        return promoted if self.is_type_uniform(promoted) else None

    def groups_of_one_page(self, layers: Layers) -> list[LayerGroup]:
        """Specs that can be merged share groups, as equal ones do."""
        buckets: list[list[str]] = []
        for x in dict.fromkeys(layers.values()):
            names = [name for name, own in layers.items() if own == x]
            for bucket in buckets:
                if self.is_mergeable([*dict.fromkeys(layers[name] for name in bucket), x]):
                    bucket += names
                    break
            else:
                buckets.append(names)
        demand(bool(buckets), "ValueError")
        counts = [len(names) for names in buckets]
        parts = [part for names in buckets for part in strided(names, group_size(min(counts), max(counts)))]
        return [LayerGroup(part, self.merge([layers[name] for name in part])) for part in parts]

    def is_mergeable(self, specs: Sequence[Layer]) -> bool:
        """Whether these can be merged."""
        with suppress(CoreError):
            return bool(self.merge(specs))
        return False

    def with_hidden(self, groups: list[LayerGroup], hidden: Layers) -> list[LayerGroup]:
        """Hidden states follow the page of the groups, whose blocks grow if a row is wider; their rows divide a block
        of the groups."""
        if not hidden:
            return groups
        page = self.page(groups[0].spec)
        times = cdiv(max(self.row(x) for x in hidden.values()), page)
        if times > 1:
            groups, page = [replace(group, spec=self.grown(group.spec, times)) for group in groups], page * times
        common = gcd(*(group.spec.block_size for group in groups))
        return groups + [LayerGroup((name,), self.fitted(x, common, page)) for name, x in hidden.items()]

    def row(self, x: Layer) -> int:
        """Bytes of the hidden state of a token."""
        return x.num_kv_heads * x.head_size * x.dtype

    def grown(self, x: Layer, times: int) -> Layer:
        """A spec with so many times the page, states padded."""
        padded = self.page(x) if x.type == Spec.MAMBA and x.page_size_padded is None else x.page_size_padded
        padded = None if padded is None or x.alignment is not None else padded * times
        return self.construct(replace(x, block_size=x.block_size * times, page_size_padded=padded))

    def fitted(self, x: Layer, common: int, page: int) -> Layer:
        """As many rows as a page holds and a block of the groups is a multiple of."""
        most = min(common, max(page // self.row(x), 1))
        rows = max((size for size in range(1, most + 1) if common % size == 0), default=1)
        made = self.construct(replace(x, block_size=rows, page_size_padded=None, alignment=None))
        demand(self.page(made) <= page, "ValueError")
        return replace(made, page_size_padded=page)

    def packed_groups(self, layers: Layers) -> list[LayerGroup]:
        """One type a group, blocks as large as the largest group. Patterns of one layer of each page are cut evenly;
        states and windows into as many groups as a block has room for."""
        buckets: list[Layers] = []
        for name, x in layers.items():
            bucket = next((one for one in buckets if self.is_type_uniform({**one, name: x})), None)
            if bucket is None:
                buckets.append(bucket := {})
            bucket[name] = x
        demand(all(map(self.is_type_uniform, buckets)))
        columns = [self.columns(bucket) for bucket in buckets]
        even = [len({len(names) for names in pages.values()}) == 1 for pages in columns]
        tuples = [max(map(len, pages.values())) for pages in columns]
        floor = max(
            (n for n, pages, own in zip(tuples, columns, even, strict=True) if own and len(pages) > 1), default=0
        )
        depth = self.depth([n for n, own in zip(tuples, even, strict=True) if own], floor) if floor else 0
        states = [self.fills(self.first(bucket), not depth) for bucket in buckets]
        counts = [cdiv(n, depth) if own and depth else 1 for n, own in zip(tuples, even, strict=True)]
        widest = [
            sum(cdiv(len(names), len(bucket) if filling else count) * page for page, names in pages.items())
            for bucket, pages, filling, count in zip(buckets, columns, states, counts, strict=True)
        ]
        groups = []
        for bucket, pages, filling, count in zip(buckets, columns, states, counts, strict=True):
            if filling:
                count = max(count, cdiv(len(bucket), max(1, max(widest) // self.page(self.first(bucket)))))
            groups += self.cut(bucket, pages, count)
        return groups

    def columns(self, layers: Layers) -> dict[int, list[str]]:
        """Layers of each page size, in order of first appearance."""
        pages: dict[int, list[str]] = {}
        for name, x in layers.items():
            pages.setdefault(self.page(x), []).append(name)
        return pages

    def fills(self, x: Layer, uncut: bool) -> bool:
        """Whether such layers are spread over as many groups as it takes to keep blocks small."""
        return x.type == Spec.MAMBA or (uncut and x.type in WINDOWS)

    def cut(self, layers: Layers, pages: dict[int, list[str]], count: int) -> list[LayerGroup]:
        """The layers on so many groups, patterns strided."""
        if count == 1:
            return [LayerGroup(tuple(layers), uniform_of(layers))]
        patterns = [[name for name in names if name is not None] for names in zip_longest(*pages.values())]
        parts = [[name for names in patterns[i::count] for name in names] for i in range(count)]
        return [LayerGroup(tuple(part), uniform_of({name: layers[name] for name in part})) for part in parts if part]
