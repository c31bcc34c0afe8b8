"""Identities: what goes into them, how they chain, and the views on them."""

import sys
from types import SimpleNamespace
from typing import Any

import blockproof.impl as impl
import numpy as np
import pytest
from blockproof.impl import kv_cache_utils
from blockproof.impl.hash_functions import get_hash_fn_by_name


@pytest.fixture(autouse=True)
def _none_hash() -> None:
    impl.init_none_hash(impl.sha256)


def feature(identifier: str, offset: int, length: int) -> Any:
    return SimpleNamespace(identifier=identifier, mm_position=SimpleNamespace(offset=offset, length=length))


def request(tokens: int = 12, tagged: bool = False, **details: Any) -> impl.Request:
    hasher = impl.get_request_block_hasher(4, impl.sha256, tag_extra_keys=tagged)
    prompt = None if "prompt_embeds" in details else list(range(tokens))
    return impl.Request("r", prompt, block_hasher=hasher, **details)


def keys(source: impl.Request, start: int, mm_idx: int = 0, tagged: bool = False) -> Any:
    return impl.generate_block_hash_extra_keys(source, start, start + 4, mm_idx, tagged)


def adapter(name: str) -> Any:
    return SimpleNamespace(lora_name=name, name=name, adapter_id=1)


def test_a_key_holds_hash_and_group() -> None:
    key = impl.make_block_hash_with_group_id(impl.BlockHash(b"h" * 32), 258)
    assert key == b"h" * 32 + b"\x00\x00\x01\x02"
    assert impl.get_block_hash(key) == b"h" * 32
    assert impl.get_group_id(key) == 258


def test_hashes_chain_from_the_none_hash() -> None:
    first = impl.sha256((kv_cache_utils.NONE_HASH, (0, 1, 2, 3), None))
    second = impl.sha256((first, (4, 5, 6, 7), None))
    assert request(11).block_hashes == [first, second]


def test_the_seed_of_the_environment_fixes_the_none_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    impl.init_none_hash(impl.sha256)
    assert impl.sha256("7") == kv_cache_utils.NONE_HASH


def test_without_a_seed_the_none_hash_is_random_and_cbor_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    impl.init_none_hash(impl.sha256)
    first = kv_cache_utils.NONE_HASH
    with pytest.warns(UserWarning, match="PYTHONHASHSEED"):
        impl.init_none_hash(impl.sha256_cbor)
    assert len(first) == len(kv_cache_utils.NONE_HASH) == 32
    assert first != kv_cache_utils.NONE_HASH


def test_a_hash_function_is_found_by_name() -> None:
    assert get_hash_fn_by_name("sha256") is impl.sha256
    with pytest.raises(ValueError, match="md5"):
        get_hash_fn_by_name("md5")


def test_hashes_follow_as_tokens_arrive() -> None:
    whole, grown = request(13), request(3)
    grown.append_output_token_ids(3)
    assert grown.block_hashes == whole.block_hashes[:1]
    grown.append_output_token_ids(list(range(4, 13)))
    assert grown.block_hashes == whole.block_hashes
    assert (grown.num_tokens, grown.num_output_tokens, grown.num_prompt_tokens) == (13, 10, 3)


def test_the_adapter_is_in_every_block_and_the_salt_in_the_first() -> None:
    both = request(lora_request=adapter("a"), cache_salt="s")
    assert keys(both, 0) == (("a", "s"), 0)
    assert keys(both, 4) == (("a",), 0)
    assert keys(request(), 0) == (None, 0)


def test_features_stand_with_their_place_in_the_block() -> None:
    source = request(20, mm_features=[feature("a", 1, 5), feature("b", 6, 1), feature("c", 9, 8)])
    assert keys(source, 0) == ((("a", 1),), 0)
    assert keys(source, 4) == ((("a", -3), ("b", 2)), 2)
    assert keys(source, 8, 2) == ((("c", 1),), 2)
    assert keys(source, 12, 2) == ((("c", -3),), 2)
    assert keys(source, 16, -1) == ((("c", -7),), 3)
    assert keys(source, 20, -1) == (None, -1)


def test_a_block_that_fills_up_behind_the_prompt_names_all_its_features() -> None:
    def grown(first: str) -> bytes:
        source = request(6, mm_features=[feature(first, 4, 1), feature("b", 5, 1)])
        source.append_output_token_ids([6, 7])
        return source.block_hashes[1]

    assert grown("a") != grown("c")
    whole = request(8, mm_features=[feature("a", 4, 1), feature("b", 5, 1)])
    assert grown("a") == whole.block_hashes[1]


