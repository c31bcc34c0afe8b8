"""Blocks and tensors for so much memory, the lengths that fit, and the configuration of all workers.

Chapter "Specs and configuration arithmetic", §§11 to 13. One block is reserved as the null block and yet counted
everywhere here (K-1): what is guaranteed holds for `num_blocks - 1` usable blocks.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import TypeAlias

from . import arith
from .attention import demand
from .grouping import GroupingRules, LayerGroup
from .layers import REGISTERED, Config, Kind, Layers

Slot: TypeAlias = tuple[int, tuple[str, ...]]  # bytes, and the layers that share them


@dataclass(frozen=True)
class WorkerConfig:
    """The configuration of one worker, or of the scheduler, which has no tensors."""

    num_blocks: int
    tensors: tuple[Slot, ...]
    groups: tuple[LayerGroup, ...]


class CapacityRules(GroupingRules):
    """§§11 to 13."""

    def slots(self, groups: Sequence[LayerGroup]) -> list[Slot]:
        """§11: the memory behind one block id of a worker."""
        if len(groups) == 1 and groups[0].spec.type == Kind.UNIFORM:
            return [(self.page(x), (name,)) for name, x in groups[0].spec.kv_cache_specs]
        if all(group.spec.type == Kind.UNIFORM for group in groups):
            return [(page, names) for page, bucket in self.buckets(groups).items() for names in bucket]
        page = self.page(groups[0].spec)
        demand(all(self.page(group.spec) == page for group in groups))
        return [(page, names) for names in side_by_side([group.names for group in groups])]

    def buckets(self, groups: Sequence[LayerGroup]) -> Mapping[int, list[tuple[str, ...]]]:
        """§11: page size -> slots, each shared by the i-th layer of this page size of every group."""
        columns: dict[int, list[list[str]]] = {}
        for i, group in enumerate(groups):
            members = dict(group.spec.kv_cache_specs)
            for name in group.names:
                columns.setdefault(self.page(members[name]), [[] for _ in groups])[i].append(name)
        return {page: side_by_side(lists) for page, lists in columns.items()}

    def bytes_per_block(self, groups: Sequence[LayerGroup]) -> int:
        """§11: B, the bytes that one block id costs on a worker."""
        return sum(page for page, _ in self.slots(groups))

    def num_blocks(self, config: Config, num_layers: int, memory: int, page: int) -> int:
        """§11: blocks of each of so many layers that share the memory, or the override."""
        override = config.num_gpu_blocks_override
        return arith.blocks_per_layer(memory, page, num_layers) if override is None else override

    def blocks_of(self, groups: Sequence[LayerGroup], memory: int) -> int:
        """§11: blocks that fit [C-11]."""
        return arith.blocks_that_fit(memory, self.bytes_per_block(groups))

    def worker_config(self, config: Config, groups: Sequence[LayerGroup], memory: int) -> WorkerConfig:
        """§11: as many blocks as fit, or the override, and the tensors that hold them."""
        if not groups:
            return WorkerConfig(1, (), ())
        override = config.num_gpu_blocks_override
        return self.sized(groups, self.blocks_of(groups, memory) if override is None else override)

    def sized(self, groups: Sequence[LayerGroup], num_blocks: int) -> WorkerConfig:
        """§11: the tensors of so many blocks."""
        tensors = tuple((page * num_blocks, names) for page, names in self.slots(groups))
        return WorkerConfig(num_blocks, tensors, tuple(groups))

    def has_mamba(self, groups: Sequence[LayerGroup]) -> bool:
        """§5: True if a group is Mamba, or a uniform type of it; new blocks are zeroed then [C-12]."""
        return any(x.type == Kind.MAMBA for group in groups for x in [group.spec, *group.spec.members])

    def needed(self, config: Config, groups: Sequence[LayerGroup]) -> int:
        """§12: bytes of one request of the full length: B for each of its blocks [C-08]."""
        return self.bytes_per_block(groups) * sum(self.pages(config, group.spec) for group in groups)

    def plain_sum(self, config: Config, layers: Layers) -> int:
        """§12: the same without groups and padding (K-2)."""
        return sum(self.memory(config, x) for x in layers.values())

    def check(self, available: int, need: Callable[[], int]) -> None:
        """§12: CoreError unless there is memory, and enough for a request of the full length."""
        demand(available > 0, "ValueError")
        demand(need() <= available, "ValueError")

    def longest(self, config: Config, need: Callable[[Config], int], available: int) -> int:
        """§12: the largest length up to the configured one whose need fits, 0 if none [C-15]; needs never fall (I8)."""
        lengths = range(1, config.max_model_len + 1)
        return bisect_right(lengths, available, key=lambda length: need(replace(config, max_model_len=length)))

    def longest_of(self, config: Config, groups: Sequence[LayerGroup], available: int) -> int:
        """§12: the largest length that fits so many bytes."""
        return self.longest(config, lambda shorter: self.needed(shorter, groups), available)

    def concurrency(self, config: Config, groups: Sequence[LayerGroup], num_blocks: int) -> float:
        """§12: requests of the full length that fit at once [C-08, C-16]."""
        pages = sum(self.pages(config, group.spec) for group in groups)
        return num_blocks / pages if pages else inf

    def configs(
        self, config: Config, workers: Sequence[Layers], memory: Sequence[int]
    ) -> tuple[Config, list[WorkerConfig]]:
        """§13: the configuration of every worker, and the engine's, with the length that auto-fit found."""
        demand(len(workers) == len(memory) > 0, "ValueError")  # [C-14]
        layers = self.join(workers)
        demand(all(x.type in REGISTERED for x in layers.values()), "ValueError")
        groups = self.groups(config, layers)
        projected = [self.project(groups, worker) for worker in workers]
        working = [i for i, worker in enumerate(workers) if worker]  # [C-10]
        busy = {i: self.available(config, projected[i], memory[i]) for i in working}
        config = self.auto_fit(config, [(projected[i], available) for i, available in busy.items()])
        for i, available in busy.items():
            self.check(available, partial(self.needed, config, projected[i]))
            demand(set(workers[i]) <= {name for group in projected[i] for name in group.names})
        own = [self.worker_config(config, projected[i], available).num_blocks for i, available in busy.items()]
        common = self.common_blocks(own)
        return config, [self.equalized(*pair, common) for pair in zip(workers, projected, strict=True)]

    def common_blocks(self, own: Sequence[int]) -> int:
        """§13, steps 7 and 8: the least that a worker has, 1 without layers [C-11]."""
        demand(min(own, default=1) >= 1, "ValueError")
        return min(own, default=1)

    def join(self, workers: Sequence[Layers]) -> Layers:
        """§13, step 1."""
        joined: Layers = {}
        for worker in workers:
            demand(all(joined.setdefault(name, x) == x for name, x in worker.items()))
        return joined

    def available(self, config: Config, groups: Sequence[LayerGroup], memory: int) -> int:
        """§13, step 4: an override counts as exactly the memory it takes."""
        override = config.num_gpu_blocks_override
        return memory if override is None else override * self.bytes_per_block(groups)

    def auto_fit(self, config: Config, workers: Sequence[tuple[Sequence[LayerGroup], int]]) -> Config:
        """§13, step 5: the largest length that fits every worker, where it is asked for."""
        if config.original_max_model_len != -1 or not workers:
            return config
        fits = min(self.longest_of(config, groups, memory) for groups, memory in workers)
        demand(fits > 0, "ValueError")
        return replace(config, max_model_len=fits)

    def equalized(self, layers: Layers, groups: Sequence[LayerGroup], num_blocks: int) -> WorkerConfig:
        """§13, step 8: the common number of blocks; no tensors where there are no layers."""
        return self.sized(groups, num_blocks) if layers else WorkerConfig(num_blocks, (), tuple(groups))

    def scheduler_config(self, workers: Sequence[WorkerConfig]) -> WorkerConfig:
        """§13: the first worker's, with one spec a group, and eagle's mark if any worker has it [C-09]."""
        demand(len({worker.num_blocks for worker in workers}) == 1)
        groups = []
        for same in zip(*(worker.groups for worker in workers), strict=True):
            spec = same[0].spec.members[0] if same[0].spec.type == Kind.UNIFORM else same[0].spec
            groups.append(LayerGroup(same[0].names, spec, self.scheduler_eagle([group.eagle for group in same])))
        return WorkerConfig(workers[0].num_blocks, (), tuple(groups))

    def scheduler_eagle(self, marks: Sequence[bool]) -> bool:
        """§13: True if the group is marked as eagle's on some worker [C-09]."""
        return any(marks)


def side_by_side(lists: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """§11: the i-th elements of all lists that have one, for every i."""
    return [tuple(names[i] for names in lists if i < len(names)) for i in range(max(map(len, lists), default=0))]
