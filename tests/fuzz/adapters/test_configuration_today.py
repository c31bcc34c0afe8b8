"""The model of vLLM 0.33.0's arithmetic of configurations: what is a choice, what deviates, and what is not asked."""

import json
import subprocess

import pytest
from blockproof.fuzz.adapters.vllm.configuration.asked_today import asked
from blockproof.fuzz.adapters.vllm.configuration.configuration_0330 import CONFIGURATION_DEVIATIONS, Reference0330
from blockproof.fuzz.configuration.check import CheckLimits, Judge, run
from blockproof.fuzz.configuration.draw import configuration_of
from blockproof.fuzz.configuration.reach import Reach
from blockproof.fuzz.opening.child import environment_of
from blockproof.fuzz.opening.targets import open_calculator
from blockproof.fuzz.targets.base import TargetUnavailableError, close_target

from .released import place_of
from .test_reference_rules import EXAMPLES as BEFORE
from .test_reference_rules import HIDDEN, SINK, chunk, full, look, mamba, mla, model, window, window_mla, workers

NAME = "vllm==0.33.0"
BLOCKS_FIRST = {"vllm_config": {"kv_cache_layout": "BLHNC"}}
OTHER_IDS = {"S-01", "S-04", "S-21", "C-01", "C-04", "C-05", "C-10", "C-13", "C-17", "C-19"}
# id: op, inputs, where to look in the output, what the release has there or raises, what the rules of today want
EXAMPLES = {
    "S-01": ("merge", {"specs": [window_mla(), window_mla(head_size=16)]}, "head_size", 8, "AssertionError"),
    "S-04": ("merge", {"specs": [full(), SINK]}, "type", "FullAttentionSpec", "AssertionError"),
    "S-21": ("quantised", {"names": ["octave_k3v4"]}, "0 8", True, False),
    "C-01": (*BEFORE["C-01"][:3], "cc", "bb"),
    "C-04": (
        "unify_page_size",
        model(full(page_size_padded=768), full(heads=3)),
        "page_sizes 0",
        "AssertionError",
        1536,
    ),
    "C-05": ("groups", model(*HIDDEN), "groups 1 layers 0", "ValueError", "l1"),
    "C-10": (*BEFORE["C-10"][:3], "ZeroDivisionError", 1953),
    "C-13": ("unify_hybrid", model(mla(), window_mla()), "layers 1 0", "TypeError", "l1"),
    "C-17": ("max_concurrency", model(full(), num_blocks=64), "", 1.0, 63 / 64),
    "C-19": (
        "groups",
        model(full(), *[window()] * 4, window(heads=2), window(heads=2), **BLOCKS_FIRST),
        "groups 2 layers 2",
        "AssertionError",
        "l4",
    ),
    **{one.id: BEFORE[one.id] for one in CONFIGURATION_DEVIATIONS if one.id not in OTHER_IDS},
}


def possible(op, inputs):
    changed, _ = asked(op, inputs)
    assert changed is not None
    return op, changed


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_deviation_shows_in_its_example_and_is_named(name):
    op, inputs, where, released, wanted = EXAMPLES[name]
    reference = Reference0330()
    question = possible(op, inputs)
    assert look(reference.answer(*question), where) == released
    assert look(reference.right(*question), where) == wanted
    assert reference.fired == {name}


def test_every_declared_deviation_has_an_example_and_words():
    assert sorted(EXAMPLES) == [deviation.id for deviation in CONFIGURATION_DEVIATIONS]
    for deviation in CONFIGURATION_DEVIATIONS:
        assert len(deviation.reason) > 20
        assert len(deviation.condition) > 10


MENDED = ("S-02", "S-19", "C-06", "C-07", "C-09", "C-12")


@pytest.mark.parametrize("name", MENDED)
def test_what_was_mended_since_has_the_right_answer(name):
    op, inputs, where, _, wanted = BEFORE[name]
    reference = Reference0330()
    assert look(reference.right(*possible(op, inputs)), where) == (wanted if name != "C-09" else None)
    reference.answer(*possible(op, inputs))
    assert reference.fired <= {"S-03"}  # C-09's layers are aligned


# What 5,000 configurations have shown besides.


def test_states_beside_a_spec_of_no_kind_are_not_uniform_and_no_page_is_asked_of_it():
    states = {"type": "MambaSpec", "block_size": 64, "shapes": [[8]], "dtypes": [{"itemsize": 2}]}
    specs = {"s0": states, "s1": {"type": "KVCacheSpec", "block_size": 64}}
    inputs = {"specs": specs, "layers": [["l0", "s0"], ["l1", "s1"]], "vllm_config": {}}
    assert Reference0330().answer(*possible("uniform_info", inputs)) == {"output": None}


