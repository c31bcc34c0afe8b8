"""Spec classes: their fields, the modes of quantisation, the kinds that events name, and who serves them (§§2, 6).

Names of classes are texts, so that classes which somebody adds are named as those that are built in.
"""

from collections.abc import Iterable, Mapping, Sequence

from ..attention import demand
from ..config_json import DEFAULTS, MANAGED, WINDOWS, Json, Layer, Spec

QUANT_MODES = ("NONE", "FP8_PER_TENSOR", "INT8_PER_TOKEN_HEAD", "FP8_PER_TOKEN_HEAD", "NVFP4")
"""The modes of quantisation, each with its place as its number."""
EXACT = {mode.lower(): mode for mode in QUANT_MODES[2:]}
"""Modes that a cache dtype names itself."""


def quant_mode(cache_dtype: str | None) -> str:
    """§2: the mode that the name of a cache dtype stands for; every other name in fp8 means one scale a tensor."""
    name = cache_dtype or ""
    return EXACT.get(name, "FP8_PER_TENSOR" if name.startswith("fp8") else "NONE")


def is_per_token_head(mode: str) -> bool:
    """§2: True if every token and head has scales of its own."""
    return mode.endswith("PER_TOKEN_HEAD")


ATTENTION = ("num_kv_heads", "head_size", "dtype", "kv_quant_mode", "page_size_padded")
LAYOUT = ("cache_dtype_str", "alignment", "compress_ratio", "model_version")
STATES = ("shapes", "dtypes", "page_size_padded", "mamba_type", "mamba_cache_mode", "num_speculative_blocks")
ADDED: Mapping[Spec, tuple[Spec | None, tuple[str, ...]]] = {
    Spec.BASE: (None, ("block_size",)),
    Spec.ATTENTION: (Spec.BASE, ATTENTION),
    Spec.FULL: (Spec.ATTENTION, ("head_size_v", "sliding_window", "attention_chunk_size")),
    Spec.TQ: (Spec.FULL, ("tq_slot_size",)),
    Spec.MLA: (Spec.FULL, LAYOUT),
    Spec.HIDDEN: (Spec.MLA, ()),
    Spec.SINK: (Spec.FULL, ("sink_len",)),
    Spec.CHUNK: (Spec.ATTENTION, ("attention_chunk_size",)),
    Spec.WINDOW: (Spec.ATTENTION, ("sliding_window", "head_size_v")),
    Spec.WINDOW_MLA: (Spec.WINDOW, LAYOUT),
    Spec.MAMBA: (Spec.BASE, STATES),
    Spec.ENCODER: (Spec.ATTENTION, ()),
    Spec.CROSS: (Spec.ATTENTION, ()),
    Spec.UNIFORM: (Spec.BASE, ("kv_cache_specs",)),
}
"""§2: the parent of every class, and the fields that it adds."""
BY_PLACE = (Spec.BASE, Spec.SINK, Spec.MAMBA, Spec.UNIFORM)
"""Classes whose own fields may be given by their place."""
NEEDED = {"block_size", "num_kv_heads", "head_size", "dtype", "shapes", "dtypes", "kv_cache_specs"}
"""Fields that have to be given; the window and the chunk of a class that is about nothing else, too."""
RECORDS: Mapping[str, Sequence[tuple[str, object]]] = {
    "KVCacheTensor": [("size", NEEDED), ("shared_by", NEEDED)],
    "KVCacheGroupSpec": [("layer_names", NEEDED), ("kv_cache_spec", NEEDED), ("is_eagle_group", False)],
    "KVCacheConfig": [("num_blocks", NEEDED), ("kv_cache_tensors", NEEDED), ("kv_cache_groups", NEEDED)],
}
"""Fields of the other records, with their defaults; `NEEDED` where there is none."""


def ancestors(name: Spec) -> list[Spec]:
    """§2: the class and its parents, the nearest first."""
    parent, _ = ADDED[name]
    return [name] if parent is None else [name, *ancestors(parent)]


