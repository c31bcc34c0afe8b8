"""Spec classes: their fields, the modes of quantisation, the kinds that events name, and who serves them (§§2, 6).

Names of classes are texts, so that classes which somebody adds are named as those that are built in.
"""

from collections.abc import Iterable, Mapping, Sequence

from ..attention import RULES, demand
from ..config_json import DEFAULTS, MANAGED, SPECS, WINDOWS, Json, Layer, Spec

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


NEEDED = {"block_size", "num_kv_heads", "head_size", "dtype", "shapes", "dtypes", "kv_cache_specs"}
"""Fields that have to be given; the size of a class that is about nothing else, too."""
RECORDS: Mapping[str, Sequence[tuple[str, object]]] = {
    "KVCacheTensor": [("size", NEEDED), ("shared_by", NEEDED)],
    "KVCacheGroupSpec": [("layer_names", NEEDED), ("kv_cache_spec", NEEDED), ("is_eagle_group", False)],
    "KVCacheConfig": [("num_blocks", NEEDED), ("kv_cache_tensors", NEEDED), ("kv_cache_groups", NEEDED)],
}
"""Fields of the other records, with their defaults; `NEEDED` where there is none."""


def ancestors(name: Spec) -> list[Spec]:
    """§2: the class and its parents, the nearest first."""
    parent = SPECS[name].parent
    return [name] if parent is None else [name, *ancestors(parent)]


def fields_of(name: str) -> list[Json]:
    """§2, §5: the fields of a class in their order: name, whether it is named only, default where there is one."""
    if name in RECORDS:
        return [_field(field, default is NEEDED, default, named=False) for field, default in RECORDS[name]]
    defaults = dict(DEFAULTS)
    return [
        _field(field, _is_needed(owner, field), defaults.get(field), named=not SPECS[owner].by_place)
        for owner in reversed(ancestors(Spec(name)))
        for field in SPECS[owner].fields
    ]


def _is_needed(owner: Spec, field: str) -> bool:
    return field in NEEDED or field in SPECS[owner].sizes.values()


def _field(name: str, needed: bool, default: object, named: bool) -> Json:
    described: dict[str, Json] = {"name": name, "kw_only": named}
    return described if needed else {**described, "default": default}  # type: ignore[dict-item]  # plain values


UNMANAGED: Mapping[Spec, str] = {Spec.ENCODER: "encoder_only_attention"}


def kind_of(x: Layer) -> str:
    """§2: what events call a layer; a uniform type as its members, if all are of one kind."""
    if x.type != Spec.UNIFORM:
        kind = MANAGED.get(x.type)
        return RULES[kind].kinds[kind] if kind else UNMANAGED.get(x.type, "unknown")
    kinds = {kind_of(member) for member in x.members}
    return kinds.pop() if len(kinds) == 1 else "unknown"


def window_of(x: Layer) -> int | None:
    """§2: the window that events tell: of window layers only, of a uniform type if all its members have the same."""
    if x.type != Spec.UNIFORM:
        return x.sliding_window if x.type in WINDOWS else None
    windows = {window_of(member) for member in x.members}
    return windows.pop() if len(windows) == 1 else None


class Registry:
    """§6: which manager serves a spec class, and whose instances may share a uniform type with it."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {spec.value: [one.value for one in ancestors(spec)] for spec in SPECS}
        """By class: it and its parents, the nearest first."""
        self._entries: dict[str, tuple[str, str]] = {}
        for spec in MANAGED:
            base = Spec.FULL if Spec.FULL in ancestors(spec) else spec
            self._entries[spec.value] = SPECS[spec].manager, base.value

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