def test_embeddings_are_named_by_their_bytes_once() -> None:
    rows = np.arange(24, dtype=np.float16).reshape(12, 2)
    source = request(prompt_embeds=rows)
    same = request(prompt_embeds=np.asfortranarray(rows))
    assert source.block_hashes == same.block_hashes
    other = rows.copy()
    other[5, 1] += 1
    changed = request(prompt_embeds=other).block_hashes
    assert [a == b for a, b in zip(source.block_hashes, changed, strict=True)] == [True, False, False]
    assert set(source._prompt_embeds_per_block_hashes) == {(0, 4), (4, 8), (8, 12)}


def test_tensors_are_read_as_raw_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.arange(24, dtype=np.int16).reshape(12, 2)

    class Tensor:
        """Just enough of a tensor whose dtype numpy does not know."""

        def __init__(self, rows: Any) -> None:
            self.rows = rows

        def __len__(self) -> int:
            return len(self.rows)

        def __getitem__(self, part: slice) -> "Tensor":
            return Tensor(self.rows[part])

        def detach(self) -> "Tensor":
            return self

        cpu = contiguous = detach

        def view(self, dtype: str) -> "Tensor":
            assert dtype == "uint8"
            return self

        def numpy(self) -> Any:
            return self.rows.view(np.uint8)

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor, uint8="uint8"))
    assert request(prompt_embeds=Tensor(rows)).block_hashes == request(prompt_embeds=rows).block_hashes


def test_untagged_adapter_and_salt_of_one_name_collide_and_tagged_ones_do_not() -> None:
    def first(tagged: bool, **details: Any) -> bytes:
        return request(tagged=tagged, **details).block_hashes[0]

    assert first(False, lora_request=adapter("x")) == first(False, cache_salt="x")
    assert first(True, lora_request=adapter("x")) != first(True, cache_salt="x")
    assert first(True) == first(False)


def test_equal_texts_give_equal_identities_whatever_objects_they_are() -> None:
    one, two = "name", "".join(["na", "me"])
    assert one is not two
    shared = request(lora_request=adapter(one), cache_salt=one)
    copied = request(lora_request=adapter(one), cache_salt=two)
    assert shared.block_hashes == copied.block_hashes


def test_need_extra_keys() -> None:
    assert not impl.need_extra_keys(request())
    assert impl.need_extra_keys(request(cache_salt="s"))
    assert impl.need_extra_keys(request(lora_request=adapter("a")))
    assert impl.need_extra_keys(request(mm_features=[feature("a", 0, 1)]))


def test_events_show_hashes_as_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    block_hash = impl.BlockHash(bytes(range(32)))
    assert impl.maybe_convert_block_hash(block_hash) == int.from_bytes(block_hash, "big") % 2**64
    monkeypatch.setenv("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", "0")
    assert impl.maybe_convert_block_hash(block_hash) == block_hash


def test_hashes_of_larger_blocks_follow_the_list_and_behave_like_one() -> None:
    small = [impl.BlockHash(bytes([i])) for i in range(5)]
    view = impl.BlockHashListWithBlockSize(small, 2, 4)
    large = [b"\x00\x01", b"\x02\x03"]
    assert list(view) == large
    small.append(impl.BlockHash(b"\x05"))
    large.append(b"\x04\x05")
    assert list(view) == large
    assert len(view) == 3
    for index in (-3, -1, 0, 2, np.int64(1)):
        assert view[index] == large[index]
    for part in (slice(None), slice(None, None, -1), slice(1, 99), slice(-2, None), slice(None, -1, 2)):
        assert view[part] == large[part]
    for wrong in (3, -4):
        with pytest.raises(IndexError, match=str(wrong)):
            view[wrong]
    with pytest.raises(TypeError, match="str"):
        view["1"]  # type: ignore[call-overload]
    with pytest.raises(AssertionError, match="multiple"):
        impl.BlockHashListWithBlockSize(small, 4, 6)


def test_a_request_needs_one_kind_of_prompt() -> None:
    with pytest.raises(ValueError, match="request r"):
        impl.Request("r", None)
    with pytest.raises(ValueError, match=r"\[1, 2\]"):
        impl.Request("r", [1], prompt_embeds=[[0], [0]])


def test_what_the_caller_asks_decides_whether_lookup_is_skipped() -> None:
    params = SimpleNamespace(skip_reading_prefix_cache=True)
    assert impl.Request("r", [1], params).skip_reading_prefix_cache
    assert not impl.Request("r", [1], params, skip_reading_prefix_cache=False).skip_reading_prefix_cache
    assert not impl.Request("r", [1], SimpleNamespace()).skip_reading_prefix_cache
