"""Two requests decode into one cached block: one that had to wait comes back with the other's block behind its own.

LMDeploy's PyTorch engine with prefix caching, blocks of 16 tokens and a `prefill_interval` of 32. Two requests have one
prompt and one answer. When the pool is full, one of them waits, and keeps its blocks; when it is admitted again, the
prefix trie is matched from where its cursor stood, and what is found is appended behind the blocks that it has.

Needs the Python files of LMDeploy and what these import; no GPU.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

PROMPT, ANSWER = list(range(1, 21)), list(range(1000, 1400))


def leave_out_init(name: str) -> None:
    """The package's own `__init__` imports an HTTP client and pipelines; the scheduler needs none of them."""
    spec = PathFinder.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{name} is not on the import path")
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


def case() -> tuple[str, str, bool]:
    """Two requests with one prompt, both answered alike."""
    engine, start = Engine(14, 16, 32, enable_prefix_caching=True), len(PROMPT)
    both = [engine.submit(name, PROMPT) for name in (1, 2)]
    running = engine.prefill()
    for sequence in both:
        engine.forward(sequence)
    expected, story = "each request reads what was computed for it", ""
    for _ in range(150):
        for sequence in running:
            engine.append(sequence, ANSWER[sequence.num_all_ids - start])
        kept = engine.decode(running)
        waits = next((sequence for sequence in running if sequence not in kept), None)
        before = engine.table(waits) if waits else []
        running = kept + (engine.prefill() if waits else [])
        wrong = {sequence.session_id: engine.forward(sequence) for sequence in running}
        if waits and waits in running:
            story = f"request {waits.session_id} waited with blocks {before} and came back with {engine.table(waits)}"
        if reader := next((name for name, positions in wrong.items() if positions), None):
            return expected, f"{story}; request {reader} reads another content at positions {wrong[reader]}", True
    return expected, story or "no request had to wait", False


def main() -> None:
    """Tells what is expected, what happens, and whether the defect shows."""
    try:
        leave_out_init("lmdeploy")
        from lmdeploy.version import __version__ as release

        print(f"LMDeploy {release}", flush=True)
        expected, happened, shows = case()
    except (Exception, SystemExit) as error:
        print(f"could not be tried: {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
        sys.exit(3)
    print(f"expected: {expected}\nhappened: {happened}")
    print("the defect shows" if shows else "the defect does not show", flush=True)
    sys.exit(int(shows))


main()
