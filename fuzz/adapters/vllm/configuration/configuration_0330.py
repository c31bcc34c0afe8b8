"""Where vLLM 0.33.0 is known to differ from the arithmetic of configurations as cores of today want it (`rules_today`).

`Reference0330` answers what the release answers. Ids are those of section 16 of "Specs and configuration arithmetic";
what the release before it did, too, keeps its id, although its smallest case may be another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import gcd, lcm
from typing import Any, TypeVar

from .....model.arith import up
from .....model.attention import demand
from .....model.config.layers import uniform_of
from .....model.config_json import (
    FULL,
    LATENT,
    MANAGED,
    MLA,
    NOT_ATTENTION,
    PACKED,
    WINDOWS,
    Config,
    Configured,
    Layer,
    LayerGroup,
    Layers,
    Spec,
    WorkerConfig,
)
from .....model.ops import Failed, Shape
from ....targets.deviations import DeviatingModel, Deviation
from ....targets.released_rules import ReleasedRule, ReleasedRules
from ..deviations.deviations_0330 import DEVIATIONS, policy_of
from .asked_today import Asked, asked
from .configuration_deviations import CONFIGURATION_DEVIATIONS as BEFORE
from .configuration_deviations import longest
from .placement_today import Place, RulesToday, chained
from .record_answers import RECORDS_TODAY, merge_0330, name_merge_0330, quantised_0330, room_0330
from .reference_groups import AS_EVER, name_block_sizes
from .reference_groups import is_type_uniform as type_before
from .rules_today import LAYOUTS, ConfigToday, LayerToday

R = RulesToday
L = TypeVar("L", bound=Layer)


def construct(r: R, x: Layer) -> Layer:
    """Nothing is refused. What the backend publishes comes after a first alignment, whose padding may stay."""
    demand(x.type != Spec.WINDOW_MLA or x.model_version in (None, "deepseek_v4"))
    if x.type in FULL | WINDOWS and x.head_size_v is None:
        x = replace(x, head_size_v=x.head_size)
    if x.type == Spec.UNIFORM or not isinstance(x, LayerToday) or x.state_content_bytes is not None:
        return _aligned(r, x)
    content = r.packed_state(x)
    first = x if x.cache_dtype_str == PACKED and x.type in LATENT else _aligned(r, x)
    return _aligned(r, replace(first, state_content_bytes=content))


def _aligned(r: R, x: L) -> L:
    if x.alignment is None or up(r.real_page(x), x.alignment) == r.real_page(x):
        return x
    return replace(x, page_size_padded=up(r.real_page(x), x.alignment))


def _name_construct(r: R, wanted: Layer, made: Layer, x: Layer) -> str:
    return "S-10" if min(x.block_size, x.compress_ratio) < 1 or x.block_size % x.compress_ratio else "S-06"


def packed_state(r: R, x: Layer) -> int | None:
    """Two scales for a latent state; and rows in four bits are rounded down."""
    if x.kv_quant_mode == "NVFP4" and x.type not in LATENT:
        widths = [x.head_size, x.head_size if x.head_size_v is None else x.head_size_v]
        return sum(width // 2 + width // 16 for width in widths) * x.dtype
    right = R.packed_state(r, x)
    scaled = right is not None and x.type in LATENT and right == x.head_size * x.dtype + 4
    return None if right is None else right + 4 * scaled


def real_page(r: R, x: Layer) -> int:
    """States without a dtype, or dtypes without a state, are left out."""
    if x.type == Spec.MAMBA:
        known = min(len(x.shapes), len(x.dtypes))
        x = replace(x, shapes=x.shapes[:known], dtypes=x.dtypes[:known])
    return R.real_page(r, x)


def merge(r: R, specs: Sequence[Layer]) -> Layer:
    """Classes mix; of latent windows only the layout is compared, and fields are lost."""
    first = specs[0]
    if first.type == Spec.WINDOW_MLA:
        demand(all(x.type == Spec.WINDOW_MLA for x in specs))
        demand(len({(x.cache_dtype_str, x.compress_ratio, x.model_version, x.sliding_window) for x in specs}) == 1)
        return r.construct(replace(first, alignment=None, kv_quant_mode="NONE"))
    if first.type in MLA:
        demand(all(x.type in MLA for x in specs))
        lost: dict[str, Any] = {"alignment": None, "sliding_window": None, "attention_chunk_size": None}
        alike = [replace(x, type=first.type, **lost) for x in specs]
        demand(len(set(alike)) == 1)
        return alike[0]
    if first.type not in FULL:
        return R.merge(r, specs)
    demand(all(x.type in FULL - MLA for x in specs))
    merged = R.merge(r, [replace(x, type=first.type, sink_len=None) for x in specs])
    return replace(merged, sink_len=first.sink_len)


def _name_merge(r: R, wanted: object, found: object, specs: Sequence[Layer]) -> str:
    if len({x.type for x in specs}) > 1 or len({x.sink_len for x in specs}) > 1:
        return "S-04"
    return "S-03" if len(set(specs)) == 1 or specs[0].type in MLA else "S-01"


def is_type_uniform(r: R, layers: Layers) -> bool:
    """States are apart from attention, and of one page, which is asked for layer by layer; else as before."""
    specs = list(layers.values())
    if len({x.type in NOT_ATTENTION for x in specs}) > 1:
        return False
    if not specs or specs[0].type != Spec.MAMBA or len({x.block_size for x in specs}) > 1:
        return type_before(r, layers)
    first = specs[0]
    return all(type_before(r, {"first": first, "one": x}) and r.page(x) == r.page(first) for x in specs)


def _name_type(r: R, wanted: object, found: object, layers: Layers) -> str:
    kinds = {x.type for x in layers.values()}
    return "S-09" if kinds == {Spec.MAMBA} and found is True else "S-16" if Spec.SINK in kinds else "S-08"


def block_sizes(r: R, config: Config, specs: Sequence[Layer]) -> tuple[int, int]:
    """A lone group has the cache's block size; a negative size of hashes is taken, and zero is divided by."""
    if len(specs) == 1:
        return R.block_sizes(r, config, [replace(specs[0], block_size=config.block_size)])
    sizes, hashed = [r.span(config, x) for x in specs], config.enable_prefix_caching or config.kv_connector
    unit = gcd(*sizes) if config.hash_block_size is None else config.hash_block_size
    every = [x for y in specs for x in (y.members or [y])]
    states = any(x.type == Spec.MAMBA and x.mamba_cache_mode != "align" for x in every)
    if unit >= 1 or not specs or not hashed or states:
        return R.block_sizes(r, config, specs)
    demand(all(size % unit == 0 for size in sizes), "ValueError")
    demand(all(x.type != Spec.BASE for x in every), "NotImplementedError")
    return lcm(*sizes), unit


