"""Replays recorded traffic through one KV-cache core and counts tokens hit: what `hits.py` runs for each core.

`python hits_replay.py CORE`, with CORE `impl` or `vllm` (the release in this Python environment). Each line of stdin is
the arguments of one `replay`, as JSON, and is answered by a line with its counts. Needs the standard library and the
core only.
"""

import json
import random
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from blockproof.fuzz.adapters.impl import bind_impl
from blockproof.fuzz.adapters.vllm.binding import Binding, bind_vllm
from blockproof.model.ops import Group, Shape

TRACE_BLOCK = 512
"""Tokens that one entry of a trace's `hash_ids` stands for, where nothing else is said; with fewer, windows, chunks and
steps have fewer in proportion."""
MAX_LENGTH = 262_144
BUDGET = 8_192
"""Tokens of one step, of all requests together."""
RUNNING = 16
"""Most requests that run at once."""
DECODED = 64
"""Most tokens that a request generates between two calls of the core."""
WINDOW, CHUNK, DRAFTS = 1_024, 8_192, 3


@dataclass(frozen=True)
class Layout:
    """The groups of a model; each has blocks of the same size."""

    groups: tuple[Group, ...]
    eagle: bool = False
    drafts: int = 0
    """Tokens that each step guesses behind the last known one; each is accepted by the throw of a die."""

    def shape(self, block: int, blocks: int) -> Shape:
        """The core with blocks of so many tokens, so many of them besides the null block."""
        return Shape(
            groups=self.groups,
            num_blocks=blocks + 1,
            max_model_len=MAX_LENGTH,
            hash_block_size=block,
            scheduler_block_size=block,
            max_num_batched_tokens=BUDGET,
            eagle=self.eagle,
        )


