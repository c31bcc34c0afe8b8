"""Generates shapes of cores: every attention type alone, and hybrids of two and three (core.md §§7-9)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import gcd, lcm

from ...model.attention import RULES, Full, Mamba
from ...model.ops import Group, Kind, Shape
from ..kinds import HYBRIDS, HYBRIDS_OF_FEW, HYBRIDS_OF_POOLS, KINDS, OF_FEW, OF_MOST
from .bounds import sink_blocks
from .draw import Draw
from .finished import finished_shape
from .tuning import USUAL_TUNING

ATTENTION: Mapping[str, tuple[Kind, ...]] = {
    "+".join(kinds): kinds for kinds in (*[(kind,) for kind in OF_MOST], *HYBRIDS)
}
"""Attention types that any core may be asked for, each with the kinds of its groups."""
EVERY_ATTENTION: Mapping[str, tuple[Kind, ...]] = {
    **ATTENTION,
    **{"+".join(kinds): kinds for kinds in (*[(kind,) for kind in OF_FEW], *HYBRIDS_OF_FEW, *HYBRIDS_OF_POOLS)},
}
"""The choices of `--attention`: these, and those that few cores have."""


def possible_attention(names: Sequence[str], lacks: Collection[str]) -> tuple[str, ...]:
    """Those of the names in `EVERY_ATTENTION` whose groups a target can have that lacks this (`targets.declarations`).

    >>> possible_attention(("full", "mamba", "full+sliding"), {"Group.kind=mamba", "hybrids"})
    ('full',)
    """
    groups = {name: EVERY_ATTENTION[name] for name in names}
    return tuple(
        name
        for name, kinds in groups.items()
        if not any(f"Group.kind={kind}" in lacks for kind in kinds) and (len(kinds) == 1 or "hybrids" not in lacks)
        if kinds not in HYBRIDS_OF_POOLS or "Shape.host_blocks" not in lacks
    )


def with_offered(draw: Draw, shape: Shape, lacks: Collection[str], *, rounds: bool = False) -> Shape:
    """The shape with what few targets have (`declarations.OFFERS`). `rounds`: it is about lookups that take several,
    as those of old names do most, so junctions and chains, which have others, come seldom there."""
    if "Shape.host_blocks" not in lacks and tuple([group.kind for group in shape.groups]) in HYBRIDS_OF_POOLS:
        shape = _with_pools(draw, shape)
    if "hits_inside_blocks" not in lacks:
        shape = _with_small_hashes(draw, _with_long_states(draw, shape))
    if "Group.checkpoint" not in lacks:
        shape = _with_checkpoints(draw, _with_kept_states(draw, shape))
    if "Shape.old_names" not in lacks and rounds and draw.integer(0, 2):
        shape = _with_drafts_of_windows(draw, shape)
    flagged = any(group.eagle for group in shape.groups)
    if "Shape.names_junctions" not in lacks:
        shape = replace(shape, names_junctions=flagged and draw.integer(0, 3) < (1 if rounds else 2))
    if "Shape.reads_ahead" not in lacks and (flagged or shape.eagle):
        seldom = rounds or shape.names_junctions  # a chain names none
        shape = _with_chains(draw, shape, (1, 1, 1, 1, 1, 1, 2, 3) if seldom else (1, 1, 2, 3))
    if "Shape.old_names" not in lacks and (flagged or shape.eagle) and shape.reads_ahead == 1:
        old = draw.integer(0, 3) <= 1 + rounds
        shape = replace(shape, old_names=old and not shape.names_junctions)
    if "Shape.watermark" in lacks:
        return shape
    shape = replace(shape, watermark=min(draw.choose((0, 0, 1, 2)), (shape.num_blocks - 1) // 4))
    # Nobody says that full attention stands first.
    turned = len(shape.groups) > 1 and not shape.host_blocks and draw.integer(0, 3) == 0
    return replace(shape, groups=shape.groups[::-1]) if turned else shape


def hits_end_inside(kinds: Sequence[Kind]) -> bool:
    """True if a core of these kinds may have hits that end inside a block, whatever its block sizes are: if it has
    states, and all else can be looked up there."""
    rules = {RULES[kind] for kind in kinds}
    small = all(issubclass(rule, Full | Mamba) or rule.scratch for rule in rules)
    return small and Mamba in rules and any(rule.is_full for rule in rules)


def _with_long_states(draw: Draw, shape: Shape) -> Shape:
    """The shape, often with states that stand for more tokens than blocks of full attention, if hits may end inside:
    only then does a prefix that others share end inside a state's block."""
    if not hits_end_inside([group.kind for group in shape.groups]) or not shape.caching or draw.integer(0, 1):
        return shape
    more = draw.choose((2, 2, 3))
    groups = [
        replace(group, block_size=group.block_size * (more if RULES[group.kind] is Mamba else 1))
        for group in shape.groups
    ]
    unit = more * shape.scheduler_block_size
    longest = max(shape.max_model_len, 3 * unit + 1)
    return replace(shape, groups=tuple(groups), scheduler_block_size=unit, max_model_len=longest)


