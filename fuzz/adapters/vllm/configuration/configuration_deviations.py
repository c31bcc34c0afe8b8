"""Where vLLM 0.23.0 is known to differ from the arithmetic of configurations: its entries for the record of rules.

`Reference0230` answers what the release answers; `fired` tells which deviations made a difference. Their ids are those
of the last section of the chapter "Specs and configuration arithmetic".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from .....model.arith import cdiv
from .....model.attention import demand
from .....model.config.capacity import Rules
from .....model.config_json import MANAGED, Config, Configured, Json, Layer, LayerGroup, Layers, Spec, WorkerConfig
from ....targets.deviations import Deviation
from ....targets.released_rules import ReleasedRule, ReleasedRules
from .reference_groups import GROUPING, layer_tuples_of


def worker_config(r: Rules, config: Config, groups: Sequence[LayerGroup], memory: int) -> WorkerConfig:
    """No layers are an error of one kind or the other, and what fits is computed even if it is overridden. Where all
    groups are uniform types and memory is negative, so is the number of blocks."""
    uniform = all(group.spec.type == Spec.UNIFORM for group in groups)
    demand(not groups or any(group.names for group in groups), "ZeroDivisionError" if uniform else "AssertionError")
    fit = memory // r.bytes_per_block(groups) if groups else 1
    if uniform and groups and config.num_gpu_blocks_override is None:
        return r.sized(groups, fit)
    return Rules.worker_config(r, config, groups, memory)


def _name_worker(r: Rules, wanted: object, found: object, config: Config, groups: Sequence[LayerGroup], *_: int) -> str:
    return "C-11" if any(group.names for group in groups) else "C-10"


def has_mamba(r: Rules, groups: Sequence[LayerGroup]) -> bool:
    """A uniform type of Mamba does not count."""
    return any(group.spec.type == Spec.MAMBA for group in groups)


def needed(r: Rules, config: Config, groups: Sequence[LayerGroup]) -> int:
    """No null block; and of several uniform types, a block is taken to cost the first one's page sizes times the most
    tuples."""
    if not groups or any(group.spec.type != Spec.UNIFORM for group in groups):
        return r.bytes_per_block(groups) * sum(r.pages(config, group.spec) for group in groups)
    if len(groups) == 1:  # the layers one by one; of a worker without layers, those of all others
        return sum(r.memory(config, x) for x in groups[0].spec.members)
    tuples = max(r.num_layer_tuples(group.spec) for group in groups)
    block = sum({r.page(x) for x in groups[0].spec.members}) * tuples
    return block * sum(r.pages(config, group.spec) for group in groups)


def _name_needed(r: Rules, wanted: object, found: object, config: Config, groups: Sequence[LayerGroup]) -> str:
    if isinstance(wanted, int) and isinstance(found, int) and wanted - found == r.bytes_per_block(groups):
        return "C-17"
    return "C-08" if len(groups) > 1 else "S-10" if groups and groups[0].names else "C-10"


def plain_needed(r: Rules, config: Config, layers: Layers) -> int:
    """No null block."""
    return sum(r.memory(config, x) for x in layers.values())


def concurrency(r: Rules, config: Config, groups: Sequence[LayerGroup], num_blocks: int) -> float:
    """All blocks, over the need of all groups, whose bytes are counted in pages of the first one and rounded up."""
    demand(bool(groups), "ValueError")
    needed = sum(r.memory(config, group.spec) for group in groups)
    return num_blocks / cdiv(needed, r.page(groups[0].spec))


def _name_concurrency(
    r: Rules, wanted: object, found: object, config: Config, groups: Sequence[LayerGroup], num_blocks: int
) -> str:
    pages = sum(r.pages(config, group.spec) for group in groups)
    return "C-16" if not pages else "C-17" if found == num_blocks / pages else "C-08"


def longest(r: Rules, config: Config, need: Callable[[Config], int], available: int) -> int:
    """One token is tried first, even where the configured length is less."""
    if need(replace(config, max_model_len=1)) > available:
        return 0
    longest, low, high = 1, 1, config.max_model_len
    while low <= high:
        middle = (low + high) // 2
        if need(replace(config, max_model_len=middle)) <= available:
            longest, low = middle, middle + 1
        else:
            high = middle - 1
    return longest


def _name_longest(r: Rules, wanted: object, found: object, config: Config, *rest: object) -> str:
    return "C-15" if config.max_model_len < 1 else "S-10"  # needs only fall where blocks hold no tokens


def scheduler_config(r: Rules, workers: Sequence[WorkerConfig]) -> WorkerConfig:
    """Eagle's mark is as on the first worker."""
    seen = Rules.scheduler_config(r, workers)
    marks = [group.eagle for group in workers[0].groups]
    return replace(seen, groups=tuple(replace(x, eagle=mark) for x, mark in zip(seen.groups, marks, strict=True)))


