"""From a Hugging Face `config.json` to the layers that keep something per token, and what they keep.

A family is a function that answers, for every decoder layer of the model, which caches it keeps and of which spec, in
the form of the golden vectors. Only the figures that the cache depends on are read. Sources of the rules: the
models' own definitions (which layer is which) and what vLLM 0.23.0 makes of them (how heads are divided, what a state
is). See docs/guide/plan.md.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from .attention import deepseek, gemma2, gemma3, gpt_oss, llama, llama4, mistral, qwen, whisper
from .explicit import explicit_layers
from .fields import Fields, read_json
from .mamba import bamba, jamba, nemotron_h
from .parts import Layers, Serving

Family: TypeAlias = Callable[[Fields, Serving], Layers]

FAMILIES: Mapping[str, Family] = {
    "llama": llama,
    "mistral": mistral,
    "mixtral": mistral,
    "qwen2": qwen,
    "qwen2_moe": qwen,
    "qwen3": qwen,
    "qwen3_moe": qwen,
    "gemma2": gemma2,
    "gemma3": gemma3,
    "gemma3_text": gemma3,
    "gpt_oss": gpt_oss,
    "llama4": llama4,
    "llama4_text": llama4,
    "deepseek_v2": deepseek,
    "deepseek_v3": deepseek,
    "deepseek_v32": deepseek,
    "jamba": jamba,
    "bamba": bamba,
    "nemotron_h": nemotron_h,
    "whisper": whisper,
}
"""By `model_type`."""
EXPLICIT = "explicit list"


def read_model(path: Path, serving: Serving) -> tuple[str, str, Layers]:
    """Name, family and layers of the model in a file. ModelError says what is wrong with it."""
    raw = read_json(path)
    fields = Fields(raw, str(path))
    given = [raw[key] for key in ("_name_or_path", "name") if isinstance(raw.get(key), str) and raw[key]]
    # It is printed: keep it on one line and drop what a terminal cannot show, whatever the file says.
    name = " ".join(str((*given, path.stem)[0]).encode(errors="replace").decode().split())
    if "layers" in raw and "model_type" not in raw:
        return name, EXPLICIT, explicit_layers(fields, serving)
    family, decoder = _decoder_of(fields)
    return name, family, FAMILIES[family](decoder, serving)


def _decoder_of(fields: Fields) -> tuple[str, Fields]:
    """The family's name, and the object with the decoder's figures (`text_config` of a multimodal model)."""
    if fields.has("text_config"):
        inner = fields.inner("text_config")
        outer = {name: fields.raw[name] for name in ("torch_dtype", "dtype", "model_type") if name in fields.raw}
        fields = Fields({**outer, **inner.raw}, inner.where)
    kind = fields.raw.get("model_type")
    if isinstance(kind, str) and kind in FAMILIES:
        return kind, fields
    known = f"known are {', '.join(FAMILIES)}; write any other as an explicit list of layers (docs/guide/plan.md)"
    architectures = fields.raw.get("architectures")
    raise fields.wrong(f"unknown family: model_type {kind!r}, architectures {architectures!r}; {known}")
