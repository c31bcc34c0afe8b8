"""Attention over paged memory against attention over memory that was never paged, under random traffic; and its speed.

python benchmarks/device_attention.py [--device cuda] [--kernels triton] [--comparisons N] [--seed S] [--faults]

Requests come with prefixes that others have, are decoded, preempted, and end; the pool is small, so that blocks are
evicted; one group reads everything, one a window. A request whose prefix ends inside a block that another one holds
gets a copy of it. All go through our core, our tables, slots, views and copies. A token's keys and values depend on
all tokens up to it; kept in the order of the request, they are what is compared with, in 64 bits.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from blockproof import impl
from blockproof.impl.tensors.paged_attention import attention
from blockproof.impl.tensors.torch_kernels import FULL

BLOCK, WINDOW, BLOCKS, LONGEST, ROWS = 4, 10, 40, 60, 8
HEADS, QUERY_HEADS, WIDTH = 2, 4, 16
BANK = 1 << 14
"""Different keys and values; more prefixes share them."""


@dataclass
class Running:
    """A request: its tokens, and the number of each prefix."""

    request: Any
    contents: list[int]
    ends_at: int
    row: int = -1
    known: list[list[int]] = field(default_factory=lambda: [[], []])
    """Its block ids in each group, as the tables have them."""


@dataclass
class Scheduled:
    """Tokens of a step."""

    running: Running
    start: int
    length: int


class Traffic:
    """Requests served by our core, and what their attention computes."""

    def __init__(self, seed: int, device: str, kernels: str) -> None:
        self.draw = Random(seed)
        self.device = torch.device(device)
        self.kernels = kernels
        sizes: dict[str, Any] = {"block_size": BLOCK, "num_kv_heads": HEADS, "head_size": WIDTH}
        sizes["dtype"] = np.dtype(np.float32)
        specs = [impl.FullAttentionSpec(**sizes), impl.SlidingWindowSpec(**sizes, sliding_window=WINDOW)]
        groups = [impl.KVCacheGroupSpec([str(group)], spec) for group, spec in enumerate(specs)]
        size = BLOCKS * specs[0].page_size_bytes
        self.config = impl.KVCacheConfig(BLOCKS, [impl.KVCacheTensor(size, ["0", "1"])], groups)
        impl.init_none_hash(impl.sha256)
        self.hasher: Any = impl.get_request_block_hasher(BLOCK, impl.sha256)
        self.manager = impl.KVCacheManager(
            self.config, max_model_len=LONGEST, scheduler_block_size=BLOCK, hash_block_size=BLOCK, enable_caching=True
        )
        self.tensors = impl.allocate_kv_cache(self.config, device)
        self.tensors.fill(0x7F)  # what was never written is read as a large number
        self.host = impl.BlockTables(impl.tables_of(self.config, LONGEST), ROWS, num_blocks=BLOCKS)
        self.tables = impl.DeviceTables(self.host, device, 512)
        made = torch.Generator().manual_seed(seed)
        self.bank = torch.randn(2, BANK, 2, HEADS, WIDTH, generator=made).to(device)
        self.queries = torch.randn(BANK, QUERY_HEADS, WIDTH, generator=made).to(device)
        self.running: list[Running] = []
        self.waiting: list[Running] = []
        self.prefixes: dict[tuple[int, int], int] = {}
        self.made = self.preempted = self.copied = self.hits = self.compared = 0
        self.worst = 0.0

    # Requests.

    def _number(self, tokens: Sequence[int], before: list[int]) -> list[int]:
        """The numbers of the prefixes that these tokens make."""
        for token in tokens:
            key = before[-1] if before else -1, token
            before.append(self.prefixes.setdefault(key, len(self.prefixes)))
        return before

    def _submit(self) -> None:
        draw = self.draw
        others = [each for each in self.running + self.waiting if len(each.contents) > 3]
        prompt: list[int] = []
        if others and draw.random() < 0.6:
            other = draw.choice(others).request.all_token_ids
            prompt = list(other[: draw.randint(1, min(len(other), LONGEST - 20))])
        prompt += [draw.randrange(50) for _ in range(draw.randint(1, 12))]
        request = impl.Request(str(self.made), prompt, block_hasher=self.hasher)
        self.made += 1
        self.waiting.append(Running(request, self._number(prompt, []), min(LONGEST, len(prompt) + draw.randint(1, 25))))

    def _give_back(self, running: Running) -> None:
        self.manager.free(running.request)
        self.host.clear([running.row])
        self.running.remove(running)
        running.known = [[], []]

    def _admit(self, running: Running) -> Scheduled | None:
        """Room for the first step of a request; with a copy of the block in which its hit ends, if another has it."""
        request = running.request
        blocks, hit = self.manager.get_computed_blocks(request)
        source, inside = self._held_inside(running, hit)
        new = min(len(running.contents) - hit - inside, self.draw.randint(1, 20))
        if self.manager.allocate_slots(request, new, hit, blocks, num_external_computed_tokens=inside) is None:
            return None
        self.waiting.remove(running)
        self.running.append(running)
        running.row = next(row for row in range(ROWS) if all(each.row != row for each in self.running[:-1]))
        request.num_computed_tokens = hit + inside
        self.hits += hit > 0
        if inside:
            targets = [ids[hit // BLOCK] for ids in self.manager.get_block_ids(request.request_id)]
            self._copy(list(zip(source, targets, strict=True)))
            self.copied += 1
        return Scheduled(running, hit + inside, new)

    def _copy(self, pairs: list[tuple[int, int]]) -> None:
        self.tensors.copy_blocks(pairs)

    def _held_inside(self, running: Running, hit: int) -> tuple[list[int], int]:
        """The blocks of a request that has computed more of the prefix, and how many tokens more inside the block."""
        for other in self.running:
            computed = other.request.num_computed_tokens
            pairs = zip(other.contents[hit : min(computed, hit + BLOCK - 1)], running.contents[hit:-1], strict=False)
            inside = next((i for i, (one, two) in enumerate(pairs) if one != two), None)
            if inside is None:
                inside = min(computed - hit, BLOCK - 1, len(running.contents) - 1 - hit)
            # What is known is computed, but given back in this step it may be anybody's.
            held = self.manager.get_block_ids(other.request.request_id)
            now = [[ids[hit // BLOCK :][:1] for ids in of_groups] for of_groups in (other.known, held)]
            blocks = [block for ids in now[0] for block in ids]
            if inside > 0 and now[0] == now[1] and len(blocks) == len(held) and all(blocks):
                return blocks, inside
        return [], 0

    # A step.

    def step(self) -> None:
        """Schedule, bring the tables up to date, write, read, compare, and learn a token of each request."""
        self.manager.new_step_starts()
        while len(self.waiting) < 3:
            self._submit()
        batch: list[Scheduled] = []
        for running in list(self.running):
            if running not in self.running:
                continue
            request = running.request
            new = min(len(running.contents) - request.num_computed_tokens, self.draw.randint(1, 16))
            while self.manager.allocate_slots(request, new) is None:
                last = self.running[-1]
                self._give_back(last)
                last.request.num_computed_tokens = 0
                last.request.num_preemptions += 1
                self.waiting.insert(0, last)
                self.preempted += 1
                batch = [each for each in batch if each.running is not last]
                if last is running:
                    break
            if running in self.running:
                batch.append(Scheduled(running, request.num_computed_tokens, new))
        while self.waiting and len(self.running) < ROWS and (admitted := self._admit(self.waiting[0])):
            batch.append(admitted)
        self._update_tables()
        self._compute(batch)
        for each in batch:
            self._advance(each)

    def _advance(self, each: Scheduled) -> None:
        running, request = each.running, each.running.request
        request.num_computed_tokens = each.start + each.length
        if request.num_computed_tokens == len(running.contents):
            token = self.draw.randrange(50)
            request.append_output_token_ids([token])
            self._number([token], running.contents)
        if len(running.contents) > running.ends_at or self.draw.random() < 0.01:
            self._give_back(running)

    def _update_tables(self) -> None:
        for running in self.running:
            for group, ids in enumerate(self.manager.get_block_ids(running.request.request_id)):
                known, row = running.known[group], running.row
                nulled = [entry for entry, block in enumerate(known) if block and not ids[entry]]
                kept = [0 if entry in nulled else block for entry, block in enumerate(known)]
                if kept != ids[: len(known)]:
                    self.host.replace(group, [row], [ids])
                else:
                    self.host.null(group, [row] * len(nulled), nulled)
                    self.host.append(group, [row], [ids[len(known) :]])
                running.known[group] = list(ids)

    def _compute(self, batch: Sequence[Scheduled]) -> None:
        starts, lengths = [each.start for each in batch], [each.length for each in batch]
        rows = [each.running.row for each in batch]
        self.host.schedule(starts, lengths, rows)
        places = self.commit()
        contents = [each.running.contents for each in batch]
        tokens = [(i, at) for i, each in enumerate(batch) for at in range(each.start, each.start + each.length)]
        longest = max(at for _, at in tokens) + 1
        padded = [(contents[i][: at + 1] + [0] * longest)[:longest] for i, at in tokens]
        numbers = torch.tensor(padded, device=self.device) % BANK
        of_token = torch.tensor([[rows[i], at] for i, at in tokens], device=self.device)
        positions = of_token[:, 1]
        own = numbers.gather(1, positions[:, None])[:, 0]
        for group, window in enumerate((FULL, WINDOW)):
            layer = self.tensors.layers[str(group)]
            keys, values = layer.parts["keys"], layer.parts["values"]
            slots = places[group]
            for index, part in enumerate((keys, values)):
                part[slots // BLOCK, slots % BLOCK] = self.bank[group][own][:, index]
            cache = impl.PagedKeys(keys, values, self.tables.table(group), WIDTH**-0.5, window)
            found = self.attention(self.queries[own], cache, of_token[:, 0], positions)
            wanted = never_paged(self.queries[own], self.bank[group][numbers], positions, window)
            difference = (found.double() - wanted).abs().nan_to_num(torch.inf).max()
            self.worst = max(self.worst, float(difference))
            self.compared += len(tokens)

    def commit(self) -> torch.Tensor:
        return self.tables.commit()

    def attention(self, query: torch.Tensor, cache: Any, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return attention(query, cache, rows, positions, self.kernels)


def never_paged(query: torch.Tensor, kept: torch.Tensor, positions: torch.Tensor, window: int) -> torch.Tensor:
    """Attention in 64 bits over keys and values (tokens, context, 2, heads, width) in the order of each request."""
    keys, values = (part.repeat_interleave(QUERY_HEADS // HEADS, dim=2) for part in kept.double().unbind(2))
    scores = torch.einsum("thd,tlhd->thl", query.double(), keys) * WIDTH**-0.5
    at = torch.arange(kept.shape[1], device=kept.device)
    reads = (at <= positions[:, None]) & (at > positions[:, None] - window)
    weights = scores.masked_fill(~reads[:, None], -torch.inf).softmax(dim=-1)
    return torch.einsum("thl,tlhd->thd", weights, values)


# Faults.


def _stale(traffic: Traffic) -> None:
    first = traffic.tables.kernels.write_entries

    def write(table: torch.Tensor, staged: torch.Tensor, most: int) -> None:
        first(table if traffic.draw.random() < 0.9 else table.clone(), staged, most)

    traffic.tables.kernels.write_entries = write


def _one_too_high(traffic: Traffic) -> None:
    first = traffic.commit

    def commit() -> torch.Tensor:
        return (first() + 1) % (BLOCKS * BLOCK)

    traffic.commit = commit  # type: ignore[method-assign]


def _windows(by: int) -> Callable[[Traffic], None]:
    def plant(traffic: Traffic) -> None:
        first = traffic.attention

        def attention(query: torch.Tensor, cache: Any, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            changed = impl.PagedKeys(cache.keys, cache.values, cache.table, cache.scale, cache.window + by)
            return first(query, changed, rows, positions)

        traffic.attention = attention  # type: ignore[method-assign]

    return plant


def _not_copied(traffic: Traffic) -> None:
    traffic._copy = lambda pairs: None  # type: ignore[method-assign]


def _other_table(traffic: Traffic) -> None:
    first = traffic.tables.table
    traffic.tables.table = lambda group: first(0)  # type: ignore[method-assign]


FAULTS: dict[str, Callable[[Traffic], None]] = {
    "a table is not brought up to date now and then": _stale,
    "slots are one too high": _one_too_high,
    "a window is one token too short": _windows(-1),
    "a window is one token too long": _windows(1),
    "the block of a hit that ends inside it is not copied": _not_copied,
    "a group reads through the table of another": _other_table,
}
WRONG = 1e-3
"""A difference that no rounding makes."""


def served(seed: int, device: str, kernels: str, comparisons: int, plant: Callable[[Traffic], None] | None) -> Traffic:
    """Traffic until so many queries were compared; with a fault, until it is found."""
    traffic = Traffic(seed, device, kernels)
    if plant is not None:
        plant(traffic)
    while traffic.compared < comparisons and not (plant is not None and traffic.worst > WRONG):
        traffic.step()
    return traffic


# Speed.


@dataclass(frozen=True)
class Decode:
    """Requests of a length in a model's attention: 32 heads, 8 of them of keys, 128 wide, 16 bits."""

    requests: int
    context: int