def configs(r: Rules, config: Config, workers: Sequence[Layers], memory: Sequence[int]) -> Configured:
    """Workers are cut to the memory figures, those without layers are in the way, and the report may crash."""
    layers: Layers = {}
    for worker in workers:
        demand(all(layers.setdefault(name, x) == x for name, x in worker.items()))
    demand(all(x.type in MANAGED for x in layers.values()), "ValueError")
    groups = r.groups(config, layers)
    projected = [r.project(groups, worker) for worker in workers]
    pairs = [(part, _available(r, config, part, bytes_)) for part, bytes_ in zip(projected, memory, strict=False)]
    fitting = config.original_max_model_len == -1 and bool(groups)
    demand(bool(pairs), "IndexError" if fitting else "ValueError")
    config = _auto_fit(r, config, pairs) if fitting else config
    for part, available in pairs if groups else []:
        demand(available > 0 and r.needed(config, part) <= available, "ValueError")
    told = []
    for worker, (part, available) in zip(workers, pairs, strict=False):
        demand(set(worker) <= {name for group in part for name in group.names})
        told.append(r.worker_config(config, part, available))
    told = [r.sized(worker.groups, min(one.num_blocks for one in told)) for worker in told]
    for own in told if groups else []:
        r.concurrency(config, own.groups, own.num_blocks)
    return config, told


def _available(r: Rules, config: Config, groups: Sequence[LayerGroup], memory: int) -> int:
    """An override also divides by what a block costs, which is nothing without layers."""
    if config.num_gpu_blocks_override is None or not groups:
        return memory if config.num_gpu_blocks_override is None else 0
    demand(r.bytes_per_block(groups) > 0, "ZeroDivisionError")
    return config.num_gpu_blocks_override * r.bytes_per_block(groups)


def _auto_fit(r: Rules, config: Config, workers: Sequence[tuple[Sequence[LayerGroup], int]]) -> Config:
    """The configured length stands where it fits, even if it is 0."""
    if config.max_model_len < 1:
        demand(not any(r.needed(config, groups) <= memory for groups, memory in workers), "ValueError")
    fits = min(r.longest(config, partial(r.needed, groups=groups), memory) for groups, memory in workers)
    demand(fits > 0, "ValueError")
    return replace(config, max_model_len=fits)


def _name_configs(
    r: Rules, wanted: object, found: object, config: Config, workers: Sequence[Layers], memory: Sequence[int]
) -> str:
    if len(workers) != len(memory):
        return "C-14"
    if any(workers) and not all(workers):
        return "C-10"
    same = [{name: _spelled_out(x) for name, x in worker.items()} for worker in workers]
    return "S-19" if same != list(workers) else "C-11"


def _spelled_out(x: Layer) -> Layer:
    """With the value size that a window-MLA spec has by default."""
    return replace(x, head_size_v=x.head_size) if x.type == Spec.WINDOW_MLA and x.head_size_v is None else x


CAPACITY = (
    ReleasedRule("worker_config", worker_config, _name_worker),
    ReleasedRule("has_mamba", has_mamba, "C-12"),
    ReleasedRule("needed", needed, _name_needed),
    ReleasedRule("plain_needed", plain_needed, "C-17"),
    ReleasedRule("concurrency", concurrency, _name_concurrency),
    ReleasedRule("longest", longest, _name_longest),
    ReleasedRule("scheduler_config", scheduler_config, "C-09"),
    ReleasedRule("configs", configs, _name_configs),
)
"""Blocks, lengths, workers."""


class Reference0230(ReleasedRules):
    """What vLLM 0.23.0 answers."""

    def __init__(self) -> None:
        self._objects: dict[str, object] = {}
        """Layer name -> which spec object it has, where layers share them."""
        super().__init__([*GROUPING, *CAPACITY, ReleasedRule("layer_tuples", layer_tuples_of(self._objects), "C-07")])

    def answer(self, op: str, inputs: Mapping[str, Any]) -> dict[str, Json]:
        """The answer to a question; what made a difference to it is added to `fired`."""
        self._objects.clear()
        if inputs.get("shared_objects"):
            for i, worker in enumerate([inputs.get("layers", ()), *inputs.get("workers", ())]):
                for name, spec in worker:
                    self._objects.setdefault(name, (i, spec))
        return super().answer(op, inputs)


