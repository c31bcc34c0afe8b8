"""What the theorems about identities and extra keys rest on: roles do what they say."""

import hashlib
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from blockproof.impl import (
    BlockHash,
    BlockHashListWithBlockSize,
    Request,
    get_request_block_hasher,
    init_none_hash,
    make_block_hash_with_group_id,
    maybe_convert_block_hash,
    sha256,
)
from blockproof.model.core import Model
from blockproof.model.ops import Group, Item, Shape, Submit
from blockproof.proofs import roles
from blockproof.proofs.roles import extra_keys
from blockproof.proofs.roles.extra_keys import Content
from blockproof.proofs.solver import ProofError
from blockproof.proofs.symbolic_bytes import text

SUBJECTS = {"model": roles.model, "impl": roles.impl}


# Roles on plain values.


def role(subject: str, name: str) -> Any:
    return SUBJECTS[subject]().find(name)


def test_packing_roles_are_the_functions_of_the_core():
    packed, block_hash, group = (role("impl", name) for name in ("packed", "unpacked_hash", "unpacked_group"))
    for known in (b"", b"\x00", b"hash", bytes(range(32))):
        for number in (0, 1, 255, 2**32 - 1):
            key = packed(known, number)
            assert key == make_block_hash_with_group_id(BlockHash(known), number) == known + number.to_bytes(4, "big")
            assert (block_hash(key), group(key)) == (known, number)


def test_event_hashes_are_integers_whatever_the_environment_says(monkeypatch):
    for setting in ("0", "1"):
        monkeypatch.setenv("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", setting)
        assert role("impl", "event_hash")(b"\x01" + bytes(7) + b"\x02") == 2
    assert maybe_convert_block_hash(BlockHash(b"\x02")) == 2


def test_coarser_blocks_are_made_of_the_hashes_that_the_role_names():
    covered, coarse_hash = role("impl", "covered"), role("impl", "coarse_hash")
    hashes = [BlockHash(bytes([i]) * 2) for i in range(9)]
    for scale in range(1, 5):
        view = BlockHashListWithBlockSize(hashes, 3, 3 * scale)
        for i in range(len(view)):
            found = covered(i, scale, 3, len(hashes))
            assert b"".join(hashes[j] for j in found) == view[i] == coarse_hash([hashes[j] for j in found])
        with pytest.raises(IndexError):
            covered(len(view), scale, 3, len(hashes))


@pytest.mark.parametrize("subject", SUBJECTS)
def test_identities_are_one_exactly_if_contents_are(subject):
    same_identity = role(subject, "same_identity")
    contents = [(p, (a, b), e) for p in (0, 1) for a in (0, 1) for b in (0, 1) for e in (0, 1, 2)]
    for one in contents:
        for other in contents:
            assert same_identity(one, other) == (one == other)


def any_content(generator: random.Random) -> Content:
    found = [
        (generator.randrange(1, 4), generator.randrange(10), generator.randrange(1, 6))
        for _ in range(generator.randrange(4))
    ]
    places = tuple((generator.random() < 0.5, generator.randrange(3)) for _ in range(generator.randrange(3)))
    return Content(
        generator.randrange(3),
        generator.randrange(3),
        tuple(found),
        places,
        path=generator.randrange(1, 3),
        version=generator.randrange(2),
        dtype=generator.randrange(2),
        width=generator.randrange(2),
    )


def test_extra_keys_of_model_and_core_tell_the_same_contents_apart():
    generator = random.Random(5)
    for _ in range(3000):
        start = generator.randrange(8)
        one = any_content(generator)
        other = replace(one, **{name: getattr(any_content(generator), name) for name in generator.choices(FIELDS, k=2)})
        equal = [
            len({repr(role(subject, "extra_keys")(content, start, start + 4)) for content in (one, other)}) == 1
            for subject in SUBJECTS
        ]
        assert equal[0] == equal[1]


FIELDS = ("adapter", "salt", "items", "places", "path", "version", "dtype", "width")


def test_keys_of_items_are_those_with_a_token_in_the_block():
    generator = random.Random(8)
    for _ in range(1000):
        items, start = any_content(generator).items, generator.randrange(8)
        expected = tuple(
            (text(name), offset - start, length)
            for name, offset, length in items
            if offset < start + 4 and start < offset + length
        )
        content = Content(items=items)
        assert role("model", "extra_keys")(content, start, start + 4) == tuple(("item", each) for each in expected)
        assert role("impl", "extra_keys")(content, start, start + 4) == tuple(("mm", *each) for each in expected)