def fields_of(name: str) -> list[Json]:
    """§2, §5: the fields of a class in their order: name, whether it is named only, default where there is one."""
    if name in RECORDS:
        return [_field(field, default is NEEDED, default, named=False) for field, default in RECORDS[name]]
    defaults = dict(DEFAULTS)
    return [
        _field(field, _is_needed(owner, field), defaults.get(field), named=owner not in BY_PLACE)
        for owner in reversed(ancestors(Spec(name)))
        for field in ADDED[owner][1]
    ]


def _is_needed(owner: Spec, field: str) -> bool:
    return field in NEEDED or (owner, field) in {(Spec.WINDOW, "sliding_window"), (Spec.CHUNK, "attention_chunk_size")}


def _field(name: str, needed: bool, default: object, named: bool) -> Json:
    described: dict[str, Json] = {"name": name, "kw_only": named}
    return described if needed else {**described, "default": default}  # type: ignore[dict-item]  # plain values


KINDS: Mapping[Spec, str] = {
    Spec.FULL: "full_attention",
    Spec.TQ: "full_attention",
    Spec.SINK: "sink_full_attention",
    Spec.MLA: "mla_attention",
    Spec.HIDDEN: "mla_attention",
    Spec.WINDOW: "sliding_window",
    Spec.WINDOW_MLA: "sliding_window_mla",
    Spec.CHUNK: "chunked_local_attention",
    Spec.MAMBA: "mamba",
    Spec.ENCODER: "encoder_only_attention",
    Spec.CROSS: "cross_attention",
}


def kind_of(x: Layer) -> str:
    """§2: what events call a layer; a uniform type as its members, if all are of one kind."""
    if x.type != Spec.UNIFORM:
        return KINDS.get(x.type, "unknown")
    kinds = {kind_of(member) for member in x.members}
    return kinds.pop() if len(kinds) == 1 else "unknown"


def window_of(x: Layer) -> int | None:
    """§2: the window that events tell: of window layers only, of a uniform type if all its members have the same."""
    if x.type != Spec.UNIFORM:
        return x.sliding_window if x.type in WINDOWS else None
    windows = {window_of(member) for member in x.members}
    return windows.pop() if len(windows) == 1 else None


MANAGERS: Mapping[str, str] = {
    "sink": "SinkFullAttentionManager",
    "sliding": "SlidingWindowManager",
    "sliding_mla": "SlidingWindowManager",
    "chunked": "ChunkedLocalAttentionManager",
    "mamba": "MambaManager",
    "cross": "CrossAttentionManager",
}
"""By the kind of group; all others have that of full attention."""


class Registry:
    """§6: which manager serves a spec class, and whose instances may share a uniform type with it."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {spec.value: [one.value for one in ancestors(spec)] for spec in ADDED}
        """By class: it and its parents, the nearest first."""
        self._entries: dict[str, tuple[str, str]] = {}
        for spec, kind in MANAGED.items():
            full = Spec.FULL in ancestors(spec)
            manager = MANAGERS.get(kind, "FullAttentionManager")
            self._entries[spec.value] = manager, (Spec.FULL if full else spec).value

    def derive(self, name: str, parent: str) -> None:
        """A new class that inherits from this one."""
        self._lines[name] = [name, *self._lines[parent]]

    def register(self, name: str, manager: str | None, base: str | None) -> None:
        """An entry of its own for a class: refused without a manager, with a base that is none of its parents, and
        where it has another one. What is refused changes nothing."""
        entry = manager or "", base or name
        demand(bool(manager) and entry[1] in self._lines[name])
        demand(self._entries.setdefault(name, entry) == entry)

    def find(self, name: str) -> tuple[str | None, str | None]:
        """The manager and the base of the class or of its nearest parent that has an entry, else None twice."""
        return next((self._entries[one] for one in self._lines[name] if one in self._entries), (None, None))

    def check(self, names: Iterable[str]) -> None:
        """Refuses classes that nobody serves."""
        demand(all(self.find(name) != (None, None) for name in names), "ValueError")
