"""Two small engines with mistakes planted into them: the example's own, and nano-vllm where it is installed.

Each mistake is a function that changes one core that was just built, and `make_NAME` and `make_nano_NAME` make targets
that have it: they are what traces name.
"""

import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "my-engine"


class BrokenError(LookupError):
    """What a planted mistake raises."""


def instead(owner, name, change):
    """Replace a method of one object; `change` gets the old one first."""
    old = getattr(owner, name)
    setattr(owner, name, lambda *arguments, **options: change(old, *arguments, **options))


# The example: `core` is a `KVCache`.


def old_content_found(core):
    core.pool.forget = lambda block: None


def last_block_leaks(core):
    instead(
        core,
        "release",
        lambda old, request: (core.tables.get(request, []) and core.tables[request].pop(), old(request)),
    )


def whole_prompt_hit(core):
    instead(core, "match", lambda old, tokens: old([*tokens, 0]))


def one_block_short(core):
    instead(core, "allocate", lambda old, request, tokens, hit=(): old(request, max(1, tokens - 1), hit))


def shared_stays_free(core):
    def share(old, block):
        core.pool.holders[block] += 1

    instead(core.pool, "share", share)


def revived_uncounted(core):
    def allocate(old, request, tokens, hit=()):
        table = core.tables.get(request, [])
        missing = max(0, -(-tokens // core.block_size) - len(table) - len(hit))
        for block in hit:
            core.pool.share(block)
        new = [core.pool.take() for _ in range(missing)]
        core.tables[request] = [*table, *hit, *new]
        return new

    instead(core, "allocate", allocate)


def position_ignored(core):
    def block_keys(old, tokens):
        size = core.block_size
        return [repr(tokens[end - size : end]).encode() for end in range(size, len(tokens) + 1, size)]

    instead(core, "block_keys", block_keys)


def freed_while_shared(core):
    def give_back(old, block):
        core.pool.holders[block] = 1
        old(block)

    instead(core.pool, "give_back", give_back)


def raises_on_second_hit(core):
    def match(old, tokens):
        hit = old(tokens)
        if len(hit) > 1:
            raise BrokenError(f"block {hit[1]} of {len(hit)} is not there")
        return hit

    instead(core, "match", match)


def raises_on_third_table(core):
    def allocate(old, request, tokens, hit=()):
        if len(core.tables) > 2 and request not in core.tables:
            return core.tables[request][0]
        return old(request, tokens, hit)

    instead(core, "allocate", allocate)


def raises_when_released_twice(core):
    released = []

    def release(old, request):
        if request in released:
            raise BrokenError(f"{request} is gone")
        released.append(request)
        old(request)

    instead(core, "release", release)


def holders_lost(core):
    def give_back(old, block):
        old(block)
        if len(core.pool.free) > 3:
            core.pool.holders = None  # the adapter cannot show that

    instead(core.pool, "give_back", give_back)


def table_of_texts(core):
    def release(old, request):
        old(request)
        core.tables = {name: [str(block) for block in table] for name, table in core.tables.items()}

    instead(core, "release", release)


MINE = (
    *(old_content_found, last_block_leaks, whole_prompt_hit, one_block_short, shared_stays_free, revived_uncounted),
    *(position_ignored, freed_while_shared, raises_on_second_hit, raises_on_third_table),
    *(raises_when_released_twice, holders_lost, table_of_texts),
)


# nano-vllm: `core` is its `BlockManager`.


def nothing(core):
    """As it is."""


def hit_content_unchecked(core):
    core.compute_hash = lambda tokens, prefix=-1: sum(tokens) % 7
    for block in core.blocks:
        instead(block, "update", lambda old, key, tokens: old(key, Any()))


class Any(list[int]):
    """Equal to every list."""

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    __hash__ = None


def prefix_ignored(core):
    old = core.compute_hash
    core.compute_hash = lambda tokens, prefix=-1: old(tokens)


def entry_kept(core):
    instead(core, "_allocate_block", lambda old: kept(core, old))


def kept(core, old):
    """A block is taken without its entry being removed."""
    block = core.blocks[core.free_block_ids[0]]
    block.hash = -1
    return old()


def leaks_on_deallocate(core):
    def deallocate(old, sequence):
        if sequence.block_table:
            sequence.block_table.pop()
        old(sequence)

    instead(core, "deallocate", deallocate)


def freed_in_use(core):
    def give_back(old, block):
        core.used_block_ids.discard(block)
        core.free_block_ids.append(block)
        if len(core.free_block_ids) > 2:
            core.free_block_ids.append(core.free_block_ids[0])

    instead(core, "_deallocate_block", give_back)


def room_overstated(core):
    instead(core, "can_allocate", lambda old, sequence: old(sequence) if old(sequence) is not False else True)
    instead(core, "can_append", lambda old, sequence: True)


def no_room_for_decode(core):
    core.may_append = lambda sequence: None


def raises_in_the_middle(core):
    def allocate(old, sequence, *more):
        if core.used_block_ids:
            raise BrokenError(f"{len(core.used_block_ids)} blocks are in the way")
        return old(sequence, *more)

    instead(core, "allocate", allocate)


def raises_for_long_tables(core):
    def deallocate(old, sequence):
        return old(sequence) if len(sequence.block_table) < 2 else core.blocks[-len(core.blocks) - 1]

    instead(core, "deallocate", deallocate)


NANO = (
    *(nothing, hit_content_unchecked, prefix_ignored, entry_kept, leaks_on_deallocate, freed_in_use, room_overstated),
    *(no_room_for_decode, raises_in_the_middle, raises_for_long_tables),
)


def _faulty(target, attribute, plant):
    """The target, with this mistake in every core that it builds."""
    start = target.start

    def planted(shape):
        answer = start(shape)
        if answer[1] is not None:
            plant(getattr(target, attribute))
        return answer

    target.start = planted
    return target


def _make_mine(plant):
    if str(EXAMPLE) not in sys.path:
        sys.path.append(str(EXAMPLE))
    from my_target import make_target  # type: ignore[import-not-found]  # beside the example

    return _faulty(make_target(), "core", plant)


def _make_nano(plant):
    from blockproof.fuzz.adapters.nano_vllm import make_target

    return _faulty(make_target(), "_manager", plant)


for _plant in MINE:
    globals()[f"make_{_plant.__name__}"] = lambda plant=_plant: _make_mine(plant)
for _plant in NANO:
    globals()[f"make_nano_{_plant.__name__}"] = lambda plant=_plant: _make_nano(plant)
