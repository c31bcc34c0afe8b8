"""Sizes, needs, blocks and block sizes of our core on every small input, beside the model's rules.

Configurations that are drawn seldom meet a border: these are all there are up to a few tokens, heads, bytes and layers.
A wrong number in any of the functions is noticed here; the ones of a release are counted by `fuzz-config`.
"""

import importlib
import inspect
import textwrap
from functools import reduce
from itertools import product
from types import CodeType

import pytest
from blockproof.fuzz.adapters.impl import open_impl_calculator
from blockproof.fuzz.targets.configuration_answers import answer

BYTE = {"itemsize": 1}
CONFIG = {"max_model_len": 7, "max_num_batched_tokens": 3, "block_size": 2}
MODES = ("NONE", "NVFP4", "INT8_PER_TOKEN_HEAD")
HEADS = [{"num_kv_heads": heads, "dtype": {"itemsize": size}} for heads, size in ((1, 1), (3, 2))]


def layer(kind, block_size, head_size=1, **fields):
    shape = {"num_kv_heads": 1, "head_size": head_size, "dtype": BYTE, **fields}
    return {"type": kind, "block_size": block_size, **shape}


def state(*sizes, block_size=1, **fields):
    return {
        "type": "MambaSpec",
        "block_size": block_size,
        "shapes": [[size] for size in sizes],
        "dtypes": [BYTE] * len(sizes),
        **fields,
    }


def specs():
    """Layers of all types, in all quantisations, with and without padding."""
    for mode, shape, block_size, head_size in product(MODES, HEADS, (1, 2, 5), (1, 2, 15, 16, 17, 72)):
        more = {**shape, "kv_quant_mode": mode}
        yield layer("FullAttentionSpec", block_size, head_size, **more)
        yield layer("FullAttentionSpec", block_size, head_size, head_size_v=3, **more)
        yield layer("SlidingWindowSpec", block_size, head_size, sliding_window=3, **more)
        yield layer("ChunkedLocalAttentionSpec", block_size, head_size, attention_chunk_size=3, **more)
        for ratio, unit in product((1, 2), (None, 1, 7)):
            yield layer("MLAAttentionSpec", block_size, head_size, compress_ratio=ratio, alignment=unit, **more)
    for first, second, drafts, mode in product((1, 8), (0, 24), (0, 2), ("none", "align", "all")):
        yield state(first, *[second] * (second > 0), num_speculative_blocks=drafts, mamba_cache_mode=mode)
    yield {**state(8, 24), "dtypes": [BYTE]}


def pages():
    for spec in specs():
        yield "page", {"spec": spec}
        yield "resize", {"spec": spec, "block_size": 3 * spec["block_size"]}


def needs():
    """Of every length; windows and chunks of several sizes, and ranks."""
    for ranks, block_size in product((1, 2, 3), (1, 2, 3, 5)):
        settings: dict[str, object] = {**CONFIG, "decode_context_parallel_size": ranks}
        kinds = [layer("FullAttentionSpec", block_size), state(9, block_size=block_size, num_speculative_blocks=1)]
        for size in (1, 2, 3, 6):
            kinds.append(layer("SlidingWindowSpec", block_size, sliding_window=size))
            kinds.append(layer("ChunkedLocalAttentionSpec", block_size, attention_chunk_size=size))
        for spec in kinds:
            yield "max_memory", {"spec": spec, "vllm_config": settings, "max_model_lens": list(range(1, 26))}


def models():
    """Groups: of equal pages, of one type with pages of their own, of states, of several types."""
    full, small, wide = (layer("FullAttentionSpec", 2, size) for size in (2, 1, 3))
    window = layer("SlidingWindowSpec", 2, 2, sliding_window=3)
    for names in ("aab", "aa", "ac", "aad", "ab", "abb", "s", "as", "e", "ea"):
        kinds = {"a": full, "b": window, "c": small, "d": wide, "s": state(4), "e": state(9)}
        layers = [[f"{number}.{name}", name] for number, name in enumerate(names)]
        yield {"specs": {name: kinds[name] for name in sorted(set(names))}, "layers": layers}


def pools():
    for model, length in product(models(), (1, 4, 7)):
        inputs = {**model, "vllm_config": {**CONFIG, "max_model_len": length}}
        yield "groups", inputs
        yield "needed", inputs
        for blocks in (0, 1, 2, 9):
            yield "max_concurrency", {**inputs, "num_blocks": blocks}
        for memory in (-1, *range(0, 100, 3)):
            for op in ("check_memory", "config_from_groups", "estimate", "estimate_from_groups"):
                yield op, {**inputs, "available_memory": memory}