def decode_speed(shape: Decode, device: str, kernels: str, rounds: int = 20) -> tuple[float, float]:
    """Tokens a second of one layer, and bytes of keys and values read a second."""
    heads, per_head, width, block = (8, 4, 128, 16) if device == "cuda" else (1, 1, 8, 16)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    entries = shape.context // block
    made = torch.Generator(device=device).manual_seed(1)
    blocks = shape.requests * entries + 1
    keys, values = (torch.randn(blocks, block, heads, width, device=device, generator=made).to(dtype) for _ in range(2))
    table = torch.randperm(blocks - 1, device=device, generator=made)[: shape.requests * entries] + 1
    table = table.view(-1, entries).int()
    query = torch.randn(shape.requests, heads * per_head, width, device=device, generator=made).to(dtype)
    rows = torch.arange(shape.requests, device=device)
    positions = torch.full((shape.requests,), shape.context - 1, device=device)
    cache = impl.PagedKeys(keys, values, table, width**-0.5)
    times = []
    for _ in range(rounds + 3):
        begun = perf_counter()
        if kernels == "sdpa":
            _gathered(query, cache, shape.context)
        else:
            attention(query, cache, rows, positions, kernels)
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(perf_counter() - begun)
    seconds = median(times[3:])
    read = 2 * shape.requests * shape.context * heads * width * keys.element_size()
    return shape.requests / seconds, read / seconds


