"""Blocks hashed many at once have the digests that `hash_block_tokens` gives them one by one."""

import enum
import hashlib
import pickle
import random
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import blockproof.impl as impl
import numpy as np
import pytest
from blockproof.impl.hashing import block_hashing, chains, hash_functions
from blockproof.impl.hashing.chains import Chain, PickledBlocks, chain_of
from blockproof.impl.hashing.hash_functions import RECIPES, HashFunction, get_hash_fn_by_name

BORDERS = [0, 1, 22, 23, 24, 25, 254, 255, 256, 257, 65534, 65535, 65536, 65537, 2**24, 2**31 - 2, 2**31 - 1]
"""Around every change of width, in pickle and CBOR."""
BETWEEN_TUPLES = int.from_bytes(pickle.TUPLE + pickle.MEMOIZE + pickle.MARK, "little")
"""An int that holds the bytes at which a pickle of several blocks is cut."""


def functions() -> list[Any]:
    """Our hash functions, skipped without their packages."""
    return [
        pytest.param(
            function,
            id=name,
            marks=pytest.mark.skipif(not all(map(find_spec, RECIPES[function].packages)), reason="lacks a package"),
        )
        for name in ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")
        for function in [getattr(hash_functions, name)]
    ]


every_function = pytest.mark.parametrize("function", functions())


@pytest.fixture(autouse=True)
def _none_hash() -> None:
    impl.init_none_hash(impl.sha256)