def with_page(r: R, x: Layer, page: int) -> Layer:
    """A padding stays as it is where the block grows."""
    if x.type == Spec.MAMBA:
        return R.with_page(r, x, page)
    times, rest = divmod(page, r.page(x))
    demand(not rest or (x.type not in MLA and x.type not in NOT_ATTENTION), "NotImplementedError")
    changed = replace(x, page_size_padded=page) if rest else replace(x, block_size=x.block_size * times)
    made = r.construct(changed)
    demand(r.page(made) == page)
    return made


def as_full(r: R, x: Layer, block_size: int) -> Layer:
    """A field of latent windows has no place in latent full attention, which is a crash."""
    if not x.is_narrow:
        return x
    padded = x.page_size_padded
    demand(padded is None or x.block_size != 0, "ZeroDivisionError")
    demand(x.type != Spec.WINDOW_MLA, "TypeError")
    padded = None if padded is None else max(padded, r.real_page(x) * block_size // x.block_size)
    return r.construct(replace(x.as_full(), block_size=block_size, page_size_padded=padded))


def apart(r: R, layers: Layers) -> tuple[Layers, Layers]:
    """Hidden-state layers are also apart from nothing."""
    hidden = {name: x for name, x in layers.items() if x.type == Spec.HIDDEN}
    return {name: x for name, x in layers.items() if name not in hidden}, hidden


def grown(r: R, x: Layer, times: int) -> Layer:
    """States do not grow with their block."""
    padded = None if x.page_size_padded is None else x.page_size_padded * times
    return r.construct(replace(x, block_size=x.block_size * times, page_size_padded=padded))


def fitted(r: R, x: Layer, common: int, page: int) -> Layer:
    """Whatever the backend packs into a row, and whatever the alignment makes of the page."""
    most = min(common, max(page // r.row(x), 1))
    rows = max((size for size in range(1, most + 1) if common % size == 0), default=1)
    return r.construct(replace(x, block_size=rows, page_size_padded=page))


def cut(r: R, layers: Layers, pages: dict[int, list[str]], count: int) -> list[LayerGroup]:
    """Patterns end with the rarest page: layers behind are lost, and a group without any is a crash."""
    if count == 1:
        return [LayerGroup(tuple(layers), uniform_of(layers))]
    patterns = list(zip(*pages.values(), strict=False))
    parts = [[name for names in patterns[i::count] for name in names] for i in range(count)]
    demand(all(parts), "StopIteration")
    return [LayerGroup(tuple(part), uniform_of({name: layers[name] for name in part})) for part in parts]


def num_blocks(r: R, config: Config, memory: int, block_bytes: int) -> int:
    """Fewer than none in less than no memory."""
    return memory // block_bytes if config.num_gpu_blocks_override is None else config.num_gpu_blocks_override


def places(r: R, config: Config, groups: Sequence[LayerGroup], group: LayerGroup, num_blocks: int) -> list[Place]:
    """Layers of one type all get a place, also on a worker that has none of them."""
    if group.spec.type == Spec.UNIFORM:
        group = replace(group, names=tuple(name for name, _ in group.spec.kv_cache_specs))
    return R.places(r, config, groups, group, num_blocks)


def strides(r: R, config: ConfigToday, x: Layer, num_blocks: int) -> tuple[int, int]:
    """A block without tokens is divided by."""
    demand(x.block_size != 0, "ZeroDivisionError")
    return R.strides(r, config, x, num_blocks)


def check_layout(r: R, config: Config, groups: Sequence[LayerGroup]) -> None:
    """No page at all is no one page."""
    assert isinstance(config, ConfigToday)
    pages = {r.page(x) for group in groups for _, x in r.layer_specs(group)}
    demand(not groups or bool(pages) or (config.whole_pages and (config.by_blocks or len(groups) == 1)), "ValueError")
    R.check_layout(r, config, groups)


def cost(r: R, config: Config, groups: Sequence[LayerGroup]) -> int:
    """Of nothing it is a crash."""
    assert isinstance(config, ConfigToday)
    if groups and not r.bytes_per_block(groups):
        demand(not config.by_blocks)
        r.check_layout(config, groups)
        demand(False, "ZeroDivisionError")
    return R.cost(r, config, groups)


def worker_config(r: R, config: Config, groups: Sequence[LayerGroup], memory: int) -> WorkerConfig:
    """A block of nothing is a crash."""
    assert isinstance(config, ConfigToday)
    if groups:
        r.check_layout(config, groups)
        demand(not config.by_blocks or r.bytes_per_block(groups) > 0)
    return R.worker_config(r, config, groups, memory)


def is_possible(r: R, config: Config, layers: Layers, memory: int) -> bool:
    """A block of nothing is a crash."""
    assert isinstance(config, ConfigToday)
    groups = r.split(config, layers)
    demand(not config.by_blocks or not groups or r.bytes_per_block(groups) > 0)
    return R.is_possible(r, config, layers, memory)


def concurrency(r: R, config: Config, groups: Sequence[LayerGroup], num_blocks: int) -> float:
    """The null block counts as one that a request can use."""
    return num_blocks / sum(r.pages(config, group.spec) for group in groups)


def hash_at(r: R, hashes: Sequence[str], times: int, index: int, is_int: bool) -> str:
    """Only an int is an index, and a negative one counts from the end of the smaller hashes."""
    demand(is_int, "TypeError")
    place = (index + 1) * times - 1
    demand(-len(hashes) <= place < len(hashes), "IndexError")
    return hashes[place]


def build(r: R, shape: Shape) -> None:
    """As the model with what the release decides otherwise."""
    outcome = DeviatingModel(shape, DEVIATIONS, policy_of).construction
    if isinstance(outcome, Failed):
        demand(False, outcome.error)


def _name_concurrency(
    r: R, wanted: object, found: object, config: Config, groups: Sequence[LayerGroup], num_blocks: int
) -> str:
    return "C-16" if not sum(r.pages(config, group.spec) for group in groups) else "C-17"


def _name_longest(r: R, wanted: object, found: object, config: Config, *rest: object) -> str:
    return "C-15" if config.max_model_len < 1 else "S-10"


def configs(r: R, config: Config, workers: Sequence[Layers], memory: Sequence[int]) -> Configured:
    """Workers are cut to the memory figures, and those without layers are in the way."""
    layers: Layers = {}
    for worker in workers:
        demand(all(layers.setdefault(name, x) == x for name, x in worker.items()))
    demand(all(x.type in MANAGED for x in layers.values()), "ValueError")
    groups = r.marked(config, r.groups(config, chained(config, layers)))
    parts = [r.project(groups, worker) for worker in workers]
    pairs = list(zip(parts, memory, strict=False))
    room = [r.room(config, part, bytes_) if part else bytes_ for part, bytes_ in pairs]
    usable = [bytes_ - r.cost(config, part) if part else bytes_ for (part, _), bytes_ in zip(pairs, room, strict=True)]
    if config.original_max_model_len == -1 and groups and workers:
        demand(bool(pairs), "IndexError")
        fits = [r.longest(config, partial(r.needed, groups=part), usable[i]) for i, (part, _) in enumerate(pairs)]
        demand(min(config.max_model_len, *fits) > 0, "ValueError")
        config = replace(config, max_model_len=min(config.max_model_len, *fits))
    for i, (part, _) in enumerate(pairs if groups else []):
        demand(usable[i] > 0 and r.needed(config, part) <= usable[i], "ValueError")
    told = []
    for worker, (part, _), available in zip(workers, pairs, room, strict=False):
        demand(sum(len(group.names) for group in part) == len(worker))
        told.append(r.worker_config(config, part, available))
    demand(bool(told), "ValueError")
    least = min(one.num_blocks for one in told)
    return config, [one if one.num_blocks == least else r.placed(config, one.groups, least) for one in told]


def _name_configs(
    r: R, wanted: object, found: object, config: Config, workers: Sequence[Layers], memory: Sequence[int]
) -> str:
    if len(workers) != len(memory):
        return "C-14"
    return "C-10" if any(workers) and not all(workers) else "C-11"


ENTRIES = (
    ReleasedRule("construct", construct, _name_construct, judged_with=("page",)),
    ReleasedRule("packed_state", packed_state, lambda r, wanted, found, x: "S-20" if x.type in LATENT else "S-11"),
    *AS_EVER,
    ReleasedRule("real_page", real_page, "S-07"),
    ReleasedRule("merge", merge, _name_merge),
    ReleasedRule("is_type_uniform", is_type_uniform, _name_type),
    ReleasedRule("block_sizes", block_sizes, name_block_sizes),
    ReleasedRule("with_page", with_page, "C-04"),
    ReleasedRule("as_full", as_full, "C-13"),
    ReleasedRule("apart", apart, "C-05"),
    ReleasedRule("grown", grown, "C-05"),
    ReleasedRule("fitted", fitted, "C-05"),
    ReleasedRule("cut", cut, "C-19"),
    ReleasedRule("num_blocks", num_blocks, "C-11"),
    ReleasedRule("places", places, "C-10"),
    ReleasedRule("check_layout", check_layout, "C-10"),
    ReleasedRule("cost", cost, "C-10"),
    ReleasedRule("strides", strides, "S-10"),
    ReleasedRule("worker_config", worker_config, "S-10"),
    ReleasedRule("is_possible", is_possible, "S-10"),
    ReleasedRule("concurrency", concurrency, _name_concurrency),
    ReleasedRule("hash_at", hash_at, "C-01"),
    ReleasedRule("build", build, "C-18"),
    ReleasedRule("merge_records", merge_0330, name_merge_0330),
    ReleasedRule("fit", room_0330, "C-17"),
    ReleasedRule("quantised", quantised_0330, "S-21"),
    ReleasedRule("longest", longest, _name_longest),
    ReleasedRule("configs", configs, _name_configs),
)


class Reference0330(ReleasedRules):
    """What vLLM 0.33.0 answers."""

    drawn: Mapping[str, Sequence[object]] = {
        "kv_cache_layout": (*LAYOUTS[:3], *LAYOUTS),
        "draft_models": (1, 2, 3),
    }
    asks: Sequence[str] = (*RECORDS_TODAY, "groups", "resolve_block_sizes")

    def __init__(self) -> None:
        super().__init__(ENTRIES, RulesToday)

    def asked(self, op: str, inputs: Mapping[str, object]) -> Asked:
        """See `asked_today`."""
        return asked(op, inputs)


_AS_BEFORE = (
    *("S-03", "S-05", "S-06", "S-07", "S-08", "S-09", "S-10", "S-11", "S-12", "S-13", "S-15", "S-16", "S-20"),
    *("C-02", "C-03", "C-11", "C-14", "C-15", "C-16"),
)
"""What is as it was in 0.23.0. S-02, S-19, C-06 to C-09 and C-12 are mended; C-18 cannot be asked."""
CONFIGURATION_DEVIATIONS: tuple[Deviation, ...] = tuple(
    sorted(
        (
            *(one for one in BEFORE if one.id in _AS_BEFORE),
            *(
                Deviation(*row)
                for row in (
                    (
                        "S-01",
                        "merging window-MLA specs compares their layout only, and the others get the first one's page",
                        "window-MLA specs that differ in block size, heads, head size, dtype, quantisation or padding",
                    ),
                    (
                        "S-04",
                        "specs of different classes merge into the class of the first, and sinks of different length",
                        "full attention meets sinks, MLA meets hidden states, or sink_len differs",
                    ),
                    (
                        "S-21",
                        "the mode of caches that a platform serves itself has the number of OCTAVE_K3V4: each is the "
                        "other",
                        "the quantisation mode of a cache of that name is asked for",
                    ),
                    (
                        "C-01",
                        "a negative index into a view on hashes of smaller blocks counts from the end of those",
                        "a negative index, where the last block is not full or the index is below the length",
                    ),
                    (
                        "C-04",
                        "a padded layer whose block grows keeps its padding, which is then too small or not the page",
                        "a padded or aligned layer has a smaller page than another layer",
                    ),
                    (
                        "C-05",
                        "hidden-state layers get a page that is not the pool's, or cannot be grouped among themselves",
                        "hidden states that are packed, aligned, wider than a page of states, or all there is",
                    ),
                    (
                        "C-10",
                        "a worker without layers is an error, or gets places for layers that it does not have",
                        "one worker has no layers of a group while others have",
                    ),
                    (
                        "C-13",
                        "windows of MLA cannot become full attention: a field too many ends in a TypeError",
                        "hybrid memory is off, with MLA and window-MLA layers",
                    ),
                    (
                        "C-17",
                        "the concurrency counts the null block as one that requests can use",
                        "the number of requests that fit at once is asked for",
                    ),
                    (
                        "C-19",
                        "where mixed pages are packed, windows of two page sizes are cut by the rarer size: layers are "
                        "lost, which an assertion notices, or a group without layers is a crash",
                        "blocks outermost, another type, and windows of one length with two page sizes, unequally many",
                    ),
                )
            ),
        ),
        key=lambda one: one.id,
    )
)
"""All that a question can show."""
