"""Questions about the pieces that a core is made of, each by itself: classes of specs and what can be done with them,
the registry, hashes, the free queue, statistics; and shapes of which no core may be built.

`questions` asks about layers and workers. What is about specs takes those of the configuration, often two that differ
in one field only: a comparison that forgets a field shows there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from ...model.config_json import Json
from ...model.ops import Shape
from ...model.pieces.classes import QUANT_MODES, RECORDS
from ..findings.ops_json import to_json
from ..workload.draw import Draw
from ..workload.shapes import ATTENTION, draw_shape
from .draw import LENGTHS, Configuration, listed
from .specs import ALIGNMENTS, BLOCK_SIZES, CHUNKS, WINDOWS, Spec
from .specs import QUANT_MODES as DRAWN_MODES

Asked: TypeAlias = tuple[str, Mapping[str, object]]
"""An op and its inputs."""

DTYPES = ("auto", None, "fp8", "fp8_e4m3", "fp8_ds_mla", "int8_per_token_head", "fp8_per_token_head", "nvfp4")
ODD_DTYPES = ("", "FP8", "xfp8", "int8", "nvfp4x", "int8_per_token_head_x", "fp8_per_token_head_x", "bfloat16", "fp4")
FULL_SPECS = ("FullAttentionSpec", "TQFullAttentionSpec", "SinkFullAttentionSpec", "MLAAttentionSpec")
PARENTS = (*FULL_SPECS, "HiddenStateCacheSpec", "SlidingWindowSpec", "SlidingWindowMLASpec", "MambaSpec")
OTHER_PARENTS = ("ChunkedLocalAttentionSpec", "CrossAttentionSpec", "EncoderOnlyAttentionSpec", "AttentionSpec")
UNSERVED = ("KVCacheSpec", "UniformTypeKVCacheSpecs")
CLASSES = (*PARENTS, *OTHER_PARENTS, *UNSERVED)
ATTENTION_CLASSES = tuple(name for name in (*PARENTS, *OTHER_PARENTS) if name != "MambaSpec")
KINDS = tuple(kinds for kinds in ATTENTION.values() if "sink" not in kinds)
"""Groups of shapes: all but sinks, of which vLLM 0.23.0 cannot build a core (S-18)."""
MANAGERS = ("OwnManager", "FullAttentionManager", "SlidingWindowManager", None)

_COMMON = ("block_size", "num_kv_heads", "head_size", "dtype", "kv_quant_mode")
_OTHERS: Mapping[str, Sequence[object]] = {
    "block_size": BLOCK_SIZES[2:],
    "num_kv_heads": (1, 2, 3),
    "head_size": (8, 64, 72),
    "dtype": ({"itemsize": 1}, {"itemsize": 2}, {"itemsize": 4}),
    "kv_quant_mode": ("NONE", *DRAWN_MODES),
    "page_size_padded": (None, 512, 256, 1 << 24),
}
_OWN: Mapping[str, Mapping[str, Sequence[object]]] = {
    "Full": {"head_size_v": (8, 64), "sliding_window": (None, *WINDOWS[1:3]), "attention_chunk_size": (None, 6, 16)},
    "TQ": {"tq_slot_size": (0, 63, 100)},
    "MLA": {
        "cache_dtype_str": (None, "fp8_ds_mla", "auto"),
        "alignment": (None, *ALIGNMENTS),
        "compress_ratio": (1, 4),
        "model_version": (None, "deepseek_v4"),
    },
    "Sink": {"sink_len": (128, 256)},
    "SlidingWindow": {"sliding_window": WINDOWS, "head_size_v": (8, 64)},
    "Chunked": {"attention_chunk_size": CHUNKS},
}
_STATES: Mapping[str, Sequence[object]] = {
    "block_size": BLOCK_SIZES[2:],
    "shapes": ([[4]], [[5]]),
    "dtypes": ([{"itemsize": 2}], [{"itemsize": 4}]),
    "page_size_padded": (None, 8, 1 << 24),
    "mamba_type": ("MAMBA1", "MAMBA2", "LINEAR"),
    "mamba_cache_mode": ("none", "all", "align"),
    "num_speculative_blocks": (0, 1, 2),
}
"""Values to which a field is changed, by a part of the class's name."""


