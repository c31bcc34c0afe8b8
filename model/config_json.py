"""What the arithmetic of configurations is about, as records and as JSON: specs, settings, groups, workers.

The JSON is that of the golden vectors: fields of a spec at their default are left out, and the specs of an answer are
numbered by first use. `config` computes with the records.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import NamedTuple, TypeAlias, TypeVar

from .attention import RULES, CoreError, Rule
from .ops import Group, Kind

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
T = TypeVar("T")


class Spec(StrEnum):
    """The spec classes (specs-and-config.md §2)."""

    BASE, ATTENTION, UNIFORM = "KVCacheSpec", "AttentionSpec", "UniformTypeKVCacheSpecs"
    FULL, TQ, SINK = "FullAttentionSpec", "TQFullAttentionSpec", "SinkFullAttentionSpec"
    MLA, HIDDEN = "MLAAttentionSpec", "HiddenStateCacheSpec"
    WINDOW, WINDOW_MLA, CHUNK = "SlidingWindowSpec", "SlidingWindowMLASpec", "ChunkedLocalAttentionSpec"
    MAMBA, CROSS, ENCODER = "MambaSpec", "CrossAttentionSpec", "EncoderOnlyAttentionSpec"


class SpecClass(NamedTuple):
    """What a spec class is (§§2, 6)."""

    parent: Spec | None
    fields: tuple[str, ...]
    """Those that it adds to its parent's."""
    kind: Kind | None = None
    """Of the group that layers of this class make in the core; None: no manager serves them."""
    manager: str = ""
    """The class that serves them."""
    sizes: Mapping[str, str] = {}
    """Fields of such a group that the spec has to say: the name in `Group`, and that in the spec."""
    by_place: bool = False
    """Whether its own fields may be given by their place."""


_HEADS = ("num_kv_heads", "head_size", "dtype", "kv_quant_mode", "page_size_padded")
_LAYOUT = ("cache_dtype_str", "alignment", "compress_ratio", "model_version")
_STATES = ("shapes", "dtypes", "page_size_padded", "mamba_type", "mamba_cache_mode", "num_speculative_blocks")
_RECORDED = ("head_size_v", "sliding_window", "attention_chunk_size")
_WINDOW, _CHUNK = {"window": "sliding_window"}, {"chunk": "attention_chunk_size"}
_OF_FULL, _OF_WINDOWS, _OF_CHUNKS = "FullAttentionManager", "SlidingWindowManager", "ChunkedLocalAttentionManager"
SPECS: Mapping[Spec, SpecClass] = {
    Spec.BASE: SpecClass(None, ("block_size",), by_place=True),
    Spec.ATTENTION: SpecClass(Spec.BASE, _HEADS),
    Spec.FULL: SpecClass(Spec.ATTENTION, _RECORDED, "full", _OF_FULL),
    Spec.TQ: SpecClass(Spec.FULL, ("tq_slot_size",), "tq", _OF_FULL),
    Spec.MLA: SpecClass(Spec.FULL, _LAYOUT, "mla", _OF_FULL),
    Spec.HIDDEN: SpecClass(Spec.MLA, (), "mla", _OF_FULL),
    Spec.SINK: SpecClass(Spec.FULL, ("sink_len",), "sink", "SinkFullAttentionManager", by_place=True),
    Spec.CHUNK: SpecClass(Spec.ATTENTION, ("attention_chunk_size",), "chunked", _OF_CHUNKS, _CHUNK),
    Spec.WINDOW: SpecClass(Spec.ATTENTION, ("sliding_window", "head_size_v"), "sliding", _OF_WINDOWS, _WINDOW),
    Spec.WINDOW_MLA: SpecClass(Spec.WINDOW, _LAYOUT, "sliding_mla", _OF_WINDOWS, _WINDOW),
    Spec.MAMBA: SpecClass(Spec.BASE, _STATES, "mamba", "MambaManager", by_place=True),
    Spec.ENCODER: SpecClass(Spec.ATTENTION, ()),
    Spec.CROSS: SpecClass(Spec.ATTENTION, (), "cross", "CrossAttentionManager"),
    Spec.UNIFORM: SpecClass(Spec.BASE, ("kv_cache_specs",), by_place=True),
}
"""Every spec class."""
MANAGED: Mapping[Spec, Kind] = {spec: of.kind for spec, of in SPECS.items() if of.kind is not None}
"""The kind of group that layers of a class make in the core; classes left out have no manager (§6)."""
FULL = {spec for spec, kind in MANAGED.items() if RULES[kind].is_full}
MLA = {spec for spec, kind in MANAGED.items() if kind == "mla"}
WINDOWS = {spec for spec, kind in MANAGED.items() if RULES[kind].windowed}
NARROW = {spec for spec, kind in MANAGED.items() if RULES[kind].cap is not Rule.cap}
"""Of which a request holds fewer blocks than its length takes."""
LATENT = MLA | {Spec.WINDOW_MLA}
"""One vector a token instead of a key and a value."""
NOT_ATTENTION = {Spec.BASE, Spec.UNIFORM, Spec.MAMBA}
V4, PACKED = "deepseek_v4", "fp8_ds_mla"
"""A model version and a cache dtype that have layouts of their own."""


