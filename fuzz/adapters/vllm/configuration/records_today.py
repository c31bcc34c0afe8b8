"""What specs and configurations of today say besides pages and needs (`configuration.today`), by definition, and what
vLLM 0.33.0 says otherwise (specs-and-config.md, section 19)."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import gcd
from typing import Any, TypeAlias

from .....model.arith import cdiv, up
from .....model.attention import demand
from .....model.config_json import Json
from ....targets.configuration_question import attempt

Raw: TypeAlias = Mapping[str, Any]
"""A spec as questions have it."""
FULL, SINK, LATENT, RSWA = "FullAttentionSpec", "SinkFullAttentionSpec", "MLAAttentionSpec", "RSWASpec"
WINDOW, LATENT_WINDOW, CHUNK = "SlidingWindowSpec", "SlidingWindowMLASpec", "ChunkedLocalAttentionSpec"
RING, STATES, HOT, RESIDENT = "CircularBufferSpec", "MambaSpec", "HiSparseHotSpec", "HiSparseResidentSpec"
UNIFORM = "UniformTypeKVCacheSpecs"
FULLS, LATENTS, WINDOWS = {FULL, SINK, LATENT, RSWA}, {LATENT, LATENT_WINDOW}, {WINDOW, LATENT_WINDOW}
_POOLED = {HOT, RESIDENT}
UNSAID: Mapping[str, Any] = {
    "max_tp_shards": None,
    "num_head_slots": None,
    "state_content_bytes": None,
    "page_size_padded": None,
    "block_stride_alignment": None,
    "tokens_per_state": 1,
    "non_causal": False,
    "extra_retained_tokens": 0,
    "topk_buffer_width": None,
    "cache_role": "SPARSE",
    "is_index_group_leader": False,
    "bounded_replay": False,
    "non_causal_multi_token_decode": False,
    "num_prefill_checkpoint_blocks": 0,
    "tp_replicated": False,
    "prefill_checkpoint_alignment": None,
    "num_speculative_blocks": 0,
    "mamba_cache_mode": "none",
    "sliding_window": None,
}
"""Fields that a spec may leave out, with what they are then."""
OF_ANY = ("non_causal", "non_causal_multi_token_decode")
"""Fields that hold for a group if they hold for one of its layers."""


def said(x: Raw, name: str) -> Any:
    """A field of a spec; what attention keeps is spread over ranks of decode parallelism unless it says otherwise."""
    if name == "dcp_sharded":
        return x.get(name, "num_kv_heads" in x)
    return x.get(name, UNSAID[name])


class Record:
    """A spec, with what follows from its fields."""

    def __init__(self, raw: Raw) -> None:
        self.raw, self.kind = raw, str(raw["type"])
        self.members = [Record(member) for _, member in raw.get("kv_cache_specs", ())]
        self.block: int = raw["block_size"]

    @property
    def cacheable(self) -> bool:
        """Whether its blocks are worth a name: scratch is not, nor what is computed again anyway."""
        if self.members:
            return all(member.cacheable for member in self.members)
        return self.kind not in {RING, *_POOLED} and not said(self.raw, "bounded_replay")

    @property
    def replayed(self) -> int:
        """Tokens behind a hit that are computed again."""
        if self.members:
            return max(member.replayed for member in self.members)
        return int(self.raw["sliding_window"]) if said(self.raw, "bounded_replay") else 0

    @property
    def table_alignment(self) -> int | None:
        """Rows of a block table begin at multiples of so many bytes, where a kernel reads them by position."""
        if self.members:
            return self.members[0].table_alignment
        return None if self.kind in {RING, HOT, STATES} else 128

    @property
    def views(self) -> bool:
        """Whether a worker has a view of it for each layer."""
        return self.kind not in _POOLED

    @property
    def slots(self) -> bool:
        """Whether a worker computes a place for each token."""
        return self.members[0].slots if self.members else self.kind not in {RING, HOT}

    @property
    def heads(self) -> int:
        """Rows of a state."""
        demand(not self.members and self.kind not in _POOLED, "NotImplementedError")
        slots = said(self.raw, "num_head_slots")
        return 1 if self.kind == STATES else int(self.raw["num_kv_heads"] if slots is None else slots)

    @property
    def states(self) -> int:
        """States in a block."""
        return self.states_of(self.block)

    def states_of(self, tokens: int) -> int:
        """States of so many tokens."""
        demand(not self.members and self.kind not in _POOLED, "NotImplementedError")
        if self.kind == STATES:
            return 1
        pooled = said(self.raw, "tokens_per_state")
        return int(tokens // (Fraction(*pooled) if isinstance(pooled, list | tuple) else pooled))

    @property
    def content(self) -> int:
        """Bytes of a row of a state."""
        demand(not self.members and self.kind not in _POOLED, "NotImplementedError")
        raw = self.raw
        if self.kind == STATES:
            sizes = [_product(shape) for shape in raw["shapes"]]
            return sum(size * dtype["itemsize"] for size, dtype in zip(sizes, raw["dtypes"], strict=True))
        if (content := said(raw, "state_content_bytes")) is not None:
            return int(content)
        return int(raw["head_size"] * (1 if self.kind in LATENTS else 2) * raw["dtype"]["itemsize"])

    @property
    def page(self) -> int:
        """Bytes of a block."""
        if self.members:
            return sum(member.page for member in self.members)
        if self.kind in _POOLED:
            return int(self.raw["page_size"])
        need, padded = self.heads * self.states * self.content, said(self.raw, "page_size_padded")
        demand(padded is None or padded >= need)
        return need if padded is None else int(padded)

    @property
    def retained(self) -> int:
        """Tokens before a step that must be readable."""
        demand(self.kind in WINDOWS, "AttributeError")
        return int(self.raw["sliding_window"]) - 1 + int(said(self.raw, "extra_retained_tokens"))

    @property
    def full(self) -> bool:
        """Whether every layer reads all tokens."""
        return all(member.full for member in self.members) if self.members else self.kind in FULLS

    @property
    def stride(self) -> int:
        """Bytes of which the distance of two blocks is a multiple: what it says, or blocks of a kernel."""
        asked = None if self.members else said(self.raw, "block_stride_alignment")
        if not isinstance(asked, Mapping):
            return 1 if asked is None else int(asked)
        size = gcd(asked["multiple_of"], self.block)
        return 1 if size == self.block else Record({**self.raw, "block_size": size}).page

    def sharded(self, ranks: int) -> int:
        """So many ranks share the tokens of a block."""
        shards = self.members[0].sharded(ranks) > 1 if self.members else said(self.raw, "dcp_sharded")
        return ranks if shards else 1

    def row(self, config: Raw, length: int) -> int:
        """Entries of the table of a request of so many tokens."""
        if self.members:
            widths = {member.row(config, length) for member in self.members}
            demand(len(widths) == 1)
            return widths.pop()
        if self.kind == HOT:
            return int(self.raw["blocks_per_request"])
        if self.kind == STATES:
            speculative = int(said(self.raw, "num_speculative_blocks"))
            in_place = config.get("mamba_cache_mode") != "align"
            return (1 if in_place else cdiv(length, self.block)) + speculative
        ranks = self.sharded(config.get("decode_context_parallel_size", 1))
        return 1 if self.kind == RING else cdiv(length, self.block * ranks)

    def need(self, config: Raw) -> int:
        """Bytes of the most blocks that one request holds."""
        if self.members:
            return self.page * max(cdiv(member.need(config), member.page) for member in self.members)
        return self.page * self.most(config)

    def most(self, config: Raw) -> int:
        """These blocks."""
        length, flight = config["max_model_len"], config["max_num_batched_tokens"]
        ranks = self.sharded(config.get("decode_context_parallel_size", 1))
        if self.kind == STATES:
            aligned = config.get("mamba_cache_mode") == "align"
            checkpoints = int(said(self.raw, "num_prefill_checkpoint_blocks"))
            return 1 + aligned * (1 + checkpoints) + int(said(self.raw, "num_speculative_blocks"))
        if self.kind in WINDOWS:
            demand(ranks == 1)
            return cdiv(min(self.retained + flight, length), self.block) + 1
        if self.kind in (CHUNK, RESIDENT):
            return cdiv(min(self.raw.get("attention_chunk_size", 0) + flight, length), self.block)
        if self.kind in (RING, HOT):
            return 1 if self.kind == RING else int(self.raw["blocks_per_request"])
        return cdiv(cdiv(length, ranks), self.block)


def _product(numbers: Sequence[int]) -> int:
    product = 1
    for number in numbers:
        product *= number
    return product


SAYS = (
    *("cacheable", "replayed", "table_alignment", "views", "slots", "page", "retained", "heads", "states", "content"),
    *("stride", "full"),
)


def record(spec: Raw, config: Raw, lengths: Sequence[int]) -> Json:
    """What a spec says of itself."""
    x = Record(spec)

    def tried(ask: Callable[[], Json]) -> Json:
        return attempt(ask)

    shown: dict[str, Json] = {word: tried(lambda word=word: getattr(x, word)) for word in SAYS}  # type: ignore[misc]
    shown["rows"] = tried(lambda: [x.row(config, length) for length in lengths])
    shown["need"] = tried(lambda: x.need(config))
    return shown


def merge_records(specs: Sequence[Raw]) -> Json:
    """One spec of layers that are alike, but for what holds of a group if it does of one layer, and a window that only
    some record."""
    first = specs[0]
    full = first["type"] in FULLS
    windows = {x["sliding_window"] for x in specs if full and x.get("sliding_window") is not None}
    demand(len(windows) <= 1, "ValueError")
    common: dict[str, Any] = {name: any(said(x, name) for x in specs) for name in OF_ANY}
    if full:
        common["sliding_window"] = windows.pop() if windows else None
    alike = [shown({**x, **common}) for x in specs]
    demand(all(x == alike[0] for x in alike))
    return alike[0]


def one_type(specs: Sequence[Raw]) -> Json:
    """Whether layers of one class hold and give back the same blocks: those of one size, on the same ranks; of states,
    as many in as large pages."""
    records = [Record(x) for x in specs]
    asked = ["dcp_sharded", "bounded_replay"]
    if records[0].kind == STATES:
        asked += ["num_speculative_blocks", "num_prefill_checkpoint_blocks"]
        asked += ["prefill_checkpoint_alignment", "tp_replicated"]
    pages = {x.page if x.kind == STATES else 0 for x in records}
    return len({repr([x.block, *(said(x.raw, name) for name in asked)]) for x in records}) == 1 == len(pages)


def shown(x: Raw) -> dict[str, Json]:
    """A spec without what it says by default, under the words of answers."""
    at_default = {**UNSAID, "dcp_sharded": "num_kv_heads" in x}
    kept = {name: value for name, value in x.items() if name not in at_default or value != at_default[name]}
    if "tokens_per_state" in kept:
        kept["compress_ratio"] = kept.pop("tokens_per_state")
    return kept


# Configurations.


def handed_over(groups: Sequence[Raw], rows: Sequence[Json], num_blocks: int, host_blocks: int | None) -> Json:
    """Which groups a connector gets, which of them can be found by name, and which pool each is in."""
    records = [Record(group["spec"]) for group in groups]
    given = [index for index, group in enumerate(groups) if group["handed_over"]]
    stored = [index for index in given if records[index].cacheable]
    by_layer = {layer: place for place, index in enumerate(given) for layer in groups[index]["layers"]}

    def chosen() -> Json:
        demand(len(rows) == len(groups), "ValueError")
        return [rows[index] for index in given]

    def of_host() -> Json:
        demand(host_blocks is not None)
        return host_blocks

    on_device = [x.raw for x, group in zip(records, groups, strict=True) if not group["host"]]
    kinds = {x["dtype"]["itemsize"] for x in on_device if "num_kv_heads" in x}
    return {
        "groups": given,
        "layers": [groups[index]["layers"] for index in given],
        "stored": stored,
        "stored_layers": [groups[index]["layers"] for index in stored],
        "by_layer": by_layer,
        "rows": attempt(chosen),
        "host": [index for index, group in enumerate(groups) if group["host"]],
        "blocks": [num_blocks, attempt(of_host)],
        "zeroed": len(kinds) > 1 or any(x.kind == STATES for x in records),
    }


def room(groups: Sequence[Raw], config: Raw, pools: tuple[int, int]) -> Json:
    """Tokens and requests that fit: as many as the pool has room for that has least."""
    needs = [0, 0]
    for group in groups:
        needs[group["host"]] += cdiv((x := Record(group["spec"])).need(config), x.page)
    demand(needs[0] > 0, "ZeroDivisionError")
    times = min(blocks / need for blocks, need in zip(pools, needs, strict=True) if need)
    both: list[Json] = [int(times * config["max_model_len"]), times]
    return {"room": both, "kept": both}


def hits_end(groups: Sequence[Raw], config: Raw, sizes: tuple[int, int], tensor_ranks: int) -> Json:
    """Hits of several groups end at hash blocks where states in mode align are larger, and all else can be looked up
    there; on how many tensor ranks in a row all layers have the same; tokens of a block over all ranks."""
    records, (whole, unit) = [Record(raw) for raw in groups], sizes
    ranks = config.get("decode_context_parallel_size", 1)
    aligned = [x.block for x in records if x.kind == STATES and said(x.raw, "mamba_cache_mode") == "align"]
    fine = any(block > unit or (ranks > 1 and block == unit) for block in aligned)
    others = [x for x in records if x.cacheable and x.kind in WINDOWS]
    fine = fine and all(x.block * x.sharded(ranks) == unit for x in others)
    several = config["enable_prefix_caching"] and len(records) > 1
    return {
        "every": unit if several and fine else whole,
        "over_ranks": [x.block * x.sharded(ranks) for x in records],
        "alike": gcd(tensor_ranks, *[_copies(x.raw, tensor_ranks, ranks) for x in records]),
    }


def _copies(x: Raw, tensor_ranks: int, ranks: int) -> int:
    shards = None if x["type"] == STATES else said(x, "max_tp_shards")
    return 1 if shards is None or (ranks > 1 and said(x, "dcp_sharded")) else max(1, tensor_ranks // shards)


def views(x: Record, layers: int, blocks: int, kernel: int | None, place: Raw) -> Json:
    """By layer: shape, strides and first byte of its view, and its shape by whole blocks. A block is as many blocks of
    the kernel as fit, which lie one behind the other: not where something lies between them. Of an element type the
    last of these is in elements, as the others are."""
    layout: str = place["layout"]
    size = x.block if kernel is None else kernel
    demand(x.block % size == 0)
    parts, wide = x.block // size, place["wider"]
    states, page = x.states_of(size), x.heads * x.states_of(size) * x.content
    dense, strides = page * parts, _strides(layout, (layers, blocks, x.heads, x.states, x.content))
    block, layer = strides["B"] + wide, strides["L"] + wide * blocks * (layout[0] == "L")
    demand(parts == 1 or block == x.heads * x.states * x.content, "ValueError")
    inner = _strides(layout, (layers, blocks * parts, x.heads, states, x.content))
    demand(dense > 0)
    item = x.raw["dtype"]["itemsize"] if "dtype" in x.raw else 1
    byte = [block // parts, inner["H"], inner["N"]]
    demand(all(one % item == 0 for one in byte) and x.content % item == 0, "RuntimeError")
    shape = [blocks * parts, x.heads, states, x.content // item]
    whole = [blocks, parts, *shape[1:]] if parts > 1 else shape
    first = [place["offset"] + index * layer for index in range(layers)]
    demand(all(one % item == 0 for one in first), "RuntimeError")
    return [[shape, [*[one // item for one in byte], 1], one // item, whole] for one in first]


def _strides(layout: str, shape: Sequence[int]) -> dict[str, int]:
    """Bytes from one to the next along each dimension, where nothing lies between."""
    sizes, strides, reach = dict(zip("LBHNC", shape, strict=True)), {}, 1
    for name in reversed(layout):
        strides[name], reach = reach, reach * sizes[name]
    return strides


def placed(groups: Sequence[tuple[Record, int]], layout: str, memory: int) -> Json:
    """Blocks, and where layers lie, so many of a spec in each group: groups alias. Blocks begin at multiples of what
    the spec says: those of all layers together, or those of each, whose pages must then be whole. Pages of several
    sizes lie side by side in a block, and are whole as well."""
    by_blocks, whole = layout[0] == "B", set(layout[:2]) == {"L", "B"}
    demand(len({x.page for x, _ in groups}) == 1 or (by_blocks and whole), "ValueError")
    costs = [up(count * x.page, x.stride) if by_blocks else count * up(x.page, x.stride) for x, count in groups]
    tensors: list[Json] = []
    cost, blocks = max(costs), memory // max(costs)
    for index, (x, count) in enumerate(groups):
        page, padded = x.page, up(x.page, x.stride)
        demand(by_blocks or padded == page or whole)
        part = page if whole else page // (x.heads if x.raw.get("page_size_padded") is None else 1)
        layer, block = (part, cost) if by_blocks else (padded * blocks, padded if whole else part)
        tensors.append([cost * blocks, [f"l{index}.{place}" for place in range(count)], layer, block, 0])
    return {"num_blocks": blocks, "tensors": tensors}


def kept(x: Record, stretch: Raw) -> Json:
    """Which of the blocks can serve a hit: those right before a place where one may end, as many as it reads, and with
    drafts one more. These places are the multiples of the unit or of the interval; with an interval, where a prompt may
    be resumed; and the end of the prompt, for who stores blocks before the next one is there. All blocks, where places
    are not ends of blocks."""
    start, end, unit, interval = stretch["start"], stretch["end"], stretch["unit"], stretch["interval"]
    whole = [True] * (end - start)
    states = x.kind == STATES
    if unit is None or (states and interval is None) or (not states and unit % x.block):
        return list[Json](whole)
    drafts = bool(stretch["eagle"]) and not states
    need = 1 if states else cdiv(x.raw["sliding_window"] - 1, x.block) + drafts
    every = (unit if interval is None else interval) // x.block
    ends = {boundary // unit * unit // x.block + drafts for boundary in stretch["resumed"] if interval is not None}
    if every and need >= every:
        return list[Json](whole)
    ends |= {index + drafts for index in range(every, end + every + 1, every)} if every else set()
    mask = {block for one in ends for block in range(max(0, one - need), one)}
    if every and stretch["last"] is not None and not drafts and not states:
        last = stretch["last"]
        mask |= set(range(max(last // every * every, last - need), last))
    return [block in mask for block in range(start, end)]


def declared(names: Sequence[str], groups: Sequence[Sequence[str]], pools: bool) -> Json:
    """The groups that a model declares: each layer is in one. With a pool of the host nobody else declares any."""
    demand(not pools, "ValueError")
    demand(sorted(name for group in groups for name in dict.fromkeys(group)) == sorted(names))
    return list(map(list, groups))


_NUMBERS = {
    "NONE": 0,
    "FP8_PER_TENSOR": 1,
    "INT8_PER_TOKEN_HEAD": 2,
    "FP8_PER_TOKEN_HEAD": 3,
    "INT4_PER_TOKEN_HEAD": 4,
    "NVFP4": 5,
    "TURBOQUANT_K8V4": 6,
    "TURBOQUANT_4BIT_NC": 7,
    "TURBOQUANT_K3V4_NC": 8,
    "TURBOQUANT_3BIT_NC": 9,
    "NVFP4_DS_MLA": 10,
    "ULTRAQUANT_4BIT": 11,
    "OCTAVE_K3V4": 12,
    "OCTAVE_K3V3": 13,
    "OCTAVE_K3V3_COMPACT": 14,
}


def quantised(name: str) -> Json:
    """The mode of a cache, its number, and which packing it is."""
    mode = name.upper()
    if mode not in _NUMBERS or mode in ("NVFP4", "NONE"):
        demand(not name.startswith(("turboquant_", "octave_")), "KeyError")
        starts = {"nvfp4": "NVFP4", "fp8": "FP8_PER_TENSOR"}
        mode = next((mode for start, mode in starts.items() if name.startswith(start)), "NONE")
    packed: list[Json] = [mode == "NVFP4"]
    packed += [mode.startswith(start) for start in ("TURBOQUANT", "OCTAVE", "ULTRAQUANT", "CUSTOM")]
    return [mode, _NUMBERS[mode], mode != "NONE", mode.endswith("PER_TOKEN_HEAD"), *packed]
