"""Questions that only cores of today can be asked (`ReleasedRules.asks`): what a spec says of itself besides its page,
which groups a connector hands over, where a worker sees the layers of an allocation, and figures that follow from a
configuration. A core that lacks a question is never put one, and what is drawn before these stays as it is.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ...model.config_json import Json
from ..kinds import LAYERS
from ..kinds.style import SIZES, Spec
from ..workload.draw import Draw
from .draw import LENGTHS, Configuration
from .parts import Asked

Make: TypeAlias = Callable[[Draw, Configuration], Asked]

RECORDS = 10
"""Questions of these that are put with each configuration."""
FULL, SINK, LATENT, RSWA = "FullAttentionSpec", "SinkFullAttentionSpec", "MLAAttentionSpec", "RSWASpec"
WINDOW, LATENT_WINDOW, CHUNK = "SlidingWindowSpec", "SlidingWindowMLASpec", "ChunkedLocalAttentionSpec"
RING, STATES, HOT, RESIDENT = "CircularBufferSpec", "MambaSpec", "HiSparseHotSpec", "HiSparseResidentSpec"
_STATES: Spec = {"block_size": 16, "shapes": [[4], [3, 2]], "dtypes": [{"itemsize": 2}, {"itemsize": 4}]}
LEAST: Mapping[str, Spec] = {
    FULL: SIZES,
    SINK: {**SIZES, "sink_len": 128},
    LATENT: SIZES,
    RSWA: {**SIZES, "rswa_window": 5},
    WINDOW: {**SIZES, "sliding_window": 5},
    LATENT_WINDOW: {**SIZES, "sliding_window": 5},
    CHUNK: {**SIZES, "attention_chunk_size": 6},
    RING: SIZES,
    STATES: _STATES,
    HOT: {"block_size": 16, "page_size": 512, "blocks_per_request": 3},
    RESIDENT: {"block_size": 16, "page_size": 512},
}
"""The smallest spec of each class."""
_ATTENTION = (FULL, SINK, LATENT, RSWA, WINDOW, LATENT_WINDOW, CHUNK, RING)
_SHARDED: Mapping[str, Sequence[object]] = {"dcp_sharded": (True, False), "max_tp_shards": (None, 1, 2, 4)}
_CELLS: Mapping[str, Sequence[object]] = {"num_head_slots": (None, 1, 4), "state_content_bytes": (None, 20, 36)}
_STRIDES: Mapping[str, Sequence[object]] = {"block_stride_alignment": (None, 64, {"multiple_of": 8})}
_CAUSAL: Mapping[str, Sequence[object]] = {"non_causal": (False, True), "sliding_window": (None, 5)}
VARIED: Mapping[str, Mapping[str, Sequence[object]]] = {
    **{name: {**_SHARDED, **_CELLS, **_STRIDES} for name in _ATTENTION},
    FULL: {**_SHARDED, **_CELLS, **_STRIDES, **_CAUSAL, "tokens_per_state": (1, [1, 2])},
    SINK: {**_SHARDED, **_CELLS, **_STRIDES, **_CAUSAL},
    RSWA: {**_SHARDED, **_CELLS, **_STRIDES, **_CAUSAL, "rswa_window": (5, 7), "tokens_per_state": (1, [1, 2])},
    LATENT: {
        **_SHARDED,
        **_CELLS,
        **_STRIDES,
        "non_causal": (False, True),
        "tokens_per_state": (1, 4),
        "topk_buffer_width": (None, 64),
        "cache_role": ("SPARSE", "INDEXER"),
        "is_index_group_leader": (False, True),
        "non_causal_multi_token_decode": (False, True),
    },
    WINDOW: {**_SHARDED, **_CELLS, **_STRIDES, "extra_retained_tokens": (0, 1, 3)},
    LATENT_WINDOW: {
        **_SHARDED,
        **_CELLS,
        **_STRIDES,
        "extra_retained_tokens": (0, 1, 3),
        "bounded_replay": (False, True),
        "tokens_per_state": (1, 4),
    },
    STATES: {
        "num_prefill_checkpoint_blocks": (0, 1, 2),
        "prefill_checkpoint_alignment": (None, 16, 8),
        "tp_replicated": (False, True),
        "num_speculative_blocks": (0, 2, 1, 3),
        "mamba_cache_mode": ("none", "align"),
        "page_size_padded": (None, 64),
    },
    HOT: {"page_size": (512, 1), "blocks_per_request": (3, 1), "block_size": (16, 8)},
    RESIDENT: {"page_size": (512, 1), "block_size": (16, 8)},
}
"""Fields of today by class, each with its values; the first is the one that is left out."""
SIZES_DRAWN = {"block_size": (16, 8, 32, 12), "num_kv_heads": (1, 2, 3), "head_size": (8, 24), "dtype": (1, 2, 4)}


def _spec(draw: Draw, names: Sequence[str] = tuple(LEAST)) -> Spec:
    """A spec of one of these classes, with some fields at other values."""
    name = draw.choose(names)
    spec: dict[str, object] = {"type": name, **LEAST[name]}
    if "num_kv_heads" in spec and draw.integer(0, 1):
        field = draw.choose(tuple(SIZES_DRAWN))
        value = draw.choose(SIZES_DRAWN[field])
        spec[field] = {"itemsize": value} if field == "dtype" else value
    some = [draw.choose(tuple(VARIED[name])) for _ in range(draw.choose((1, 2, 0)))]
    for field in VARIED[name] if name == STATES and draw.integer(0, 1) else some:
        spec[field] = draw.choose(VARIED[name][field])
    return {field: value for field, value in spec.items() if value is not None}


def _changed(draw: Draw, spec: Spec, most: int) -> Spec:
    """The spec with one of its fields of today at another value, or as it is."""
    varied = VARIED[str(spec["type"])]
    field = draw.choose(tuple(varied))
    changed = {**spec, field: draw.choose(varied[field])} if draw.integer(0, most) else spec
    return {field: value for field, value in changed.items() if value is not None}


def _record(draw: Draw, configuration: Configuration) -> Asked:
    """What a spec says of itself, or a uniform type of its members."""
    spec = _spec(draw, (*LEAST, STATES))  # whose figures depend on most fields
    if draw.integer(0, 3) == 3:
        members = [spec, _changed(draw, spec, 2), *([_spec(draw)] if draw.integer(0, 2) == 2 else [])]
        named = [[f"m{index}", member] for index, member in enumerate(members)]
        spec = {"type": "UniformTypeKVCacheSpecs", "block_size": spec["block_size"], "kv_cache_specs": named}
    settings = {
        "max_model_len": draw.choose(LENGTHS[1:]),
        "max_num_batched_tokens": draw.choose((1, 7, 64, 512)),
        "decode_context_parallel_size": draw.choose((1, 1, 2, 3)),
        "mamba_cache_mode": draw.choose(("none", "align")),
    }
    return "record", {"spec": spec, "vllm_config": settings, "lengths": [draw.integer(1, 99), draw.choose(LENGTHS[1:])]}


def _merge(draw: Draw, configuration: Configuration) -> Asked:
    """Two or three specs that differ in one field of today, or in none, in any order."""
    first = _spec(draw)
    specs = [first, _changed(draw, first, 3), *([first] if draw.integer(0, 1) else [])]
    return "merge_records", {"specs": specs if draw.integer(0, 1) else specs[::-1]}


def _one_type(draw: Draw, configuration: Configuration) -> Asked:
    """Two specs of a class that differ in one field of today, or in none: whether they may share a block table."""
    first = _spec(draw, (STATES, STATES, FULL, LATENT, LATENT_WINDOW, RING, CHUNK, HOT, RESIDENT))
    specs = [first, _changed(draw, first, 3)]
    alike = [{name: value for name, value in x.items() if name != "extra_retained_tokens"} for x in specs]
    return "one_type", {"specs": alike if draw.integer(0, 1) else alike[::-1]}


def _groups(draw: Draw) -> list[dict[str, object]]:
    """Groups of a configuration, some of them of the host, some not handed over."""
    groups: list[dict[str, object]] = []
    for index in range(draw.choose((2, 1, 3, 4))):
        group: dict[str, object] = {"layers": [f"l{index}.{part}" for part in range(draw.choose((1, 2)))]}
        group |= {"spec": _spec(draw), "host": draw.integer(0, 3) == 3, "handed_over": draw.integer(0, 3) > 0}
        groups.append(group)
    return groups


def _handed_over(draw: Draw, configuration: Configuration) -> Asked:
    groups = _groups(draw)
    rows = [[draw.integer(1, 9)] for _ in range(len(groups) + (draw.integer(0, 7) == 7))]
    return "handed_over", {"groups": groups, "rows": rows, "num_blocks": 9, "host_blocks": draw.choose((5, None))}


def _room(draw: Draw, configuration: Configuration) -> Asked:
    """How many tokens and requests fit into so many blocks, of the host as well."""
    settings = {"max_model_len": draw.choose((64, 17, 100)), "max_num_batched_tokens": draw.choose((7, 64))}
    about = {"groups": _groups(draw), "vllm_config": settings, "num_blocks": draw.choose((9, 64, 1000))}
    return "room", {**about, "host_blocks": draw.choose((50, 3, 1000))}


def _hits(draw: Draw, configuration: Configuration) -> Asked:
    """Where hits of groups end, of how many ranks one has the same, and its specs over several ranks."""
    groups = [_spec(draw, (FULL, STATES, WINDOW, STATES, RING, LATENT)) for _ in range(draw.choose((2, 1, 3)))]
    if draw.integer(0, 1):
        sharded: Spec = {"max_tp_shards": draw.choose((1, 2)), "dcp_sharded": draw.integer(0, 1) > 0}
        groups = [group if group["type"] == STATES else {**group, **sharded} for group in groups]
    settings = {
        "enable_prefix_caching": draw.integer(0, 3) > 0,
        "decode_context_parallel_size": draw.choose((1, 1, 2)),
    }
    ranks = {"ranks": draw.choose((1, 2, 4, 8)), "hash_block_size": draw.choose((8, 16, 4, 32))}
    return "hits_end", {"groups": groups, "vllm_config": settings, "scheduler_block_size": 32, **ranks}


def _views(draw: Draw, configuration: Configuration) -> Asked:
    """Layers as a worker sees them in the allocation, perhaps in the smaller blocks of a kernel."""
    spec = dict(_spec(draw, (FULL, LATENT, WINDOW, STATES)))
    spec.pop("page_size_padded", None)
    layers, blocks = draw.choose((2, 1, 3)), draw.choose((3, 1, 4))
    size = spec["block_size"]
    assert isinstance(size, int)
    kernel = draw.choose((None, None, size, size // 2, size // 4, 5))
    layout = draw.choose(("LBNHC", "LBHNC", "BLHNC", "BLNHC"))
    place = {"layout": layout, "offset": draw.choose((0, 64)), "wider": draw.choose((0, 0, 0, 64))}
    return "views", {"spec": spec, "layers": layers, "num_blocks": blocks, "kernel_block_size": kernel, **place}


def _kept(draw: Draw, configuration: Configuration) -> Asked:
    """Which blocks of a stretch are worth keeping, also for somebody who stores them elsewhere: where hits end at any
    token, and up to the end of a prompt that is still computed."""
    spec, window = dict(_spec(draw, (WINDOW, STATES))), draw.choose((5, 17, 40, 2))
    if spec["type"] == WINDOW:
        spec["sliding_window"] = window
    size = spec["block_size"]
    assert isinstance(size, int)
    start = draw.integer(0, 6)
    unit = draw.choose((size, 2 * size, 3 * size, None, size + 1))
    end = start + draw.integer(1, 12)
    stretch = {"start": start, "end": end, "unit": unit, "interval": draw.choose((None, 0, 6 * size, None))}
    resumed = [draw.integer(0, 16 * size) for _ in range(draw.choose((1, 0, 2)))]
    last = draw.choose((None, end, end + draw.integer(0, 5)))
    return "kept", {"spec": spec, **stretch, "resumed": resumed, "eagle": draw.integer(0, 2) == 0, "last": last}


def _declared(draw: Draw, configuration: Configuration) -> Asked:
    """Groups that a model declares itself: each layer in one, now and then in none or in two."""
    names = [f"l{index}" for index in range(draw.integer(1, 5))]
    cut = draw.integer(1, len(names))
    groups = [part for part in (names[:cut], names[cut:]) if part]
    if draw.integer(0, 3) == 3:
        groups[-1] = draw.choose(([*groups[-1], names[0]], groups[-1][1:]))
    spec = _spec(draw, (FULL, WINDOW))
    return "declared_groups", {"spec": spec, "names": names, "declared": groups, "pools": draw.integer(0, 7) == 7}


NAMES = (
    *("int4_per_token_head", "turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"),
    *("octave_k3v4", "octave_k3v3", "octave_k3v3_compact", "ultraquant_4bit", "nvfp4_ds_mla", "nvfp4", "auto"),
    *("turboquant_", "octave_k4", "int4", "ultraquant", "bfloat16", "int8_per_token_head", "fp8_per_token_head"),
    *("fp8", "fp8_e4m3"),
)


def _quantised(draw: Draw, configuration: Configuration) -> Asked:
    return "quantised", {"names": [draw.choose(NAMES) for _ in range(6)]}


_MANAGERS = (
    *("SingleTypeKVCacheManager", "FullAttentionManager", "SlidingWindowManager", "ChunkedLocalAttentionManager"),
    *("MambaManager", "CircularBufferManager", "CrossAttentionManager", "HiSparseHotManager"),
)
_POOLED = ("HiSparseSourceManager", "HiSparseHotManager", "HiSparseResidentManager")
_BUILT = ("metrics_collector", "num_hash_lookahead_tokens", "num_prefill_lookahead")
_MASK = ("retention_interval", "reachable_boundaries", "dcp_world_size", "final_segment_end_block")
CALLS: Mapping[str, Sequence[str]] = {
    "KVCacheManager": (
        *("max_in_flight_tokens", "enable_caching", "use_eagle", *_BUILT, "log_stats", "enable_kv_cache_events"),
        *("dcp_world_size", "pcp_world_size", "watermark", "enable_mamba_shared_prefix_checkpoint"),
    ),
    "KVCacheManager.get_computed_blocks": ("max_cache_hit_length",),
    "KVCacheManager.get_computed_blocks_for_connector": ("max_cache_hit_length",),
    "KVCacheManager.allocate_slots": ("reserved_blocks", "has_scheduled_reqs", "skip_zeroing_group_ids"),
    "KVCacheManager.remove_skipped_blocks": ("num_prompt_tokens",),
    **{f"{name}KVCacheCoordinator": _BUILT for name in ("Unitary", "Hybrid")},
    "KVCacheCoordinator": _BUILT,
    "KVCacheCoordinatorNoPrefixCache": _BUILT,
    "KVCacheCoordinator.get_num_blocks_to_allocate": ("apply_admission_cap", "prefill_end"),
    "KVCacheCoordinator.allocate_new_computed_blocks": ("skip_zeroing_group_ids",),
    "KVCacheCoordinator.allocate_new_blocks": ("num_encoder_tokens",),
    "get_kv_cache_coordinator": (*_BUILT, "allow_partial_hash_hits"),
    "HybridKVCacheCoordinator.__init__": ("allow_partial_hash_hits",),
    "BlockPool": ("enable_kv_cache_events", "metrics_collector", "num_hash_lookahead_tokens", "medium"),
    "BlockPool.cache_partial_block": ("replace_existing_hashes",),
    "KVCacheBlocks.get_block_ids": ("allow_none", "group_ids"),
    "KVCacheBlock": ("ref_cnt", "is_null", "pool"),
    **{f"{name}.find_longest_cache_hit": ("dcp_world_size", "pcp_world_size") for name in _MANAGERS},
    **{
        f"{name}.get_num_blocks_to_allocate": ("apply_admission_cap", "prefill_end")
        for name in ("SingleTypeKVCacheManager", "MambaManager", "CircularBufferManager", *_POOLED)
    },
    **{
        f"{name}.allocate_external_computed_blocks": ("record_for_zeroing",)
        for name in ("SingleTypeKVCacheManager", "CircularBufferManager", "CrossAttentionManager", *_POOLED)
    },
    **{
        f"{name}.cache_blocks": ("retention_interval",)
        for name in (*_MANAGERS[:2], *_MANAGERS[4:], "HiSparseSourceManager")
    },
    **{f"{name}.reachable_block_mask": _MASK for name in (_MANAGERS[0], "SlidingWindowManager", "MambaManager")},
    **{
        f"{name}.remove_skipped_blocks": ("num_prompt_tokens",)
        for name in ("SingleTypeKVCacheManager", "RSWAManager", "CircularBufferManager", "MambaManager")
    },
    "SingleTypeKVCacheManager": ("dcp_world_size", "pcp_world_size", "needs_kv_cache_zeroing"),
    "HiSparseResidentManager.get_residency_row": ("start",),
    "get_manager_for_kv_cache_spec": ("role",),
    "partial_hash_hits_enabled": ("dcp_world_size", "manager_classes"),
    "get_request_block_hasher": ("num_hash_lookahead_tokens",),
    "resolve_block_hashes": ("supports_fine_grained_hash_lookup", "alignment_tokens"),
    "kv_cache_groups_tp_replicas": ("dcp_size",),
    "compute_layout_strides": ("kernel_block_size",),
    "create_kv_cache_views": ("kernel_block_size",),
    "get_mamba_prefill_checkpoint_position": ("num_hash_lookahead_tokens",),
}
"""Calls of today, with arguments that may be left out."""


def _unsaid(draw: Draw, configuration: Configuration) -> Asked:
    """What is meant by calls that leave arguments out."""
    return "unsaid", {"calls": [[name, list(CALLS[name])] for name in (draw.choose(tuple(CALLS)) for _ in range(12))]}


def _names_ahead(draw: Draw, configuration: Configuration) -> Asked:
    """A prompt with items one behind the other, whose blocks have names that cover some tokens behind them, too."""
    size, items, end = draw.choose((2, 3, 4)), list[Json](), 0
    for index in range(draw.choose((2, 1, 3))):
        offset = end + draw.choose((0, 0, 1, size))
        length = draw.choose((1, 2, size, size + 1, 2 * size + 1))
        items.append([f"item {index}", offset, length])
        end = offset + length
    about = {"items": items, "salt": draw.choose((None, "salt")), "ahead": draw.choose((1, 2, 3))}
    return "names_ahead", {
        "block_size": size,
        "parts": [end + draw.choose((1, 2, size)), *[1] * draw.choose((0, 3))],
        **about,
    }


def _promoted(draw: Draw) -> Asked:
    """Latent layers beside windows whose pages do not fit: perhaps all can be allocated as full attention."""
    latent: Spec = {"type": LATENT, **SIZES, "head_size": draw.choose((20, 12, 8))}
    window: Spec = {"type": WINDOW, **LEAST[WINDOW], "num_kv_heads": draw.choose((3, 1, 2))}
    other: Spec = {"type": CHUNK, **LEAST[CHUNK], "num_kv_heads": 3}
    hidden: Spec = {"type": "HiddenStateCacheSpec", **SIZES}
    states: Spec = {"type": STATES, **LAYERS[STATES].least}
    named = {"s0": latent, "s1": window, **draw.choose(({}, {}, {"s2": other}, {"s2": hidden}, {"s2": states}))}
    return "groups", {"specs": named, "layers": [[f"l{name}", name] for name in named], "vllm_config": {}}


def _rows(draw: Draw, configuration: Configuration) -> Asked:
    """Groups beside rows of hidden states that may be wider than a page; or of pages that do not fit."""
    if draw.integer(0, 2) == 2:
        return _promoted(draw)
    specs: dict[str, Spec] = {}
    for index, name in enumerate(draw.choose(((FULL, WINDOW), (FULL, STATES), (WINDOW, CHUNK, FULL)))):
        specs[f"s{index}"] = {"type": name, **LEAST[name]}
        if draw.integer(0, 1) and name != STATES:
            specs[f"s{index}"] = {**specs[f"s{index}"], "page_size_padded": draw.choose((512, 768, 1024))}
    if STATES in {spec["type"] for spec in specs.values()}:
        specs["s1"] = {"type": STATES, **LAYERS[STATES].least, "page_size_padded": 512}
    row = draw.choose((300, 256, 20, 700, 1025))
    specs["h"] = {"type": "HiddenStateCacheSpec", **SIZES, "head_size": row}
    layers = [[f"l{index}", name] for index, name in enumerate((*specs, *tuple(specs)[: draw.integer(0, 2)]))]
    return "groups", {"specs": specs, "layers": layers, "vllm_config": {}}


def _ratios(draw: Draw, configuration: Configuration) -> Asked:
    """Hash blocks beside states that stand for several tokens."""
    latent: Spec = {"type": LATENT, **SIZES, "compress_ratio": draw.choose((4, 1, 8, 16))}
    states: Spec = {"type": STATES, **LAYERS[STATES].least, "block_size": draw.choose((32, 16))}
    groups: list[Spec] = [latent, {**states, "mamba_cache_mode": draw.choose(("align", "align", "none"))}]
    groups += [{"type": FULL, **SIZES}] if draw.integer(0, 1) else []
    settings = {"hash_block_size": draw.choose((None, 2, 4, 8, 16, 6)), "enable_prefix_caching": draw.integer(0, 3) > 0}
    return "resolve_block_sizes", {"groups": groups, "vllm_config": settings}


def _placed(draw: Draw, configuration: Configuration) -> Asked:
    """Groups of one spec, the last one now and then of larger blocks, which may have to begin at multiples of so many
    bytes."""
    spec = dict(_spec(draw, (FULL, LATENT, WINDOW))) | {"block_stride_alignment": draw.choose((64, 1000, None, 768))}
    if draw.integer(0, 3) == 3:
        spec["block_stride_alignment"] = {"multiple_of": draw.choose((8, 4, 16))}
    layouts = ("LBNHC", "BLHNC", "LBHNC", "BLNHC", "LHBNC", "BHLNC")
    groups = [draw.integer(1, 3) for _ in range(draw.choose((1, 2, 3)))]
    last = {**spec, "block_size": 64} if draw.integer(0, 2) == 2 else spec
    about = {"layout": draw.choose(layouts), "available_memory": 1 << 16}
    return "placed", {"spec": spec, "last": last, "groups": groups, **about}


MADE: Mapping[str, Make] = {
    "record": _record,
    "merge_records": _merge,
    "one_type": _one_type,
    "handed_over": _handed_over,
    "room": _room,
    "hits_end": _hits,
    "views": _views,
    "kept": _kept,
    "declared_groups": _declared,
    "quantised": _quantised,
    "names_ahead": _names_ahead,
    "unsaid": _unsaid,
    "placed": _placed,
    "groups": _rows,
    "resolve_block_sizes": _ratios,
}
"""One question each; of groups, those of hidden states, and of block sizes, those beside compressed states."""
