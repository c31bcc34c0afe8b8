"""A request reads another request's keys and values: sliding windows, asynchronous scheduling and rejected drafts.

Full attention and a window of 20 tokens, an Eagle head of 3 draft tokens, and a pool too small for all requests.
While a step runs, the next one is scheduled as if all drafts were right. Blocks behind the window of that position are
freed, and go to another request in the same step; then the drafts are rejected, and the window begins earlier.

The stand-in for the workers keeps what was written to each slot of the window's blocks, and looks at what is read.
"""

from concurrent.futures import Future
from typing import Any

from engine_without_device import NoDevice, answered, group, layer, main, run, start, submit

WINDOW, BLOCK = 20, 16


class Later(Future):  # type: ignore[type-arg]
    """An answer that is not there before somebody waits for it."""

    def done(self) -> bool:
        """Still running."""
        return False


class Ahead(NoDevice):
    """Computes a step while the next one is scheduled, and rejects all drafts.

    `group`: the group of the window; `wrong`: a line for each read of a token that is not there any more.
    """

    max_concurrent_batches = 2
    group: int

    @classmethod
    def supports_async_scheduling(cls) -> bool:
        """As GPU workers do."""
        return True

    def _init_executor(self) -> None:
        super()._init_executor()
        self.computed: dict[str, int] = {}
        self.blocks: dict[str, list[int]] = {}
        self.slots: dict[tuple[int, int], tuple[str, int]] = {}
        self.wrong: list[str] = []

    def receive(self, output: Any) -> None:
        """Learn of requests that begin or begin again, and of new blocks."""
        cached = output.scheduled_cached_reqs
        begun = [(new.req_id, new.block_ids, new.num_computed_tokens) for new in output.scheduled_new_reqs]
        self.known |= {new.req_id: len(new.prompt_token_ids) for new in output.scheduled_new_reqs}
        for name, blocks, computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            if name in cached.resumed_req_ids:
                self.known[name] = len(cached.all_token_ids[name])
                begun.append((name, blocks, computed))
            elif blocks is not None:
                self.blocks[name] += blocks[self.group]
        self.computed |= {name: computed for name, _, computed in begun}
        self.blocks |= {name: list(blocks[self.group]) for name, blocks, _ in begun}

    def slot(self, name: str, position: int) -> tuple[int, int]:
        """Where a token of the request is."""
        return self.blocks[name][position // BLOCK], position % BLOCK

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """All tokens of the step are written, then those before each right one are read."""
        self.steps.append(scheduler_output)
        self.receive(scheduler_output)
        drafts, right, sampled = scheduler_output.scheduled_spec_decode_tokens, {}, []
        for name, tokens in scheduler_output.num_scheduled_tokens.items():
            end = self.computed[name] + tokens
            right[name] = end - len(drafts.get(name, ()))
            for position in range(self.computed[name], end):
                self.slots[self.slot(name, position)] = (name if position < right[name] else "a wrong draft", position)
        for name, end in right.items():
            for position in range(max(0, self.computed[name] - WINDOW + 1), end):
                place = self.slot(name, position)
                if (found := self.slots.get(place)) != (name, position):
                    who, where = found or ("nobody", 0)
                    self.wrong.append(f"{name} reads its token {position} in block {place[0]}: {who}'s token {where}")
            self.computed[name] = end
            ends = end >= self.known[name]
            self.known[name] += ends
            sampled.append([7] if ends else [])
        self.answer = Later()
        self.answer.set_result(answered(right, sampled))
        return self.answer

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        """The answer of the last step."""
        return self.answer


def wrong(blocks: int, drafts: int) -> list[str]:
    """What is read wrongly in a pool of so many blocks, by twelve requests."""
    engine = start(
        {"full": layer("FullAttentionSpec"), "window": layer("SlidingWindowSpec", sliding_window=WINDOW)},
        blocks=blocks,
        length=256,
        batch=64,
        drafts=drafts,
        scheduling={"async_scheduling": True},
        device=Ahead,
    )
    if engine.batch_queue is None:
        raise NotImplementedError("steps do not overlap in this engine")
    engine.model_executor.group = group(engine, "SlidingWindowSpec")
    for index in range(12):
        submit(engine, f"r{index}", range(1000 * index, 1000 * index + 20 + 12 * index % 80), answer=96)
    run(engine)
    return list(engine.model_executor.wrong)


def case() -> tuple[str, str, bool]:
    """With an Eagle head, and without drafts, where nothing is rejected."""
    with_drafts = {blocks: wrong(blocks, 3) for blocks in (34, 46, 54)}
    without = {blocks: wrong(blocks, 0) for blocks in (34, 54)}
    lines = [line for lines in with_drafts.values() for line in lines]
    counts = ", ".join(f"{len(lines)} in a pool of {blocks}" for blocks, lines in with_drafts.items())
    return (
        "every request reads what was computed for it",
        f"reads of another content: {counts}; without drafts {sum(map(len, without.values()))}"
        + (f"; the first: {lines[0]}" if lines else ""),
        bool(lines),
    )


main(case)
