"""Layers and groups of a configuration as vLLM 0.23.0 has them: entries for the record of rules.

Each function is what the release was seen to do in place of the rule of the same name, given the record `r`. `Rules` is
the right record: `Rules.page(r, x)` is the right rule, which calls those of the release where it calls others.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from .....model.arith import cdiv, up
from .....model.attention import CoreError, demand
from .....model.config.capacity import Rules
from .....model.config.layers import table
from .....model.config_json import (
    FULL,
    LATENT,
    MANAGED,
    MLA,
    WINDOWS,
    Config,
    Layer,
    LayerGroup,
    Layers,
    Slot,
    Spec,
)
from .....model.ops import Shape
from ....targets.released_rules import ReleasedRule


@lru_cache(maxsize=1024)
def _with(x: Layer, **changes: Any) -> Layer:
    """`replace`, for what is asked of the same layer a hundred times in a row."""
    return replace(x, **changes)


def construct(r: Rules, x: Layer) -> Layer:
    """Nothing is refused; the alignment knows nothing of scales and of a given padding."""
    if x.type in FULL | {Spec.WINDOW} and x.head_size_v is None:
        x = replace(x, head_size_v=x.head_size)
    if x.alignment is None or up(r.real_page(x), x.alignment) == r.real_page(x):
        return x
    return replace(x, page_size_padded=up(r.real_page(x), x.alignment))


def _name_construct(r: Rules, wanted: Layer, made: Layer, x: Layer) -> str:
    if min(x.block_size, x.compress_ratio) < 1 or x.block_size % x.compress_ratio:
        return "S-10"
    return "S-19" if replace(made, head_size_v=wanted.head_size_v) == wanted else "S-06"


def page(r: Rules, x: Layer) -> int:
    """The padding is all that counts, whatever the alignment."""
    return Rules.page(r, x if x.alignment is None else _with(x, alignment=None))


def _name_page(r: Rules, wanted: object, actual: object, x: Layer) -> str:
    return "S-06" if actual == "AssertionError" else ""  # others are accounted for where the padding is made


def resize(r: Rules, x: Layer, block_size: int) -> Layer:
    """A padding stays, even one that an alignment made, and so do the members of a uniform type."""
    return r.construct(replace(x, block_size=block_size))


def real_page(r: Rules, x: Layer) -> int:
    """Rows in four bits are rounded down, and states without a dtype, or dtypes without a state, are left out."""
    if x.type == Spec.MAMBA and len(x.shapes) != len(x.dtypes):
        known = min(len(x.shapes), len(x.dtypes))
        return Rules.real_page(r, replace(x, shapes=x.shapes[:known], dtypes=x.dtypes[:known]))
    if x.type == Spec.MAMBA or x.kv_quant_mode != "NVFP4" or x.type in LATENT:
        return Rules.real_page(r, x)
    keys, values = x.head_size, x.head_size if x.head_size_v is None else x.head_size_v
    widths = [size // 2 + size // 16 for size in (keys, values)]
    return Rules.real_page(r, replace(x, kv_quant_mode="NONE", head_size=widths[0], head_size_v=widths[1]))


def _name_real_page(r: Rules, wanted: object, actual: object, x: Layer) -> str:
    return "S-07" if x.type == Spec.MAMBA else "S-11"


def scales(r: Rules, x: Layer) -> int:
    """Two for each token and head, also of layers that store one vector, and also for tokens that are compressed."""
    whole = x if x.compress_ratio == 1 else _with(x, compress_ratio=1)
    return 8 * x.block_size * x.num_kv_heads if Rules.scales(r, whole) else 0


def cap(r: Rules, x: Layer, max_batched: int, max_len: int) -> int:
    """Blocks as if every chunk began with a block."""
    if x.type != Spec.CHUNK or x.attention_chunk_size is None:
        return Rules.cap(r, x, max_batched, max_len)
    return cdiv(min(x.attention_chunk_size + max_batched, max_len), x.block_size)


def blocks(r: Rules, config: Config, x: Layer) -> int:
    """Of all that does not run in parallel only a window under decode context parallelism is refused."""
    if x.type not in WINDOWS | {Spec.CHUNK}:
        return Rules.blocks(r, config, x)
    demand(x.type == Spec.CHUNK or config.decode_context_parallel_size == 1)
    return r.cap(x, config.max_num_batched_tokens, config.max_model_len)


def merge(r: Rules, specs: Sequence[Layer]) -> Layer:
    """Classes mix, and only some fields are compared and kept."""
    first = specs[0]
    if first.type in LATENT:
        return _merge_latent(r, specs)
    if first.type not in FULL:
        return Rules.merge(r, specs)
    demand(all(x.type in FULL - MLA for x in specs))
    alike = [replace(x, type=first.type, sink_len=None, tq_slot_size=0, head_size_v=None) for x in specs]
    merged = Rules.merge(r, alike)
    if first.type == Spec.TQ:
        for x in specs:
            demand(x.type == Spec.TQ, "AttributeError")
            demand(x.tq_slot_size == first.tq_slot_size)
    return replace(first, sliding_window=merged.sliding_window, attention_chunk_size=merged.attention_chunk_size)


def _merge_latent(r: Rules, specs: Sequence[Layer]) -> Layer:
    """The layout is compared; geometry is the first one's, and the rest is lost."""
    first = specs[0]
    windowed = first.type == Spec.WINDOW_MLA
    demand(all((x.type == Spec.WINDOW_MLA if windowed else x.type in MLA) for x in specs))
    layouts = {(x.cache_dtype_str, x.compress_ratio, x.model_version) for x in specs}
    demand(len(layouts) == 1 and (not windowed or len({x.sliding_window for x in specs}) == 1))
    lost: dict[str, Any] = {"head_size_v": None, "alignment": None, "attention_chunk_size": None}
    lost |= {"kv_quant_mode": "NONE"} if windowed else {"sliding_window": None}
    return r.construct(replace(first, **lost))


