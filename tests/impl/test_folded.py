"""Folded runs: of a prompt one hash stands in the map, and everybody finds what they would have found."""

from random import Random

import pytest
from blockproof.impl.pool.block import KVCacheBlock
from blockproof.impl.pool.hash_map import BlockHashToBlockMap
from blockproof.impl.today import folded
from blockproof.impl.today.folded import FoldedRun, FoldingMap

from .cores_of_today import Core, full

LONGEST = 12


def row(prompt, length):
    """The hashes of a prompt, of which each names all before it: prompts with one beginning have the same there."""
    return [b"%d:" % i + bytes(prompt[: i + 1]) for i in range(length)]


class Pair:
    """The same blocks in a map that folds and in one that does not."""

    def __init__(self, kind=FoldingMap):
        self.maps = kind([0]), BlockHashToBlockMap()
        self.blocks = [], []
        self.tables = []

    def register(self, prompt, first, end, behind=None):
        """Blocks of a prompt, behind those of a table or of another one that begins alike."""
        number = len(self.blocks[0])
        for blocks, known in zip(self.blocks, self.maps, strict=True):
            new = [KVCacheBlock(number + i) for i in range(end - first)]
            before = None if not first else blocks[behind[first - 1]]
            blocks += new
            known.register(0, row(prompt, end)[first:], new, (first, before))
        self.tables.append((prompt, [*(behind or [])[:first], *range(number, number + end - first)]))

    def forget(self, numbers):
        for blocks, known in zip(self.blocks, self.maps, strict=True):
            known.forget_all([blocks[number] for number in numbers])

    def standing(self, table):
        """The blocks of a table before the first that has been forgotten."""
        gone = [i for i, number in enumerate(table) if self.blocks[0][number].content is None]
        return table[: gone[0]] if gone else table

    def wrong(self):
        """What differs, if anything does."""
        for blocks, known in zip(self.blocks, self.maps, strict=True):
            known.check(blocks)
        if len(self.maps[0]) != len(self.maps[1]):
            return "number of hashes"
        for prompt, table in self.tables:
            hashes = row(prompt, len(table))
            here, there = ([one.block_id for one in known.prefix(0, hashes, LONGEST)] for known in self.maps)
            if here != there:
                return f"{here} is found, not {there}"
            each = [[one.block_id for one in known.blocks_in(0, hashes[-1])] for known in self.maps]
            if each[0] != each[1]:
                return f"{each[0]} are found, not {each[1]}"
        return ""


def story(seed, kind=FoldingMap, steps=40):
    """Prompts with common beginnings are registered, go on, come again, and are evicted, in any order."""
    draw, pair = Random(seed), Pair(kind)
    for _ in range(steps):
        what = draw.random()
        alive = [(prompt, pair.standing(table)) for prompt, table in pair.tables]
        alive = [(prompt, table) for prompt, table in alive if table]
        if what < 0.35 or not alive:
            prompt = tuple(draw.randrange(5) for _ in range(LONGEST))
            prompt = draw.choice(pair.tables)[0] if pair.tables and draw.random() < 0.3 else prompt
            pair.register(prompt, 0, draw.randrange(1, LONGEST))
        elif what < 0.7:
            prompt, table = draw.choice(alive)
            first = draw.randrange(1, len(table) + 1)
            again = (*prompt[:first], *(draw.randrange(5) for _ in range(LONGEST - first)))
            alike = [one for one, _ in pair.tables if one[:first] == prompt[:first]]
            again = draw.choice(alike) if draw.random() < 0.3 else again
            if first < LONGEST:
                pair.register(again, first, draw.randrange(first, LONGEST) + 1, table)
        elif what < 0.9:
            _, table = draw.choice(alive)
            pair.forget(table[draw.randrange(len(table)) :][::-1])
        else:
            _, table = draw.choice(alive)
            pair.forget([draw.choice(table)])
        if wrong := pair.wrong():
            return wrong
    return ""


@pytest.mark.parametrize("seed", range(40))
def test_a_map_that_folds_finds_what_another_one_finds(seed):
    assert story(seed) == ""


