"""Which questions of configuration arithmetic a release like vLLM 0.33.0 can be asked, and in which form: what it has
no more is left out of a question, or the question is not asked. Either is counted by name."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from .....model.config_json import LATENT

Asked: TypeAlias = tuple[Mapping[str, object] | None, tuple[str, ...]]

UNASKED: Mapping[str, str] = {
    "num_blocks": "the number of blocks of layers that share memory evenly",
    "class_fields": "the fields of its classes, which are its own",
    "manager": "a manager by itself, whose calls are its own",
}
"""Questions about what such a release has not, with what that is."""


GONE = {("KVCacheManager", "max_num_batched_tokens"), ("BlockPool.free_blocks", "prepend")}
"""Arguments that calls had before."""


class _NotAskedError(Exception):
    """There is nothing like it."""


def asked(op: str, inputs: Mapping[str, object]) -> Asked:
    """The question as it can be asked, None where it cannot be; and what is lacking of it."""
    if op in UNASKED:
        return None, (UNASKED[op],)
    without: set[str] = set()
    try:
        return _changed(op, inputs, without), tuple(sorted(without))
    except _NotAskedError as lack:
        return None, (str(lack),)


def _changed(op: str, inputs: Mapping[str, object], without: set[str]) -> Mapping[str, object]:
    changed: dict[str, Any] = {name: _cleaned(value, without) for name, value in inputs.items()}
    if isinstance(shape := changed.get("shape"), Mapping):
        changed["shape"] = _shape(shape, without)
    if None in (dtypes := changed.get("kv_cache_dtypes", ())):
        changed["kv_cache_dtypes"] = [name for name in dtypes if name is not None]
        without.add("a cache without the name of a dtype")
    if op == "left_out":
        kept = [name for name in changed["arguments"] if (changed["call"], name) not in GONE]
        without.update("an argument that calls have no more" for _ in changed["arguments"][len(kept) :])
        changed["arguments"] = kept
    settings = inputs.get("vllm_config")
    if isinstance(settings, Mapping):
        changed["vllm_config"] = _settings(settings, changed, without)
    return changed


def _cleaned(value: Any, without: set[str]) -> Any:
    if value == "TQFullAttentionSpec":
        raise _NotAskedError("a spec of packed full attention")
    if isinstance(value, list | tuple):
        return [_cleaned(one, without) for one in value]
    if not isinstance(value, Mapping):
        return value
    return {name: _cleaned(one, without) for name, one in _spec(value, without).items()}


def _spec(raw: Mapping[str, Any], without: set[str]) -> Mapping[str, Any]:
    kept = dict(raw)
    kind = kept.get("type")
    if kind in LATENT and "head_size_v" in kept:
        if kept.pop("head_size_v") != kept["head_size"]:
            raise _NotAskedError("the size of values of a latent layer")
        without.add("the size of values of a latent layer")
    if kind == "MambaSpec" and kept.get("mamba_cache_mode") == "all":
        del kept["mamba_cache_mode"]
        without.add("states in mode all")
    return kept


def _shape(raw: Mapping[str, Any], without: set[str]) -> Mapping[str, Any]:
    if raw.get("prefill_parallel", 1) != 1:
        raise _NotAskedError("blocks over ranks of prefill parallelism")
    if any(group["kind"] == "tq" for group in raw["groups"]):
        raise _NotAskedError("a spec of packed full attention")
    states = any(group["kind"] == "mamba" for group in raw["groups"])
    if raw.get("decode_parallel", 1) > 1 and (states or len(raw["groups"]) > 1):
        raise _NotAskedError("states or several groups over ranks, for which the model has no rule")
    whole = raw["groups"][0]["block_size"] * raw.get("decode_parallel", 1)
    sizes = (raw["scheduler_block_size"], raw["hash_block_size"])
    if raw.get("decode_parallel", 1) > 1 and (raw["groups"][0].get("window") or any(size % whole for size in sizes)):
        raise _NotAskedError("windows over ranks, and sizes that are not those of all ranks: a core is built of them")
    groups = [{**group, "mamba_mode": "align"} if group["kind"] == "mamba" else group for group in raw["groups"]]
    if groups != list(raw["groups"]):
        without.add("states in mode all")
    return {**raw, "groups": groups}


def _settings(raw: Mapping[str, Any], inputs: Mapping[str, Any], without: set[str]) -> Mapping[str, Any]:
    kept = dict(raw)
    if kept.pop("prefill_context_parallel_size", 1) != 1:
        without.add("blocks over ranks of prefill parallelism")
    if kept.get("mamba_cache_mode") == "all":
        del kept["mamba_cache_mode"]
        without.add("states in mode all")
    kept.setdefault("kv_cache_layout", "LBNHC")
    if kept["kv_cache_layout"] in ("LHBNC", "BHLNC") and len(_shapes(inputs)) > 1:
        kept["kv_cache_layout"] = "LBNHC"
        without.add("heads outside of pages that differ, which an engine does not choose")
    return kept


def _shapes(inputs: Mapping[str, Any]) -> set[Sequence[object]]:
    """Heads, states and what makes a page of the specs; equal ones have equal pages."""
    specs = inputs.get("specs") or [inputs.get("spec")]
    fields = ("num_kv_heads", "block_size", "compress_ratio", "page_size_padded", "alignment", "cache_dtype_str")
    more = ("head_size", "head_size_v", "dtype", "kv_quant_mode", "type", "shapes", "dtypes", "model_version")
    listed = specs.values() if isinstance(specs, Mapping) else specs
    return {tuple(str(spec.get(name)) for name in (*fields, *more)) for spec in listed if isinstance(spec, Mapping)}
