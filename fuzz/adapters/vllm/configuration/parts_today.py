"""What cores of today answer to questions about pieces in another form than the chapter, where that is as good."""

from collections.abc import Callable, Mapping

from .....model.arith import usage
from .....model.attention import demand
from .....model.config.capacity import Rules
from .....model.config_json import FULL, Json, Layer, show_spec
from .....model.core import Model
from .....model.features.today import TODAY
from .....model.ops import Failed, Lookup, Shape, Submit
from .....model.pieces.classes import is_per_token_head, kind_of, quant_mode, window_of
from ....findings.ops_json import shape_from_json
from ....targets.configuration_question import ConstructedQuestion, outcome_as_json
from ....targets.piece_answers import PIECES

MODES: Mapping[str, int] = {
    "NONE": 0,
    "FP8_PER_TENSOR": 1,
    "INT8_PER_TOKEN_HEAD": 2,
    "FP8_PER_TOKEN_HEAD": 3,
    "NVFP4": 5,
}
"""Numbers of the modes of quantisation of which questions are asked; those between are new."""
SEED = "vllm-none-hash"
"""What the parent of first blocks is made of where nothing is said: processes that share a cache agree on it, and
hashes that hold against collisions need no secret."""


def quant_modes(rules: Rules, q: ConstructedQuestion) -> Json:
    """As in the chapter, with other numbers; every name that begins with that of packed rows stands for them."""
    modes = ["NVFP4" if name.startswith("nvfp4") else quant_mode(name) for name in q.given.kv_cache_dtypes]
    return [[mode, MODES[mode], mode != "NONE", is_per_token_head(mode)] for mode in modes]


def quant_flags(rules: Rules, q: ConstructedQuestion) -> Json:
    """Number and properties of each mode."""
    return [[MODES[mode], is_per_token_head(mode), mode == "NVFP4"] for mode in q.given.modes]


def kinds(rules: Rules, q: ConstructedQuestion) -> Json:
    """A uniform type of several kinds of full attention is full attention."""
    specs = [q.read(raw) for raw in q.given.specs]
    return [[_kind(x), window_of(x)] for x in specs]


def _kind(x: Layer) -> str:
    kind = kind_of(x)
    full = kind == "unknown" and bool(x.members) and all(member.type in FULL for member in x.members)
    return "full_attention" if full else kind


def copied(rules: Rules, q: ConstructedQuestion) -> Json:
    """A spec with another block size, and the one that it was made of."""
    x, before = rules.resize(q.spec, q.given.block_size), q.spec
    return {"spec": show_spec(x), "before": show_spec(before)}


def cold(rules: Rules, q: ConstructedQuestion) -> Json:
    """Free blocks and usage of a core that nobody has used, and what a lookup of a prompt comes to."""
    shape = shape_from_json(q.given.shape)
    rules.build(shape)
    free, model = shape.num_blocks - 1, Model(shape, TODAY)
    model.apply(Submit("r", tuple(q.given.prompt)))
    found = outcome_as_json(model.apply(Lookup("r")))
    return {"free": free, "usage": usage(free, shape.num_blocks), "found": found, "common": [0] * len(shape.groups)}


def none_hash(rules: Rules, q: ConstructedQuestion) -> Json:
    """As in the chapter, but the same each time; and the seed is told."""
    shown = PIECES["none_hash"](rules, q)
    assert isinstance(shown, Mapping)
    if q.given.seed is None:
        return {**shown, "none_hash": {"bytes": len(SEED), "again": True}, "told": SEED}
    return {**shown, "told": q.given.seed}


def cache_stats(rules: Rules, q: ConstructedQuestion) -> Json:
    """Hits are also told by where they came from, which these records do not say."""
    shown = PIECES["cache_stats"](rules, q)
    assert isinstance(shown, Mapping)
    return {**shown, "hits_by_source": {}}


def build(shape: Shape) -> None:
    """Refuses shapes of which no core of today may be built."""
    outcome = Model(shape, TODAY).construction
    if isinstance(outcome, Failed):
        demand(False, outcome.error)


PARTS_TODAY: Mapping[str, Callable[[Rules, ConstructedQuestion], Json]] = {
    "quant_modes": quant_modes,
    "quant_flags": quant_flags,
    "kinds": kinds,
    "copy": copied,
    "cold": cold,
    "none_hash": none_hash,
    "cache_stats": cache_stats,
}
