"""Random runs of LMDeploy 0.18.0's scheduler with recurrent states and their checkpoints, without blockproof.

    PYTHONPATH=FOLDER_WITH_LMDEPLOY:docs/evidence/findings python docs/evidence/lmdeploy_states.py [RUNS]

What a model would compute is remembered: for each slot of each block and for each state, the tokens up to there. Every
copy that LMDeploy asks for is made there. A step that reads anything else than its own prefix is wrong, and so is a
block or a state that is missing at the end. Sizes are drawn with `prefill_interval` up to the block size; with `--far`
up to twice as much, where `appended-behind-own-blocks` shows. The exit status is 1 if a run is wrong.
"""

import random
import sys
from collections import Counter
from typing import Any

from lmdeploy_without_device import Engine, leave_out_init


class WrongError(Exception):
    """A step reads what is not its prefix, or something is missing at the end."""


class States:
    """One run: an engine with a pool of states, and what blocks and states hold."""

    def __init__(self, draw: random.Random, *, far: bool) -> None:
        size = draw.choice((2, 4))
        ahead = draw.choice((1, size, 2 * size) if far else (1, size))
        self.slots, self.checkpoints = draw.choice((2, 3, 5)), draw.choice((1, 2, 4))
        self.chunk, self.every = draw.choice((3, 5, 8, 100)), draw.choice((0, size, 2 * size))
        self.blocks, self.draw = draw.choice((10, 16, 24)), draw
        self.engine = Engine(
            self.blocks,
            size,
            ahead,
            enable_prefix_caching=True,
            states_shapes=[((1,),)],
            num_state_caches=1 + self.slots + self.checkpoints,
            prefix_cache_state_budget=self.checkpoints,
            prefix_cache_decode_state_interval=self.every,
            max_prefill_token_num=self.chunk,
        )
        self.scheduler, self.kept = self.engine.scheduler, self.engine.scheduler.state_checkpoints
        self.longest = (self.blocks - 1) * size - max(size, ahead) - size  # one block less, for a frozen one
        self.families = [[draw.randrange(2) for _ in range(self.longest)] for _ in range(2)]
        self.states: dict[int, tuple[int, ...]] = {}
        self.running: list[Any] = []
        self.chunked: Any = None
        self.submitted = 0
        self.reached: Counter[str] = Counter()

    def step(self) -> None:
        """One turn of the engine loop: a chunk, a prefill or a decode; then some requests end."""
        draw = self.draw
        if self.scheduler.num_waiting() + len(self.running) < 5 and draw.random() < 0.5:
            self.submit()
        if self.chunked is not None:
            self.next_chunk()
        elif self.scheduler.has_waiting() and draw.random() < 0.5:
            self.prefill()
        elif self.running:
            self.decode()
        for sequence in list(self.running):
            if sequence.num_all_ids >= self.longest or draw.random() < 0.08:
                sequence.finish()
                self.scheduler.end_session(sequence.session_id)
                self.running.remove(sequence)
        if self.chunked is not None and draw.random() < 0.05:
            self.scheduler.end_session(self.chunked.session_id)
            self.chunked = None

    def submit(self) -> None:
        """A request with a part of a prefix that others have, too."""
        length = self.draw.randrange(1, self.longest - 2)
        shared = self.draw.randrange(length + 1)
        prompt = self.draw.choice(self.families)[:shared] + [self.draw.randrange(2) for _ in range(length - shared)]
        self.submitted += 1
        self.engine.submit(self.submitted, prompt)

    def prefill(self) -> None:
        """Admit what fits; a prompt that is too long for one step comes alone, with its first chunk."""
        admitted = self.engine.prefill()
        self.reached["hits"] += sum(sequence.num_history_ids > 0 for sequence in admitted)
        inside = (sequence.num_history_ids % self.engine.block_size > 0 for sequence in admitted)
        self.reached["hits inside a block"] += sum(inside)
        if admitted and admitted[0].kv_token_limit is not None:
            (self.chunked,) = admitted
            self.run_chunk(self.chunk)
        elif admitted:
            self.finish_prefill(admitted)

    def next_chunk(self) -> None:
        """The next chunk of a long prompt, if there is room (`_ForwardInputsTask._build_active_chunk`)."""
        sequence, last = self.chunked, self.chunked.num_token_ids <= self.chunk
        size, ahead = min(self.chunk, sequence.num_token_ids), self.engine.interval if last else 0
        if not self.scheduler.reserve_long_context_chunk(sequence, size, ahead, last):
            return
        if last:
            self.chunked = None
            self.finish_prefill([sequence])
        else:
            self.run_chunk(size)

    def run_chunk(self, size: int) -> None:
        """A chunk that is not the last."""
        sequence = self.chunked
        restore = self.kept.prepare_restore_batch([sequence])
        save = self.kept.reserve_prefill_save_batch([sequence], (sequence.num_history_ids + size,))
        self.dispatch([sequence], [size], restore, save)
        sequence.set_step(sequence.num_history_ids + size)

    def finish_prefill(self, batch: list[Any]) -> None:
        """A step up to the last known token of each."""
        restore = self.kept.prepare_restore_batch(batch)
        save = self.kept.reserve_prefill_save_batch(batch)
        self.dispatch(batch, [sequence.num_token_ids for sequence in batch], restore, save)
        self.running += batch
        self.sample(batch)

    def decode(self) -> None:
        """One token each, for those that have room."""
        kept = self.engine.decode(self.running)
        self.reached["preemptions"] += len(self.running) - len(kept)
        save = self.kept.reserve_decode_save_batch(kept, self.every) if self.every and kept else None
        self.running = kept
        if kept:
            self.dispatch(kept, [1] * len(kept), None, save)
            self.sample(kept)

    def sample(self, batch: list[Any]) -> None:
        """Each step has sampled a token."""
        for sequence in batch:
            self.engine.append(sequence, self.draw.randrange(2))

    def dispatch(self, batch: list[Any], sizes: list[int], restore: Any, save: Any) -> None:
        """Run a step with the copies before and behind it, then what the engine loop does after it."""
        if restore:
            self.copy(restore)
        for sequence, size in zip(batch, sizes, strict=True):
            self.forward(sequence, size)
        if save:
            self.copy(save)
            self.reached["checkpoints"] += len(save.state_pairs)
        self.kept.finish_forward_dispatch(batch, has_save_plan=bool(save and save.state_pairs))
        self.kept.unpin_saves(batch)

    def copy(self, plan: Any) -> None:
        """Blocks and states, each copied from what was there before."""
        import numpy as np

        memory, size = self.engine.memory, self.engine.block_size
        for pair in plan.kv_block_pairs:
            source, target = self.scheduler.resolve_gpu_block_offsets(np.array(pair)).tolist()
            for offset in range(size):
                memory[target, offset] = memory.get((source, offset), ())
        for source, target in plan.state_pairs:
            self.states[target] = self.states[source]

    def forward(self, sequence: Any, size: int) -> None:
        """Read everything before the step, and write what it computes."""
        name, done, width = sequence.session_id, sequence.num_history_ids, self.engine.block_size
        tokens = tuple(int(token) for token in sequence.history_cache[: done + size])
        if done and self.states.get(sequence.logical_state) != tokens[:done]:
            raise WrongError(f"request {name} goes on from another state at {done}")
        table = self.engine.table(sequence)
        for position in range(done + size):
            slot, prefix = (table[position // width], position % width), tokens[: position + 1]
            if position >= done:
                self.engine.memory[slot] = prefix
            elif self.engine.memory.get(slot) != prefix:
                raise WrongError(f"request {name} reads wrong content at {position}, block {slot[0]} of {table}")
        self.states[sequence.logical_state] = tokens

    def end(self) -> None:
        """All requests end and everything is evicted: nothing may be missing."""
        last = [*self.running, *self.scheduler.waiting, *([self.chunked] if self.chunked else [])]
        for sequence in last:
            self.scheduler.end_session(sequence.session_id)
        self.scheduler.block_trie.evict(self.blocks)
        self.kept.evict(self.checkpoints + self.slots)
        free = self.scheduler.block_manager.get_num_free_gpu_blocks(), self.scheduler.state_manager.get_num_free()
        if free != (self.blocks - 1, self.slots + self.checkpoints):
            raise WrongError(f"free blocks and states are {free} at the end")


def main(arguments: list[str]) -> int:
    """Run them; 1 if one is wrong."""
    leave_out_init("lmdeploy")
    far, reached, wrong = "--far" in arguments, Counter[str](), 0
    runs = next((int(argument) for argument in arguments if argument.isdigit()), 200)
    for seed in range(runs):
        run = States(random.Random(seed), far=far)
        try:
            for _ in range(150):
                run.step()
            run.end()
        except WrongError as error:
            wrong += 1
            print(f"seed {seed}: {error}")
        reached += run.reached
    print(f"{runs} runs of 150 steps, {wrong} wrong; {dict(reached)}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
