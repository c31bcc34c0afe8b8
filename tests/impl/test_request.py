"""A request: its tokens, and when it asks for hashes."""

from typing import Any

import blockproof.impl as impl
import pytest


@pytest.fixture(autouse=True)
def _none_hash() -> None:
    impl.init_none_hash(impl.sha256)


class Asked:
    """A hasher that notes the number of tokens of whoever asks."""

    def __init__(self, block_size: int) -> None:
        self._hasher = impl.get_request_block_hasher(block_size, impl.sha256)
        self.lengths: list[int] = []

    def __call__(self, request: Any) -> list[impl.BlockHash]:
        self.lengths.append(request.num_tokens)
        return self._hasher(request)


class Counting(Asked):
    """One that says its block size, too."""

    def __init__(self, block_size: int) -> None:
        super().__init__(block_size)
        self.block_size = block_size


@pytest.mark.parametrize("kind", [Asked, Counting])
@pytest.mark.parametrize("step", [1, 2, 3, 5, 9])
def test_hashes_are_there_at_every_length(kind: type[Asked], step: int) -> None:
    for prompt in range(1, 10):
        request = impl.Request("r", list(range(prompt)), block_hasher=kind(4))
        for _ in range(20):
            more = list(range(request.num_tokens, request.num_tokens + step))
            request.append_output_token_ids(more[0] if step == 1 else more)
            whole = impl.Request("r", list(range(request.num_tokens)), block_hasher=kind(4))
            assert request.block_hashes == whole.block_hashes
            assert len(request.block_hashes) == request.num_tokens // 4


def test_a_hasher_that_says_its_block_size_is_asked_where_a_block_is_full() -> None:
    hasher = Counting(4)
    request = impl.Request("r", list(range(6)), block_hasher=hasher)
    for token in range(6, 17):
        request.append_output_token_ids(token)
    assert hasher.lengths == [6, 8, 12, 16]


def test_any_other_hasher_is_asked_after_every_token() -> None:
    hasher = Asked(4)
    request = impl.Request("r", list(range(6)), block_hasher=hasher)
    for token in range(6, 10):
        request.append_output_token_ids(token)
    assert hasher.lengths == [6, 7, 8, 9, 10]


def test_without_a_hasher_there_are_no_hashes() -> None:
    request = impl.Request("r", [1, 2])
    request.append_output_token_ids(3)
    request.update_block_hashes()
    assert (request.block_hashes, request.num_tokens) == ([], 3)


def test_tokens_changed_by_other_means_are_hashed_when_asked() -> None:
    request = impl.Request("r", list(range(9)), block_hasher=Counting(4))
    del request._all_token_ids[6:]
    request._all_token_ids.extend(range(6, 13))
    request.update_block_hashes()
    request.append_output_token_ids([13, 14, 15])
    assert request.block_hashes == impl.Request("r", list(range(16)), block_hasher=Counting(4)).block_hashes


def test_tokens_that_are_said_to_be_none_are_0() -> None:
    request = impl.Request("a", [5, 6, 7], prompt_is_token_ids=[True, False, True])
    assert request.all_token_ids[:] == [5, 0, 7]
