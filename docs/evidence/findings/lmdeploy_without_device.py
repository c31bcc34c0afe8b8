"""LMDeploy's scheduler without a device: no GPU, and of LMDeploy its Python files and what these import."""

import sys
from collections.abc import Sequence
from functools import partial
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

from verdict import tell


def leave_out_init(name: str) -> None:
    """The package's own `__init__` imports an HTTP client and pipelines; the scheduler needs none of them."""
    spec = PathFinder.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"{name} is not on the import path")
    package = ModuleType(name)
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules[name] = package


class Engine:
    """A scheduler, and the calls that the engine loop makes on it, without prefetching.

    In place of a model there is a memory: what each slot of each block holds, as the tokens up to there. A step writes
    its tokens and reads all before them.
    """

    def __init__(self, blocks: int, block_size: int, interval: int, **cache: Any) -> None:
        from lmdeploy.pytorch.config import CacheConfig, SchedulerConfig
        from lmdeploy.pytorch.messages import SequenceMeta
        from lmdeploy.pytorch.paging.scheduler import Scheduler
        from lmdeploy.pytorch.strategies.ar.sequence import ARSequenceStrategy

        self.interval, self.block_size = interval, block_size
        self.scheduler = Scheduler(
            SchedulerConfig(max_batches=8, max_session_len=(blocks - 2) * block_size, prefill_interval=interval),
            CacheConfig(
                max_batches=8,
                block_size=block_size,
                num_cpu_blocks=0,
                num_gpu_blocks=blocks,
                num_reserved_gpu_blocks=1,
                **cache,
            ),
            SequenceMeta(block_size, strategy=ARSequenceStrategy()),
        )
        self.memory: dict[tuple[int, int], tuple[int, ...]] = {}

    def submit(self, name: int, tokens: Sequence[int]) -> Any:
        """A session with one message (`Engine._add_message`)."""
        from lmdeploy.pytorch.messages import SamplingParam

        return self.scheduler.add_session(name).add_sequence(
            list(tokens), sampling_param=SamplingParam(max_new_tokens=512)
        )

    def prefill(self) -> list[Any]:
        """Admit what waits (`_ForwardInputsTask._schedule_prefill`)."""
        output = self.scheduler.schedule(is_prefill=True, prealloc_size=self.interval)
        self.scheduler.activate_seqs(output.running)
        return list(output.running)

    def decode(self, running: list[Any]) -> list[Any]:
        """Make room for one token each (`create_model_inputs_delta`); those without room wait again."""
        valid = self.scheduler.schedule_running(running, num_required_tokens=1, prealloc_size=self.interval)
        return [sequence for sequence, fits in zip(running, valid, strict=True) if fits]

    def table(self, sequence: Any) -> list[int]:
        """Its blocks, by position."""
        return [int(block) for block in self.scheduler.block_manager.get_block_table(sequence)]

    def forward(self, sequence: Any) -> list[int]:
        """The positions at which the step reads something else than the tokens of this sequence."""
        table, wrong = self.table(sequence), []
        for position in range(sequence.num_all_ids):
            slot = table[position // self.block_size], position % self.block_size
            prefix = tuple(int(token) for token in sequence.history_cache[: position + 1])
            if position >= sequence.num_history_ids:
                self.memory[slot] = prefix
            elif self.memory.get(slot) != prefix:
                wrong.append(position)
        return wrong

    def append(self, sequence: Any, token: int) -> None:
        """The step has sampled this token."""
        from lmdeploy.pytorch.messages import UpdateTokenMode

        sequence.update_token_ids([token], mode=UpdateTokenMode.DECODE)


def started() -> str:
    """Makes LMDeploy ready to be imported; its name and release."""
    leave_out_init("lmdeploy")
    from lmdeploy.version import __version__ as release

    return f"LMDeploy {release}"


main = partial(tell, started)
"""Tells what a case expects, what happens, and whether the defect shows, with or without a fix; see `tell`."""
