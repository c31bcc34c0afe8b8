"""What is registered, by vLLM's keys: the view shows the groups' entries, and what is changed in it, lookups see."""

import copy

import pytest
from blockproof import impl
from blockproof.impl.hashing.block_hash import BlockHash
from blockproof.impl.hashing.block_hashing import make_block_hash_with_group_id
from blockproof.impl.pool.hash_map import BlockHashToBlockMap

CONTENTS = [BlockHash(bytes([n]) * 32) for n in range(4)]
MISSING = make_block_hash_with_group_id(BlockHash(b"?" * 32), 0)
KEYS = [make_block_hash_with_group_id(content, 0) for content in CONTENTS]
OTHER = make_block_hash_with_group_id(CONTENTS[0], 1)


@pytest.fixture
def blocks():
    return [impl.KVCacheBlock(n + 1) for n in range(5)]


@pytest.fixture
def registered(blocks):
    """Four blocks that were registered together, as a run, in group 0, and one in group 1."""
    made = BlockHashToBlockMap()
    made.register(0, CONTENTS, blocks[:4], (0, None))
    made.register(1, CONTENTS[:1], blocks[4:], (0, None))
    assert made.prefix(0, CONTENTS, 4) == blocks[:4]
    return made


def test_entries_of_all_groups_stand_under_their_keys(registered, blocks):
    view = registered._cache
    assert dict(view) == {**dict(zip(KEYS, blocks[:4], strict=True)), OTHER: blocks[4]}
    assert copy.copy(view) == dict(view)
    assert len(view) == 5
    assert OTHER in view


def test_a_key_that_is_not_there_is_named(registered):
    with pytest.raises(KeyError) as told:
        registered._cache[MISSING]
    assert told.value.args == (MISSING,)
    assert MISSING not in registered._cache


def test_what_is_taken_out_of_the_middle_ends_a_hit_there(registered, blocks):
    """Else a lookup would take the run, which still names the block."""
    del registered._cache[KEYS[2]]
    assert registered.prefix(0, CONTENTS, 4) == blocks[:2]
    assert registered.suffix(0, CONTENTS, 0, 4) == [blocks[3]]
    assert registered.find(1, CONTENTS[0]) is blocks[4]
    with pytest.raises(KeyError):
        del registered._cache[KEYS[2]]


def test_what_is_put_in_is_what_a_lookup_finds(registered, blocks):
    del registered._cache[KEYS[1]]
    registered._cache[KEYS[1]] = blocks[4]
    assert registered.prefix(0, CONTENTS, 4) == [blocks[0], blocks[4], *blocks[2:4]]


def test_several_blocks_under_one_key_are_one_entry(registered, blocks):
    registered.add(0, CONTENTS[1], blocks[4])
    both = {blocks[1].block_id: blocks[1], blocks[4].block_id: blocks[4]}
    assert registered._cache[KEYS[1]] == both
    assert len(registered._cache) == 5
    del registered._cache[KEYS[1]]
    assert registered.prefix(0, CONTENTS, 4) == blocks[:1]
