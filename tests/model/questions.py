"""Questions about configurations, written short: specs in JSON, models made of them, and what the model answers."""

from math import inf

from blockproof.fuzz.targets.configuration_answers import answer
from blockproof.model.config.capacity import Rules
from blockproof.model.config.layers import stored
from blockproof.model.config_json import LATENT, Spec


def spec(kind, block_size=16, heads=1, head_size=8, size=2, **fields):
    return {
        "type": kind.value,
        "block_size": block_size,
        "num_kv_heads": heads,
        "head_size": head_size,
        "dtype": {"itemsize": size},
        **fields,
    }


def full(**fields):
    return spec(Spec.FULL, **fields)


def window(w=128, **fields):
    return spec(Spec.WINDOW, sliding_window=w, **fields)


def chunk(k=64, **fields):
    return spec(Spec.CHUNK, attention_chunk_size=k, **fields)


def mla(**fields):
    return spec(Spec.MLA, **fields)


def window_mla(w=128, **fields):
    return spec(Spec.WINDOW_MLA, sliding_window=w, **fields)


def hidden(**fields):
    return spec(Spec.HIDDEN, **fields)


def sink(length=128, **fields):
    return spec(Spec.SINK, sink_len=length, **fields)


def cross(**fields):
    return spec(Spec.CROSS, **fields)


def mamba(block_size=16, shapes=((128,),), sizes=(4,), **fields):
    dtypes = [{"itemsize": size} for size in sizes]
    return {"type": "MambaSpec", "block_size": block_size, "shapes": list(shapes), "dtypes": dtypes, **fields}


def model(*specs, **settings):
    """Inputs about layers l0, l1, … with these specs."""
    table = {f"s{i}": raw for i, raw in enumerate(specs)}
    return {
        "specs": table,
        "layers": [[f"l{i}", f"s{i}"] for i in range(len(specs))],
        "vllm_config": settings,
    }


def ask(op, inputs, **more):
    """The output, or the name of the exception class as a text."""
    given = answer(op, {**inputs, **more})
    return given["output"] if "output" in given else given["raises"]


def page(raw):
    return ask("page", {"spec": raw})


def size(raw):
    found = page(raw)
    return found if isinstance(found, str) else found["page_size_bytes"]


def merged(*specs):
    return ask("merge", {"specs": list(specs)})


def verdict(*specs):
    return ask("uniformity", model(*specs))


def groups_of(*specs, **settings):
    """Names of the groups' layers, and the specs of the groups."""
    found = ask("groups", model(*specs, **settings))
    return found if isinstance(found, str) else [group["layers"] for group in found["groups"]]


def sizes_of_groups(*specs, **settings):
    return [len(names) for names in groups_of(*specs, **settings)]


def in_turn(often, rare, count, every):
    """`count` layers, every `every`-th of which is the rare one."""
    return [rare if i % every == every - 1 else often for i in range(count)]


V4 = {"cache_dtype_str": "fp8_ds_mla", "model_version": "deepseek_v4", "alignment": 576}
C4 = mla(block_size=256, head_size=512, size=1, compress_ratio=4, **V4)
C4_INDEX = mla(block_size=256, head_size=132, size=1, compress_ratio=4, alignment=576)
C128 = mla(block_size=256, head_size=512, size=1, compress_ratio=128, **V4)
V4_WINDOW = window_mla(block_size=64, head_size=512, size=1, **V4)
STATE_4 = window_mla(8, block_size=4, head_size=2048, size=4, alignment=576)
STATE_4_INDEX = window_mla(8, block_size=4, head_size=512, size=4, alignment=576)
STATE_128 = window_mla(block_size=8, head_size=1024, size=4, alignment=576)
LAYER_4, LAYER_128 = [V4_WINDOW, C4, C4_INDEX, STATE_4, STATE_4_INDEX], [V4_WINDOW, C128, STATE_128]
DEEPSEEK_V4 = (LAYER_4 + LAYER_128) * 10 + LAYER_4
GEMMA = in_turn(window(1024, heads=16, head_size=128), full(heads=16, head_size=128), 62, 6)
MODELS = {
    "full": [full()] * 3,
    "two head sizes": [full(), full(head_size=16)] * 3,
    "gemma": GEMMA[:17],
    "three windows": in_turn(window(5), window(17), 7, 2) + [full()] * 4,
    "chunks": in_turn(chunk(6, block_size=4), full(block_size=4), 8, 4),
    "unequal pages": in_turn(window(heads=1), full(heads=4), 6, 3),
    "mamba": in_turn(mamba(), full(), 8, 4),
    "whisper": [full(), cross()] * 2,
    "hidden states": [full(), window(), full(), window(), hidden(head_size=20)],
    "deepseek": (LAYER_4 + LAYER_128) * 2,
}
LENGTHS = (1, 15, 16, 17, 100, 1000, 5000)
SETTINGS = {"max_num_batched_tokens": 64, "max_num_encoder_input_tokens": 40}


# The rules as the golden vectors want them, which are older than C-17 and S-20.


def counted_without_null_block(r, config, groups):
    return r.bytes_per_block(groups) * sum(r.pages(config, group.spec) for group in groups)


def requests_in_all_blocks(r, config, groups, num_blocks):
    pages = sum(r.pages(config, group.spec) for group in groups)
    return num_blocks / pages if pages else inf


BEFORE = Rules(
    needed=counted_without_null_block,
    plain_needed=lambda r, config, layers: sum(r.memory(config, x) for x in layers.values()),
    concurrency=requests_in_all_blocks,
    scales=lambda r, x: Rules.scales(r, x) * (x.block_size * 8 // (stored(x) * 4) if x.type in LATENT else 1),
)
