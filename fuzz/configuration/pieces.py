"""Questions about the pieces that a core is made of, each by itself: classes of specs and what can be done with them,
and the registry. `parts` has those that are about no spec.

`questions` asks about layers and workers. What is about specs takes those of the configuration, often two that differ
in one field only: a comparison that forgets a field shows there.
"""

from collections.abc import Mapping, Sequence

from ...model.attention import RULES
from ...model.config_json import MANAGED, Json
from ...model.config_json import Spec as SpecName
from ...model.pieces.classes import QUANT_MODES, RECORDS
from ..kinds import KINDS, LAYERS, MOSTLY_NARROW, STATE_SPECS
from ..kinds.full import FULL_LAYERS, SINK_LAYERS
from ..kinds.style import BLOCK_SIZES, SIZES, Spec
from ..kinds.style import QUANT_MODES as DRAWN_MODES
from ..workload.draw import Draw
from .draw import LENGTHS, Configuration, listed
from .parts import Asked

DTYPES = ("auto", None, "fp8", "fp8_e4m3", "fp8_ds_mla", "int8_per_token_head", "fp8_per_token_head", "nvfp4")
ODD_DTYPES = ("", "FP8", "xfp8", "int8", "nvfp4x", "int8_per_token_head_x", "fp8_per_token_head_x", "bfloat16", "fp4")
FULL_SPECS = tuple(
    name for name in LAYERS if any(kind.spec == name and RULES[kind.name].is_full for kind in KINDS.values())
)
PARENTS = tuple(LAYERS)[:8]
"""Classes that others are mostly derived from."""
OTHER_PARENTS = (*tuple(LAYERS)[8:], "AttentionSpec")
SERVED = tuple(name for name in LAYERS if SpecName(name) in MANAGED)
UNSERVED = ("KVCacheSpec", "UniformTypeKVCacheSpecs")
CLASSES = (*PARENTS, *OTHER_PARENTS, *UNSERVED)
ALONE = (*PARENTS, *OTHER_PARENTS, *["KVCacheSpec"] * 4)
"""Classes of a spec for itself: of the one that all are derived from no layer can be."""
_NOT_ALONE = {kind.spec for kind in KINDS.values() if "sink_len" in kind.needs or not RULES[kind.name].cacheable}
MANAGED_ALONE = tuple(name for name in (*PARENTS, *OTHER_PARENTS, "KVCacheSpec") if name not in _NOT_ALONE)
"""Classes of which a group's manager is asked by itself: not of sinks, of which vLLM 0.23.0 has none (S-18), nor of
what is never cached, whose requests never count as running."""
ATTENTION_CLASSES = tuple(
    name for name in (*PARENTS, *OTHER_PARENTS) if name not in LAYERS or "num_kv_heads" in LAYERS[name].least
)
STATE_CLASSES = tuple(STATE_SPECS)
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
"""Values to which a field of attention is changed."""


def changed(draw: Draw, spec: Spec) -> Spec:
    """The spec with another value in one field, which may be one that it leaves at its default; or of another class."""
    layers = LAYERS.get(str(spec["type"]))
    own = layers.own if layers else {}
    if "num_kv_heads" not in spec:
        choices: dict[str, Sequence[object]] = dict(own) or {"block_size": BLOCK_SIZES[2:]}
    elif draw.integer(0, 7) == 7:
        return {**_of_class(draw.choose(ATTENTION_CLASSES)), **{key: spec[key] for key in _COMMON if key in spec}}
    else:
        choices = {**_OTHERS, **own}
    apart = tuple(field for field in choices if field not in _OTHERS)  # what tells its class from all others
    field = draw.choose(apart if apart and draw.integer(0, 1) else tuple(choices))
    return {**spec, field: draw.choose([one for one in choices[field] if one != spec.get(field)])}


def alike(draw: Draw, specs: Sequence[Spec]) -> list[Spec]:
    """Two to four specs, two of which differ in one field, in any order; or all equal; or any of them."""
    first = (
        draw.choose(specs) if draw.integer(0, 1) else _of_class(draw.choose((*PARENTS, *OTHER_PARENTS, *STATE_CLASSES)))
    )
    if draw.integer(0, 5) == 5:
        return [first, *[draw.choose(specs) for _ in range(draw.integer(1, 3))]]
    other = changed(draw, first) if draw.integer(0, 3) else first
    return [*draw.choose(([first, other], [other, first])), *([first] * draw.integer(0, 2))]


def windowed(draw: Draw, specs: Sequence[Spec]) -> list[Spec]:
    """Layers of full attention, sinks too, alike but for the windows or chunks that some record."""
    full = [spec for spec in specs if spec["type"] in FULL_SPECS]
    first = draw.choose(full) if full else {**_LIKE, "type": draw.choose(FULL_SPECS)}
    sink = {"type": SINK_LAYERS.name, "sink_len": 128}
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


_LIKE: Spec = {"type": FULL_LAYERS.name, **SIZES}


def _of_class(name: str) -> Spec:
    """A spec of this class, with what it needs and no more."""
    if name in LAYERS:
        return {"type": name, **LAYERS[name].least}
    own: dict[str, object] = {"block_size": SIZES["block_size"]} if name in UNSERVED else dict(SIZES)
    return {"type": name, **own} | ({"kv_cache_specs": []} if name == "UniformTypeKVCacheSpecs" else {})


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


def _without_full(draw: Draw, configuration: Configuration) -> Asked:
    """Layers of like sizes, most of them with a window or a chunk, to be made one kind: there may be no full one."""
    specs = {f"s{index}": _of_class(draw.choose(MOSTLY_NARROW).name) for index in range(draw.integer(2, 3))}
    return "unify_hybrid", {"specs": specs, "layers": listed(tuple((f"l{name}", name) for name in specs))}


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


def _alone(draw: Draw, configuration: Configuration) -> Asked:
    """Page and need of a spec of any class with nothing but what it has to have."""
    spec = _of_class(draw.choose(ALONE))
    if draw.integer(0, 1):
        return "page", {"spec": spec}
    return "max_memory", {"spec": spec, "vllm_config": dict(configuration.vllm_config), "max_model_lens": [64]}


def _manager(draw: Draw, configuration: Configuration) -> Asked:
    """A group's manager by itself; of a class, too, that nobody serves. Its lookups and masks are in small blocks, see
    `targets.small_blocks`."""
    spec = dict(_of_class(draw.choose(MANAGED_ALONE)))
    if spec["type"] in STATE_CLASSES:
        spec |= {"mamba_cache_mode": draw.choose(("all", "none")), "num_speculative_blocks": draw.integer(0, 1)}
    return "manager", {"spec": spec, "ranks": [draw.integer(1, 2), draw.integer(1, 2)], "length": draw.integer(1, 40)}


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
    asked: dict[str, object] = {"specs": [*alike(draw, specs), _uniform(draw, specs), *others]}
    op = draw.choose(("kinds", "registry"))
    return op, asked | ({"first": True} if op == "registry" and draw.integer(0, 1) else {})


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
        steps += [["register", name, "SlidingWindowManager", None, "call"] for name in SERVED]
    return "register", {"classes": classes, "steps": steps}


MAKERS = (
    _compare,
    _merge,
    _merge,
    _uniformity,
    _uniformity,
    _uniformity,
    _without_full,
    _uniform_pages,
    _copy,
    _alone,
    _manager,
    _parallel_memory,
    _kinds,
    _class_fields,
    _quantisation,
    _window_sizes,
    _register,
)
"""One question each."""