class Blind(FoldingMap):
    """It never asks whether what stands before a run is gone."""

    def _drop_leaves(self, folds, run, left):
        run.leaves = []


class Hasty(FoldingMap):
    """A hash that is known already leaves the run folded in which it stands."""

    def _unfold_known(self, folds, contents, any_of_them):
        pass

    def _unfold_end(self, run, left):
        pass


class Deaf(FoldingMap):
    """It does not look at the hashes that stand in the map."""

    def _room(self, folds, group, contents, first, before):
        index, folds.index = folds.index, {}
        try:
            return super()._room(folds, group, contents, first, before)
        finally:
            folds.index = {**index, **folds.index}


class Rash(FoldingMap):
    """A run goes on though another one of its beginning has those hashes, or others there."""

    def _goes_on(self, folds, run, at, contents):
        return True


@pytest.mark.parametrize("kind", [Blind, Hasty, Deaf, Rash])
def test_a_map_that_folds_what_it_must_not_is_found_out(kind):
    def wrong(seed):
        try:
            return story(seed, kind)
        except (AssertionError, KeyError):
            return "contradiction"

    assert any(wrong(seed) for seed in range(200))


def test_a_prompt_is_one_entry_until_somebody_asks_for_all():
    known, blocks = FoldingMap([0]), [KVCacheBlock(i) for i in range(10)]
    known.register(0, row((1,) * 10, 10), blocks, (0, None))
    folds = known.folds[0]
    assert (len(folds.heads), folds.index, len(known)) == (1, {}, 10)
    assert known.prefix(0, row((1,) * 10, 10), 7) == blocks[:7]
    assert (len(folds.heads), folds.index) == (1, {})
    assert known.groups[0] == dict(zip(row((1,) * 10, 10), blocks, strict=True))
    assert not folds.heads
    run = blocks[0].run
    assert isinstance(run, FoldedRun)
    assert not run.folded
    known.check(blocks)


def test_the_last_block_of_a_prompt_that_comes_again_is_the_only_one_unfolded():
    known, blocks = FoldingMap([0]), [KVCacheBlock(i) for i in range(10)]
    hashes, again = row((1,) * 10, 10), KVCacheBlock(10)
    known.register(0, hashes, blocks, (0, None))
    known.register(0, hashes[9:], [again], (9, blocks[8]))
    folds = known.folds[0]
    assert (list(folds.heads), list(folds.index)) == (hashes[:1], hashes[9:])
    assert known.blocks_in(0, hashes[9]) == [blocks[9], again]
    assert known.prefix(0, hashes, 10) == blocks
    known.check([*blocks, again])


def test_blocks_that_are_not_in_a_row_are_compared_with_all():
    known, blocks, hashes = FoldingMap([0]), [KVCacheBlock(i) for i in range(4)], row((1,) * 3, 3)
    known.register(0, hashes, blocks[:3], (0, None))
    known.register(0, hashes[1:2], blocks[3:], None)
    assert known.blocks_in(0, hashes[1]) == [blocks[1], blocks[3]]
    known.check(blocks)


def test_the_same_prompt_twice_at_once_stays_folded():
    known, blocks, hashes = FoldingMap([0]), [KVCacheBlock(i) for i in range(8)], row((1,) * 4, 4)
    for first, end in ((0, 2), (2, 4)):
        known.register(0, hashes[first:end], blocks[first:end], (first, blocks[first - 1] if first else None))
        here = blocks[4 + first : 4 + end]
        known.register(0, hashes[first:end], here, (first, blocks[3 + first] if first else None))
    folds = known.folds[0]
    assert (list(folds.heads), folds.index, len(known)) == (hashes[:1], {}, 4)
    assert known.blocks_in(0, hashes[3]) == [blocks[3], blocks[7]]
    known.forget_all(blocks[1:4][::-1])
    assert known.prefix(0, hashes, 4) == [blocks[0], *blocks[5:]]
    known.check(blocks)
    known.forget(blocks[0])
    assert known.prefix(0, hashes, 4) == blocks[4:]
    assert known.unfold(0) == dict(zip(hashes, blocks[4:], strict=True))