def changed(draw: Draw, spec: Spec) -> Spec:
    """The spec with another value in one field, which may be one that it leaves at its default; or of another class."""
    name = str(spec["type"])
    if "num_kv_heads" not in spec:
        choices: dict[str, Sequence[object]] = dict(_STATES) if name == "MambaSpec" else {"block_size": BLOCK_SIZES[2:]}
    elif draw.integer(0, 7) == 7:
        return {**_of_class(draw.choose(ATTENTION_CLASSES)), **{key: spec[key] for key in _COMMON if key in spec}}
    else:
        choices = dict(_OTHERS)
        for part, own in _OWN.items():
            full = part == "Full" and name in (*FULL_SPECS, "HiddenStateCacheSpec")
            if name.startswith(part) or full or (part == "MLA" and ("MLA" in name or name.startswith("Hidden"))):
                choices |= own
    field = draw.choose(tuple(choices))
    return {**spec, field: draw.choose([one for one in choices[field] if one != spec.get(field)])}


def alike(draw: Draw, specs: Sequence[Spec]) -> list[Spec]:
    """Two to four specs, two of which differ in one field, in any order; or all equal; or any of them."""
    first = (
        draw.choose(specs) if draw.integer(0, 1) else _of_class(draw.choose((*PARENTS, *OTHER_PARENTS, "MambaSpec")))
    )
    if draw.integer(0, 5) == 5:
        return [first, *[draw.choose(specs) for _ in range(draw.integer(1, 3))]]
    other = changed(draw, first) if draw.integer(0, 3) else first
    return [*draw.choose(([first, other], [other, first])), *([first] * draw.integer(0, 2))]


def windowed(draw: Draw, specs: Sequence[Spec]) -> list[Spec]:
    """Layers of full attention, sinks too, alike but for the windows or chunks that some record."""
    full = [spec for spec in specs if spec["type"] in FULL_SPECS]
    first = draw.choose(full) if full else {**_LIKE, "type": draw.choose(FULL_SPECS)}
    sink = {"type": "SinkFullAttentionSpec", "sink_len": 128}
    if draw.integer(0, 1):
        first = {name: first[name] for name in _COMMON if name in first} | sink
    field, sizes = draw.choose((("sliding_window", (5, 5, 17)), ("attention_chunk_size", (6, 6, 16))))
    bare = {name: value for name, value in first.items() if name not in ("sliding_window", "attention_chunk_size")}
    layers: list[Spec] = []
    for _ in range(draw.integer(1, 4)):
        layers.append({**bare, field: draw.choose(sizes)} if draw.integer(0, 1) else bare)
    if draw.integer(0, 5) == 5:
        layers.append({**bare, "attention_chunk_size": 6})
    return layers


_SIZES = {"block_size": 16, "num_kv_heads": 1, "head_size": 8, "dtype": {"itemsize": 2}}
_LIKE: Spec = {"type": "FullAttentionSpec", **_SIZES}


def _of_class(name: str) -> Spec:
    """A spec of this class, with what it needs and no more."""
    own: dict[str, object] = {"block_size": 16} if name in (*UNSERVED, "MambaSpec") else dict(_SIZES)
    if name == "UniformTypeKVCacheSpecs":
        own["kv_cache_specs"] = []
    if name == "MambaSpec":
        own |= {"shapes": [[4]], "dtypes": [{"itemsize": 2}]}
    if name.startswith("SlidingWindow"):
        own["sliding_window"] = 5
    if name == "ChunkedLocalAttentionSpec":
        own["attention_chunk_size"] = 6
    return {"type": name, **own}


def _specs(configuration: Configuration) -> tuple[Spec, ...]:
    return tuple(configuration.specs.values()) or (_LIKE,)


def _uniform(draw: Draw, specs: Sequence[Spec]) -> Spec:
    """A uniform type, also one without members, or whose members would not form one."""
    members = alike(draw, specs) if draw.integer(0, 9) else []
    named = [[f"m{index}", spec] for index, spec in enumerate(members)]
    return {"type": "UniformTypeKVCacheSpecs", "block_size": 16, "kv_cache_specs": named}


def _compare(draw: Draw, configuration: Configuration) -> Asked:
    specs = alike(draw, _specs(configuration))
    return "compare", {"specs": [*specs, _uniform(draw, specs)] if draw.integer(0, 3) == 3 else specs}


