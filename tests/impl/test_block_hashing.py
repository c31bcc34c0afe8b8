"""Identities: what goes into them, how they chain, and the views on them."""

import hashlib
import sys
from types import SimpleNamespace
from typing import Any

import blockproof.impl as impl
import numpy as np
import pytest
from blockproof.impl import kv_cache_utils
from blockproof.impl.hashing import block_hashing, extra_keys
from blockproof.impl.hashing.hash_functions import get_hash_fn_by_name


@pytest.fixture(autouse=True)
def _none_hash() -> None:
    impl.init_none_hash(impl.sha256)


def feature(identifier: str, offset: int, length: int) -> Any:
    return SimpleNamespace(identifier=identifier, mm_position=SimpleNamespace(offset=offset, length=length))


def request(tokens: int = 12, hasher: Any = None, **details: Any) -> impl.Request:
    hasher = hasher or impl.get_request_block_hasher(4, impl.sha256)
    mixed = "prompt_is_token_ids" in details
    prompt = None if "prompt_embeds" in details and not mixed else list(range(tokens))
    return impl.Request("r", prompt, block_hasher=hasher, **details)


def keys(source: impl.Request, start: int, mm_idx: int = 0) -> Any:
    return impl.generate_block_hash_extra_keys(source, start, start + 4, mm_idx)


def adapter(name: str, path: str = "/path", **said: Any) -> Any:
    return SimpleNamespace(lora_name=name, name=name, adapter_id=1, lora_path=path, **said)


def equal_blocks(one: impl.Request, other: impl.Request) -> list[bool]:
    """Of each block, whether both requests have one identity for it."""
    return [left == right for left, right in zip(one.block_hashes, other.block_hashes, strict=True)]


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
    assert keys(both, 0) == ((("lora", "a", "/path"), ("cache_salt", "s")), 0)
    assert keys(both, 4) == ((("lora", "a", "/path"),), 0)
    assert keys(request(), 0) == (None, 0)
    assert keys(request(lora_request=SimpleNamespace(lora_name="a")), 0) == ((("lora", "a", None),), 0)


def test_a_changed_adapter_is_another_one_if_its_path_or_its_version_says_so() -> None:
    def first(*details: Any, **said: Any) -> bytes:
        return request(lora_request=adapter("a", *details, **said)).block_hashes[0]

    assert first("/new") != first()
    assert first(content_version="v2") != first(content_version="v1")
    assert first("/new", content_version="v1") == first(content_version="v1")
    assert first(content_version="/path") != first("/path")


def test_features_stand_with_their_place_in_the_block_and_their_length() -> None:
    source = request(20, mm_features=[feature("a", 1, 5), feature("b", 6, 1), feature("c", 9, 8)])
    assert keys(source, 0) == ((("mm", "a", 1, 5),), 0)
    assert keys(source, 4) == ((("mm", "a", -3, 5), ("mm", "b", 2, 1)), 2)
    assert keys(source, 8, 2) == ((("mm", "c", 1, 8),), 2)
    assert keys(source, 12, -1) == ((("mm", "c", -3, 8),), 2)
    assert keys(source, 16, -1) == ((("mm", "c", -7, 8),), 3)
    assert keys(source, 20, 3) == (None, 3)


def test_every_feature_in_a_block_is_named_in_the_order_of_the_request_however_they_overlap() -> None:
    nested = [feature("sound", 2, 9), feature("frame", 6, 1), feature("frame", 4, 3), feature("late", 14, 1)]
    source = request(16, mm_features=nested)
    assert [keys(source, start)[0] for start in (0, 4, 8, 12)] == [
        (("mm", "sound", 2, 9),),
        (("mm", "sound", -2, 9), ("mm", "frame", 2, 1), ("mm", "frame", 0, 3)),
        (("mm", "sound", -6, 9),),
        (("mm", "late", 2, 1),),
    ]
    for index in range(4):
        changed = [feature("other", one.mm_position.offset, one.mm_position.length) for one in nested]
        other = request(16, mm_features=[*nested[:index], changed[index], *nested[index + 1 :]])
        first = nested[index].mm_position.offset // 4
        assert equal_blocks(source, other) == [True] * first + [False] * (4 - first)