def test_a_padded_window_of_no_block_is_divided_by_before_its_field_is_too_many():
    latent = {
        "block_size": 32,
        "num_kv_heads": 1,
        "head_size": 128,
        "dtype": {"itemsize": 2},
        "page_size_padded": 1 << 16,
    }
    narrow = latent | {"type": "SlidingWindowMLASpec", "sliding_window": 17}
    wide = latent | {"type": "MLAAttentionSpec"}
    config = {"disable_hybrid_kv_cache_manager": True}
    for block_size, error in ((0, "ZeroDivisionError"), (16, "TypeError")):
        specs = {"s0": wide, "s1": narrow | {"block_size": block_size}}
        inputs = {"specs": specs, "layers": [["l0", "s0"], ["l1", "s1"]], "vllm_config": config}
        assert Reference0330().answer(*possible("groups", inputs)) == {"raises": error}


# What is a choice of today's


def right(op, inputs, where):
    return look(Reference0330().right(*possible(op, inputs)), where)


def test_groups_alias_in_one_allocation():
    """A block costs what the largest group takes; the other begins at the same byte."""
    two = model(full(), full(), window(), window(), available_memory=4 * 1024, vllm_config={})
    assert right("config_from_groups", two, "num_blocks") == 4
    apart = [[4096, ["l0", "l1"], 2048, 512, 0], [4096, ["l2", "l3"], 2048, 512, 0]]
    assert right("config_from_groups", two, "tensors") == apart
    together = [[4096, ["l0", "l1"], 512, 1024, 0], [4096, ["l2", "l3"], 512, 1024, 0]]
    assert right("config_from_groups", two | BLOCKS_FIRST, "tensors") == together


def test_mixed_pages_are_packed_where_blocks_are_outermost_and_else_padded():
    mixed = model(full(heads=3), window(heads=2), vllm_config={})
    assert right("groups", mixed, "specs 1 page_size_padded") == 1536
    assert right("groups", mixed | BLOCKS_FIRST, "groups 1 members") == [1]
    assert right("needed", mixed | BLOCKS_FIRST, "pool_bytes_per_block") == 1536


def test_windows_beside_latent_layers_may_be_allocated_as_full_attention():
    odd = model(mla(head_size=20), window(heads=3), vllm_config={})
    assert right("groups", odd, "groups 0 layers") == ["l0", "l1"]
    assert right("groups", model(mla(head_size=20), chunk(heads=3), vllm_config={}), "") == "NotImplementedError"


def test_rows_of_hidden_states_divide_a_block_and_blocks_grow_for_wide_ones():
    wide = {
        "type": "HiddenStateCacheSpec",
        "block_size": 16,
        "num_kv_heads": 1,
        "head_size": 300,
        "dtype": {"itemsize": 2},
    }
    layers = model(full(), window(), wide, vllm_config={})
    assert right("groups", layers, "specs 0 block_size") == 32
    assert right("groups", layers, "specs 2 block_size") == 1
    assert right("groups", layers, "specs 2 page_size_padded") == 1024


def test_drafts_carry_the_mark_of_eagle():
    drafted = workers([10**6], [full(), window()], use_eagle=True)
    drafted["workers"][0].append(["draft0", "s1"])
    assert right("configs", drafted, "scheduler groups 0 eagle") is None
    assert right("configs", drafted, "scheduler groups 2 eagle") is True


def test_states_are_whole_on_every_rank_and_a_lone_group_takes_no_other_size_of_hashes():
    ranks = {"decode_context_parallel_size": 2}
    assert right("resolve_block_sizes", {"groups": [mamba(), full()], "vllm_config": ranks}, "") == [32, 32]
    align = mamba(mamba_cache_mode="align")
    assert right("resolve_block_sizes", {"groups": [align, full()], "vllm_config": ranks}, "") == [32, 16]
    assert right("resolve_block_sizes", {"groups": [full()], "vllm_config": {"hash_block_size": 8}}, "") == "ValueError"


# What is not asked, and what is asked without


