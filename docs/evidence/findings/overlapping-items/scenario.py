"""A clip with another sound is answered with the first sound: overlapping multi-modal items share cached blocks.

With `use_audio_in_video`, Qwen2.5-Omni turns a video and its sound into two items on one range of the prompt. For a
clip of 4 s behind 37 tokens of text, the model's processor gives both the offset 37 and the length 678, of which 576
positions hold video and 100 sound; `is_embed` tells them apart. These numbers are written down here, because the
processor needs the model's files; everything behind the processor is the engine's own.

The second request has the same clip with another sound.
"""

from typing import Any

import torch
from engine_without_device import layer, main, run, served, start, submit, take_items
from fix import fix
from vllm.multimodal.inputs import PlaceholderRange

BEFORE, CLIP = 37, "(" + 2 * (288 * "v" + 50 * "a") + ")"


def ask(engine: Any, name: str, sound: str) -> None:
    """A question about the clip with this sound."""
    tokens = [*range(1, BEFORE + 1), *[50_000] * len(CLIP), *range(1000, 1040)]
    ranges = {
        modality: [PlaceholderRange(BEFORE, len(CLIP), torch.tensor([mark == letter for mark in CLIP]))]
        for modality, letter in (("video", "v"), ("audio", "a"))
    }
    items = {"mm_kwargs": {"video": [None], "audio": [None]}, "mm_hashes": {"video": ["clip"], "audio": [sound]}}
    submit(engine, name, tokens, prompt={"type": "multimodal", "mm_placeholders": ranges, **items})
    run(engine)


def case() -> tuple[str, str, bool]:
    """Two sounds of one clip."""
    engine = start({"full": layer("FullAttentionSpec")}, blocks=256, length=2048, batch=2048)
    take_items(engine)
    ask(engine, "first", "a dog barks")
    ask(engine, "second", "a bell rings")
    tokens = served(engine, "second")
    sound = CLIP[: max(0, tokens - BEFORE)].count("a")
    return (
        "nothing of the other request's sound is served to the second one: at most the text before the clip",
        f"{tokens} tokens are served from the cache, and {sound} of the 100 sound tokens are the first request's",
        sound > 0,
    )


main(case, fix)
