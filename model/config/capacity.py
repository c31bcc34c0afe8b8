"""Blocks and tensors for so much memory, the lengths that fit, and the configuration of all workers (§§11 to 13).

One block of every pool is the null block, which holds nothing: whatever is to fit has to fit beside it [C-17].
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, zip_longest
from math import inf

from ..attention import demand
from ..config_json import MANAGED, Config, Configured, LayerGroup, Layers, Slot, Spec, WorkerConfig
from ..pieces.parts import PieceRules
from .grouping import GroupingRules


class Rules(GroupingRules, PieceRules):
    """§§11 to 13, and with them all rules."""

    def slots(self, groups: Sequence[LayerGroup]) -> list[Slot]:
        """§11: memory behind one block id: a block is one group's, so all groups' i-th layers of a page share it."""
        columns: dict[tuple[int, str], list[list[str]]] = {}
        for i, group in enumerate(groups):
            members = dict(group.spec.kv_cache_specs)
            for name in group.names:
                own = self.page(members.get(name, group.spec)), name if len(groups) == 1 else ""
                columns.setdefault(own, [[] for _ in groups])[i].append(name)
        side_by_side = [(page, names) for (page, _), lists in columns.items() for names in zip_longest(*lists)]
        return [(page, tuple(name for name in names if name is not None)) for page, names in side_by_side]

    def bytes_per_block(self, groups: Sequence[LayerGroup]) -> int:
        """§11: B, the bytes that one block id costs on a worker."""
        return sum(page for page, _ in self.slots(groups))

    def num_blocks(self, config: Config, memory: int, block_bytes: int) -> int:
        """§11: blocks of so many bytes that fit, none in less than no memory (I1) [C-11]; or the override."""
        override = config.num_gpu_blocks_override
        return max(0, memory // block_bytes) if override is None else override

    def worker_config(self, config: Config, groups: Sequence[LayerGroup], memory: int) -> WorkerConfig:
        """§11: as many blocks as fit, or the override, and the tensors that hold them."""
        return self.sized(groups, self.num_blocks(config, memory, self.bytes_per_block(groups)) if groups else 1)

    def sized(self, groups: Sequence[LayerGroup], num_blocks: int) -> WorkerConfig:
        """§11: the tensors of so many blocks."""
        tensors = ((page * num_blocks, names) for page, names in self.slots(groups))
        return WorkerConfig(num_blocks, tuple(tensors), tuple(groups))

    def has_mamba(self, groups: Sequence[LayerGroup]) -> bool:
        """§5: True if a group is Mamba, or a uniform type of it; new blocks are zeroed then [C-12]."""
        return any(x.type == Spec.MAMBA for group in groups for x in [group.spec, *group.spec.members])

    def needed(self, config: Config, groups: Sequence[LayerGroup]) -> int:
        """§12: bytes for one request of the full length and the null block: B for each of its blocks [C-08, C-17]."""
        return self.bytes_per_block(groups) * (1 + sum(self.pages(config, group.spec) for group in groups))

    def plain_needed(self, config: Config, layers: Layers) -> int:
        """§12: the same without groups and padding (K-2); the null block takes a page of every layer [C-17]."""
        return sum(self.memory(config, x) + self.page(x) for x in layers.values())

    def longest(self, config: Config, need: Callable[[Config], int], available: int) -> int:
        """§12: the largest length up to the configured one whose need fits, 0 if none [C-15]; needs never fall (I8)."""
        lengths = range(1, config.max_model_len + 1)
        return bisect_right(lengths, available, key=lambda length: need(replace(config, max_model_len=length)))

    def concurrency(self, config: Config, groups: Sequence[LayerGroup], num_blocks: int) -> float:
        """§12: requests of the full length that fit at once, beside the null block [C-08, C-16, C-17]."""
        pages = sum(self.pages(config, group.spec) for group in groups)
        return max(0, num_blocks - 1) / pages if pages else inf

    def configs(self, config: Config, workers: Sequence[Layers], memory: Sequence[int]) -> Configured:
        """§13: the configuration of every worker, and the engine's, with the length that auto-fit found."""
        demand(len(workers) == len(memory) > 0, "ValueError")  # [C-14]
        layers: Layers = {}
        for name, x in chain.from_iterable(worker.items() for worker in workers):
            demand(layers.setdefault(name, x) == x)
        demand(all(x.type in MANAGED for x in layers.values()), "ValueError")
        groups, override = self.groups(config, layers), config.num_gpu_blocks_override
        parts = [self.project(groups, worker) for worker in workers]
        room = {i: memory[i] for i, worker in enumerate(workers) if worker}  # [C-10]
        if override is not None:
            room = {i: override * self.bytes_per_block(parts[i]) for i in room}
        if config.original_max_model_len == -1 and room:
            fits = [self.longest(config, partial(self.needed, groups=parts[i]), room[i]) for i in room]
            demand(min(fits) > 0, "ValueError")
            config = replace(config, max_model_len=min(fits))
        for i, available in room.items():
            demand(available > 0 and self.needed(config, parts[i]) <= available, "ValueError")
            demand(set(workers[i]) <= {name for group in parts[i] for name in group.names})
        own = [self.worker_config(config, parts[i], available).num_blocks for i, available in room.items()]
        return config, [self.sized(part, min(own, default=1)) for part in parts]  # at least 1, since the need fits

    def scheduler_config(self, workers: Sequence[WorkerConfig]) -> WorkerConfig:
        """§13: the first worker's, with one spec a group, and eagle's mark if any worker has it [C-09]."""
        demand(len({worker.num_blocks for worker in workers}) == 1)
        groups = []
        for same in zip(*(worker.groups for worker in workers), strict=True):
            spec = same[0].spec.members[0] if same[0].spec.type == Spec.UNIFORM else same[0].spec
            groups.append(LayerGroup(same[0].names, spec, any(group.eagle for group in same)))
        return WorkerConfig(workers[0].num_blocks, (), tuple(groups))