def test_who_parts_behind_a_prompt_that_came_twice_leaves_it_folded():
    known, blocks, one, other = (
        FoldingMap([0]),
        [KVCacheBlock(i) for i in range(8)],
        row((1, 1, 1, 1), 4),
        row((1, 1, 2, 2), 4),
    )
    known.register(0, one, blocks[:4], (0, None))
    known.register(0, other[:2], blocks[4:6], (0, None))
    known.register(0, other[2:], blocks[6:], (2, blocks[5]))
    folds = known.folds[0]
    assert (list(folds.heads), folds.index) == ([one[0], other[2]], {})
    assert known.prefix(0, other, 4) == [*blocks[:2], *blocks[6:]]
    assert known.prefix(0, one, 4) == blocks[:4]
    known.check(blocks)
    known.forget_all(blocks[3::-1])
    assert not folds.orphans
    assert known.prefix(0, other, 4) == blocks[4:]
    known.forget_all(blocks[5:3:-1])
    assert folds.orphans
    assert known.unfold(0) == dict(zip(other[2:], blocks[6:], strict=True))
    known.check(blocks)


def test_who_goes_on_as_another_one_that_has_left_is_the_second_one_to_do_so():
    known, blocks = FoldingMap([0]), [KVCacheBlock(i) for i in range(8)]
    one, other = row((1, 1, 1, 1), 4), row((1, 1, 2, 2), 4)
    known.register(0, one, blocks[:4], (0, None))
    known.register(0, other[2:], blocks[4:6], (2, blocks[1]))
    known.forget_all(blocks[3:1:-1])
    known.register(0, other[2:], blocks[6:], (2, blocks[1]))
    assert known.blocks_in(0, other[3]) == [blocks[5], blocks[7]]
    assert known.prefix(0, other, 4) == [*blocks[:2], *blocks[4:6]]
    known.check(blocks)


def test_what_stands_behind_another_block_than_its_hash_says_is_registered_alone():
    known, blocks, hashes = FoldingMap([0]), [KVCacheBlock(i) for i in range(4)], row((1,) * 6, 6)
    known.register(0, hashes[:3], blocks[:3], (0, None))
    known.register(0, hashes[5:], blocks[3:], (5, blocks[2]))
    assert known.prefix(0, hashes, 6) == blocks[:3]
    assert known.find(0, hashes[5]) is blocks[3]
    assert not known.folds[0].heads
    known.check(blocks)


def test_what_two_runs_begin_with_is_unfolded_where_one_goes_on_with_what_is_known():
    known, blocks, hashes = FoldingMap([0]), [KVCacheBlock(i) for i in range(7)], row((1,) * 3, 3)
    known.register(0, hashes, blocks[:3], (0, None))
    known.register(0, hashes[2:], blocks[3:4], (2, blocks[1]))
    known.register(0, hashes[:1], blocks[4:5], (0, None))
    known.register(0, hashes[1:], blocks[5:], (1, blocks[4]))
    assert [known.blocks_in(0, one) for one in hashes] == [
        [blocks[0], blocks[4]],
        [blocks[1], blocks[5]],
        [blocks[2], blocks[3], blocks[6]],
    ]
    known.check(blocks)


def test_runs_that_left_another_one_are_forgotten_with_time():
    known = FoldingMap([0])
    trunk, hashes = [KVCacheBlock(i) for i in range(2)], row((0,) * 2, 2)
    known.register(0, hashes, trunk, (0, None))
    for number in range(2, 200):
        leaf = KVCacheBlock(number)
        known.register(0, row((number,), 1), [leaf], (1, trunk[0]))
        known.forget(leaf)
    run = trunk[0].run
    assert isinstance(run, FoldedRun)
    assert len(run.leaves) <= folded._MANY
    assert not known.folds[0].orphans


def test_who_looks_at_the_entries_sees_all_of_them():
    known, blocks = FoldingMap([0]), [KVCacheBlock(i) for i in range(3)]
    known.register(0, row((1,) * 3, 3), blocks, (0, None))
    assert len(known._cache) == 3
    known.register(0, row((2,) * 3, 3), [KVCacheBlock(3 + i) for i in range(3)], (0, None))
    assert len(known._cache) == 6


