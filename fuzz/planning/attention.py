"""Families whose layers all are attention. Each function answers for one kind of `config.json`."""

from .fields import Fields
from .parts import (
    MLA_PACKED,
    Layers,
    Serving,
    Spec,
    by_types,
    cache_fields,
    count_layers,
    full_attention,
    local_heads,
    longest_of,
    model_itemsize,
)


def llama(fields: Fields, serving: Serving) -> Layers:
    """Full attention everywhere, unless `layer_types` says otherwise."""
    return by_types(fields, serving, lambda i: "full_attention")


def mistral(fields: Fields, serving: Serving) -> Layers:
    """A sliding window on all layers if there is one (Mistral 7B v0.1), else full attention."""
    kind = "sliding_attention" if fields.has("sliding_window") else "full_attention"
    return by_types(fields, serving, lambda i: kind)


def qwen(fields: Fields, serving: Serving) -> Layers:
    """A sliding window from layer `max_window_layers` on, if `use_sliding_window` says so."""
    if not (fields.flag("use_sliding_window", False) and fields.has("sliding_window")):
        return by_types(Fields({**fields.raw, "layer_types": None}, fields.where), serving, lambda i: "full_attention")
    first = fields.count("max_window_layers", least=0)
    return by_types(fields, serving, lambda i: "sliding_attention" if i >= first else "full_attention")


def gemma2(fields: Fields, serving: Serving) -> Layers:
    """A sliding window on every other layer, the first of them."""
    return by_types(fields, serving, lambda i: "full_attention" if i % 2 else "sliding_attention", 8192)


def gemma3(fields: Fields, serving: Serving) -> Layers:
    """Every sixth layer attends to everything, the others to a sliding window."""
    period = fields.count("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return by_types(
        fields, serving, lambda i: "sliding_attention" if (i + 1) % period else "full_attention", longest=131_072
    )


def gpt_oss(fields: Fields, serving: Serving) -> Layers:
    """A sliding window on every other layer, the first of them. Sinks are weights here and take no cache."""
    return by_types(fields, serving, lambda i: "full_attention" if i % 2 else "sliding_attention")


def llama4(fields: Fields, serving: Serving) -> Layers:
    """Attention within chunks on the layers with rotary embeddings, full attention on the others (every fourth)."""
    count = count_layers(fields)
    listed = fields.listed("no_rope_layers") if fields.raw.get("no_rope_layers") else []
    if listed and (len(listed) != count or any(value not in (0, 1) for value in listed)):
        raise fields.wrong(f"field 'no_rope_layers' must have a 0 or 1 for each of the {count} layers")
    period = fields.count("no_rope_layer_interval", default=4)
    rotary = [bool(value) for value in listed] or [bool((i + 1) % period) for i in range(count)]
    within = fields.has("attention_chunk_size")
    return by_types(fields, serving, lambda i: "chunked_attention" if within and rotary[i] else "full_attention")


def deepseek(fields: Fields, serving: Serving) -> Layers:
    """Multi-head latent attention: one vector of `kv_lora_rank + qk_rope_head_dim` a token, the same on every rank.

    With an indexer (V3.2: `index_head_dim`) each layer also keeps a one-byte key and a four-byte scale for each 128 of
    its elements.
    """
    heads = fields.count("num_attention_heads")
    fields.quotient(heads, "num_attention_heads", serving.tensor_parallel, "the tensor-parallel size")
    itemsize, notes = model_itemsize(fields, serving)
    latent: Spec = {
        "type": "MLAAttentionSpec",
        "block_size": serving.block_size,
        "num_kv_heads": 1,
        "head_size": fields.count("kv_lora_rank") + fields.count("qk_rope_head_dim"),
    }
    if serving.cache_dtype == MLA_PACKED:
        latent |= {"dtype": {"itemsize": 1}, "cache_dtype_str": MLA_PACKED}
    else:
        latent |= cache_fields(fields, serving, itemsize)
        latent.pop("kv_quant_mode", None)  # latent attention is given no scales of its own
    caches: list[tuple[str, Spec]] = [("model.layers.{}.self_attn.attn", latent)]
    if fields.has("index_head_dim"):
        size = (
            fields.quotient(fields.count("index_head_dim"), "index_head_dim", 128, "the length of a scaled run") * 132
        )
        indexer: Spec = {**latent, "head_size": size, "dtype": {"itemsize": 1}}
        indexer.pop("cache_dtype_str", None)
        caches.append(("model.layers.{}.self_attn.indexer.k_cache", indexer))
    stack = tuple(tuple((name.format(i), spec) for name, spec in caches) for i in range(count_layers(fields)))
    copied = (
        ("latent attention: every tensor-parallel rank keeps the whole cache",) if serving.tensor_parallel > 1 else ()
    )
    return Layers(stack, longest_of(fields), serving.block_size, notes=(*notes, *copied))


def whisper(fields: Fields, serving: Serving) -> Layers:
    """A decoder of which each layer attends to the text so far and to the encoder's output; no prefix cache."""
    heads, kv_heads, copied = local_heads(fields, serving, "decoder_attention_heads", "decoder_attention_heads")
    size = fields.quotient(fields.count("d_model"), "d_model", heads, "decoder_attention_heads")
    own, notes = full_attention(fields, serving, kv_heads, size)
    cross: Spec = {**own, "type": "CrossAttentionSpec"}
    prefix = "model.decoder.layers.{}"
    stack = tuple(
        ((f"{prefix}.self_attn.attn".format(i), own), (f"{prefix}.encoder_attn.attn".format(i), cross))
        for i in range(count_layers(fields, "decoder_layers"))
    )
    return Layers(
        stack,
        longest_of(fields, "max_target_positions"),
        serving.block_size,
        prefix_caching=False,
        encoder_tokens=fields.count("max_source_positions"),
        notes=(*notes, *copied),
    )