def _name_merge(r: Rules, wanted: object, actual: object, specs: Sequence[Layer]) -> str:
    if len({x.type for x in specs}) > 1 or len({x.sink_len for x in specs}) > 1:
        return "S-04"
    if len(set(specs)) == 1:
        return "S-03"
    return "S-01" if specs[0].type in LATENT else "S-02"


def is_spec_uniform(r: Rules, layers: Layers) -> bool:
    """Only a failed assertion counts as no."""
    try:
        return not layers or bool(r.merge(list(layers.values())))
    except CoreError as error:
        if str(error) != "AssertionError":
            raise
        return False


def is_type_uniform(r: Rules, layers: Layers) -> bool:
    """Equal block sizes, and the first spec, which alone is asked, accepts the others."""
    demand(bool(layers), "StopIteration")
    specs = list(layers.values())
    first = specs[0]
    if len({x.block_size for x in specs}) > 1:
        return False
    demand(first.type in MANAGED)
    if first.type == Spec.MAMBA:
        return all(x.type == Spec.MAMBA and x.num_speculative_blocks == first.num_speculative_blocks for x in specs)
    if first.type in FULL:
        return all(x.type in FULL for x in specs)
    if first.type == Spec.WINDOW:
        return all(x.type in WINDOWS and x.sliding_window == first.sliding_window for x in specs)
    return all(table(x) == table(first) for x in specs)


def _name_type(r: Rules, wanted: object, actual: object, layers: Layers) -> str:
    kinds = {x.type for x in layers.values()}
    return "S-09" if kinds == {Spec.MAMBA} else "S-16" if Spec.SINK in kinds else "S-08"


def block_sizes(r: Rules, config: Config, specs: Sequence[Layer]) -> tuple[int, int]:
    """A lone group has the cache's block size. Any divisor is taken for hashes, also a negative one; zero is divided
    by."""
    if len(specs) == 1:
        return (config.block_size * config.parallel,) * 2
    asked, hashed = config.hash_block_size, config.enable_prefix_caching or config.kv_connector
    states = any(x.type == Spec.MAMBA and x.block_size != config.block_size for x in specs)
    if asked is None or asked >= 1 or not specs or not hashed or states:
        return Rules.block_sizes(r, config, specs)
    size, _ = Rules.block_sizes(r, replace(config, hash_block_size=None), specs)
    demand(all(x.block_size % asked == 0 for x in specs), "ValueError")
    return size, asked


def with_page(r: Rules, x: Layer, page: int) -> Layer:
    """Only ever by a larger block size, and a padding stays as it is."""
    times, rest = divmod(page, r.page(x))
    demand(not rest, "NotImplementedError")
    larger = r.construct(replace(x, block_size=x.block_size * times))
    demand(r.page(larger) == page)
    return larger


def unify_hybrid(r: Rules, layers: Layers) -> Layers:
    """A window-MLA layer asserts that there is full attention."""
    kinds = {x.type for x in layers.values()}
    demand(bool(kinds & FULL) or Spec.WINDOW_MLA not in kinds or r.is_one_kind(layers))
    return Rules.unify_hybrid(r, layers)


def as_full(r: Rules, x: Layer, block_size: int) -> Layer:
    """The quantisation of chunks and window-MLA is lost, the window of the latter too; its padding is kept."""
    if x.type == Spec.CHUNK:
        x = replace(x, kv_quant_mode="NONE")
    if x.type != Spec.WINDOW_MLA:
        return Rules.as_full(r, x, block_size)
    plain = replace(x, type=Spec.MLA, block_size=block_size, head_size_v=None, sliding_window=None)
    return r.construct(replace(plain, kv_quant_mode="NONE"))


def groups_of_one_page(r: Rules, layers: Layers) -> list[LayerGroup]:
    """Nothing but hidden-state layers leaves nothing to take a minimum of."""
    demand(any(x.type != Spec.HIDDEN for x in layers.values()), "ValueError")
    return Rules.groups_of_one_page(r, layers)


