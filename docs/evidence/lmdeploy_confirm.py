"""What blockproof found in LMDeploy 0.18.0, shown with LMDeploy's own scheduler and without blockproof.

    PYTHONPATH=FOLDER_WITH_LMDEPLOY python docs/evidence/lmdeploy_confirm.py

Needs the Python files of LMDeploy's wheel and what `fuzz/adapters/lmdeploy/requirements.txt` lists, and no GPU. Prints
a line for each defect. The exit status is 1 if one of them shows.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

PROMPT, ANSWER, QUESTION = list(range(1, 101)), list(range(1000, 1400)), list(range(2000, 2200))


def leave_out_init(name: str) -> None:
    """The package's own `__init__` imports an HTTP client and pipelines; the scheduler needs none of them."""
    spec = PathFinder.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{name} is not on the import path")
    package = ModuleType(name)
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules[name] = package


class Engine:
    """A scheduler, and the calls that LMDeploy's engine loop makes on it, without prefetching.

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


def decode_that_waited() -> str | None:
    """Two requests with one prompt, both answered alike, in blocks of 16 tokens with a `prefill_interval` of 32."""
    engine, start = Engine(14, 16, 32, enable_prefix_caching=True), 20
    both = [engine.submit(name, PROMPT[:start]) for name in (1, 2)]
    running = engine.prefill()
    for sequence in both:
        engine.forward(sequence)
    for _ in range(150):
        for sequence in running:
            engine.append(sequence, ANSWER[sequence.num_all_ids - start])
        kept = engine.decode(running)
        waits = next((sequence for sequence in running if sequence not in kept), None)
        tables = f"{engine.table(waits)} before it waited" if waits else ""
        running = kept + (engine.prefill() if waits else [])
        wrong = {sequence.session_id: engine.forward(sequence) for sequence in running}
        if waits and waits in running:
            story = f"request {waits.session_id}, with blocks {tables}, was admitted again with {engine.table(waits)}"
        if reader := next((name for name, positions in wrong.items() if positions), None):
            return f"{story}; request {reader} then reads wrong content at {wrong[reader]}"
    return None


def second_turn() -> str | None:
    """A session that is not ended gets its second message after another one has sent the same conversation, with
    LMDeploy's default sizes. AsyncEngine ends every session, so this takes the engine's own interface."""
    from lmdeploy.pytorch.messages import UpdateTokenMode

    engine = Engine(100, 64, 16, enable_prefix_caching=True)
    first = engine.submit(1, PROMPT)
    engine.prefill()
    engine.forward(first)
    for token in ANSWER[:10]:
        engine.append(first, token)
        engine.decode([first])
        engine.forward(first)
    engine.append(first, ANSWER[10])
    first.finish()
    before = engine.table(first)
    other = engine.submit(2, [*PROMPT, *ANSWER[:11], *QUESTION])
    engine.prefill()
    engine.forward(other)
    first.update_token_ids(QUESTION, mode=UpdateTokenMode.INPUTS)
    first.activate()
    engine.prefill()
    wrong = engine.forward(first)
    story = f"blocks {before} of the first turn became {engine.table(first)}"
    return f"{story}; it reads wrong content at {wrong[0]} .. {wrong[-1]}" if wrong else None


def long_interval() -> str | None:
    """A prompt within the longest session that LMDeploy allows, with a `prefill_interval` above the block size."""
    blocks, size = 10, 16
    engine = Engine(blocks, size, 32)
    longest = (blocks - 1) * size - size  # Engine._get_max_session_len
    sequence = engine.submit(1, list(range(longest - 1)))
    if engine.prefill():
        return None
    return f"a prompt of {sequence.num_all_ids} tokens, {longest} allowed, alone in the pool, is never admitted"


def window_in_a_small_pool() -> str | None:
    """With a window that the pool holds LMDeploy allows sessions of any length, and makes room for whole prompts."""
    blocks, size, window, chunk = 80, 64, 4096, 8192
    engine = Engine(blocks, size, 16, window_size=window, max_prefill_token_num=chunk)
    sequence = engine.submit(1, list(range(6000)))
    if engine.prefill():
        return None
    return f"a prompt of {sequence.num_all_ids} tokens in {(blocks - 1) * size}, window {window}, is never admitted"


def main() -> int:
    """Show them; 1 if any does."""
    leave_out_init("lmdeploy")
    shown = 0
    for case in (decode_that_waited, second_turn, long_interval, window_in_a_small_pool):
        said = case()
        shown += said is not None
        print(f"{case.__name__}: {said or 'does not show'}")
    return int(shown > 0)


if __name__ == "__main__":
    sys.exit(main())
