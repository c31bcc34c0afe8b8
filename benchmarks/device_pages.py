"""Pages zeroed and copied, and attention of single queries, by the kernels and by numpy; and faults, to be found.

python benchmarks/device_pages.py [--device cuda] [--kernels triton] [--cases N] [--seed S] [--faults]

With TRITON_INTERPRET=1 and `--kernels triton` Triton's kernels run on a CPU.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from blockproof.impl import PagedKeys
from blockproof.impl.tensors.kernel_choice import kernel_module
from blockproof.impl.tensors.torch_kernels import FULL
from device_steps import broken

PAGES = 1, 4, 35, 96, 5000, 4 * 4096 + 12
"""Bytes of a page: words and none, one program and several."""
SHAPES = (2, 2, 24, 4), (1, 5, 32, 16), (2, 1, 8, 1), (3, 1, 16, 24)
"""Heads of keys, queries of each, width of a head, tokens of a block: few, since a GPU has a kernel for each."""


def cases(number: int, seed: int, kernels: Any, device: str) -> Iterator[str | None]:
    """Of so many random cases what is wrong with each, or None; half of them are of pages, half of attention."""
    for i in range(number):
        draw = Random(f"{seed} {i}")
        wrong = _pages(draw, kernels, device) if i % 2 else _attention(draw, kernels, device)
        yield f"case {i}: {wrong}" if wrong else None


def _pages(draw: Random, kernels: Any, device: str) -> str | None:
    """Some blocks of some layers are copied to other layers or within them, and some are zeroed."""
    page, blocks, layers = draw.choice(PAGES), draw.randint(4, 9), draw.randint(1, 4)
    made = np.random.default_rng(draw.randrange(2**32))
    before = [made.integers(1, 256, (layers, blocks, page), dtype=np.uint8) for _ in range(2)]
    here, there = ([torch.from_numpy(layer).to(device) for layer in side.copy()] for side in before)
    order = draw.sample(range(blocks), blocks)
    half = draw.randint(1, blocks // 2)
    pairs = np.array([order[:half], order[half : 2 * half]]).T.copy()
    if draw.random() < 0.5:
        there, before[1] = here, before[0]
    kernels.copy_pages(here, there, torch.from_numpy(pairs).to(device))
    copied = before[0].copy()
    before[1][:, pairs[:, 1]] = copied[:, pairs[:, 0]]
    zeroed = np.array(draw.sample(range(1, blocks), draw.randint(1, blocks - 1)))
    kernels.zero_pages(there, torch.from_numpy(zeroed).to(device))
    before[1][:, zeroed] = 0
    found = torch.stack(there).cpu().numpy()
    if (found == before[1]).all():
        return None
    layer, block = np.argwhere((found != before[1]).any(axis=2))[0]
    return f"pages of {page} bytes, {pairs.tolist()} copied, {zeroed.tolist()} zeroed: layer {layer}, block {block}"


def _attention(draw: Random, kernels: Any, device: str) -> str | None:
    """Queries of rows of random lengths, over blocks in random order; what nobody may read is no number."""
    of_keys, per_head, width, block = draw.choice(SHAPES)
    entries, rows, window, scale = draw.randint(2, 12), draw.randint(1, 4), draw.choice((FULL, 5, 40)), width**-0.5
    made = np.random.default_rng(draw.randrange(2**32))
    keys, values = made.standard_normal((2, rows * entries + 1, block, of_keys, width)).astype(np.float32)
    table = made.permutation(rows * entries).reshape(rows, entries) + 1
    asked = [draw.randrange(rows) for _ in range(draw.randint(1, 5))]
    positions = [draw.randrange(entries * block) for _ in asked]
    query = made.standard_normal((len(asked), of_keys * per_head, width)).astype(np.float32)
    reads = [np.arange(max(0, position + 1 - window), position + 1) for position in positions]
    wanted, read = np.zeros_like(query, np.float64), np.zeros(keys.shape[:2], np.bool_)
    for i, (row, at) in enumerate(zip(asked, reads, strict=True)):
        where = table[row, at // block], at % block
        read[where] = True
        for head in range(of_keys * per_head):
            of_head = keys[where][:, head // per_head].astype(np.float64)
            weights = np.exp((score := of_head @ query[i, head] * scale) - score.max())
            wanted[i, head] = weights / weights.sum() @ values[where][:, head // per_head]
    keys[~read] = values[~read] = np.nan
    there = [torch.from_numpy(each).to(device) for each in (query, keys, values, table.astype(np.int32))]
    of_tokens = (torch.tensor(each, device=device) for each in (asked, positions))
    found = kernels.attention(there[0], PagedKeys(there[1], there[2], there[3], scale, window), *of_tokens)
    difference = np.abs(found.cpu().numpy() - wanted).max()
    return None if difference < 1e-4 else f"attention of rows {asked} at {positions}, window {window}: {difference}"


FAULTS: dict[str, list[tuple[str, str, str]]] = {
    "triton_kernels": [
        ("the last word of a page is not zeroed", "WORD), mask=at < page", "WORD), mask=at < page - 1"),
        ("one layer is zeroed", "pages = tl.load(addresses + tl.program_id(1))", "pages = tl.load(addresses)"),
        ("the block before is zeroed", "* page\n    at = tl.program_id(2)", "* page - page\n    at = tl.program_id(2)"),
        ("the begin of a page is zeroed", "TILE + tl.arange(0, TILE)\n    tl.s", "0 + tl.arange(0, TILE)\n    tl.s"),
        ("a block is copied to itself", "source + tl.load(pair) * page", "source + tl.load(pair + 1) * page"),
        ("a copy is turned by a word", "page + at, read,", "page + (at + 1) % page, read,"),
        ("all layers get the first one's", "source = tl.load(sources + tl.program_id(1))", "source = tl.load(sources)"),
        ("one pair is copied", "pair = pairs + tl.program_id(0) * 2", "pair = pairs"),
        ("a query does not read its own token", "(context <= position)", "(context < position)"),
        ("a window is one too long", "tl.maximum(position + 1 - window, 0)", "tl.maximum(position - window, 0)"),
        ("all heads read the first one's keys", "+ head * key_head", "+ 0 * key_head"),
        ("keys are read for values", "tl.load(value[:, None]", "tl.load(key[:, None]"),
        ("weights are summed over other maxima", "total = total * kept", "total = total * 1"),
        ("values are summed over other maxima", "found = found * kept[:, None]", "found = found * 1"),
        ("all tokens are the first one's row", "tl.load(rows + token)", "tl.load(rows)"),
        ("scores are not scaled", '"ieee") * scale', '"ieee") * 1'),
        ("what nobody reads counts", 'tl.where(read[None, :], score, float("-inf"))', "score"),
    ],
    "torch_kernels": [
        ("the first layer is not zeroed", "for each in pages:", "for each in pages[1:]:"),
        ("a block is copied to itself", "read = source[pairs[:, 0]", "read = source[pairs[:, 1]"),
        ("a query does not read its own token", "(at <= positions[:, None])", "(at < positions[:, None])"),
        ("a window is one too long", "positions[:, None] - cache.window", "positions[:, None] - cache.window - 1"),
        ("what nobody reads counts", "values = values.masked_fill", "values.masked_fill"),
    ],
}
"""As those of `device_steps`."""


def found(module: str, old: str, new: str, device: str, most: int = 60) -> int | None:
    """The number of the case at which a fault is found; None if it is not."""
    with tempfile.TemporaryDirectory() as folder:
        kernels = broken(module, old, new, Path(folder))
        return next((number for number, wrong in enumerate(cases(most, 1, kernels, device), 1) if wrong), None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--kernels", default=None, help="triton or torch")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", action="store_true", help="plant each fault, too")
    asked = parser.parse_args()
    name = asked.kernels or ("triton" if asked.device == "cuda" else "torch")
    kernels = kernel_module(torch.device(asked.device), name)
    wrong = [each for each in cases(asked.cases, asked.seed, kernels, asked.device) if each]
    print(f"{asked.cases:,} cases, {name} on {asked.device}: {len(wrong)} differ", *wrong[:3], sep="\n")
    missed = 0
    for what, old, new in FAULTS[f"{name}_kernels"] if asked.faults else ():
        number = found(f"{name}_kernels", old, new, asked.device)
        missed += number is None
        print(f"{what}: " + (f"found at case {number}" if number else "NOT FOUND"))
    return 1 if wrong or missed else 0


if __name__ == "__main__":
    sys.exit(main())