def fit_hidden(r: Rules, x: Layer, page: int) -> Layer:
    """One row at least, though it may be wider than the page; and an alignment changes the page."""
    row = x.num_kv_heads * x.head_size * x.dtype
    return r.construct(replace(x, block_size=max(page // row, 1), page_size_padded=page))


def uniform_types(r: Rules, layers: Layers) -> list[Layer] | None:
    """One window-MLA layer is enough; others that are not MLA are dropped."""
    if not any(x.type == Spec.WINDOW_MLA for x in layers.values()):
        return None
    demand(any(x.type in MLA for x in layers.values()))
    types = Rules.uniform_types(r, {name: x for name, x in layers.items() if x.type in LATENT})
    demand(types is not None)
    return types


def layer_tuples_of(objects: Mapping[str, object]) -> Callable[..., list[tuple[tuple[str, Layer], ...]]]:
    """`layer_tuples`, where layers may share a spec object: layer name -> which one."""

    def layer_tuples(r: Rules, x: Layer, pages: Collection[int]) -> list[tuple[tuple[str, Layer], ...]]:
        """The padding, exactly to the page, is written into the object, which is not found again for the next layer."""
        own = {r.page(member) for member in x.members}
        demand(max(own) <= max(pages))
        targets = {page: min(other for other in pages if other >= page) for page in own}
        written = [objects.get(name, name) for name, y in x.kv_cache_specs if targets[r.page(y)] not in own]
        demand(len(set(written)) == len(written), "KeyError")
        columns: dict[int, list[tuple[str, Layer]]] = {}
        for name, member in x.kv_cache_specs:
            page = targets[r.page(member)]
            made = member if r.page(member) == page else replace(member, page_size_padded=page)
            columns.setdefault(page, []).append((name, made))
        demand(len({len(column) for column in columns.values()}) == 1)
        return list(zip(*columns.values(), strict=True))

    return layer_tuples


def slots(r: Rules, groups: Sequence[LayerGroup]) -> list[Slot]:
    """Layers of one type are all there, also on a worker that has none of them; plain groups must agree on a page."""
    first = groups[0].spec if groups else None
    if first and len(groups) == 1 and first.type == Spec.UNIFORM:
        return [(r.page(x), (name,)) for name, x in first.kv_cache_specs]
    if first and not all(group.spec.type == Spec.UNIFORM for group in groups):
        demand(all(r.page(group.spec) == r.page(first) for group in groups))
    return Rules.slots(r, groups)


def hash_at(r: Rules, hashes: Sequence[str], times: int, index: int, is_int: bool) -> str:
    """Whatever hashes a slice at this place has: none of them, or too few; and only an int is an index."""
    demand(is_int, "TypeError")
    return "".join(hashes[index * times : index * times + times])


def build(r: Rules, shape: Shape) -> None:
    """The scheduler's block has to be whole blocks as the specs count them, whatever the ranks."""
    unit, ranks, interval = shape.scheduler_block_size, shape.parallel, shape.retention_interval
    demand(shape.num_blocks > 0 and unit % shape.hash_block_size == 0)
    demand(all(unit % group.block_size == 0 for group in shape.groups))
    spread = None if interval is None else interval * ranks
    Rules.build(r, replace(shape, scheduler_block_size=unit * ranks, retention_interval=spread))


def name_block_sizes(r: Rules, wanted: object, found: object, config: Config, specs: Sequence[Layer]) -> str:
    """The deviation of sizes of blocks."""
    return "C-03" if len(specs) == 1 else "C-02"


AS_EVER = (
    ReleasedRule("page", page, _name_page),
    ReleasedRule("resize", resize, lambda r, wanted, made, x, size: "S-12" if x.kv_cache_specs else "S-06"),
    ReleasedRule("cap", cap, "S-13"),
    ReleasedRule("blocks", blocks, "S-15"),
    ReleasedRule("is_spec_uniform", is_spec_uniform, "S-05"),
)
"""What no release has changed since."""
GROUPING = (
    *AS_EVER,
    ReleasedRule("construct", construct, _name_construct, judged_with=("page",)),
    ReleasedRule("real_page", real_page, _name_real_page),
    ReleasedRule("scales", scales, "S-20"),
    ReleasedRule("merge", merge, _name_merge),
    ReleasedRule("is_type_uniform", is_type_uniform, _name_type),
    ReleasedRule("block_sizes", block_sizes, name_block_sizes),
    ReleasedRule("with_page", with_page, "C-04"),
    ReleasedRule("unify_hybrid", unify_hybrid, "C-13"),
    ReleasedRule("as_full", as_full, "C-13"),
    ReleasedRule("groups_of_one_page", groups_of_one_page, "C-05"),
    ReleasedRule("fit_hidden", fit_hidden, "C-05"),
    ReleasedRule("uniform_types", uniform_types, "C-06"),
    ReleasedRule("slots", slots),
    ReleasedRule("hash_at", hash_at, "C-01"),
    ReleasedRule("build", build, "C-18"),
)
"""Layers and groups."""