def _gathered(query: torch.Tensor, cache: Any, context: int) -> torch.Tensor:
    """torch's own attention over keys and values that are gathered from their blocks first."""
    size = cache.keys.shape[1]
    at = torch.arange(context, device=query.device)
    blocks = cache.table[:, at // size].long()
    keys, values = (part[blocks, at % size].transpose(1, 2) for part in (cache.keys, cache.values))
    return torch.nn.functional.scaled_dot_product_attention(query[:, :, None], keys, values, enable_gqa=True)[:, :, 0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--kernels", default="torch", help="triton or torch")
    parser.add_argument("--comparisons", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", action="store_true", help="plant each fault, too")
    asked = parser.parse_args()
    done = served(asked.seed, asked.device, asked.kernels, asked.comparisons, None)
    print(
        f"{done.compared:,} comparisons, {asked.kernels} on {asked.device}: worst difference {done.worst:.1e}; "
        f"{done.made} requests, {done.hits} hits, {done.copied} inside a block, {done.preempted} preemptions"
    )
    missed = [done] if done.worst > WRONG or not (done.hits and done.copied and done.preempted) else []
    for what, plant in FAULTS.items() if asked.faults else ():
        broken = served(asked.seed, asked.device, asked.kernels, 20_000, plant)
        missed += [broken] if broken.worst <= WRONG else []
        print(f"{what}: " + (f"found at comparison {broken.compared}" if broken.worst > WRONG else "NOT FOUND"))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
