"""What the theorems about identities and extra keys rest on: roles do what they say."""

import random
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
from blockproof.proofs.roles.extra_keys import Content
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


def untagged(keys: tuple[Any, ...]) -> list[Any]:
    return [key for _, key in keys]


def any_content(generator: random.Random) -> Content:
    found, at = [], 0
    for _ in range(generator.randrange(4)):
        at += generator.randrange(3)
        length = generator.randrange(1, 5)
        found.append((generator.randrange(1, 4), at, length))
        at += length
    return Content(generator.randrange(3), generator.randrange(3), tuple(found), generator.randrange(3))


def test_extra_keys_of_model_and_core_are_the_same_but_for_tags():
    generator = random.Random(5)
    model, tagged, plain = role("model", "extra_keys"), role("impl", "tagged_extra_keys"), role("impl", "extra_keys")
    for _ in range(1000):
        content, start = any_content(generator), generator.randrange(8)
        keys = untagged(model(content, start, start + 4))
        assert untagged(tagged(content, start, start + 4)) == list(plain(content, start, start + 4)) == keys
        expected = [
            (text(name), offset - start)
            for name, offset, length in content.items
            if offset < start + 4 and start < offset + length
        ]
        assert [key for key in keys if isinstance(key, tuple)] == expected
        assert keys.count(text(content.adapter)) >= bool(content.adapter)
        assert len(keys) == len(expected) + sum(map(bool, (content.adapter, content.salt and not start, content.rows)))


def test_keys_of_a_block_that_is_filled_later_are_those_of_the_block():
    generator = random.Random(6)
    for subject in SUBJECTS:
        resumed, keys = role(subject, "resumed_keys"), role(subject, "extra_keys")
        for _ in range(300):
            content, known, size = any_content(generator), generator.randrange(1, 4), generator.randrange(1, 4)
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


def common_blocks(
    one: dict[str, Any], other: dict[str, Any], prompt: list[int], sampled: list[int], **options: Any
) -> int:
    """Leading blocks of 4 tokens that two requests have in common."""
    init_none_hash(sha256)
    hasher = get_request_block_hasher(4, sha256, **options)
    requests = [Request("request", list(prompt), block_hasher=hasher, **said) for said in (one, other)]
    for request in requests:
        request.append_output_token_ids(list(sampled))
    pairs = list(zip(*(request.block_hashes for request in requests), strict=True))
    return next((i for i, (left, right) in enumerate(pairs) if left != right), len(pairs))


def item(name: str, offset: int, length: int) -> Any:
    return SimpleNamespace(identifier=name, mm_position=SimpleNamespace(offset=offset, length=length))


def test_an_adapter_and_a_salt_of_one_name_share_the_first_block_and_no_other():
    adapter = {"lora_request": SimpleNamespace(lora_name="x")}
    assert common_blocks(adapter, {"cache_salt": "x"}, list(range(12)), []) == 1
    assert common_blocks(adapter, {"cache_salt": "x"}, list(range(12)), [], tag_extra_keys=True) == 0


@pytest.mark.parametrize("tagged", [False, True])
def test_a_video_with_another_sound_shares_all_blocks_but_the_last_of_the_video(tagged):
    prompt = [7, 8] * 6 + [1] * 4
    one, other = ({"mm_features": [item("video", 0, 12), item(sound, 0, 12)]} for sound in ("sound", "other"))
    assert common_blocks(one, other, prompt, [], tag_extra_keys=tagged) == 2


def test_every_item_of_the_last_block_of_a_prompt_counts_once_that_block_is_full():
    one, other = ({"mm_features": [item(image, 12, 1), item("second", 13, 1)]} for image in ("image", "other"))
    assert common_blocks(one, other, list(range(14)), [5, 6]) == 3


def test_one_identifier_with_two_lengths_gives_one_identity_to_two_contents():
    one, other = ({"mm_features": [item("image", 0, length)]} for length in (2, 4))
    assert common_blocks(one, other, [7] * 8, []) == 2


def test_the_dtype_of_embeddings_is_in_no_key():
    torch = pytest.importorskip("torch")
    bits = torch.full((8, 2), 0x3C00, dtype=torch.int16)
    one, other = (
        Request("request", None, prompt_embeds=bits.view(dtype), block_hasher=get_request_block_hasher(4, sha256))
        for dtype in (torch.float16, torch.bfloat16)
    )
    assert one.block_hashes == other.block_hashes
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