def _with_small_hashes(draw: Draw, shape: Shape) -> Shape:
    """The shape, mostly with smaller hash blocks, if hits may end inside its blocks."""
    inside, size = hits_end_inside([group.kind for group in shape.groups]), shape.hash_block_size
    smaller = [part for part in range(1, size) if size % part == 0]
    fine = shape.caching and shape.parallel == 1 and inside and smaller
    return replace(shape, hash_block_size=draw.choose(smaller)) if fine and draw.integer(0, 7) else shape


def _with_pools(draw: Draw, shape: Shape) -> Shape:
    """The shape with a pool of the host, which has room for the longest request, of equal blocks and without drafts."""
    size, pages = shape.groups[0].block_size, -(-shape.max_model_len // shape.groups[0].block_size)
    regions = [-(-group.window // size) for group in shape.groups if group.window]
    groups = [replace(group, block_size=size, eagle=False) for group in shape.groups]
    fewest = 1 + (len(groups) - len(regions) - 1) * draw.choose((3, 3, pages)) + sum(regions)
    return replace(
        shape,
        groups=tuple(groups),
        num_blocks=max(draw.choose((shape.num_blocks, shape.num_blocks, 0)), fewest),
        host_blocks=2 + pages * draw.choose((1, 2, 2, 4)),
        hash_block_size=size,
        scheduler_block_size=size * draw.choose((1, 1, 1, 2)),
        eagle=False,
        events=False,
        event_digests=False,
        sampling=0,
    )


def _with_chains(draw: Draw, shape: Shape, models: Sequence[int]) -> Shape:
    """The shape, sometimes with a chain of draft models: these have attention, and blocks for what they read."""
    if all(RULES[group.kind] is Mamba for group in shape.groups):
        return shape
    return replace(shape, reads_ahead=min(draw.choose(models), shape.scheduler_block_size))


def _with_drafts_of_windows(draw: Draw, shape: Shape) -> Shape:
    """The shape, with drafts that read the windows alone, or the last of them: a hit that others cut is asked for
    behind it again."""
    windows = [index for index, group in enumerate(shape.groups) if RULES[group.kind].windowed]
    read = windows[draw.choose((0, -1)) :]
    groups = [replace(group, eagle=index in read) for index, group in enumerate(shape.groups)]
    return replace(shape, groups=tuple(groups), eagle=False)


def _with_kept_states(draw: Draw, shape: Shape) -> Shape:
    """The shape, sometimes with states of which only some are kept, or with an interval that says nothing."""
    states = any(RULES[group.kind] is Mamba for group in shape.groups)
    if any(RULES[group.kind].windowed for group in shape.groups) or not shape.caching:
        return shape
    if not states:
        return replace(shape, retention_interval=draw.choose((None, None, 0)))
    unit = shape.scheduler_block_size
    return replace(shape, retention_interval=draw.choose((*[None] * 6, 0, unit, 2 * unit, 3 * unit)))


def _with_checkpoints(draw: Draw, shape: Shape) -> Shape:
    """The shape, sometimes with states that steps leave inside them, where there are no drafts' states."""
    groups = [
        replace(group, checkpoint=draw.choose((0, 1, 1, shape.hash_block_size, 2 * shape.hash_block_size, 3)))
        if RULES[group.kind] is Mamba and group.mamba_mode == "align" and not group.speculative_blocks and shape.caching
        else group
        for group in shape.groups
    ]
    return replace(shape, groups=tuple(groups))


def with_states_uncached(draw: Draw, shape: Shape, lacks: Collection[str]) -> Shape:
    """The shape, sometimes without a cache if it has states in a mode in which the target caches none: only then are
    they in this mode there."""
    uncached = any(RULES[group.kind] is Mamba and group.mamba_mode != "align" for group in shape.groups)
    if uncached and shape.caching and "Group.mamba_mode" in lacks:
        return replace(shape, caching=draw.integer(0, 4) > 0)
    return shape


def draw_shape(
    draw: Draw, kinds: Sequence[Kind], block_sizes: Sequence[int] = (), deep: int = USUAL_TUNING.deep
) -> Shape:
    """A shape with groups of these kinds, of these block sizes only if there are any. Every correct core accepts it.

    Of 8 hybrids `deep` have many places where a hit may end, and room for some requests.
    """
    is_deep = len(kinds) > 1 and not block_sizes and draw.integer(0, 7) < deep
    caching = all(RULES[kind].cacheable for kind in kinds) and draw.integer(0, 9) > 0
    same_size = draw.integer(0, 1) == 0
    hash_block_size = draw.choose((1, 2, 3, 4)) if len(kinds) > 1 else draw.choose((1, 2, 3, 4, 5, 8))
    sizes = [hash_block_size * (1 if same_size else draw.choose((1, 1, 2) if is_deep else (1, 2, 3, 4))) for _ in kinds]
    if block_sizes:
        sizes = [draw.choose(block_sizes)] * len(kinds) if same_size else [draw.choose(block_sizes) for _ in kinds]
        hash_block_size = gcd(*sizes)
    eagle = draw.integer(0, 3) > 0 if is_deep else draw.integer(0, 2) == 0
    wide = 7 if is_deep else 100
    groups = [KINDS[kind].drawn(draw, size, wide) for kind, size in zip(kinds, sizes, strict=True)]
    groups = _with_repeated_specs(draw, groups)
    if eagle and draw.integer(0, 2):
        for flagged in {draw.integer(0, len(groups) - 1) for _ in range(draw.choose((1, 1, 2)))}:
            groups[flagged] = replace(groups[flagged], eagle=True)
    sizes = [group.block_size for group in groups]
    parallel = _parallel(draw, kinds)
    ranks = parallel[0] * parallel[1]
    if ranks > 1:
        groups = [replace(group, sink_len=group.sink_len * ranks) for group in groups]
    unit = lcm(*sizes) * ranks
    if len(kinds) == 1:
        hash_block_size = unit
    elif same_size and draw.integer(0, 1):
        hash_block_size = gcd(*sizes)
    scheduler = unit * draw.choose((1, 1, 2))
    others = (3 * unit - 1, 3 * unit, 4 * unit) if block_sizes else (24, 40, 64)
    lengths = (6 * scheduler, 8 * scheduler + 1) if is_deep else (unit + 1, 2 * unit, 4 * unit + 1, *others)
    max_model_len = draw.choose(lengths)
    windows = any(RULES[kind].windowed for kind in kinds)
    num_blocks = _num_blocks(draw, groups, max_model_len if is_deep else 0)
    shape = Shape(
        groups=tuple(groups),
        num_blocks=num_blocks,
        max_model_len=max_model_len,
        hash_block_size=hash_block_size,
        scheduler_block_size=scheduler,
        max_num_batched_tokens=draw.choose((1, 4, 7, max_model_len)),
        caching=caching,
        eagle=eagle and draw.integer(0, 7) > 0,  # a flagged group alone is enough
        events=draw.integer(0, 1) == 0,
        stats=draw.integer(0, 1) == 0,
        retention_interval=draw.choose((None, None, 0, scheduler, 2 * scheduler)) if windows else None,
        decode_parallel=parallel[0],
        prefill_parallel=parallel[1],
    )
    return finished_shape(shape)


def _with_repeated_specs(draw: Draw, groups: list[Group]) -> list[Group]:
    """In some shapes, the last two groups of one kind get equal specs: such groups are looked up together."""
    last = groups[-1]
    if len(groups) > 1 and groups[-2].kind == last.kind and draw.integer(0, 1):
        groups[-1] = replace(groups[-2], block_size=last.block_size) if draw.integer(0, 1) else groups[-2]
    return groups


def _parallel(draw: Draw, kinds: Sequence[Kind]) -> tuple[int, int]:
    """Ranks of decode and of prefill parallelism; more than one only for a single group of full attention."""
    if len(kinds) == 1 and RULES[kinds[0]].is_full and draw.integer(0, 3) == 0:
        return draw.choose(((2, 1), (1, 2), (2, 2)))
    return (1, 1)


def _num_blocks(draw: Draw, groups: Sequence[Group], tokens: int) -> int:
    """Blocks of the pool: from nearly none to enough for everything, plus those of the sinks; enough for one to three
    requests of so many tokens, if any are given."""
    sinks = sink_blocks(groups)
    if tokens:
        return 2 + sinks + draw.choose((1, 1, 2, 3)) * sum(-(-tokens // group.block_size) for group in groups)
    return sinks + draw.choose((draw.integer(2, 6), draw.integer(4, 14), draw.integer(4, 14), draw.integer(8, 30), 64))
