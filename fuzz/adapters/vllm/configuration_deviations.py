"""Where vLLM 0.23.0 is known to differ from the arithmetic of configurations: its rules in place of the chapter's.

`Reference0230` is the model with the rules replaced that the last section of the chapter marks, each by what the
release was seen to do. It must answer exactly what the release answers; `fired` tells which replaced rules mattered.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ....model import arith
from ....model.attention import CoreError, demand
from ....model.capacity import WorkerConfig
from ....model.grouping import LayerGroup
from ....model.layers import REGISTERED, Config, Kind, Layer, Layers
from ...targets.deviations import Deviation
from .reference_groups import ReferenceGroups


class Reference0230(ReferenceGroups):
    """What vLLM 0.23.0 answers."""

    def blocks_of(self, groups: Sequence[LayerGroup], memory: int) -> int:
        """A negative number, where all groups are uniform types and memory is negative."""
        wanted = super().blocks_of
        if any(group.spec.type != Kind.UNIFORM for group in groups):
            return wanted(groups, memory)
        return self.deviate("C-11", lambda: wanted(groups, memory), lambda: memory // self.bytes_per_block(groups))

    def has_mamba(self, groups: Sequence[LayerGroup]) -> bool:
        """A uniform type of Mamba does not count."""
        wanted = super().has_mamba
        return self.deviate(
            "C-12", lambda: wanted(groups), lambda: any(group.spec.type == Kind.MAMBA for group in groups)
        )

    def needed(self, config: Config, groups: Sequence[LayerGroup]) -> int:
        """Of several uniform types, a block is taken to cost the first one's page sizes times the most tuples."""
        wanted = super().needed
        if not groups or any(group.spec.type != Kind.UNIFORM for group in groups):
            return wanted(config, groups)
        if len(groups) == 1:  # the layers one by one; of a worker without layers, those of all others
            members = groups[0].spec.members
            name = "S-10" if groups[0].names else "C-10"
            plain = sum(self.memory(config, x) for x in members)
            return self.deviate(name, lambda: wanted(config, groups), lambda: plain)
        tuples = max(self.num_layer_tuples(group.spec) for group in groups)
        block = sum({self.page(x) for x in groups[0].spec.members}) * tuples
        blocks = sum(self.pages(config, group.spec) for group in groups)
        return self.deviate("C-08", lambda: wanted(config, groups), lambda: block * blocks)

    def concurrency(self, config: Config, groups: Sequence[LayerGroup], num_blocks: int) -> float:
        """The bytes that all groups need are counted in pages of the first one."""
        wanted, times = super().concurrency, self.times_as_released
        name = "C-08" if sum(self.pages(config, group.spec) for group in groups) else "C-16"
        return self.deviate(name, lambda: wanted(config, groups, num_blocks), lambda: times(config, groups, num_blocks))

    def times_as_released(self, config: Config, groups: Sequence[LayerGroup], num_blocks: int) -> float:
        """Blocks over the need of all groups, rounded up to pages of the first one."""
        demand(bool(groups), "ValueError")
        needed = sum(self.memory(config, group.spec) for group in groups)
        return num_blocks / arith.cdiv(needed, self.page(groups[0].spec))

    def longest(self, config: Config, need: Callable[[Config], int], available: int) -> int:
        """One token is tried first, even where the configured length is less."""
        wanted = super().longest
        name = "C-15" if config.max_model_len < 1 else "S-10"  # needs only fall where blocks hold no tokens
        return self.deviate(name, lambda: wanted(config, need, available), lambda: self.found(config, need, available))

    def found(self, config: Config, need: Callable[[Config], int], available: int) -> int:
        """The length at which the search ends."""
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

    def available(self, config: Config, groups: Sequence[LayerGroup], memory: int) -> int:
        """An override also divides by what a block costs, which is nothing without layers."""
        overridden = config.num_gpu_blocks_override is not None and groups
        demand(not overridden or self.bytes_per_block(groups) > 0, "ZeroDivisionError")
        return super().available(config, groups, memory)

    def worker_config(self, config: Config, groups: Sequence[LayerGroup], memory: int) -> WorkerConfig:
        """No layers are an error of one kind or the other, and what fits is computed even if it is overridden."""
        if groups and not any(group.names for group in groups):
            uniform = all(group.spec.type == Kind.UNIFORM for group in groups)
            raise CoreError("ZeroDivisionError" if uniform else "AssertionError")
        if groups:
            self.blocks_of(groups, memory)
        return super().worker_config(config, groups, memory)

    def scheduler_eagle(self, marks: Sequence[bool]) -> bool:
        """As on the first worker."""
        return self.deviate("C-09", lambda: any(marks), lambda: marks[0])

    def common_blocks(self, own: Sequence[int]) -> int:
        """Zero or less is no error."""
        wanted = super().common_blocks
        return self.deviate("C-11", lambda: wanted(own), lambda: min(own, default=1))

    def configs(
        self, config: Config, workers: Sequence[Layers], memory: Sequence[int]
    ) -> tuple[Config, list[WorkerConfig]]:
        """Workers are cut to the memory figures, those without layers are in the way, and the report may crash."""
        self.note("C-14", len(workers) != len(memory))
        self.note("C-10", any(workers) and not all(workers))
        layers = self.join(workers)
        demand(all(x.type in REGISTERED for x in layers.values()), "ValueError")
        groups = self.groups(config, layers)
        projected = [self.project(groups, worker) for worker in workers]
        pairs = [(part, self.available(config, part, bytes_)) for part, bytes_ in zip(projected, memory, strict=False)]
        fitting = config.original_max_model_len == -1 and bool(groups)
        demand(bool(pairs), "IndexError" if fitting else "ValueError")
        if groups:
            config = self.auto_fit(config, pairs)
            for part, available in pairs:
                self.check(available, partial(self.needed, config, part))
        told = []
        for worker, (part, available) in zip(workers, pairs, strict=False):
            demand(set(worker) <= {name for group in part for name in group.names})
            told.append(self.worker_config(config, part, available))
        common = self.common_blocks([worker.num_blocks for worker in told])
        told = [self.sized(worker.groups, common) for worker in told]
        for own in told if groups else []:
            self.concurrency(config, own.groups, own.num_blocks)
        return config, told

    def auto_fit(self, config: Config, workers: Sequence[tuple[Sequence[LayerGroup], int]]) -> Config:
        """The configured length stands where it fits, even if it is 0."""
        if config.original_max_model_len == -1 and config.max_model_len < 1:
            fits = [self.needed(config, groups) <= memory for groups, memory in workers]
            demand(not any(fits), "ValueError")
        return super().auto_fit(config, workers)

    def join(self, workers: Sequence[Layers]) -> Layers:
        """A window-MLA spec that leaves its value size out is another one than one that spells it out."""
        wanted, same = super().join, [{name: spelled_out(x) for name, x in worker.items()} for worker in workers]
        joined = self.deviate("S-19", lambda: len(wanted(same)), lambda: len(wanted(workers)))
        return wanted(workers) if joined else {}


def spelled_out(x: Layer) -> Layer:
    """With the value size that a window-MLA spec has by default."""
    return replace(x, head_size_v=x.head_size) if x.type == Kind.WINDOW_MLA and x.head_size_v is None else x


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
    )
)
"""All that a question can show."""