def test_what_such_a_release_lacks_is_left_out_or_not_asked_and_named():
    assert asked("num_blocks", {"draws": []}) == (None, ("the number of blocks of layers that share memory evenly",))
    packed = {"spec": {**full(), "type": "TQFullAttentionSpec"}}
    assert asked("page", packed) == (None, ("a spec of packed full attention",))
    assert asked("page", {"spec": mla(head_size_v=4)})[0] is None
    everywhere = {"spec": mamba(mamba_cache_mode="all"), "vllm_config": {"prefill_context_parallel_size": 2}}
    changed, lacking = asked("max_memory", everywhere)
    assert changed == {"spec": mamba([[4]]), "vllm_config": {"kv_cache_layout": "LBNHC"}}
    assert lacking == ("blocks over ranks of prefill parallelism", "states in mode all")
    heads_outside = model(full(), full(heads=2), vllm_config={"kv_cache_layout": "LHBNC"})
    assert asked("groups", heads_outside)[0]["vllm_config"] == {"kv_cache_layout": "LBNHC"}
    alike = model(full(), full(), vllm_config={"kv_cache_layout": "LHBNC"})
    assert asked("groups", alike)[0] == alike


class Modelled:
    """A calculator that answers as the model of the release does; `change` may spoil what it says of workers."""

    name = NAME

    def __init__(self, change=lambda worker: None):
        self._reference, self._change = Reference0330(), change
        self.seen = []

    def ask(self, op, inputs):
        self.seen.append(op)
        answer = json.loads(json.dumps(self._reference.answer(op, inputs)))
        for worker in answer["output"]["workers"] if op == "configs" and "output" in answer else ():
            self._change(worker)
        return answer

    def close(self):
        pass


def test_lacking_questions_are_counted_and_never_put():
    calculator, reach = Modelled(), Reach(NAME, 3)
    run(calculator, reach, CheckLimits(30, None, 1), "all")
    assert reach.findings == []
    assert "num_blocks" not in calculator.seen
    assert "class_fields" not in calculator.seen
    assert reach.lacking["not asked: the fields of its classes, which are its own"] > 3
    assert reach.lacking["asked without: states in mode all"] > 3
    assert reach.as_json()["lacking"] == dict(sorted(reach.lacking.items()))
    assert "What the release lacks" in [table.title for table in reach.tables()]


def shifted(worker):
    worker["tensors"][-1][4] += 1


def crowded(worker):
    worker["tensors"][-1][3] -= 1


def wide(worker):
    worker["tensors"][-1][0] += 1


@pytest.mark.parametrize("change", [shifted, crowded, wide])
@pytest.mark.parametrize("layout", ["LBNHC", "BLHNC"])
def test_layers_that_are_placed_on_others_are_noticed_without_the_model(change, layout):
    about = workers([1 << 20], [full(), full(), window()], kv_cache_layout=layout)
    assert Judge(Modelled(), oracle="invariants").check_invariant("I14", configuration_of(about)) is None
    found = Judge(Modelled(change), oracle="invariants").check_invariant("I14", configuration_of(about))
    assert found is not None
    assert found.oracle == "I14"


# The release itself

ASKED = """
import importlib, torch
from blockproof.fuzz.adapters.vllm.binding import bind_vllm
from blockproof.fuzz.adapters.vllm.configuration.specs_today import published
names = bind_vllm().names
latent = "vllm.model_executor.layers.attention.mla_attention", "MLACommonBackend", "MLAAttentionSpec", {}
window = latent[:2] + ("SlidingWindowMLASpec", {"sliding_window": 5})
full = "vllm.v1.attention.backends.triton_attn", "TritonAttentionBackend", "FullAttentionSpec", {"head_size_v": 5}
for module, backend, spec, more in (latent, window, full):
    backend = getattr(importlib.import_module(module), backend)
    for mode in ("NONE", "FP8_PER_TENSOR", "INT8_PER_TOKEN_HEAD", "FP8_PER_TOKEN_HEAD"):
        sizes = {"block_size": 16, "num_kv_heads": 3, "head_size": 8, "dtype": torch.int8, **more}
        made = names(spec)(**sizes, kv_quant_mode=names("KVQuantMode")[mode])
        assert backend.customize_spec(made) == published(made), (spec, mode)
"""


@pytest.mark.slow
def test_backends_publish_what_is_written_down_of_them(tmp_path):
    """In a process of its own: a backend can be imported once only."""
    place = place_of(NAME)
    command = [str(place.python), "-P", "-c", ASKED]
    done = subprocess.run(command, env=environment_of(place, tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def release():
    try:
        calculator = open_calculator(NAME, isolate=None)
        calculator.ask("quant_flags", {"modes": []})
    except TargetUnavailableError as missing:
        pytest.skip(str(missing))
    yield calculator
    close_target(calculator)


@pytest.mark.slow
def test_the_release_answers_what_the_model_of_it_answers(release):
    reach = Reach(NAME, 1)
    for op, inputs, *_ in EXAMPLES.values():
        assert Judge(release, reach, "lockstep").check_question(op, inputs) is None, (op, inputs)
    run(release, reach, CheckLimits(25, None, 1), "all")
    assert reach.findings == []
