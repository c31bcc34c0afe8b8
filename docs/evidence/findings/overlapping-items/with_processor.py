"""The same through the processor of Qwen2.5-Omni: what it makes of a clip, and what the engine then serves.

    PYTHONPATH=docs/evidence/findings python docs/evidence/findings/overlapping-items/with_processor.py

Needs no model files: tokenizer (bytes and the special tokens) and configuration (two small layers) are made here. Needs
torchvision (its Python part is enough) and blake3 beside the engine. Tried with vLLM 0.33.0, transformers 5.23 and
torchvision 0.28; it prints what it sees.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from engine_without_device import layer, run, served, start, submit, take_items
from tokenizers import Tokenizer, models, pre_tokenizers
from vllm.config import ModelConfig
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.processing import ProcessorInputs, TimingContext

TOKENS = {
    "image_token": "<|IMAGE|>",
    "audio_token": "<|AUDIO|>",
    "video_token": "<|VIDEO|>",
    "vision_bos_token": "<|vision_bos|>",
    "vision_eos_token": "<|vision_eos|>",
    "audio_bos_token": "<|audio_bos|>",
    "audio_eos_token": "<|audio_eos|>",
}
PROMPT = (
    "<|im_start|>user of much text before the clip..<|vision_bos|><|VIDEO|><|vision_eos|>"
    "What sound is it? Tell me in some words"
)
TEXT = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
ROPE = {"mrope_section": [2, 3, 3], "rope_type": "default", "rope_theta": 10000.0}
AUDIO = {"d_model": 64, "encoder_attention_heads": 4, "encoder_ffn_dim": 64, "encoder_layers": 2, "output_dim": 64}
VISION = {"depth": 2, "hidden_size": 64, "intermediate_size": 64, "num_heads": 4, "out_hidden_size": 64}
PROCESSORS = {
    "feature_extractor_type": "WhisperFeatureExtractor",
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5OmniProcessor",
    "feature_size": 128,
    "sampling_rate": 16000,
    "hop_length": 160,
    "chunk_length": 300,
    "n_fft": 400,
    "return_attention_mask": True,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "min_pixels": 3136,
    "max_pixels": 12845056,
}


def model_files(folder: Path) -> Tokenizer:
    """Writes what the processor reads; returns the tokenizer."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: place for place, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>", *TOKENS.values()])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "extra_special_tokens": TOKENS, **TOKENS}
    number = {name: tokenizer.token_to_id(token) for name, token in TOKENS.items()}
    thinker = {
        "text_config": {**TEXT, "num_key_value_heads": 2, "vocab_size": 1024, "rope_parameters": ROPE},
        "audio_config": {**AUDIO, "num_mel_bins": 128},
        "vision_config": {**VISION, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2},
        **{f"{kind}_token_index": number[f"{kind}_token"] for kind in ("audio", "image", "video")},
        **{
            f"{kind}_{end}_token_id": number[f"{kind}_{token}_token"]
            for kind in ("audio", "vision")
            for end, token in (("start", "bos"), ("end", "eos"))
        },
        "position_id_per_seconds": 25,
        "seconds_per_chunk": 2,
    }
    model = {"architectures": ["Qwen2_5OmniModel"], "model_type": "qwen2_5_omni", "enable_audio_output": False}
    for name, content in {
        "tokenizer_config.json": {"tokenizer_class": "Qwen2TokenizerFast", "model_max_length": 32768, **names},
        "preprocessor_config.json": PROCESSORS,
        "config.json": {**model, "thinker_config": thinker},
    }.items():
        (folder / name).write_text(json.dumps(content))
    return tokenizer


def sound(seconds: int, seed: int) -> Any:
    """Noise, 16,000 samples a second."""
    return np.random.default_rng(seed).standard_normal(16_000 * seconds).astype(np.float32)


def main() -> None:
    """One clip of 4 s, asked about with its sound, with another one of 4 s, and with one of 5 s."""
    folder = Path(tempfile.mkdtemp())
    prompt = model_files(folder).encode(PROMPT).ids
    processor = MULTIMODAL_REGISTRY.create_processor(
        ModelConfig(model=str(folder), dtype="float16", max_model_len=8192, mm_processor_cache_gb=0)
    )
    clip = np.random.default_rng(1).integers(0, 255, (8, 336, 336, 3), dtype=np.uint8)  # 2 frames a second
    options = {"use_audio_in_video": True, "audio_from_video_indices": [0]}

    def asked(engine: Any, name: str, samples: Any) -> Any:
        items = processor.info.parse_mm_data({"video": [clip], "audio": [(samples, 16_000)]})
        inputs = ProcessorInputs(prompt=prompt, mm_data_items=items, hf_processor_mm_kwargs=options)
        made = processor.apply(inputs, TimingContext(enabled=False))
        named = {key: made[key] for key in ("mm_placeholders", "mm_hashes")}
        nothing = {"video": [None], "audio": [None]}  # the contents would go to the workers
        submit(engine, name, made["prompt_token_ids"], prompt={"type": "multimodal", "mm_kwargs": nothing, **named})
        run(engine)
        return made

    for label, samples in (("another sound of 4 s", sound(4, 9)), ("a sound of 5 s", sound(5, 5))):
        engine = start({"full": layer("FullAttentionSpec")}, blocks=256, length=2048, batch=2048)
        take_items(engine)
        asked(engine, "first", sound(4, 4))
        made, tokens = asked(engine, "second", samples), served(engine, "second")
        for kind, (place,) in made["mm_placeholders"].items():
            print(f"{label}: {kind} at {place.offset}, length {place.length}, {int(place.is_embed.sum())} embeds")
        (place,) = made["mm_placeholders"]["audio"]
        taken = int(place.is_embed[: max(0, tokens - place.offset)].sum())
        print(f"{label}: {tokens} of {len(made['prompt_token_ids'])} tokens are served, {taken} of its sound another's")


main()
