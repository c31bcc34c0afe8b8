"""Runs in the interpreter of a vLLM: which state its own worker functions leave in which table entry.

`python worker_states.py` reads cases from its input, one JSON list a line: mode, block size, blocks for drafts,
computed tokens, tokens of the step, drafts among them, drafts that are right, and the worker's row of blocks if it is
not block `i` that stands in entry `i`. It prints for each, as a JSON object, the blocks that are written and of how
many tokens the state in each is afterwards; null where the release has no such mode.

What runs is the release's: `mamba_get_block_table_tensor`, `_compute_prefix_caching_block_indices`, `preprocess_mamba`
and `postprocess_mamba_fused_kernel`. The kernel is executed here on numbers, one thread, in place of triton. That the
state behind the token `t` of a step goes into the entry `t` of those that are gathered is what the kernels of the
layers do, which need a GPU.
"""

import inspect
import json
import sys
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch

BLOCKS = 1000
"""Where the states of the blocks lie in the memory: the one of block `i` at `(BLOCKS + i) * SIZE`."""
SIZE = 8
"""Bytes of a state."""


class Number(int):
    """An integer as the kernel's language has it: an address, or a value of any width."""

    def to(self, kind: object) -> "Number":
        return self

    def __add__(self, other: int) -> "Number":
        return Number(int(self) + int(other))

    def __sub__(self, other: int) -> "Number":
        return Number(int(self) - int(other))

    def __mul__(self, other: int) -> "Number":
        return Number(int(self) * int(other))

    def __floordiv__(self, other: int) -> "Number":
        return Number(int(self) // int(other))

    def __neg__(self) -> "Number":
        return Number(-int(self))

    def __and__(self, other: int) -> "Number":
        return Number(int(self) & int(other))

    __radd__, __rmul__ = __add__, __mul__


class Language:
    """What the kernel needs of triton, over a memory of numbers."""

    def __init__(self) -> None:
        self.memory: dict[int, int] = {}
        self.int32 = self.int64 = self.uint8 = self.uint64 = None

    def load(self, address: int, mask: bool = True) -> Number:
        return Number(self.memory.get(int(address), 0) if mask else 0)

    def store(self, address: int, value: int, mask: bool = True) -> None:
        if mask:
            self.memory[int(address)] = int(value)

    def program_id(self, axis: int) -> Number:
        return Number(0)

    def arange(self, first: int, end: int) -> Number:
        return Number(first)

    def minimum(self, one: int, other: int) -> Number:
        return Number(min(one, other))

    def cdiv(self, one: int, other: int) -> Number:
        return Number(-(-one // other))

    def pointer_type(self, kind: object) -> None:
        return None


utils = import_module("vllm.v1.worker.mamba_utils")
backends = import_module("vllm.v1.attention.backends.utils")
builders = import_module("vllm.v1.attention.backends.mamba_attn")
interface = import_module("vllm.v1.kv_cache_interface")


def spec_of(mode: str, size: int, for_drafts: int) -> Any:
    return interface.MambaSpec(
        block_size=size,
        shapes=((1,),),
        dtypes=(torch.float32,),
        mamba_cache_mode=mode,
        num_speculative_blocks=for_drafts,
    )


def gathered(mode: str, size: int, for_drafts: int, end: int) -> list[int]:
    """The entries that the layers are given, in a table whose entry `i` has block `i`."""
    entries = 1 + for_drafts if mode == "none" else -(-end // size) + for_drafts + 1
    table = torch.arange(entries, dtype=torch.int32).unsqueeze(0)
    length = torch.tensor([end], dtype=torch.int32)
    kept: list[int] = backends.mamba_get_block_table_tensor(table, length, spec_of(mode, size, for_drafts), mode)[
        0
    ].tolist()
    return kept


def running(size: int, for_drafts: int, computed: int, tokens: int) -> int:
    """The entry in which the worker remembers that the running state is, in mode align."""
    spec = spec_of("align", size, for_drafts)
    group = SimpleNamespace(kv_cache_spec=spec, layer_names=[])
    places: dict[str, int] = {}
    accepted = torch.ones(1, dtype=torch.int32).numpy()
    given = {
        "scheduler_output": SimpleNamespace(
            finished_req_ids=set(),
            preempted_req_ids=set(),
            scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=set()),
            num_scheduled_tokens={"a": tokens},
        ),
        "kv_cache_config": SimpleNamespace(kv_cache_groups=[group]),
        "cache_config": SimpleNamespace(enable_prefix_caching=True),
        "mamba_state_idx": places,
        "input_batch": SimpleNamespace(req_ids=["a"], num_accepted_tokens_cpu=accepted),
        "requests": {"a": SimpleNamespace(num_computed_tokens=computed, block_ids=[list(range(99))])},
        "forward_context": {},
        "mamba_state_copy_funcs": {} if "MambaStateCopyFuncsByType" in vars(utils) else (),
        "copy_bufs": SimpleNamespace(
            mamba_group_ids=[0],
            mamba_spec=spec,
            offset=0,
            src_ptrs=SimpleNamespace(np=[]),
            dst_ptrs=SimpleNamespace(np=[]),
            sizes=SimpleNamespace(np=[]),
        ),
    }
    utils.preprocess_mamba(**given)
    return places["a"]


def after_copy(
    size: int, place: int, step: tuple[int, int, int], right: int, row: list[int], states: dict[int, int]
) -> None:
    """Let the kernel that runs behind a step copy states among the blocks of a row. The step: computed tokens, its
    tokens, drafts among them."""
    computed, tokens, drafts = step
    language = Language()
    memory, free = language.memory, iter(range(1, BLOCKS, 100))

    def at(value: int) -> Number:
        """The address of a value."""
        address = next(free)
        memory[address] = value
        return Number(address)

    table = next(free)
    memory |= {table + entry: block for entry, block in enumerate(row)}
    memory |= {(BLOCKS + block) * SIZE: after for block, after in states.items()}
    values = {
        "num_accepted_tokens_ptr": 1 + right,
        "mamba_state_idx_ptr": place,
        "num_scheduled_tokens_ptr": tokens,
        "num_computed_tokens_ptr": computed,
        "num_draft_tokens_ptr": drafts,
        "block_table_ptrs_ptr": table,
    }
    free = iter(range(BLOCKS * SIZE + 10**6, BLOCKS * SIZE + 2 * 10**6, 100))
    sizes = {"base_addrs": BLOCKS * SIZE, "block_strides": SIZE, "elem_sizes": SIZE, "inner_sizes": 1}
    given: dict[str, Any] = {name: at(value) for name, value in values.items()}
    given |= {f"state_{name}_ptr": at(value) for name, value in sizes.items()}
    plain = {"block_table_stride_req": 99, "num_reqs": 1, "block_size": size, "COPY_BLOCK_SIZE": 1}
    for name, parameter in inspect.signature(utils.postprocess_mamba_fused_kernel).parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in given:
            given[name] = plain[name] if name in plain else False if name.isupper() else at(0)
    vars(utils)["tl"] = language
    utils.postprocess_mamba_fused_kernel(**given)
    for block in row:
        if after := memory.get((BLOCKS + block) * SIZE, 0):
            states[block] = after


def written(
    mode: str, size: int, for_drafts: int, computed: int, tokens: int, drafts: int, right: int, row: Any = range(99)
) -> Any:
    """See above."""
    end = computed + tokens
    known = end - drafts
    if mode == "all":
        indices = getattr(builders.BaseMambaAttentionMetadataBuilder, "_compute_prefix_caching_block_indices", None)
        if indices is None:
            return None
        about = SimpleNamespace(
            compute_num_computed_tokens=lambda: torch.tensor([computed]), seq_lens=torch.tensor([end])
        )
        _, first, last = (int(found) for found in indices(None, about, size))
        if drafts:
            return {last + draft: known + draft for draft in range(drafts + 1)}
        return {**{entry: (entry + 1) * size for entry in range(first, last)}, last: end}
    entries = gathered(mode, size, for_drafts, end)[: 1 + drafts]
    states = {row[entry]: known + draft for draft, entry in enumerate(entries)}
    if mode == "align":
        place = running(size, for_drafts, computed, tokens)
        assert place == entries[0], "the worker itself does not agree where the running state is"
        after_copy(size, place, (computed, tokens, drafts), right, [*row], states)
    return states


for line in sys.stdin:
    print(json.dumps(written(*json.loads(line))), flush=True)
