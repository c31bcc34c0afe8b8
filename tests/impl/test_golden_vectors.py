"""Numbers measured on the reference release; where it is known to be wrong, the answer we want instead."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import blockproof.impl as impl
import pytest

VECTORS = Path(__file__).resolve().parents[2] / ".." / "shared" / "vectors"


def cases(operation: str) -> list[Any]:
    """The cases of this operation in every file; one that skips where the vectors are not at hand."""
    found = [case for path in sorted(VECTORS.glob("*.json")) for case in json.loads(path.read_text())]
    if not found:
        return [pytest.param({}, marks=pytest.mark.skip(reason="the golden vectors are not beside this repository"))]
    return [pytest.param(case, id=case["case"]) for case in found if case["op"] == operation]


@dataclasses.dataclass(frozen=True)
class DType:
    itemsize: int


def spec_from(raw: dict[str, Any]) -> Any:
    fields = dict(raw)
    kind = getattr(impl, fields.pop("type"))
    if "dtype" in fields:
        fields["dtype"] = DType(**fields["dtype"])
    if "kv_quant_mode" in fields:
        fields["kv_quant_mode"] = impl.KVQuantMode[fields["kv_quant_mode"]]
    if "mamba_type" in fields:
        fields["mamba_type"] = impl.MambaAttentionBackendEnum[fields["mamba_type"]]
    if "shapes" in fields:
        fields["shapes"] = tuple(map(tuple, fields["shapes"]))
        fields["dtypes"] = tuple(DType(**dtype) for dtype in fields["dtypes"])
    if "kv_cache_specs" in fields:
        fields["kv_cache_specs"] = {name: spec_from(member) for name, member in fields["kv_cache_specs"]}
    return kind(**fields)


def layers_from(inputs: dict[str, Any]) -> dict[str, Any]:
    return {layer: spec_from(inputs["specs"][name]) for layer, name in inputs["layers"]}


def config_from(raw: dict[str, Any]) -> Any:
    return SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=raw.get("max_model_len", 1024)),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=raw.get("decode_context_parallel_size", 1),
            prefill_context_parallel_size=raw.get("prefill_context_parallel_size", 1),
        ),
        scheduler_config=SimpleNamespace(
            max_num_batched_tokens=raw.get("max_num_batched_tokens", 512),
            max_num_encoder_input_tokens=raw.get("max_num_encoder_input_tokens", 0),
        ),
        cache_config=SimpleNamespace(mamba_cache_mode=raw.get("mamba_cache_mode", "none")),
    )


def expect(case: dict[str, Any], answer: Callable[[], Any]) -> None:
    """The answer equals the wanted one, else the reference's; or it raises exactly the wanted kind."""
    wanted = "wanted" if "wanted" in case or "wanted_raises" in case else "output"
    raises = case.get("wanted_raises") if wanted == "wanted" else case.get("raises")
    if raises:
        with pytest.raises(Exception) as caught:  # noqa: PT011  # the exact class is compared below
            answer()
        assert type(caught.value).__name__ == raises
    else:
        assert answer() == case[wanted]


@pytest.mark.parametrize("case", cases("class_fields"))
def test_classes_have_the_fields_of_the_reference(case: dict[str, Any]) -> None:
    def describe(field: dataclasses.Field[Any]) -> dict[str, Any]:
        described = {"name": field.name, "kw_only": field.kw_only}
        if field.default is not dataclasses.MISSING:
            described["default"] = getattr(field.default, "name", field.default)
        return described

    expect(
        case,
        lambda: {
            name: [describe(field) for field in dataclasses.fields(getattr(impl, name))]
            for name in case["inputs"]["classes"]
        },
    )


@pytest.mark.parametrize("case", cases("quant_modes"))
def test_a_cache_dtype_names_its_quantisation(case: dict[str, Any]) -> None:
    def row(name: str | None) -> list[Any]:
        mode = impl.get_kv_quant_mode(name)
        per_token_head = impl.kv_cache_uses_per_token_head_scales(name)
        assert mode.is_per_token_head == per_token_head
        return [mode.name, mode.value, impl.is_quantized_kv_cache(name), per_token_head]

    expect(case, lambda: [row(name) for name in case["inputs"]["kv_cache_dtypes"]])


@pytest.mark.parametrize("case", cases("kinds"))
def test_events_know_kind_and_window_of_a_spec(case: dict[str, Any]) -> None:
    specs = [spec_from(raw) for raw in case["inputs"]["specs"]]
    expect(
        case,
        lambda: [
            [impl.get_kv_cache_spec_kind(spec).value, impl.get_kv_cache_spec_sliding_window(spec)] for spec in specs
        ],
    )


@pytest.mark.parametrize("case", cases("registry"))
def test_registry_names_manager_and_base(case: dict[str, Any]) -> None:
    registry = impl.KVCacheSpecRegistry

    def row(spec: Any) -> list[str | None]:
        found = (registry.get_manager_class(spec), registry.get_uniform_type_base_spec(spec))
        return [getattr(kind, "__name__", None) for kind in found]

    expect(case, lambda: [row(spec_from(raw)) for raw in case["inputs"]["specs"]])