@dataclass(frozen=True)
class Layer:
    """The spec of a layer (§2). What its class does not have stays at the default."""

    type: Spec
    block_size: int
    num_kv_heads: int = 0
    head_size: int = 0
    dtype: int = 0
    """Bytes of one number."""
    kv_quant_mode: str = "NONE"
    page_size_padded: int | None = None
    head_size_v: int | None = None
    sliding_window: int | None = None
    attention_chunk_size: int | None = None
    tq_slot_size: int = 0
    cache_dtype_str: str | None = None
    alignment: int | None = None
    compress_ratio: int = 1
    model_version: str | None = None
    sink_len: int | None = None
    shapes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[int, ...] = ()
    mamba_type: str = "MAMBA2"
    mamba_cache_mode: str = "none"
    num_speculative_blocks: int = 0
    kv_cache_specs: tuple[tuple[str, "Layer"], ...] = ()
    """Members of a uniform type, with their layers' names."""

    @property
    def members(self) -> list["Layer"]:
        """Specs of the members of a uniform type."""
        return [x for _, x in self.kv_cache_specs]

    @property
    def sizes(self) -> dict[str, int | None]:
        """Its window, its chunk, or what else the class is about, by the name in `Group`."""
        return {name: getattr(self, own) for name, own in SPECS[self.type].sizes.items()}

    @property
    def is_narrow(self) -> bool:
        """True if a request holds fewer blocks than its length takes."""
        return self.type in NARROW

    def as_full(self) -> "Layer":
        """The same as full attention, which has a place for a window or a chunk and for no other size."""
        unknown = {own: None for own in SPECS[self.type].sizes.values() if own not in SPECS[Spec.FULL].fields}
        return replace(self, type=Spec.FULL, **unknown)  # type: ignore[arg-type]  # sizes are the fields that may be None

    def group(self, block_size: int) -> Group:
        """A group of such layers, with blocks of so many tokens. CoreError if no manager serves them, or their size is
        not said."""
        kind, sizes = SPECS[self.type].kind, {name: size for name, size in self.sizes.items() if size is not None}
        if kind is None or len(sizes) < len(self.sizes):
            raise CoreError("AttributeError")
        return Group(kind, block_size, **sizes)  # type: ignore[arg-type]  # these fields are numbers


DEFAULTS = tuple((field.name, field.default) for field in fields(Layer))
Layers: TypeAlias = dict[str, Layer]
"""Layer name to spec, in the model's order."""
Slot: TypeAlias = tuple[int, tuple[str, ...]]
"""Bytes, and the layers that share them."""