def groups():
    """Layers into groups, pages made equal, sizes that go together."""
    for first, second in product(range(1, 8), range(1, 6)):
        kinds = {"a": layer("FullAttentionSpec", 2), "b": layer("SlidingWindowSpec", 2, sliding_window=3)}
        layers = [[f"a.{i}", "a"] for i in range(first)] + [[f"b.{i}", "b"] for i in range(second)]
        yield "groups", {"specs": kinds, "layers": layers, "vllm_config": CONFIG}
    for b, width, other in product(range(1, 5), range(1, 5), range(1, 7)):
        for one in (layer("FullAttentionSpec", b, width), state(b * width), layer("FullAttentionSpec", b, 1)):
            kinds = {"a": one, "b": layer("FullAttentionSpec", other, 1, page_size_padded=None)}
            yield "unify_page_size", {"specs": kinds, "layers": [["x", "a"], ["y", "b"]]}
    for first, second, cache, asked in product((1, 2, 4, 6), (1, 2, 3, 4), (1, 2, 4), (None, -1, 0, 1, 2, 3)):
        for caching in (False, True):
            settings = {**CONFIG, "block_size": cache, "hash_block_size": asked, "enable_prefix_caching": caching}
            for last in (layer("FullAttentionSpec", second), state(4, block_size=second)):
                one = layer("FullAttentionSpec", first)
                for some in ([one], [one, last]):
                    yield "resolve_block_sizes", {"groups": some, "vllm_config": settings}
    yield "num_blocks", {"vllm_config": CONFIG, "draws": [list(one) for one in product((1, 2), range(-3, 40), (1, 7))]}
    draws = [[[x, y], least] for x, y, least in product(range(1, 6), range(1, 6), range(1, 7))]
    yield "approximate_gcd", {"draws": draws}


DOMAINS = {"pages": pages, "needs": needs, "pools": pools, "groups": groups}
LEAST = {"pages": 2000, "needs": 100, "pools": 4000, "groups": 1300}
"""So many questions, at least."""


def different(domain):
    """The first question to which our core and the model give different answers."""
    core = open_impl_calculator()
    return next(((op, given) for op, given in DOMAINS[domain]() if core.ask(op, given) != answer(op, given)), None)


@pytest.mark.parametrize("domain", DOMAINS)
def test_our_core_answers_every_small_question_as_the_model_does(domain):
    assert different(domain) is None
    questions = list(DOMAINS[domain]())
    assert len(questions) >= LEAST[domain]
    answers = [answer(op, given) for op, given in questions]
    assert sum("output" in one for one in answers) > len(answers) / 3


def test_the_model_s_sizes_are_those_worked_out_by_hand():
    def page(kind, block_size, head_size, **fields):
        found = answer("page", {"spec": layer(kind, block_size, head_size, **fields)})["output"]
        assert isinstance(found, dict)
        return found["page_size_bytes"]

    assert page("FullAttentionSpec", 16, 128, num_kv_heads=8, dtype={"itemsize": 2}) == 65_536
    assert page("FullAttentionSpec", 16, 128, kv_quant_mode="NVFP4") == 2_304
    assert page("FullAttentionSpec", 1, 72, head_size_v=0, kv_quant_mode="NVFP4") == 41
    assert page("FullAttentionSpec", 16, 128, kv_quant_mode="INT8_PER_TOKEN_HEAD") == 4_224
    assert page("MLAAttentionSpec", 64, 576, dtype={"itemsize": 2}) == 73_728
    assert page("MLAAttentionSpec", 64, 584, alignment=576) == 37_440


WRONG = [
    ("specs.base:cdiv", "-(-a // b)", "a // b", "needs"),
    ("specs.attention:AttentionSpec.stored_elements", "size, 2", "size, 4", "pages"),
    ("specs.attention:AttentionSpec.stored_elements", "size, 16", "size, 8", "pages"),
    ("specs.attention:FullAttentionSpec.max_memory_usage_bytes", "cdiv(tokens,", "cdiv(tokens + 1,", "needs"),
    ("configuration.capacity:get_num_blocks", "// num_layers", "// num_layers + 1", "groups"),
    ("configuration.capacity:_blocks_that_fit", "max(0, int(", "max(1, int(", "pools"),
    ("configuration.capacity:get_max_concurrency_for_kv_cache_config", "num_blocks - 1", "num_blocks", "pools"),
]


@pytest.mark.parametrize(("place", "old", "new", "domain"), WRONG)
def test_a_wrong_number_in_our_core_is_noticed(place, old, new, domain, monkeypatch):
    module, _, name = place.partition(":")
    function = reduce(getattr, name.split("."), importlib.import_module(f"blockproof.impl.{module}"))
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{place} does not say {old!r} any more: choose another mistake"
    constants = compile(source.replace(old, new), "wrong", "exec").co_consts
    monkeypatch.setattr(function, "__code__", next(one for one in constants if isinstance(one, CodeType)))
    assert different(domain) is not None