def one_by_one(function: HashFunction, parent: Any, tokens: list[Any], size: int) -> list[bytes]:
    """The definition, for every block in turn."""
    hashes: list[bytes] = []
    for start in range(0, len(tokens) // size * size, size):
        parent = impl.hash_block_tokens(function, parent, tokens[start : start + size])
        hashes.append(parent)
    return hashes


def chain(function: HashFunction, size: int) -> Chain | None:
    return chain_of(function, size, partial(impl.hash_block_tokens, function))


def usable(function: HashFunction, size: int) -> Chain:
    found = chain(function, size)
    assert found is not None
    return found


def parent_of(function: HashFunction) -> Any:
    return function("parent")


def drawn(rng: random.Random, count: int) -> list[int]:
    widths = [5, 8, 9, 16, 17, 31]
    return [rng.choice(BORDERS) if rng.random() < 0.3 else rng.getrandbits(rng.choice(widths)) for _ in range(count)]


# The chains.


@every_function
def test_blocks_of_every_size_have_the_hashes_of_the_definition(function: HashFunction) -> None:
    rng = random.Random(5)
    for size in range(4, 301):
        tokens = drawn(rng, size * rng.randrange(1, 6))
        assert usable(function, size)(parent_of(function), tokens) == one_by_one(
            function, parent_of(function), tokens, size
        )


@every_function
def test_blocks_of_tokens_around_every_width_have_them(function: HashFunction) -> None:
    hashing = usable(function, 4)
    for first in BORDERS:
        tokens = [token for second in BORDERS for token in (first, second, second, first)]
        assert hashing(parent_of(function), tokens) == one_by_one(function, parent_of(function), tokens, 4)


@every_function
@pytest.mark.parametrize(("size", "blocks"), [(4, 2500), (16, 2500), (300, 100), (1024, 20), (20000, 6)])
def test_long_prompts_have_them(function: HashFunction, size: int, blocks: int) -> None:
    """More than one pickle holds in one frame, and its list in one batch; a block that needs several frames."""
    prompt = drawn(random.Random(6), size * blocks)
    hasher = impl.get_request_block_hasher(size, function)
    assert impl.Request("r", prompt, block_hasher=hasher).block_hashes == one_by_one(function, None, prompt, size)


@every_function
def test_narrow_tokens_behind_more_wide_ones_than_a_frame_of_pickle_holds_have_them(function: HashFunction) -> None:
    wide = (1 << 16) // (5 * 16)  # blocks of tokens of five bytes each, which fill a frame nearly
    tokens = [2**31 - 1] * (16 * (wide - 40)) + [0] * (16 * 400)
    parent = parent_of(function)
    assert usable(function, 16)(parent, tokens) == one_by_one(function, parent, tokens, 16)


def test_what_is_hashed_is_the_pickle_byte_for_byte() -> None:
    hashed: list[bytes] = []

    def new(data: bytes) -> Any:
        hashed.append(data)
        return hashlib.sha256(data)

    tokens, parent = drawn(random.Random(7), 16 * 50), impl.BlockHash(bytes(range(32)))
    hashes = Chain(new, PickledBlocks(32, 16))(parent, tokens)
    assert hashes is not None
    blocks = [tuple(tokens[start : start + 16]) for start in range(0, len(tokens), 16)]
    values = [(*pair, None) for pair in zip([parent, *hashes], blocks, strict=False)]
    assert hashed[1:] == [pickle.dumps(value, protocol=5) for value in values]  # the first tells the digest's length


class Colour(enum.IntEnum):
    RED = 1


TEXT = "".join(["te", "xt"])

UNUSUAL: dict[str, list[Any]] = {
    "bool": [True, False],
    "subclass": [Colour.RED],
    "numpy": [np.int64(3)],
    "text": [TEXT],
    "bytes": [b"bytes"],
    "list": [[1]],
    "none": [None],
    "float": [1.0],
    "empty tuple": [()],
    "tuple": [(1, 2)],
    "negative": [-1, -(2**31)],
    "31 bits and more": [2**31, 2**32, 2**63, 2**64, 2**200],
    "very negative": [-(2**31) - 1, -(2**64)],
    "between tuples": [BETWEEN_TUPLES],
}


@every_function
@pytest.mark.parametrize("kind", UNUSUAL)
def test_unusual_tokens_are_hashed_as_defined(function: HashFunction, kind: str) -> None:
    if "cbor" in function.__name__ and kind in ("subclass", "numpy"):
        pytest.skip("cbor2 does not take them")
    hasher, rng = impl.get_request_block_hasher(4, function), random.Random(8)
    for count in (1, 2, 7):  # met again in the same block, in another one
        prompt: list[Any] = drawn(rng, 64)
        for place in rng.sample(range(4, 64), count):
            prompt[place] = rng.choice(UNUSUAL[kind])
        prompt[5] = prompt[21] = UNUSUAL[kind][0]
        assert impl.Request("r", prompt, block_hasher=hasher).block_hashes == one_by_one(function, None, prompt, 4)


@pytest.mark.parametrize("kind", ["subclass", "numpy", "text", "bytes", "list", "tuple", "between tuples"])
def test_pickle_leaves_what_it_refers_back_to_to_the_definition(kind: str) -> None:
    prompt: list[Any] = [*range(10), UNUSUAL[kind][0], 7, *range(100, 112)]
    assert usable(impl.sha256, 4)(parent_of(impl.sha256), prompt) is None


def test_cbor_leaves_what_is_no_small_int_to_the_definition() -> None:
    pytest.importorskip("cbor2")
    hashing = usable(impl.sha256_cbor, 4)
    for kind, unusual in UNUSUAL.items():
        for token in unusual:
            left = hashing(parent_of(impl.sha256_cbor), [1, 2, 3, 4, 5, token, 7, 8]) is None
            assert left == (kind != "between tuples"), token


@every_function
def test_other_parents_are_left_to_the_definition(function: HashFunction) -> None:
    hashing, parent = usable(function, 4), parent_of(function)
    others: list[Any] = [parent[:-1], parent + b"x", b"", bytearray(parent)]
    for other in others:
        assert hashing(other, list(range(8))) is None
    assert hashing(parent, list(range(8))) is not None


def test_no_blocks_have_no_hashes() -> None:
    assert usable(impl.sha256, 4)(parent_of(impl.sha256), []) == []


# Where there is no chain.


def test_a_function_of_the_caller_is_called_with_each_value() -> None:
    seen: list[Any] = []

    def own(value: Any) -> bytes:
        seen.append(value)
        return impl.sha256(value)

    prompt = list(range(40))
    hashes = impl.Request("r", prompt, block_hasher=impl.get_request_block_hasher(4, own)).block_hashes
    parents = [block_hashing.NONE_HASH, *hashes[:-1]]
    blocks = [tuple(prompt[start : start + 4]) for start in range(0, 40, 4)]
    assert seen == [(*pair, None) for pair in zip(parents, blocks, strict=True)]
    assert hashes == one_by_one(impl.sha256, None, prompt, 4)


def test_a_function_that_is_entered_is_not_called_for_each_block(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def own(value: Any) -> bytes:
        seen.append(value)
        return impl.sha256(value)

    monkeypatch.setitem(RECIPES, own, RECIPES[impl.sha256])
    hasher = impl.get_request_block_hasher(4, own)
    seen.clear()
    assert impl.Request("r", list(range(40)), block_hasher=hasher).block_hashes == one_by_one(
        impl.sha256, None, list(range(40)), 4
    )
    assert len(seen) == 1  # the first block: its parent is no hash of this function


def test_a_function_that_cannot_be_hashed_can_be_given() -> None:
    class Own:
        __hash__ = None

        def __call__(self, value: object) -> bytes:
            return impl.sha256(value)

    hasher = impl.get_request_block_hasher(4, Own())
    prompt = list(range(12))
    assert impl.Request("r", prompt, block_hasher=hasher).block_hashes == one_by_one(impl.sha256, None, prompt, 4)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_pickle_has_none_for_less_than_four_tokens(size: int) -> None:
    assert chain(impl.sha256, size) is None
    prompt = list(range(13))
    hasher = impl.get_request_block_hasher(size, impl.sha256)
    assert impl.Request("r", prompt, block_hasher=hasher).block_hashes == one_by_one(impl.sha256, None, prompt, size)


def test_cbor_has_one_for_every_size() -> None:
    pytest.importorskip("cbor2")
    assert [chain(impl.sha256_cbor, size) for size in (1, 2, 3)].count(None) == 0


@every_function
def test_there_is_one_up_to_a_size(function: HashFunction) -> None:
    tokens, parent = drawn(random.Random(10), chains.LARGEST * 9), parent_of(function)
    assert usable(function, chains.LARGEST)(parent, tokens) == one_by_one(function, parent, tokens, chains.LARGEST)
    assert chain(function, chains.LARGEST + 1) is None


@every_function
def test_tokens_of_many_bytes_are_left_to_the_definition(function: HashFunction) -> None:
    for wide in (2**200, 2**600_000):  # the second fills a frame of a pickle
        assert usable(function, 4)(parent_of(function), [1, 2, 3, 4] * 3 + [wide] * 4 + [1, 2, 3, 4] * 9) is None


@pytest.mark.parametrize("part", ["middle", "tail", "_CUT", "_PROTOCOL"])
def test_a_python_that_pickles_otherwise_has_none(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other = 4 if part == "_PROTOCOL" else b"other"
    monkeypatch.setattr(PickledBlocks, part, other)
    assert chain(impl.sha256, 16) is None


def test_a_python_that_marshals_otherwise_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cbor2")
    from blockproof.impl.hashing import cbor_blocks

    monkeypatch.setattr(cbor_blocks, "marshal", SimpleNamespace(dumps=lambda value, version: b"other"))
    assert chain(impl.sha256_cbor, 16) is None


def test_a_missing_package_shows_when_the_function_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "find_spec", lambda name: None)
    assert chain(impl.sha256_cbor, 16) is None
    for name, package in {"sha256_cbor": "cbor2", "xxhash": "xxhash", "xxhash_cbor": "xxhash"}.items():
        monkeypatch.setattr(
            hash_functions, "find_spec", lambda name, missing=package: None if name == missing else name
        )
        with pytest.raises(ValueError, match=f"{name}.*needs the package {package}"):
            get_hash_fn_by_name(name)
    assert get_hash_fn_by_name("sha256") is impl.sha256


# Requests.


@every_function
def test_requests_with_and_without_keys_have_the_hashes_of_the_definition(function: HashFunction) -> None:
    hasher = impl.get_request_block_hasher(4, function)
    prompt = list(range(1000, 1040))
    salted = impl.Request("r", prompt, block_hasher=hasher, cache_salt="s").block_hashes
    first = impl.hash_block_tokens(function, None, prompt[:4], (("cache_salt", "s"),))
    assert salted == [first, *one_by_one(function, first, prompt[4:], 4)]
    plain = impl.Request("r", prompt, block_hasher=hasher).block_hashes
    assert plain == one_by_one(function, None, prompt, 4)
    adapter = SimpleNamespace(lora_name="a", lora_path="/a")
    keyed = impl.Request("r", prompt, block_hasher=hasher, lora_request=adapter).block_hashes
    parent = None
    for start, found in zip(range(0, 40, 4), keyed, strict=True):
        parent = impl.hash_block_tokens(function, parent, prompt[start : start + 4], (("lora", "a", "/a"),))
        assert found == parent


@every_function
def test_hashes_of_tokens_that_come_later_follow_those_that_are_known(function: HashFunction) -> None:
    rng, hasher = random.Random(9), impl.get_request_block_hasher(4, function)
    whole = drawn(rng, 203)
    for _ in range(10):
        grown = impl.Request("r", whole[:3], block_hasher=hasher)
        while grown.num_tokens < len(whole):
            grown.append_output_token_ids(whole[grown.num_tokens :][: rng.choice([1, 2, 5, 40, 90])])
        assert grown.block_hashes == one_by_one(function, None, whole, 4)


RELEASE = {
    "sha256": "32bd41a9 8226f245 e7c57b6b",
    "sha256_cbor": "dc0fad79 9ecec7c8 c9c15327",
    "xxhash": "0d740805 89600aa4 ef5e3fa2",
    "xxhash_cbor": "ab845ae6 24d3cd7a beb2b97b",
}
"""Beginnings of three block hashes of vLLM 0.23.0, the last of a block that an output token fills."""


@every_function
def test_the_hashes_are_those_of_the_release(
    function: Callable[[object], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    impl.init_none_hash(function)
    hasher = impl.get_request_block_hasher(4, get_hash_fn_by_name(function.__name__))
    source = impl.Request("r", [i**5 for i in range(70)], block_hasher=hasher)
    source.append_output_token_ids([7, 8])
    assert " ".join(source.block_hashes[i].hex()[:8] for i in (0, 16, 17)) == RELEASE[function.__name__]