def test_what_is_read_and_not_hashed_is_refused():
    def careless(request: Any, start: int, end: int, index: int) -> tuple[Any, int]:
        return (("rows", hashlib.sha256(request.prompt_embeds[start:end].tobytes()[:40]).digest()),), index

    bound = extra_keys.API["extra_keys"](lambda name: careless)
    with pytest.raises(ProofError, match="not hashed as it is"):
        bound(Content(places=((True, 1),)), 0, 4)


def test_keys_of_a_block_that_is_filled_later_are_those_of_the_block():
    generator = random.Random(6)
    for subject in SUBJECTS:
        resumed, keys = role(subject, "resumed_keys"), role(subject, "extra_keys")
        for _ in range(300):
            content, known, size = any_content(generator), generator.randrange(1, 4), generator.randrange(1, 4)
            content = replace(content, places=())
            assert resumed(content, known, size) == keys(content, known * size, (known + 1) * size)


def test_a_scan_that_begins_at_the_first_item_gives_the_keys():
    generator = random.Random(7)
    scanned, keys = role("impl", "scanned_keys"), role("impl", "extra_keys")
    for _ in range(300):
        content, start = any_content(generator), generator.randrange(6)
        found, after = scanned(content, start, start + 3, 0)
        assert found == keys(content, start, start + 3)
        assert 0 <= after <= len(content.items)


# The counterexamples, with requests in place of stand-ins.


def common_blocks(one: dict[str, Any], other: dict[str, Any], prompt: list[int], sampled: list[int]) -> list[int]:
    """Leading blocks of 4 tokens that two requests have in common: in our core, and with the keys of vLLM 0.23.0."""
    init_none_hash(sha256)
    found = []
    for as_reference in (False, True):
        hasher = get_request_block_hasher(4, sha256, as_reference)
        requests = [Request("request", list(prompt), block_hasher=hasher, **said) for said in (one, other)]
        for request in requests:
            request.append_output_token_ids(list(sampled))
        pairs = list(zip(*(request.block_hashes for request in requests), strict=True))
        found.append(next((i for i, (left, right) in enumerate(pairs) if left != right), len(pairs)))
    return found


def item(name: str, offset: int, length: int) -> Any:
    return SimpleNamespace(identifier=name, mm_position=SimpleNamespace(offset=offset, length=length))


def test_an_adapter_and_a_salt_of_one_name_share_no_block_and_the_first_one_of_the_release():
    adapter = {"lora_request": SimpleNamespace(lora_name="x")}
    assert common_blocks(adapter, {"cache_salt": "x"}, list(range(12)), []) == [0, 1]


def test_a_video_with_another_sound_shares_no_block_and_all_but_the_last_of_the_release():
    prompt = [7, 8] * 6 + [1] * 4
    one, other = ({"mm_features": [item("video", 0, 12), item(sound, 0, 12)]} for sound in ("sound", "other"))
    assert common_blocks(one, other, prompt, []) == [0, 2]


def test_every_item_of_the_last_block_of_a_prompt_counts_once_that_block_is_full():
    one, other = ({"mm_features": [item(image, 12, 1), item("second", 13, 1)]} for image in ("image", "other"))
    assert common_blocks(one, other, list(range(14)), [5, 6]) == [3, 4]


def test_one_identifier_with_two_lengths_gives_two_identities_and_one_of_the_release():
    one, other = ({"mm_features": [item("image", 0, length)]} for length in (2, 4))
    assert common_blocks(one, other, [7] * 8, []) == [0, 2]


def test_the_dtype_of_embeddings_counts_but_not_in_the_release():
    torch = pytest.importorskip("torch")
    bits = torch.full((8, 2), 0x3C00, dtype=torch.int16)
    for as_reference in (False, True):
        hasher = get_request_block_hasher(4, sha256, as_reference)
        one, other = (
            Request("request", None, prompt_embeds=bits.view(dtype), block_hasher=hasher)
            for dtype in (torch.float16, torch.bfloat16)
        )
        assert (one.block_hashes == other.block_hashes) == as_reference
        assert not torch.equal(one.prompt_embeds.float(), other.prompt_embeds.float())


def test_events_give_a_coarse_block_and_its_last_small_one_the_same_number():
    hashes = [BlockHash(sha256(i)) for i in range(2)]
    (coarse,) = BlockHashListWithBlockSize(hashes, 16, 32)
    assert coarse != hashes[1]
    assert maybe_convert_block_hash(coarse) == maybe_convert_block_hash(hashes[1])


def test_the_model_gives_contents_that_overlap_different_identities():
    group = Group("full", 4)
    model = Model(Shape((group,), 8, 64, 4, 4, 64))
    chains = []
    for name in ("sound", "other"):
        submit = Submit(name, tuple([7, 8] * 6), items=(Item("video", 0, 12), Item(name, 0, 12)))
        model.step(submit)
        chains.append(model.requests[name].chain)
    assert all(left is not right for left, right in zip(*chains, strict=True))