def _merge(draw: Draw, configuration: Configuration) -> Asked:
    make = windowed if draw.integer(0, 1) else alike
    return "merge", {"specs": make(draw, _specs(configuration))}


def _uniformity(draw: Draw, configuration: Configuration) -> Asked:
    """Of layers that differ in one field; for the groups of these, of layers that can be merged."""
    make = windowed if draw.integer(0, 2) == 2 else alike
    specs = {f"s{index}": spec for index, spec in enumerate(make(draw, _specs(configuration)))}
    layers = listed(tuple((f"l{index}", name) for index, name in enumerate(specs)))
    about = {"specs": specs, "layers": layers, "vllm_config": dict(configuration.vllm_config)}
    op = draw.choose(("uniformity", "group_specs", "helpers", "groups", "uniform_info"))
    if op == "group_specs":
        names = [f"l{index}" for index in range(len(specs))]
        cut = draw.integer(0, len(names) - 1)
        return op, {**about, "names": [names[cut:], names[:cut]] if cut else [names]}
    if op == "helpers":
        return op, {**about, "layers": layers if draw.integer(0, 7) else [], "num_blocks": draw.choose((9, 0, 1 << 20))}
    return op, {name: value for name, value in about.items() if name != "vllm_config" or op != "uniformity"}


def _uniform_pages(draw: Draw, configuration: Configuration) -> Asked:
    """A uniform type made by hand, of members that need not agree in how many blocks they need."""
    specs = [*alike(draw, _specs(configuration)), _of_class(draw.choose((*PARENTS, *OTHER_PARENTS)))]
    members = [[f"m{index}", spec] for index, spec in enumerate(specs[-draw.integer(1, len(specs)) :])]
    uniform = {"type": "UniformTypeKVCacheSpecs", "block_size": 16, "kv_cache_specs": members}
    return "uniform_pages", {"spec": uniform, "vllm_config": dict(configuration.vllm_config)}


def _copy(draw: Draw, configuration: Configuration) -> Asked:
    spec = changed(draw, draw.choose(_specs(configuration)))
    if draw.integer(0, 1):
        return "page", {"spec": spec}
    return "copy", {"spec": spec, "block_size": draw.choose((32, 64, 16, 128, 4))}


def _parallel_memory(draw: Draw, configuration: Configuration) -> Asked:
    """What a request needs under several ranks, and in each mode of states."""
    settings = dict(configuration.vllm_config)
    settings |= {f"{name}_context_parallel_size": draw.choose((1, 2, 3, 4)) for name in ("decode", "prefill")}
    settings["mamba_cache_mode"] = draw.choose(("none", "all", "align"))
    lengths = [draw.choose(LENGTHS), draw.integer(1, 5000)]
    return "max_memory", {
        "spec": draw.choose(_specs(configuration)),
        "vllm_config": settings,
        "max_model_lens": lengths,
    }


def _kinds(draw: Draw, configuration: Configuration) -> Asked:
    specs = _specs(configuration)
    others = [_of_class(draw.choose(CLASSES)) for _ in range(3)]
    return draw.choose(("kinds", "registry")), {"specs": [*alike(draw, specs), _uniform(draw, specs), *others]}


def _class_fields(draw: Draw, configuration: Configuration) -> Asked:
    return "class_fields", {"classes": [draw.choose((*CLASSES, *RECORDS)) for _ in range(2)]}


def _quantisation(draw: Draw, configuration: Configuration) -> Asked:
    if draw.integer(0, 1):
        return "quant_flags", {"modes": [draw.choose(QUANT_MODES) for _ in range(2)]}
    dtypes = [draw.choose((*DTYPES, *ODD_DTYPES)) for _ in range(8)]
    return "quant_modes", {"kv_cache_dtypes": dtypes}


def _window_sizes(draw: Draw, configuration: Configuration) -> Asked:
    sets = [[draw.integer(1, 3) for _ in range(draw.integer(0, 2))] for _ in range(3)]
    return "window_sizes", {"sets": [sorted(set(sizes)) for sizes in sets]}