def test_the_keys_of_a_range_of_blocks_are_those_of_each_block() -> None:
    source = request(40, mm_features=[feature("a", 30, 3), feature("b", 3, 30), feature("c", 9, 8), feature("d", 9, 1)])
    for starts in (range(0, 40, 4), [0, 16, 20], [36], []):
        single = [keys(source, start)[0] for start in starts]
        assert list(extra_keys.extra_keys_of_blocks(source, starts, 4)) == single
    carried, found = 0, []
    for start in range(0, 40, 4):
        key, carried = keys(source, start, carried)
        found.append(key)
    assert found == [keys(source, start)[0] for start in range(0, 40, 4)]


def test_a_block_that_fills_up_behind_the_prompt_names_all_its_features() -> None:
    def grown(first: str) -> bytes:
        source = request(6, mm_features=[feature(first, 4, 1), feature("b", 5, 1)])
        source.append_output_token_ids([6, 7])
        return source.block_hashes[1]

    assert grown("a") != grown("c")
    whole = request(8, mm_features=[feature("a", 4, 1), feature("b", 5, 1)])
    assert grown("a") == whole.block_hashes[1]


def test_a_feature_that_comes_with_later_input_counts_at_once() -> None:
    source = request(4)
    source.mm_features.append(feature("a", 5, 1))
    source.append_output_token_ids([4, 5, 6, 7])
    assert source.block_hashes == request(8, mm_features=[feature("a", 5, 1)]).block_hashes


def test_one_identifier_with_two_lengths_is_two_contents() -> None:
    one, other = (request(8, mm_features=[feature("a", 0, length)]) for length in (2, 3))
    assert equal_blocks(one, other) == [False, False]


def test_embeddings_are_named_by_dtype_shape_and_bytes_once() -> None:
    rows = np.arange(24, dtype=np.float16).reshape(12, 2)
    source = request(prompt_embeds=rows)
    assert equal_blocks(source, request(prompt_embeds=np.asfortranarray(rows))) == [True] * 3
    other = rows.copy()
    other[5, 1] += 1
    assert equal_blocks(source, request(prompt_embeds=other)) == [True, False, False]
    assert equal_blocks(source, request(prompt_embeds=rows.view(np.int16))) == [False] * 3
    assert (
        equal_blocks(request(prompt_embeds=np.zeros((12, 2))), request(prompt_embeds=np.zeros((12, 1)))) == [False] * 3
    )
    assert set(source._prompt_embeds_per_block_hashes) == {("rows", 0, 4), ("rows", 4, 8), ("rows", 8, 12)}


def test_rows_and_tokens_of_one_prompt_are_told_apart_and_text_hits_text() -> None:
    rows, tokens = np.zeros((12, 2)), [False] * 12

    def mixed(rows: Any, *embedded: int) -> impl.Request:
        return request(prompt_embeds=rows, prompt_is_token_ids=[at not in embedded for at in range(12)])

    source = mixed(rows, 5)
    assert source.all_token_ids == [0, 1, 2, 3, 4, 0, *range(6, 12)]
    assert equal_blocks(source, request()) == [True, False, False]
    assert equal_blocks(source, mixed(rows, 5, 9)) == [True, True, False]
    unread = rows.copy()
    unread[4] = 1
    assert equal_blocks(source, mixed(unread, 5)) == [True] * 3
    assert equal_blocks(source, mixed(unread, 4, 5)) == [True, False, False]
    assert equal_blocks(mixed(rows, *range(12)), request(prompt_embeds=rows)) == [True] * 3
    short = request(prompt_embeds=rows[:10])
    short.append_output_token_ids([10, 11])
    assert equal_blocks(mixed(rows, *range(10)), short) == [True] * 3
    assert equal_blocks(mixed(rows), request()) == [True] * 3
    with pytest.raises(ValueError, match=r"\[11, 12\]"):
        request(prompt_embeds=rows, prompt_is_token_ids=tokens[:11])


