"""Questions about a drawn configuration, in the language of configuration arithmetic.

A question is an op and its inputs, plain JSON; which ops there are and what they take is what `calculator.answer` and
the model's `Rules.answer` understand.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ...model.config_json import NARROW
from ..kinds.style import Spec
from ..workload.draw import Draw
from .draw import LENGTHS, Configuration, Layers, listed
from .parts import PARTS
from .pieces import MAKERS
from .today import MADE, RECORDS

UNIFORM_MEMBERS = 4
PIECES = 15
"""Questions about pieces that are put with each configuration."""


class Question(NamedTuple):
    """What is asked: an op and its inputs."""

    op: str
    inputs: Mapping[str, object]


Maker: TypeAlias = Callable[[Draw, Configuration], Question]


def draw_questions(draw: Draw, configuration: Configuration, asks: Sequence[str] = ()) -> list[Question]:
    """Questions about its specs, its layers and the whole; each op on or off, a few always on. `asks`: those of today
    that can be asked besides."""
    questions = [make(draw, configuration) for make in _ALWAYS]
    questions += [make(draw, configuration) for make in _SOMETIMES if draw.integer(0, 1)]
    specs = [draw.choose(tuple(configuration.specs.values())) for _ in range(2)] if configuration.specs else []
    if len(specs) == 2 and draw.integer(0, 3) == 3:
        specs[1] = _uniform(draw, configuration)
    for spec in specs:
        questions += _about_spec(draw, configuration, spec)
    pieces = (draw.choose((*MAKERS, *PARTS))(draw, configuration) for _ in range(PIECES))
    asked = [*questions, *[Question(op, inputs) for op, inputs in pieces], *_besides(questions)]
    today = (MADE[draw.choose(asks)](draw, configuration) for _ in range(RECORDS if asks else 0))
    return [*asked, *[Question(op, inputs) for op, inputs in today]]


def _besides(questions: Sequence[Question]) -> Iterator[Question]:
    """Questions that follow from these, without a draw: pages of packed numbers, and whether a model fits into less
    than nothing, also one whose need cannot be said."""
    for op, inputs in questions:
        spec, settings = inputs.get("spec"), inputs.get("vllm_config")
        if op == "page" and isinstance(spec, Mapping) and "num_kv_heads" in spec:
            yield Question(op, {"spec": {**spec, "kv_quant_mode": "NVFP4"}})
        if op == "check_memory" and isinstance(settings, Mapping):
            ranks = {**settings, "decode_context_parallel_size": 2}
            yield Question(op, {**inputs, "vllm_config": ranks, "available_memory": -1})


def _about_spec(draw: Draw, configuration: Configuration, spec: Spec) -> list[Question]:
    questions = [Question("page", {"spec": spec})]
    block_size = spec["block_size"]
    assert isinstance(block_size, int)
    if draw.integer(0, 1):
        size = draw.choose((block_size * 2, block_size * 4, block_size * 3, block_size // 2, 16))
        questions.append(Question("resize", {"spec": spec, "block_size": size}))
    lengths = sorted(draw.choose((draw.choose(LENGTHS), draw.integer(1, 5000))) for _ in range(draw.choose((3, 1, 6))))
    about = {"spec": spec, "vllm_config": dict(configuration.vllm_config), "max_model_lens": lengths}
    questions.append(Question("max_memory", about))
    if spec["type"] in NARROW:
        caps = [[draw.choose((512, 1, 2, 7, 64, 8192)), draw.choose(lengths)] for _ in range(3)]
        questions.append(Question("admission_cap", {"spec": spec, "draws": caps}))
    return questions


def _uniform(draw: Draw, configuration: Configuration) -> Spec:
    """A few of the specs as members of one."""
    members = [spec for spec in configuration.specs.values() if spec["type"] not in ("KVCacheSpec", "AttentionSpec")]
    members = members[: draw.integer(1, UNIFORM_MEMBERS)] or list(configuration.specs.values())[:1]
    named = [[f"m{index}", spec] for index, spec in enumerate(members)]
    return {"type": "UniformTypeKVCacheSpecs", "block_size": members[0]["block_size"], "kv_cache_specs": named}


def _some_specs(draw: Draw, configuration: Configuration, most: int) -> list[Spec]:
    specs = tuple(configuration.specs.values())
    return [draw.choose(specs) for _ in range(draw.integer(1, most))] if specs else []


def _some_layers(draw: Draw, configuration: Configuration) -> Layers:
    """All layers, or those of one or two specs, or a stretch of them."""
    layers = configuration.layers
    way = draw.integer(0, 3)
    if way == 1 and layers:
        kept = {draw.choose(layers)[1], draw.choose(layers)[1]}
        return tuple(layer for layer in layers if layer[1] in kept)
    if way == 2:
        start = draw.integer(0, len(layers))
        return layers[start : draw.integer(start, len(layers))]
    return layers


def _ask_layers(op: str) -> Maker:
    """About some of the layers."""

    def make(draw: Draw, configuration: Configuration) -> Question:
        layers = _some_layers(draw, configuration)
        used = {spec for _, spec in layers}
        specs = {name: spec for name, spec in configuration.specs.items() if name in used}
        return Question(op, {"specs": specs, "layers": listed(layers)})

    return make


def _uniform_info(draw: Draw, configuration: Configuration) -> Question:
    about = _ask_layers("uniform_info")(draw, configuration).inputs
    return Question("uniform_info", {**about, "vllm_config": dict(configuration.vllm_config)})


def _ask_model(op: str, memory: bool = False) -> Maker:
    """About all layers under the configuration's settings, on one worker with its memory where that counts, or with
    what one token needs."""

    def make(draw: Draw, configuration: Configuration) -> Question:
        figures = (configuration.one_memory, configuration.one_memory, *configuration.least)
        more = {"available_memory": draw.choose(figures)} if memory else {}
        return Question(op, configuration.about_layers(vllm_config=dict(configuration.vllm_config), **more))

    return make


def _configs(draw: Draw, configuration: Configuration) -> Question:
    return Question("configs", configuration.about_workers())


def _project(draw: Draw, configuration: Configuration) -> Question:
    worker: Sequence[tuple[str, str]] = draw.choose(configuration.workers)
    if draw.integer(0, 3) == 3:
        worker = [layer for layer in configuration.layers if draw.integer(0, 1)]
    about = configuration.about_layers(vllm_config=dict(configuration.vllm_config), worker=[name for name, _ in worker])
    return Question("project", about)


def _max_concurrency(draw: Draw, configuration: Configuration) -> Question:
    settings = dict(configuration.vllm_config)
    blocks = draw.choose((1000, 1, 0, draw.integer(1, 1 << 20)))
    return Question("max_concurrency", configuration.about_layers(vllm_config=settings, num_blocks=blocks))


def _merge(draw: Draw, configuration: Configuration) -> Question:
    specs = _some_specs(draw, configuration, 4)
    if not specs:
        return _approximate_gcd(draw, configuration)
    if draw.integer(0, 2) == 2:  # alike, so that it succeeds
        specs = specs[:1] * len(specs)
    return Question("merge", {"specs": specs})


def _resolve_block_sizes(draw: Draw, configuration: Configuration) -> Question:
    groups = _some_specs(draw, configuration, 4) if draw.integer(0, 5) else []
    return Question("resolve_block_sizes", {"groups": groups, "vllm_config": dict(configuration.vllm_config)})


def _num_blocks(draw: Draw, configuration: Configuration) -> Question:
    draws = [
        [draw.integer(1, 80), draw.integer(-(1 << 20), 1 << 34), draw.choose((512, 8640, 65536, 1))] for _ in range(3)
    ]
    return Question("num_blocks", {"draws": draws, "vllm_config": dict(configuration.vllm_config)})


def _approximate_gcd(draw: Draw, configuration: Configuration) -> Question:
    def one() -> list[object]:
        values = [draw.integer(1, draw.choose((8, 20, 60))) for _ in range(draw.integer(1, 6))]
        return [values, draw.choose((None, values[0], draw.integer(1, 30)))]

    draws = [one() for _ in range(3)]
    if draw.integer(0, 19) == 19:
        draws = [[draw.choose(([], [3, 0], [3, -1])), None]]
    return Question("approximate_gcd", {"draws": draws})


_ALWAYS: Sequence[Maker] = (_ask_model("groups"), _configs)
_SOMETIMES: Sequence[Maker] = (
    _ask_layers("uniformity"),
    _uniform_info,
    _ask_layers("unify_page_size"),
    _ask_layers("unify_hybrid"),
    _merge,
    _merge,
    _resolve_block_sizes,
    _project,
    _ask_model("needed"),
    _ask_model("estimate", memory=True),
    _ask_model("estimate_from_groups", memory=True),
    _ask_model("check_memory", memory=True),
    _ask_model("config_from_groups", memory=True),
    _max_concurrency,
    _num_blocks,
    _approximate_gcd,
)