@dataclass(frozen=True)
class Config:
    """What is read from the engine's configuration (§1), each under the last part of its name."""

    max_model_len: int = 1024
    original_max_model_len: int | None = None
    max_num_batched_tokens: int = 512
    max_num_encoder_input_tokens: int = 0
    disable_hybrid_kv_cache_manager: bool = False
    block_size: int = 16
    hash_block_size: int | None = None
    enable_prefix_caching: bool = True
    num_gpu_blocks_override: int | None = None
    mamba_cache_mode: str = "none"
    decode_context_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    kv_connector: bool = False
    use_eagle: bool = False

    @property
    def parallel(self) -> int:
        """Ranks that one sequence is spread over."""
        return self.decode_context_parallel_size * self.prefill_context_parallel_size


@dataclass(frozen=True)
class LayerGroup:
    """Layers that share one block table."""

    names: tuple[str, ...]
    spec: Layer
    eagle: bool = False


@dataclass(frozen=True)
class WorkerConfig:
    """The configuration of one worker, or of the scheduler, which has no tensors."""

    num_blocks: int
    tensors: tuple[Slot, ...]
    groups: tuple[LayerGroup, ...]


Configured: TypeAlias = tuple[Config, list[WorkerConfig]]
"""The engine's settings, with the length that auto-fit found, and the configuration of every worker."""


def record(kind: type[T], values: Mapping[str, object]) -> T:
    """A record with these fields; TypeError names one that it does not have."""
    return kind(**values)


def read_layer(raw: Mapping[str, object], kind: type[Layer] = Layer) -> Layer:
    """A spec as it is given, none of its fields filled in."""
    return record(kind, {name: _field(name, value, kind) for name, value in raw.items()})


def _field(name: str, value: object, kind: type[Layer] = Layer) -> object:
    """A field of a spec: arrays become tuples, a dtype its size."""
    match name, value:
        case "type", str():
            return Spec(value)
        case "kv_cache_specs", list():
            return tuple((member, read_layer(raw, kind)) for member, raw in value)
        case _, {"itemsize": size}:
            return size
        case _, list():
            return tuple(_field("", element) for element in value)
    return value


def plain(answer: Json) -> Json:
    """The value with every tuple as a list."""
    if isinstance(answer, dict):
        return {name: plain(value) for name, value in answer.items()}
    return [plain(element) for element in answer] if isinstance(answer, list | tuple) else answer


def show_spec(x: Layer) -> dict[str, Json]:
    """JSON of a spec, without fields at their default."""
    odd: dict[str, Json] = {
        "type": x.type.value,
        "dtype": {"itemsize": x.dtype},
        "dtypes": [{"itemsize": size} for size in x.dtypes],
        "kv_cache_specs": [[name, show_spec(member)] for name, member in x.kv_cache_specs],
    }
    changed = [field.name for field in fields(x) if getattr(x, field.name) != field.default]
    if x.head_size_v == x.head_size and "head_size_v" in changed:
        changed.remove("head_size_v")
    return {name: odd.get(name, getattr(x, name)) for name in changed}


class SpecTable:
    """The specs of an answer, numbered by first use, and the groups that refer to them."""

    def __init__(self) -> None:
        self.specs: list[Json] = []

    def number(self, x: Layer) -> int:
        """The number of a spec."""
        shown = show_spec(x)
        if shown not in self.specs:
            self.specs.append(shown)
        return self.specs.index(shown)

    def group(self, group: LayerGroup) -> dict[str, Json]:
        """Names and spec, or the members of a uniform type, in the order of the names where they agree."""
        shown: dict[str, Json] = {"layers": group.names} | ({"eagle": True} if group.eagle else {})
        if group.spec.type != Spec.UNIFORM:
            return shown | {"spec": self.number(group.spec)}
        members = dict(group.spec.kv_cache_specs)
        names = group.names if set(group.names) == set(members) else tuple(members)
        shown |= {"block_size": group.spec.block_size, "members": [self.number(members[name]) for name in names]}
        return shown if names == group.names else shown | {"member_names": names}

    def groups(self, groups: Sequence[LayerGroup]) -> list[Json]:
        """All groups in order."""
        return [self.group(group) for group in groups]