def _register(draw: Draw, configuration: Configuration) -> Asked:
    """Classes of one's own, one perhaps derived from another, registered, also twice and in conflict, and looked up."""
    classes: list[list[str]] = []
    for index in range(draw.integer(1, 3)):
        before = tuple(name for name, _ in classes)
        classes.append([f"Own{index}", draw.choose((*PARENTS, *CLASSES, *before, *before))])
    names = tuple(name for name, _ in classes)

    def entry() -> list[Json]:
        name = draw.choose(names)
        base = draw.choose((None, name, dict(classes)[name], "FullAttentionSpec", draw.choose(CLASSES)))
        return ["register", name, draw.choose((*MANAGERS[:3], *MANAGERS)), base, draw.choose(("call", "decorator"))]

    steps: list[Json] = []
    for _ in range(draw.integer(2, 7)):
        way = draw.integer(0, 5)
        entries = [step for step in steps if isinstance(step, list) and step[0] == "register"]
        if way == 0 and entries:
            steps.append(draw.choose(entries))  # once more, and the same
        elif way <= 3:
            steps.append(entry())
        elif way == 4:
            steps.append(["check", [draw.choose((*names, *PARENTS[:3])) for _ in range(2)]])
        steps.append(["find", draw.choose((*names, *names, draw.choose(CLASSES)))])
    if draw.integer(0, 7) == 7:  # a built-in entry is nobody's to change
        steps.append(["register", "FullAttentionSpec", "SlidingWindowManager", None, "call"])
    return "register", {"classes": classes, "steps": steps}


def _hashes(draw: Draw, most: int) -> list[str]:
    return [f"{draw.integer(0, (1 << 96) - 1):024x}" for _ in range(draw.integer(0, most))]


def _hash_list(draw: Draw, configuration: Configuration) -> Asked:
    """A view, slices of it, and one index last, which may lead out of it."""
    size = draw.choose((4, 1, 16))
    target = size * draw.choose((2, 3, 1, 4)) + (draw.integer(0, 29) == 29)
    hashes = [f"{index:02x}" for index in range(draw.integer(0, 9))]
    places = (None, 0, 1, -1, 2, -2, 9)
    indices: list[Json] = []
    for _ in range(draw.integer(0, 3)):
        step = draw.choose((None, 1, 2, -1, -2, None if draw.integer(0, 9) else 0))
        indices.append([draw.choose(places), draw.choose(places), step])
    length = len(hashes) * size // target
    if draw.integer(0, 2):
        inside = draw.integer(0, max(0, length - 1))
        outside: tuple[Json, ...] = (-1, -length, length, -length - 1, length + 2, {"index": inside}, "1", 1.5)
        indices.append(inside if length and draw.integer(0, 1) else draw.choose(outside))
    grown = [f"{index:02x}" for index in range(100, 100 + draw.integer(0, 5))]
    about = {"hashes": hashes, "hash_block_size": size, "target_block_size": target, "indices": indices}
    return "hash_list", {**about, "grown": grown}


def _hash_keys(draw: Draw, configuration: Configuration) -> Asked:
    if draw.integer(0, 1):
        return "external_hashes", {"hashes": _hashes(draw, 3), "as_int": draw.choose((None, 1, 0))}
    groups = (0, 1, 255, 256, 65_536, (1 << 32) - 1, draw.integer(0, (1 << 32) - 1))
    odd = (-1, 1 << 32)
    return "hash_keys", {"draws": [[one, draw.choose((*groups, *odd))] for one in ["", *_hashes(draw, 3)]]}


def _none_hash(draw: Draw, configuration: Configuration) -> Asked:
    parents = [draw.choose((None, "", "above")) for _ in range(2)]
    tokens = [draw.integer(0, 99) for _ in range(draw.integer(1, 4))]
    return "none_hash", {"seed": draw.choose((None, "0", "7", "")), "tokens": tokens, "parents": parents}


def _block(draw: Draw, configuration: Configuration) -> Asked:
    steps = [["set", [hashed, draw.integer(0, 3)]] if draw.integer(0, 1) else ["reset"] for hashed in _hashes(draw, 5)]
    return "block", {"steps": steps}


