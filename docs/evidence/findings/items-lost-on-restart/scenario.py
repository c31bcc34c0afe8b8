"""Two conversations about different images get one name for a block, and one is continued from the other's.

Two images stand in the last, partial block of a prompt. When the block fills up during generation, it is named by the
last image alone. So two requests that differ in the first image only have equal hashes for it; one that is preempted
and starts again goes on from the other's block.
"""

from typing import Any

from engine_without_device import layer, main, run, start, submit, tables, take_items
from vllm.multimodal.inputs import PlaceholderRange


def ask(engine: Any, name: str, image: str) -> None:
    """A prompt of 28 tokens: text, this image, text, an image that both have."""
    tokens = [*range(1, 19), *[50_000] * 4, 51, 52, *[50_000] * 4]
    items = {
        "mm_kwargs": {"image": [None, None]},
        "mm_hashes": {"image": [image, "shared"]},
        "mm_placeholders": {"image": [PlaceholderRange(18, 4), PlaceholderRange(24, 4)]},
    }
    submit(engine, name, tokens, answer=30, prompt={"type": "multimodal", **items})


def case() -> tuple[str, str, bool]:
    """A pool in which three requests have no room to end together, so that the last one is preempted."""
    engine = start({"full": layer("FullAttentionSpec")}, blocks=10, length=64, batch=128)
    take_items(engine)
    ask(engine, "other", "a cat")
    submit(engine, "long", range(200, 220), answer=40)
    run(engine, 1)
    ask(engine, "preempted", "a dog")
    run(engine, 8)
    requests = engine.scheduler.requests
    equal = requests["other"].block_hashes[1] == requests["preempted"].block_hashes[1]
    block = tables(engine, "other")[0][1]
    run(engine)
    taken = tables(engine, "preempted")[0][1] == block
    return (
        "blocks with different images have different names, and none serves the other request",
        f"the names of the blocks with the images are {'equal' if equal else 'different'}; after the preemption the "
        f"request about the dog {'goes on from' if taken else 'does not use'} the block about the cat",
        equal and taken,
    )


main(case)