CONFIGURATION_DEVIATIONS: tuple[Deviation, ...] = tuple(
    Deviation(*row)
    for row in (
        (
            "S-01",
            "merging MLA specs compares their layout only, so layers of another geometry get the first one's page",
            "MLA or window-MLA specs that differ in heads, head size, dtype, quantisation or padding are merged",
        ),
        (
            "S-02",
            "merging full-attention specs does not compare the size of values",
            "full-attention specs with different head_size_v are merged",
        ),
        (
            "S-03",
            "a merged spec lacks fields that all its members agree on",
            "MLA specs with an alignment, a window or head_size_v are merged, or window-MLA ones with quantisation",
        ),
        (
            "S-04",
            "specs of different classes merge into the class of the first, and sinks of different length into one",
            "full attention meets sinks or TQ, MLA meets hidden states, or sink_len differs",
        ),
        (
            "S-05",
            "asking whether layers are uniform ends in an error instead of no",
            "full-attention layers record different windows or chunks",
        ),
        (
            "S-06",
            "an aligned page ignores scales, and drops a given padding or keeps one that has become too small",
            "a spec with an alignment has per-token-head scales or a padding, or is copied with another block size",
        ),
        (
            "S-07",
            "states without a dtype are not counted",
            "a Mamba spec lists more shapes than dtypes, or fewer",
        ),
        (
            "S-08",
            "whether layers are of one type is asked of the first layer only, and crashes without layers",
            "a window layer stands before a window-MLA layer, an unregistered class before others, or nothing is asked",
        ),
        (
            "S-09",
            "Mamba layers of different cache modes count as one type",
            "two Mamba specs differ in mamba_cache_mode",
        ),
        (
            "S-10",
            "a spec is accepted whose block holds no tokens or no whole compressed token",
            "block_size below 1, or a compress_ratio below 1 or not dividing it",
        ),
        (
            "S-11",
            "a row in NVFP4 is rounded down, so that its last scale has no place",
            "NVFP4 with a head size that is no multiple of 16",
        ),
        (
            "S-12",
            "another block size for a uniform type does not reach its members",
            "a uniform type is copied with another block size",
        ),
        (
            "S-13",
            "the admission cap forgets the blocks that a chunk shares with the chunk before",
            "a chunk size that the block size does not divide",
        ),
        (
            "S-15",
            "the need of a window or chunk is told although no manager runs it in parallel",
            "prefill context parallelism with a window, any context parallelism with a chunk",
        ),
        (
            "S-16",
            "sinks count as one type with other full attention, and are lost",
            "a sink layer meets other full-attention layers, or sinks of different length meet",
        ),
        (
            "S-19",
            "a window-MLA spec differs from the same spec with head_size_v spelled out",
            "two workers name the same layer, one with head_size_v and one without",
        ),
        (
            "S-20",
            "a layer that stores one vector a token pays for two scales, also for tokens that it compresses",
            "MLA, window-MLA or hidden states in a per-token-head mode",
        ),
        (
            "C-01",
            "a view on hashes of smaller blocks takes its index for a slice: a wrong hash, or a part of one",
            "a negative index, one behind the end, or an integer of another type than int",
        ),
        ("C-02", "a hash block size of 0 crashes, a negative one is accepted", "a requested hash_block_size below 1"),
        (
            "C-03",
            "the scheduler block size of a lone group is the cache's",
            "one group whose block size is not the cache's",
        ),
        (
            "C-04",
            "pages are made equal by block sizes only, also where that changes nothing or a padding stands in the way",
            "a Mamba or padded layer has a smaller page than another layer",
        ),
        (
            "C-05",
            "hidden-state layers get a page that is not the pool's, or cannot be grouped among themselves",
            "a row of hidden states is wider than a page or aligned, or all layers are such and differ",
        ),
        (
            "C-06",
            "one window-MLA layer makes all other layers be taken for MLA: they disappear, or an assertion fails",
            "window-MLA next to layers that are not MLA, without MLA, or with MLA of two types",
        ),
        (
            "C-07",
            "padding is written into the caller's specs, past their alignment, and fails where two layers share one",
            "window-MLA layers with smaller pages than the MLA layers",
        ),
        (
            "C-08",
            "the need of several uniform types is computed from the first group, and the concurrency from its page",
            "a model with MLA and window-MLA groups whose tuples do not all cost the same",
        ),
        (
            "C-09",
            "the scheduler sees eagle's mark only if the first worker has it",
            "the first pipeline stage has no layer of eagle's group",
        ),
        ("C-10", "a worker without layers is an error", "one worker has no layers while others have"),
        (
            "C-11",
            "there may be fewer blocks than none, and none at all is no error of its own",
            "one uniform type and negative memory, or a model that needs nothing and gets less than a page",
        ),
        ("C-12", "Mamba layers in a uniform type are not seen", "Mamba layers of different shapes in one group"),
        (
            "C-13",
            "turning windows into full attention loses quantisation and window, keeps a padding, or asserts",
            "hybrid memory is off, with quantised chunks, or with window-MLA layers",
        ),
        ("C-14", "workers without a memory figure are left out", "fewer memory figures than workers, or more"),
        ("C-15", "the longest request is one token long even where none may be", "max_model_len below 1"),
        (
            "C-16",
            "the concurrency of requests that need nothing, or of no groups, is a crash",
            "cross attention without encoder tokens, encoder-only layers, or no layers",
        ),
        (
            "C-17",
            "the null block is not counted: a request that just fits stalls at its last block",
            "the length asked for, or the longest that fits, needs all blocks of the pool",
        ),
        (
            "C-18",
            "a core is built whose scheduler counts in parts of a block, since the check forgets the ranks",
            "context parallelism, caching off, and a scheduler block that is one of the spec's, not one of all ranks",
        ),
    )
)
"""All that a question can show."""