def _free_queue(draw: Draw, configuration: Configuration) -> Asked:
    """Blocks that are taken and given back in all ways; only what is not there is given back."""
    blocks = draw.choose((4, 1, 8, 12))
    free = _some_of(draw, list(range(blocks))) if draw.integer(0, 3) else []
    queue, steps = list(free), list[Json]()
    for _ in range(draw.integer(1, 10)):
        held = [block for block in range(blocks) if block not in queue]
        way = draw.choose(("popleft", "popleft_n", "remove", "append", "append_n", "prepend_n"))
        if way == "popleft":
            queue = queue[1:]
            steps.append([way])
        elif way == "popleft_n":
            count = draw.integer(0, len(queue) + (draw.integer(0, 4) == 4))
            queue = queue[count:] if count <= len(queue) else queue
            steps.append([way, count])
        elif way == "remove":
            block = draw.choose(queue) if queue and draw.integer(0, 4) else draw.integer(0, blocks - 1)
            queue = [one for one in queue if one != block]
            steps.append([way, block])
        elif way != "append" or held:
            given = [draw.choose(held)] if way == "append" else _some_of(draw, held)
            queue = [*given, *queue] if way == "prepend_n" else [*queue, *given]
            steps.append([way, given[0] if way == "append" else list[Json](given)])
    return "free_queue", {"blocks": blocks, "free": free, "steps": steps}


def _some_of(draw: Draw, numbers: Sequence[int]) -> list[int]:
    """Some of them, in any order."""
    left, some = list(numbers), []
    for _ in range(draw.integer(0, len(left))):
        some.append(left.pop(draw.integer(0, len(left) - 1)))
    return some


def _caching_metrics(draw: Draw, configuration: Configuration) -> Asked:
    """Updates around the limit; some without requests, some larger than it, some that begin anew."""
    if draw.integer(0, 4) == 4:
        records = [
            [draw.integer(0, 99), draw.integer(0, 9), bool(draw.integer(0, 1))] for _ in range(draw.integer(0, 4))
        ]
        return "cache_stats", {"records": records}
    most = draw.choose((5, 1, 10, None))
    updates = []
    for _ in range(draw.integer(1, 8)):
        requests = draw.choose((1, 2, 0, 3, most or 400, (most or 400) + 1, draw.integer(0, 1500)))
        queries = draw.choose((0, 10, draw.integer(0, 1 << 40)))
        update: dict[str, object] = {"requests": requests, "queries": queries, "hits": draw.integer(0, queries)}
        updates.append(update | ({"reset": True} if draw.integer(0, 7) == 7 else {}))
    return "caching_metrics", {"max_recent_requests": most, "updates": updates}


def _build(draw: Draw, configuration: Configuration) -> Asked:
    """A shape of which a core can be built; most often with one or two things in it that do not go together."""
    shape = draw_shape(draw, draw.choose(KINDS))
    for _ in range(draw.choose((1, 2, 0))):
        shape = spoiled(draw, shape)
    return "build", {"shape": to_json(shape)}


def spoiled(draw: Draw, shape: Shape) -> Shape:
    """The shape with another value in something that has to fit the rest; it may still fit."""
    unit, groups = shape.scheduler_block_size, shape.groups
    match draw.integer(0, 7):
        case 0 | 1:
            intervals = (0, unit, 2 * unit, unit - 1, unit + 1, 1, -unit, -1)
            return replace(shape, retention_interval=draw.choose(intervals))
        case 2:
            size = shape.hash_block_size
            return replace(shape, hash_block_size=draw.choose((size * 2, 1, size + 1, max(1, size // 2), unit)))
        case 3:
            return replace(
                shape, scheduler_block_size=draw.choose((unit + 1, unit * 2, max(1, unit // 2), unit * 3, 1))
            )
        case 4:
            decode, prefill = draw.choose(((2, 1), (1, 2), (3, 1)))
            return replace(shape, decode_parallel=decode, prefill_parallel=prefill)
        case 5:
            return replace(shape, num_blocks=draw.choose((0, 1, 2, -1)))
        case 6:
            return replace(shape, caching=not shape.caching)
    repeated = draw.choose(groups)
    way = draw.integer(0, 2)
    if way == 0:
        return replace(shape, groups=(*groups, repeated))
    return replace(shape, groups=(repeated, repeated) if way == 1 else (repeated,))


MAKERS = (
    _compare,
    _merge,
    _merge,
    _uniformity,
    _uniformity,
    _uniformity,
    _uniform_pages,
    _copy,
    _parallel_memory,
    _kinds,
    _class_fields,
    _quantisation,
    _window_sizes,
    _register,
    _hash_list,
    _hash_keys,
    _none_hash,
    _block,
    _free_queue,
    _caching_metrics,
    _build,
)
"""One question each."""