@pytest.mark.parametrize("case", cases("page"))
def test_page_size(case: dict[str, Any]) -> None:
    def answer() -> dict[str, Any]:
        spec = spec_from(case["inputs"]["spec"])
        names = ("page_size_bytes", "storage_block_size", "real_page_size_bytes", "page_size_padded")
        return {name: getattr(spec, name) for name in names if hasattr(type(spec), name) or hasattr(spec, name)}

    expect(case, answer)


@pytest.mark.parametrize("case", cases("resize"))
def test_copy_with_another_block_size(case: dict[str, Any]) -> None:
    def answer() -> dict[str, int]:
        spec = spec_from(case["inputs"]["spec"]).copy_with_new_block_size(case["inputs"]["block_size"])
        return {"block_size": spec.block_size, "page_size_bytes": spec.page_size_bytes}

    expect(case, answer)


@pytest.mark.parametrize("case", cases("max_memory"))
def test_worst_case_memory(case: dict[str, Any]) -> None:
    inputs = case["inputs"]
    spec = spec_from(inputs["spec"])
    expect(
        case,
        lambda: [
            spec.max_memory_usage_bytes(config_from({**inputs["vllm_config"], "max_model_len": length}))
            for length in inputs["max_model_lens"]
        ],
    )


@pytest.mark.parametrize("case", cases("admission_cap"))
def test_admission_cap(case: dict[str, Any]) -> None:
    spec = spec_from(case["inputs"]["spec"])
    expect(case, lambda: [spec.max_admission_blocks_per_request(*draw) for draw in case["inputs"]["draws"]])


@pytest.mark.parametrize("case", cases("merge"))
def test_merge(case: dict[str, Any]) -> None:
    specs = [spec_from(raw) for raw in case["inputs"]["specs"]]

    def answer() -> Any:
        merged = type(specs[0]).merge(specs)
        assert merged is not specs[0]
        return merged

    expect({key: spec_from(value) if key in ("output", "wanted") else value for key, value in case.items()}, answer)


@pytest.mark.parametrize("case", cases("uniformity"))
def test_which_layers_are_alike(case: dict[str, Any]) -> None:
    layers = layers_from(case["inputs"])

    def verdict(test: Callable[[Any], bool]) -> Any:
        try:
            return test(layers)
        except Exception as error:
            return {"raises": type(error).__name__}

    expect(
        case,
        lambda: {
            "spec": verdict(impl.is_kv_cache_spec_uniform),
            "type": verdict(impl.UniformTypeKVCacheSpecs.is_uniform_type),
            "page": verdict(impl.is_kv_cache_page_size_uniform),
        },
    )


@pytest.mark.parametrize("case", cases("uniform_info"))
def test_numbers_of_a_uniform_group(case: dict[str, Any]) -> None:
    config = config_from(case["inputs"]["vllm_config"])

    def answer() -> Any:
        spec = impl.UniformTypeKVCacheSpecs.from_specs(layers_from(case["inputs"]))
        if spec is None:
            return None
        return {
            "block_size": spec.block_size,
            "page_size_bytes": spec.page_size_bytes,
            "page_sizes": sorted(spec.get_page_sizes()),
            "num_layer_tuples": spec.get_num_layer_tuples(),
            "max_pages": spec.max_memory_usage_pages(config),
            "max_bytes": spec.max_memory_usage_bytes(config),
        }

    expect(case, answer)


@pytest.mark.parametrize("case", cases("hash_list"))
def test_hashes_of_larger_blocks(case: dict[str, Any]) -> None:
    inputs = case["inputs"]
    hashes = [bytes(text, "ascii") for text in inputs["hashes"]]

    def item(view: Any, index: Any) -> Any:
        found = view[slice(*index)] if isinstance(index, list) else view[index]
        return [part.decode() for part in found] if isinstance(found, list) else found.decode()

    def answer() -> dict[str, Any]:
        view = impl.BlockHashListWithBlockSize(hashes, inputs["hash_block_size"], inputs["target_block_size"])
        return {
            "len": len(view),
            "all": [part.decode() for part in view],
            "items": [item(view, index) for index in inputs["indices"]],
        }

    expect(case, answer)


@pytest.mark.parametrize("case", cases("caching_metrics"))
def test_hit_rate_over_the_recent_past(case: dict[str, Any]) -> None:
    metrics = impl.CachingMetrics(case["inputs"]["max_recent_requests"])
    answers = []
    for update in case["inputs"]["updates"]:
        metrics.observe(impl.PrefixCacheStats(**update))
        answers.append({"hit_rate": metrics.hit_rate, "requests": metrics.aggregated_requests, "empty": metrics.empty})
    expect(case, lambda: answers)