def layouts(block: int, unit: int = TRACE_BLOCK) -> dict[str, Layout]:
    """What is measured, by name."""
    full, sliding = Group("full", block), Group("sliding", block, window=WINDOW * unit // TRACE_BLOCK)
    chunked = Group("chunked", block, chunk=CHUNK * unit // TRACE_BLOCK)
    states = Group("mamba", block, mamba_mode="align", speculative_blocks=DRAFTS)
    plain_states = Group("mamba", block, mamba_mode="align")
    return {
        "full": Layout((full,)),
        "full + sliding": Layout((full, sliding)),
        "full + chunked": Layout((full, chunked)),
        "full + Mamba": Layout((full, plain_states)),
        "full + Mamba, eagle": Layout((full, states), eagle=True),
        "full, eagle": Layout((full,), eagle=True),
        "full + sliding, eagle": Layout((full, sliding), eagle=True),
        "full + chunked, eagle": Layout((full, chunked), eagle=True),
        "full + Mamba, drafts": Layout((full, states), drafts=DRAFTS),
    }


@dataclass
class Counts:
    """What a replay came to."""

    requests: int = 0
    """Requests let in."""
    asked: int = 0
    """Tokens of their prompts."""
    hit: int = 0
    """Tokens of these that were found, and can be read."""
    unsafe: int = 0
    """Tokens that the core counts as found although a block that is read is not there."""
    preempted: int = 0
    steps: int = 0
    refused: int = 0
    """Times that the first request in the line found no room."""
    raises: str = ""
    """The exception that ended the replay, and the call that raised it."""
    seconds: float = 0.0


class Request:
    """What a core reads of a request: lengths and the names of its blocks; nothing else is asked without events."""

    skip_reading_prefix_cache = False
    lora_request = None
    cache_salt = None
    prompt_embeds = None
    mm_features = ()
    num_in_flight_tokens = 0

    def __init__(self, number: int, prompt: int, output: int, names: Iterator[bytes], block: int) -> None:
        self.number, self.request_id = number, str(number)
        self.num_prompt_tokens = self.num_tokens = prompt
        self.last = prompt + output
        """Tokens at its end."""
        self.block = block
        self.block_hashes = list(names)
        self.num_computed_tokens = self.num_preemptions = 0
        self.is_counted = False

    def grow(self, tokens: int) -> None:
        """So many tokens are generated; nobody else's are named like them."""
        self.num_tokens += tokens
        for index in range(len(self.block_hashes), self.num_tokens // self.block):
            self.block_hashes.append(b"out%9d%9d" % (self.number, index))


def read_trace(path: str, most: int, block: int, unit: int = TRACE_BLOCK) -> Iterator[Request]:
    """The first requests of a trace, with blocks of so many tokens. Equal `hash_ids` behind equal ones are equal
    content."""
    chains: dict[tuple[int, int], int] = {}
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if number == most:
                return
            row = json.loads(line)
            length = row["input_length"] * unit // TRACE_BLOCK
            prompt = min(max(length, 1), MAX_LENGTH - row["output_length"] - DRAFTS)
            names = _names(row["hash_ids"], prompt, (block, unit), chains)
            yield Request(number, prompt, max(row["output_length"], 1), names, block)


def _names(
    ids: Sequence[int], prompt: int, sizes: tuple[int, int], chains: dict[tuple[int, int], int]
) -> Iterator[bytes]:
    """A name for each whole block of the prompt: its place in the last block of the trace that it lies in."""
    chain, (block, unit) = 0, sizes
    for index, content in enumerate(ids):
        chain = chains.setdefault((chain, content), len(chains) + 1)
        end = min(unit, prompt - index * unit)
        for place in range(end // block):
            yield b"%12d%6d" % (chain, place)


class Scheduler:
    """Lets requests in in the order of their arrival, and gives each of them in turn a part of every step.

    As the scheduler of vLLM does it: those that run come first; a prompt is computed in pieces; one that gets no room
    takes it from the request let in last, which starts again later; nobody is let in unless the prompt fits.
    """

    def __init__(
        self, manager: Any, layout: Layout, block: int, arriving: Iterator[Request], most: int = BUDGET
    ) -> None:
        self.manager, self.layout, self.block, self.most = manager, layout, block, most
        self.arriving = arriving
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.counts = Counts()
        self.dice = random.Random(1)
        self.states = any(group.kind == "mamba" for group in layout.groups)
        self.lookahead = DRAFTS if layout.eagle else 0

    def run(self) -> Counts:
        """Serve all requests. What the core raises ends it, and is in the counts."""
        idle = 0
        try:
            while self._refill() or self.running:
                self.manager.new_step_starts()
                self.counts.steps += 1
                preempted = self.counts.preempted
                self.budget = self.most
                moved = self._continue()
                if preempted == self.counts.preempted:
                    moved = self._admit() or moved
                idle = 0 if moved else idle + 1
                if idle > RUNNING:
                    raise SystemExit("no request can go on: the pool is smaller than one of them")
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1].name
            self.counts.raises = f"{type(error).__name__} in {place}"
        return self.counts

    def _refill(self) -> bool:
        """Is anybody waiting? The next request arrives as soon as nobody is."""
        if not self.waiting and (following := next(self.arriving, None)) is not None:
            self.waiting.append(following)
        return bool(self.waiting)

    def _continue(self) -> bool:
        """A piece of each running request; True if any got one."""
        moved = False
        for request in list(self.running):
            while request in self.running and (tokens := self._piece(request, request.num_computed_tokens)):
                if self.manager.allocate_slots(request, tokens, num_lookahead_tokens=self.lookahead) is not None:
                    moved = True
                    self._computed(request, tokens)
                    break
                self._preempt(self.running[-1])
        return moved

    def _admit(self) -> bool:
        """Let requests in while there is room; True if any was let in."""
        moved = False
        while len(self.running) < RUNNING and self.budget > 0 and self._refill():
            request = self.waiting[0]
            found, tokens_hit = self.manager.get_computed_blocks(request)
            tokens = self._piece(request, tokens_hit)
            if not tokens:
                break
            room = self.manager.allocate_slots(
                request,
                tokens,
                num_new_computed_tokens=tokens_hit,
                new_computed_blocks=found,
                num_lookahead_tokens=self.lookahead,
                full_sequence_must_fit=True,
            )
            if room is None:
                self.counts.refused += 1
                break
            self.waiting.popleft()
            self._count(request, found, tokens_hit)
            request.num_computed_tokens = tokens_hit
            self.running.append(request)
            self._computed(request, tokens)
            moved = True
        return moved

    def _piece(self, request: Request, computed: int) -> int:
        """How many tokens of the request are computed next. With states, a piece of a prompt ends at a block's end,
        one of them where the next turn of a conversation can hit."""
        decodes = computed == request.num_tokens - 1 >= request.num_prompt_tokens
        drafts = min(self.layout.drafts, request.last - request.num_tokens) if decodes else 0
        tokens = min(request.num_tokens + drafts - computed, self.budget)
        if not self.states or computed >= max(request.num_prompt_tokens, request.num_tokens - 1):
            return tokens
        last = request.num_tokens // self.block * self.block
        if self.layout.eagle:
            last = max(last - self.block, 0)
        if computed + tokens < last:
            return tokens // self.block * self.block
        return last - computed if computed < last < computed + tokens else tokens

    def _computed(self, request: Request, tokens: int) -> None:
        """A piece has run: the request goes on with tokens that it generates, or is finished."""
        self.budget -= tokens
        request.num_computed_tokens += tokens
        if request.num_computed_tokens < request.num_tokens:
            return
        if self.layout.drafts:
            self._judge_drafts(request)
        if request.num_tokens == request.last:
            self.running.remove(request)
            self.manager.free(request)
            return
        step = 1 if self.layout.drafts else min(DECODED, self.block) if self.states else DECODED
        request.grow(min(step - request.num_tokens % step, request.last - request.num_tokens))

    def _judge_drafts(self, request: Request) -> None:
        """The first wrong draft ends those that are kept; the others are taken back."""
        drafts = request.num_computed_tokens - request.num_tokens
        kept = next((at for at in range(drafts) if self.dice.random() < 0.4), drafts)
        request.grow(kept)
        request.num_computed_tokens = request.num_tokens

    def _preempt(self, request: Request) -> None:
        self.running.remove(request)
        self.manager.free(request)
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self.counts.preempted += 1
        self.waiting.appendleft(request)

    def _count(self, request: Request, found: Any, tokens_hit: int) -> None:
        """The first time that a request is let in counts."""
        if request.is_counted:
            return
        request.is_counted = True
        self.counts.requests += 1
        self.counts.asked += request.num_prompt_tokens
        if can_be_read(self.layout, request, found, tokens_hit):
            self.counts.hit += tokens_hit
        else:
            self.counts.unsafe += tokens_hit


def can_be_read(layout: Layout, request: Request, found: Any, tokens_hit: int) -> bool:
    """Is every block there, under the request's own name, that the query behind the hit reads?"""
    for number, (group, blocks) in enumerate(zip(layout.groups, found.blocks, strict=True)):
        suffix = number.to_bytes(4, "big")
        first = _first_read(group, tokens_hit) if tokens_hit else 0
        for index in range(first // request.block, tokens_hit // request.block):
            if index >= len(blocks) or blocks[index].block_hash != request.block_hashes[index] + suffix:
                return False
    return True


def _first_read(group: Group, position: int) -> int:
    """The first token that a query at this position reads."""
    if group.kind == "sliding":
        return max(0, position - group.window + 1)
    if group.kind == "chunked":
        return position // group.chunk * group.chunk
    return position - 1 if group.kind == "mamba" else 0


def replay(binding: Binding, path: str, most: int, name: str, block: int, pool: int, unit: int = TRACE_BLOCK) -> Counts:
    """Replay the first requests of a trace, with `unit` tokens an entry, through a core with a pool of so many."""
    layout = layouts(block, unit)[name]
    manager = binding.manager(layout.shape(block, pool // block))
    begin = time.process_time()
    arriving, budget = read_trace(path, most, block, unit), BUDGET * unit // TRACE_BLOCK
    counts = Scheduler(manager, layout, block, arriving, budget).run()
    counts.seconds = round(time.process_time() - begin, 1)
    return counts


def main() -> None:
    binding = bind_impl() if sys.argv[1] == "impl" else bind_vllm()
    for line in sys.stdin:
        print(json.dumps(asdict(replay(binding, *json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
