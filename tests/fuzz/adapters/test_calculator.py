"""What is a question to a core, what is an answer, and what is neither."""

from types import SimpleNamespace

import pytest
from blockproof.fuzz.adapters.vllm.configuration.calculator import answer
from blockproof.fuzz.adapters.vllm.configuration.question_json import (
    QuestionError,
    layers_from_json,
    vllm_config_from_json,
)

SPEC = {"type": "Spec", "block_size": 16, "dtype": {"itemsize": 2}}


def names_of(**known):
    def find(name):
        if name not in known:
            raise AttributeError(name)
        return known[name]

    return find


def test_an_exception_of_the_core_is_an_answer():
    def fail(**fields):
        raise LookupError

    assert answer(names_of(Spec=fail), "page", {"spec": SPEC}) == {"raises": "LookupError"}
    assert answer(names_of(), "page", {"spec": SPEC}) == {"raises": "AttributeError"}


def test_what_no_core_could_be_asked_is_not():
    with pytest.raises(QuestionError, match="unknown op 'size'; ask one of page, "):
        answer(names_of(), "size", {})
    with pytest.raises(QuestionError, match="unknown settings: max_len"):
        answer(names_of(), "num_blocks", {"vllm_config": {"max_len": 3}, "draws": []})
    with pytest.raises(QuestionError, match="torch has no dtype of 3 bytes"):
        answer(names_of(torch=SimpleNamespace()), "page", {"spec": {**SPEC, "dtype": {"itemsize": 3}}})


def test_a_core_that_brings_torch_along_gets_its_dtypes():
    seen = []
    names = names_of(torch=SimpleNamespace(float16="half"), Spec=lambda **fields: seen.append(fields["dtype"]))
    answer(names, "page", {"spec": SPEC})
    assert seen == ["half"]


@pytest.mark.parametrize("shared", [False, True])
def test_layers_have_objects_of_their_own_unless_shared(shared):
    inputs = {"specs": {"s": SPEC}, "shared_objects": shared}
    layers = layers_from_json(names_of(Spec=SimpleNamespace), inputs, [("a", "s"), ("b", "s")])
    assert (layers["a"] is layers["b"]) == shared
    assert layers["a"] == layers["b"]


def test_settings_left_out_have_the_values_of_the_vectors():
    config = vllm_config_from_json({"max_model_len": 7, "use_eagle": True})
    assert (config.model_config.max_model_len, config.model_config.original_max_model_len) == (7, 7)
    assert config.speculative_config.use_eagle()
    assert config.kv_transfer_config is None
    assert vllm_config_from_json({"kv_connector": True}).kv_transfer_config is not None
    assert vllm_config_from_json(None).cache_config.enable_prefix_caching is True