def test_tensors_are_read_as_raw_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.arange(24, dtype=np.int16).reshape(12, 2)

    class Tensor:
        """Just enough of a tensor whose dtype numpy does not know."""

        dtype = "torch.int16"

        def __init__(self, rows: Any) -> None:
            self.rows = rows
            self.shape = rows.shape

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


def test_an_adapter_a_salt_and_an_item_of_one_name_are_three_contents() -> None:
    named: tuple[dict[str, Any], ...] = (
        {"lora_request": adapter("x", "")},
        {"cache_salt": "x"},
        {"mm_features": [feature("x", 0, 4)]},
        {},
    )
    assert len({request(4, **details).block_hashes[0] for details in named}) == 4


RELEASE = {
    "plain": "63bdf745 ddb51a05 1f259caf 9c17ec46",
    "adapter and salt": "3e51bc99 1b4bb203 fbde7218 70a1b07c",
    "items": "6c5a1746 cb6b23ec 536b25af 50c3ad47",
    "nested": "370c5ba7 fa65caac 4eeb5577 56084118",
    "embeddings": "4fff8abc 42408e49 65deaeb4 95afeffc",
    "mixed": "cda1be41 109d110e cdb97eab 19d8e191",
}
"""Beginnings of the block hashes of vLLM 0.23.0 for these requests, with `readable` as its hash function and b"none" as
its NONE_HASH."""


def readable(value: object) -> bytes:
    return hashlib.sha256(repr(value).encode()).digest()


@pytest.mark.parametrize("case", RELEASE)
def test_reference_keys_give_the_digests_of_the_release(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.arange(28, dtype=np.float32).reshape(14, 2)
    in_two_blocks = [feature("a", 12, 1), feature("d", 13, 1)]
    details: dict[str, dict[str, Any]] = {
        "plain": {},
        "adapter and salt": {"lora_request": adapter("x"), "cache_salt": "s"},
        "items": {"mm_features": [feature("a", 1, 6), feature("b", 2, 2), feature("c", 6, 3), *in_two_blocks]},
        "nested": {"mm_features": [feature("a", 0, 12), feature("b", 1, 2)]},
        "embeddings": {"prompt_embeds": rows},
        "mixed": {"prompt_embeds": rows, "prompt_is_token_ids": [True] * 7 + [False] * 7},
    }
    monkeypatch.setattr(block_hashing, "NONE_HASH", b"none")
    hasher = impl.get_request_block_hasher(4, readable, reference_keys=True)
    source = request(14, hasher, **details[case])
    if case == "mixed":  # the release keeps the ids of tokens that are not read
        source._all_token_ids[:] = range(14)
        source.block_hashes.clear()
        source.update_block_hashes()
    source.append_output_token_ids([70, 71, 72])
    assert " ".join(found.hex()[:8] for found in source.block_hashes) == RELEASE[case]


@pytest.mark.parametrize("reference_keys", [False, True])
def test_events_show_the_keys_that_are_hashed(reference_keys: bool) -> None:
    pool = impl.BlockPool(4, True, 4, enable_kv_cache_events=True)
    pool.reference_keys = reference_keys
    hashed: list[Any] = []

    def listening(value: Any) -> bytes:
        hashed.append(value[2])
        return impl.sha256(value)

    hasher = impl.get_request_block_hasher(4, listening, reference_keys=reference_keys)
    features = [feature("a", 0, 5), feature("b", 1, 2)]
    source = request(12, hasher, mm_features=features, lora_request=adapter("x"), cache_salt="s")
    pool.cache_full_blocks(source, pool.get_new_blocks(3), 0, 3, 4, 0)
    (event,) = pool.take_events()
    assert isinstance(event, impl.BlockStored)
    assert event.extra_keys == hashed
    assert len(hashed) == 3


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