def test_a_prompt_of_one_block_is_folded_when_it_goes_on():
    known, blocks = FoldingMap([0]), [KVCacheBlock(number) for number in range(4)]
    hashes = row((1, 2, 3), 3)
    known.register(0, hashes[:1], blocks[:1], (0, None))
    folds = known.folds[0]
    assert (list(folds.index), folds.heads) == (hashes[:1], {})
    known.register(0, hashes[1:], blocks[1:3], (1, blocks[0]))
    assert (folds.index, list(folds.heads)) == ({}, hashes[:1])
    assert known.prefix(0, hashes, 3) == blocks[:3]
    known.check(blocks)
    known.register(0, hashes[:1], blocks[3:], (0, None))
    assert known.blocks_in(0, hashes[0]) == [blocks[0], blocks[3]]
    known.check(blocks)


def test_who_left_a_run_is_known_still_when_more_of_it_goes():
    """First what is behind the place where another run has left it, then what is before."""
    core = Core(full(), blocks=40)
    core.step(one := core.request("a", range(41)), 40)
    other = [*range(12), *range(100, 129)]
    assert core.admit(core.request("b", other), 28) == 12
    ids = [block.block_id for block in core.manager.get_blocks("a").blocks[0]]
    for block_id in ids[:1:-1]:  # the end first, up to the block before which the other run has left
        core.manager.evict_blocks({block_id})
    core.manager.free(one)
    assert core.admit(core.request("c", other), 33) == 8
    core.manager.check()
    assert core.manager.get_computed_blocks(core.request("d", other))[1] == 40


def test_what_stands_behind_a_run_that_was_unfolded_is_found_first():
    """Another run has left it; it is gone block by block, and its beginning comes again with what the other one has."""
    known, blocks = FoldingMap([0]), [KVCacheBlock(i) for i in range(10)]
    one, other = row((1, 1, 1, 1), 4), row((1, 1, 2, 2), 4)
    known.register(0, one, blocks[:4], (0, None))
    known.register(0, other[2:], blocks[4:6], (2, blocks[1]))
    known.forget(blocks[1])
    known.forget_all([blocks[3], blocks[2], blocks[0]])
    known.register(0, other, blocks[6:], (0, None))
    assert known.prefix(0, other, 4) == [*blocks[6:8], *blocks[4:6]]
    known.check(blocks)


def test_a_row_with_a_block_that_has_a_name_is_not_registered_at_all():
    known, blocks, hashes = FoldingMap([0]), [KVCacheBlock(i) for i in range(3)], row((1,) * 3, 3)
    known.register(0, row((2,), 1), blocks[2:], (0, None))
    assert not known.register_new(0, hashes, blocks, (0, None))
    assert [block.content for block in blocks] == [None, None, *row((2,), 1)]
    assert not known.folds[0].heads
    known.check(blocks)


@pytest.mark.parametrize("length", [1, 2])
def test_who_has_asked_for_the_map_of_a_group_sees_what_is_folded_later(length):
    known, blocks, hashes = FoldingMap([0]), [KVCacheBlock(i) for i in range(3)], row((1,) * 3, 3)
    assert known.groups[0] == {}
    known.register(0, hashes[:length], blocks[:length], (0, None))
    known.register(0, hashes[length:], blocks[length:], (length, blocks[length - 1]))
    assert list(known.folds[0].heads) == hashes[:1]
    assert known.groups[0] == dict(zip(hashes, blocks, strict=True))


def test_one_block_behind_the_first_of_a_longer_prompt_leaves_its_run():
    core = Core(full())
    core.step(core.request("a", range(13)), 13)
    other = [*range(4), *range(50, 55)]
    assert core.admit(core.request("b", other), 5) == 4
    assert core.manager.get_computed_blocks(core.request("c", other))[1] == 8
    assert core.manager.get_computed_blocks(core.request("d", range(13)))[1] == 12
