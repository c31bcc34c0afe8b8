"""Every name that a target may put into `hides`, `lacks`, `designs` and `loses`, each with its effect, and the check of
these.

The page docs/reference/declarations.md is written from this table.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import get_args

from ...model.attention import RULES
from ...model.ops import Group, Kind, Shape
from ..findings.starved import Starved
from ..findings.words import did_you_mean
from ..kinds import KINDS, OF_FEW, OF_MOST, OF_POOLS
from ..kinds.compressed import COMPRESSED

PAGE = "docs/reference/declarations.md"
"""Where the names are listed for people."""

HOLDS_BACK = "held_back"
"""Name of `hides` for a core that waits for the steps that use a block before it hands the block out."""

SEVERAL_NAMES = "several_names"
"""Name of `hides` for a core whose blocks may have several names."""
NAMES_OF_BLOCKS = frozenset({"labels", "earliest", "num_identities", "registered", "events"})
"""Fields of a snapshot that say what blocks are registered as."""


def hidden_without_model(hides: frozenset[str]) -> frozenset[str]:
    """What is hidden from oracles that do not know all names of a block, if this is from the model."""
    return hides | NAMES_OF_BLOCKS if SEVERAL_NAMES in hides else hides


EXCHANGES, EVICTS_MORE, FORGETS_PREEMPTED = "exchanges", "evicts_more", "forgets_preempted"
PUBLISHES_AT_END, COUNTS_AT_LAUNCH = "publishes_at_end", "counts_at_launch"
APPEND_ONLY = "append_only"
"""Older name of the design `exchanges`, in `hides`."""
FOR = " for "
"""Stands between a name and the kind of groups for which alone it holds, as in `Lookup for sliding`."""
HYBRIDS = "hybrids"
STARVED = Starved.__name__

HIDES: Mapping[str, str] = {
    "free": "The ids of the free blocks are not shown. Without `num_free` either, leaks cannot be seen.",
    "num_free": "The number of free blocks is not shown.",
    "usage": "The share of the pool in use is not shown.",
    "ref_cnt": "References are counted from tables and outside holders instead.",
    "tables": "The block tables are not shown. With full attention alone they are made up from the answers of `Lookup` "
    "and `Allocate`, as long as these name all blocks and the core does not exchange them. Else the shadow memory is "
    "silent, and the contract judges answers, their lengths and the number of free blocks alone: S1 when nobody holds "
    "anything, S4, S7 by what was ever computed, S8, S12 of an unknown request, and S14 of a prompt that has ended "
    "and nothing was allocated since.",
    "registered": "How many leading entries of a request are registered is not shown.",
    "labels": "What a block is registered as is not shown: S10, S11 and S18 are not judged, hits not for their full "
    "length.",
    "earliest": "Which block a lookup would yield is not shown.",
    "num_identities": "The number of contents that a lookup can find is not shown.",
    "events": "Events are not shown: S11 is not judged.",
    "new_block_ids": "Ids of new blocks that were not drained yet are not shown.",
    "stats": "Statistics that were not drained yet are not shown.",
    "free_order": "The free blocks are shown in no order: S9 is not judged.",
    SEVERAL_NAMES: "A block may have several names, or one that says more than its content, and the first is shown: "
    "`labels`, `earliest`, `num_identities`, `registered` and `events` count as hidden to all but the model.",
    APPEND_ONLY: "The same as `exchanges` in `designs`, which is its newer name.",
    HOLDS_BACK: "The core is told `Landed`, and keeps what is given up while a step or a load uses it out of the free "
    "blocks until then, with its reference: S13 asks that nobody is given such a block, S1 lets it be neither free nor "
    "held.",
}
"""Legal names of `hides`: the fields of a `Snapshot`, and four kinds of behaviour."""

DESIGNS: Mapping[str, str] = {
    EXCHANGES: "Blocks of the same content are merged. A table entry may be exchanged for another block that holds the "
    "same content, at any operation that names the request, also one that is refused; what is computed may be "
    "registered with it, no later than by the request's next `Allocate` or its end; and of equal blocks one is "
    "registered, the others need not be. Another content in the entry is S5, the shadow memory reads what is there.",
    EVICTS_MORE: "Eviction takes more than is needed, such as whole nodes of a tree or everything that is cached, in "
    "whichever call. It may take what nobody holds afterwards. A block that loses its content while it is held is "
    "S10, and whatever is still registered has to be found (S14). Without `labels` only what is held must be found, "
    "and S9 is not judged.",
    FORGETS_PREEMPTED: "What a request had that is preempted is forgotten then, as far as nobody else holds it, and "
    "what goes on from there, since a lookup would not find it. What else others had stays (S10), and the end of a "
    "request forgets nothing.",
    PUBLISHES_AT_END: "Blocks can be found when their request ends, in `Free`, and not before; a core may do the same "
    "at `Preempt`. From the `Free` of a request on, its prompt has to be found (S14). Of blocks with the same content "
    "one is registered, the others need not be.",
    COUNTS_AT_LAUNCH: "Tokens count as computed as soon as their step is allocated. Entries may be given up by these "
    "counts while the step still runs, as one queue runs all steps in order; what the query behind them reads stays "
    "(S6, S13), and drafts, which can be taken back, do not count.",
    **{
        name: f"An entry of a latent group (`mla`) stands for {ratio} tokens and is stored with the last of them, if "
        f"{ratio} divides the block size, which is in tokens. Tokens behind the last whole entry need no block, and "
        "none is read for them (S6, S13, S15, S17, L4)."
        for name, ratio in COMPRESSED.items()
    },
}
"""Legal names of `designs`: what a core does otherwise than most, and is no mistake."""

LOSES: Mapping[str, str] = {
    "computed-taken-back": "S6, S13, S15: Windows are cut by tokens that may be taken back (drafts, the last token of "
    "a prompt that was loaded as a whole); where they are, the next query reads, and its step writes, behind the cut "
    "(vllm-project/vllm#47728).",
    "skipped-on-optimistic-count": "S13: The same while they are not taken back: entries are given up that the steps "
    "still running read or write; one device queue hides it, a second reader or a rejected draft does not "
    "(vllm-project/vllm#47728).",
    "chunk-astride-block": "S6, S7: Where a block lies astride two chunks, a hit begins at the chunk of the longest "
    "possible hit, and can end before it, behind null entries that the next query reads.",
    "chunked-refuses": "S8, L1: A lookup with chunked local attention fails where a draft model reads it, or where "
    "hits do not end wherever its blocks do.",
    "window-of-one": "S14: A window of one token reads no block, yet a hit demands a registered one.",
    "eagle-cut-twice": "S14: An eagle window in smaller blocks than the alignment is cut before and after its last "
    "block is given up where it reaches back to the start, and loses one alignment (T9.hit).",
    "eagle-asked-in-turn": "S14: Where one of several eagle types shrinks the length, a window among them is asked "
    "again without the block that it may give up, and then wants another one before it (T14).",
    "eagle-last-block": "S14: The block behind a hit must end before the last token, though only the draft model reads "
    "it: a request of whole blocks loses one block.",
    "boundary-without-eagle": "S14, S18: With a retention interval the boundary that is kept is that of a search "
    "without eagle, one alignment behind the one at which an eagle search lands (T11).",
    "window-kept-for-scheduler": "S14, S18: A single window group registers by the scheduler's block size, but looks "
    "up by its own: only the boundaries by the former are there.",
    "gate-behind-hit": "L2, L4, S17: Behind a hit the admission gate takes the length of a window's table for the "
    "blocks in it, and lets in who finds no room later (T16.hit).",
    "gate-lookahead": "L2: The admission gate does not count the room that drafts need (T16.lookahead).",
    "mamba-gate": "L2, S17: The admission gate counts the states of the first step only (T16.states).",
    "chunked-cap": "L2, L4, S17: Where blocks lie astride chunks, the admission gate counts a block too few (T6).",
    "mamba-states-pile-up": "L2, L4, S17: With drafts, more states are held than are needed, up to all of the table "
    "(T15): bounds are those of a whole table.",
    "states-by-scheduler": "S7, S10: A state is registered at a block end inside a step, where mode `align` writes "
    "none, or behind drafts in the other modes: the core leaves it to its scheduler to end steps where blocks end "
    "(vllm-project/vllm#51113).",
    "mamba-negative-demand": "S8: A table of states that is longer than needed counts as fewer blocks than none, which "
    "hides what others ask for.",
    "mamba-external-state": "S17: The block for a state that comes from outside is not counted: it is taken of those "
    "that are reserved or have to stay free.",
    "windows-left-behind": "S7, S8: A hit for a connector may end before itself in windows, too, though nobody "
    "restores these; an allocation that takes less of such a hit fails.",
    "states-ahead-of-attention": "S14: Where states stand for more tokens than full attention holds, a hit for a "
    "connector is what all groups hold.",
    "reported-as-whole": "S8, S11: A full report tells of entries that are not there, and a lookup fails by it where "
    "a hit ends inside a block, or blocks lie on several ranks.",
    "connector-unreported": "S11: A full report leaves a hit for a connector out.",
    "room-ahead": "L1, L2, L4, S17: A step takes or wants room for more tokens than it was asked for, at most those of "
    "another step in whole blocks, a block and a token: bounds are so much wider.",
    "pools-apart": "L1, L2, L4, S17: Groups have pools of their own: one is full while there is room in another.",
}
"""Legal names of `loses`: what a target is known to do wrong, each with the properties of the contract or of liveness
that it breaks (the shadow memory sees some of them, too). The oracles count it for a target that declares it; for any
other it is a finding."""

_OPERATIONS: Mapping[str, str] = {
    "Lookup": "Requests are allocated without a lookup, so nothing is ever hit.",
    "Reject": "Which drafts were rejected (`Advance.rejected`) and what was sampled comes with the step, never later.",
    "Arrive": "External tokens are there at once: no allocation with `delay`.",
    "Landed": "Nobody says when a step has left the device.",
    "Preempt": "Nobody is ever preempted. A request that is refused is freed; the scheduler of the liveness oracle "
    "admits nobody unless the most that all running requests can hold fits the pool together.",
    "RemoveSkipped": "Entries behind a window are given up in allocations only.",
    "CommonPrefix": "Never asked for.",
    "ReadTable": "Never asked for; tables are seen in the snapshot.",
    "Evict": "Nobody makes the core forget single blocks.",
    "Reset": "The prefix cache is never reset.",
    "StepStart": "The core is not told that a scheduler step begins.",
    "TakeEvents": "Events are never drained.",
    "TakeNewBlockIds": "Ids of new blocks are never drained.",
    "TakeStats": "Statistics are never drained.",
    "Take": "Nobody outside takes blocks from the pool.",
    "Touch": "Nobody outside shares the blocks of requests.",
    "Release": "Nobody outside holds blocks: no `Take`, no `Touch`.",
}
_OPERATION_FIELDS: Mapping[str, str] = {
    "Submit.adapter": "No request names an adapter.",
    "Submit.adapter_version": "No two adapters have one name.",
    "Submit.salt": "No request has a salt.",
    "Submit.items": "No request has multimodal items.",
    "Submit.embeds": "No request consists of embeddings.",
    "Submit.skip_lookup": "Every request may use the cache.",
    "Allocate.hit": "No allocation uses the hit of the lookup before it.",
    "Allocate.lookahead": "No room is asked for beyond the tokens of the step.",
    "Allocate.external": "No tokens come from outside (a connector).",
    "Allocate.delay": "External tokens are there at once.",
    "Allocate.encoder_tokens": "No tokens of an encoder; leave cross attention out as well (`Group.kind=cross`).",
    "Allocate.gate": "Admission never asks for room for the whole prompt.",
    "Allocate.reserved": "No blocks are kept back for other requests.",
    "Advance.rejected": "The same as `drafts`.",
    "Release.prepend": "Blocks that are given back go to the end of the queue.",
}
_SHAPES: Mapping[str, str] = {
    "Shape.caching": "Every core is built with caching off; nothing is looked up.",
    "Shape.caching=False": "Every core is built with caching on; cross attention, which is never cached, is left out.",
    "Shape.eagle": "No shape uses EAGLE, nor does any of its groups.",
    "Shape.events": "Every core is built with events off; they are not drained.",
    "Shape.stats": "Every core is built with statistics off; they are not drained.",
    "Shape.event_digests": "Events name blocks by numbers only.",
    "Shape.sampling": "No core is built with a collector of metrics.",
    "Shape.retention_interval": "No shape has a retention interval.",
    "Shape.decode_parallel": "One rank of decode context parallelism.",
    "Shape.prefill_parallel": "One rank of prefill context parallelism.",
    "Shape.hash_block_size": "A hash covers one block: all groups have one block size, and that is the hash block's.",
    "Shape.scheduler_block_size": "The scheduler's block size is the smallest that is legal.",
    "Shape.max_num_batched_tokens": "A step may have as many tokens as a request (or as a block, if that is more).",
}
_NEEDED_BY: Mapping[str, Sequence[Kind]] = {
    name: [kind.name for kind in KINDS.values() if name in kind.needs]
    for name in (field.name for field in fields(Group))
    if any(name in kind.needs for kind in KINDS.values())
}
"""Fields that only some kinds of groups have, and these."""


def _needing(kinds: Sequence[Kind]) -> str:
    *others, last = [f"`{kind}`" for kind in kinds]
    return f"stands for the kinds {', '.join(others)} and {last}" if others else f"stands for the kind {last}"


_GROUPS: Mapping[str, str] = {
    "Group.block_size": "All groups have the block size of the first.",
    **{f"Group.{name}": f"No `{name}`: {_needing(kinds)}." for name, kinds in _NEEDED_BY.items()},
    "Group.mamba_mode": "States of Mamba layers are cached in the mode `align` only.",
    "Group.speculative_blocks": "Mamba layers have no blocks for the states of drafts, so no drafts with them.",
    "Group.num_heads": "All groups have as many heads; hybrids differ in something else.",
    "Group.eagle": "No group is flagged as EAGLE's; a whole shape may be.",
}
_FEATURES: Mapping[str, str] = {
    "drafts": "No speculative decoding: behind the known tokens comes one token at a time, and none is rejected.",
    "hybrids": "One group only: no shape with several.",
    "overlapping_items": "Multimodal items stand one after the other, in this order, on tokens of their own.",
    "refused_shapes": "No core is asked for that must be refused, as with a retention interval below 0.",
    "mixed_prompts": "A prompt consists of tokens or of embeddings, never of both.",
}
_FEW_HAVE = "Groups of the kind `{}`, which few cores have."
OFFERS: Mapping[str, str] = {
    "AllocateBatch": "Several requests are asked for their next step in one call; others are asked for one by one.",
    "Arrive.missing": "A load may fail: the last of the tokens from outside do not arrive, and the request goes on "
    "without them.",
    "Allocate.in_flight": "The core is told which computed tokens belong to steps whose outcome is not known.",
    "Allocate.alone": "The core is told that nobody else is scheduled in this step.",
    "Allocate.unzeroed": "Of some groups, blocks for external tokens are not listed to be zeroed.",
    "Free.keep": "The blocks of a request that ends may stay held from outside for a while.",
    "Lookup.limit": "A hit may be asked for that is no longer than so many tokens.",
    "Lookup.for_connector": "A hit may be asked for behind which a connector brings tokens, and the states with them.",
    "Release.watched": "Who gives blocks back may read them on until he is told that they are handed out again.",
    "Submit.reports_hits": "Requests ask for events that tell of the blocks of their hits.",
    "Group.checkpoint": "A step leaves a state of a Mamba group inside it, too, where a hit may end.",
    "Shape.names_junctions": "Where a prefix ends that requests share, a state gets a name, also inside a block.",
    "Shape.old_names": "Where drafts are made, a block's name may cover its own tokens only, as for a connector.",
    "Shape.reads_ahead": "A chain of draft models reads several tokens behind a step: names cover as many.",
    "Shape.host_blocks": "Cores write what they compute back to a pool of the host, and read it from there.",
    "Shape.watermark": "Cores keep some blocks free when they admit a request while others run.",
    "hits_inside_blocks": "Steps end where the end of a prompt gets a name inside a block, so that hits end there.",
    **{f"Group.kind={kind}": _FEW_HAVE.format(kind) for kind in OF_FEW},
    STARVED: "Room is asked for while calls that the target names are refused, as by a device without a free page: as "
    "`Allocate`, and all of these calls but the first `served` fail. The allocation may be refused then, and nothing "
    "has changed; asked for again it is served.",
}
"""Legal names of `offers`: what few cores have. A target that does not offer it lacks it."""
KINDS_OF_FEW = frozenset(f"Group.kind={kind}" for kind in OF_FEW)
"""Those that are kinds of groups (`model.kinds`), which every oracle knows."""
LACKS: Mapping[str, str] = {
    **_OPERATIONS,
    **_OPERATION_FIELDS,
    **_SHAPES,
    **_GROUPS,
    **{f"Group.kind={kind}": f"No group of the kind `{kind}` is ever drawn." for kind in OF_MOST},
    **_FEATURES,
}
"""Legal names of `lacks`: kinds of operations and their fields, what shapes and groups have, and features in words."""

_IMPLIED: Mapping[str, tuple[str, ...]] = {
    "drafts": ("Advance.rejected", "Reject", "Group.speculative_blocks"),
    "Advance.rejected": ("drafts", "Reject", "Group.speculative_blocks"),
    "Submit.adapter": ("Submit.adapter_version",),
    "Submit.items": ("overlapping_items",),
    "Submit.embeds": ("mixed_prompts",),
    "Lookup": ("Allocate.hit",),
    "Arrive": ("Allocate.delay",),
    "Allocate.delay": ("Arrive",),
    "Allocate.external": ("Allocate.delay", "Arrive"),
    "Release": ("Take", "Touch", "Release.prepend"),
    "Shape.caching": ("Lookup", "Allocate.hit"),
    "Shape.caching=False": tuple(f"Group.kind={kind}" for kind, rule in RULES.items() if not rule.cacheable),
    "Shape.eagle": ("Group.eagle",),
    "Shape.events": ("TakeEvents", "Shape.event_digests"),
    "Shape.stats": ("TakeStats",),
    "Shape.hash_block_size": ("Group.block_size",),
    **{f"Group.{name}": tuple(f"Group.kind={kind}" for kind in kinds) for name, kinds in _NEEDED_BY.items()},
}
"""What else is lacking where this is, all at once."""
_LEGAL: Mapping[str, Mapping[str, str]] = {
    "hides": HIDES,
    "lacks": {**LACKS, **{f"Group.kind={kind}": _FEW_HAVE.format(kind) for kind in (*OF_FEW, *OF_POOLS)}},
    # for whoever lists all kinds but some
    "designs": DESIGNS,
    "loses": LOSES,
    "offers": OFFERS,
}
_FOR_KINDS: Mapping[str, Collection[str]] = {
    "lacks": {*_OPERATIONS, *_OPERATION_FIELDS, *_SHAPES, "drafts", "overlapping_items", "mixed_prompts"},
    "designs": DESIGNS,
}
"""Names that may hold for shapes with groups of one kind only, by attribute."""
BEHIND_FOR: tuple[str, ...] = (*get_args(Kind), HYBRIDS)
"""What may stand behind `FOR`."""
_EXAMPLES: Mapping[str, str] = {
    "hides": '{"events", "stats"}',
    "lacks": '{"Reset", "Allocate.gate"}',
    "designs": '{"evicts_more"}',
    "loses": '{"computed-taken-back"}',
    "offers": '{"AllocateBatch"}',
}
_NEEDED = ("Submit", "Allocate", "Advance", "Free")
"""Operations without which nothing can be tested."""


@cache
def with_implied(names: frozenset[str]) -> frozenset[str]:
    """These names of `lacks`, and all that are lacking with them.

    >>> sorted(with_implied(frozenset({"Arrive"})))
    ['Allocate.delay', 'Arrive']
    """
    return names.union(*(_IMPLIED.get(name, ()) for name in names))


def in_shape(names: Collection[str], shape: Shape) -> frozenset[str]:
    """Those of these names of `lacks` or `designs` that hold for a core of this shape, and what is lacking with them.

    A name with a kind, `NAME for KIND`, holds if a group is of that kind, and `NAME for hybrids` if there are several.
    """
    kinds = frozenset([*(group.kind for group in shape.groups), *([HYBRIDS] if len(shape.groups) > 1 else [])])
    return _in_shape(frozenset(names), kinds)


@cache
def _in_shape(names: frozenset[str], kinds: frozenset[str]) -> frozenset[str]:
    said = (name.partition(FOR) for name in names)
    return with_implied(frozenset(name for name, _, kind in said if not kind or kind in kinds))


def designs_with(designs: Collection[str], hides: Collection[str]) -> frozenset[str]:
    """These designs, and what `hides` has as an older name of one.

    >>> sorted(designs_with({"evicts_more"}, {"append_only"}))
    ['evicts_more', 'exchanges']
    """
    return frozenset(designs) | ({EXCHANGES} if APPEND_ONLY in hides else frozenset())


def problem_with_names(attribute: str, value: object) -> str | None:
    """What is wrong with this value of one of the four, and what to write instead, in one line; None if nothing."""
    if isinstance(value, str):
        return f"{attribute} is the text {value!r}; write a set of names: {{{value!r}}}"
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        return f"{attribute} is a {type(value).__name__}; write a set of names, such as {_example(attribute)}"
    names = list(value)
    if strange := [name for name in names if not isinstance(name, str)]:
        return f"{attribute} holds {strange[0]!r}, a {type(strange[0]).__name__}; names are texts (all of them: {PAGE})"
    return _problem_with_names(attribute, frozenset(names))


@cache
def _problem_with_names(attribute: str, names: frozenset[str]) -> str | None:
    legal, for_kinds = _LEGAL[attribute], _FOR_KINDS.get(attribute, ())
    for name in sorted(names - legal.keys()):
        known, said, kind = name.partition(FOR)
        if not said or known not in legal:
            return f"{attribute} names {name!r}, {_remedy(known, attribute, legal)} ({PAGE})"
        if known not in for_kinds:
            return f"{attribute} names {name!r}, but {known!r} holds for all groups or none ({PAGE})"
        if kind not in BEHIND_FOR:
            return f"{attribute} names {name!r}, of a kind that is unknown; {did_you_mean(kind, BEHIND_FOR)} ({PAGE})"
    return None


def _remedy(name: str, attribute: str, legal: Mapping[str, str]) -> str:
    """Why the name is wrong, and what may have been meant."""
    for other, names in _LEGAL.items():
        if name in names:
            return f"which is a name of {other}; move it there"
    if name in _NEEDED:
        return "without which nothing can be tested; every target has it"
    return f"which is unknown; {did_you_mean(name, legal, 'all names are listed')}"


def _example(attribute: str) -> str:
    return _EXAMPLES[attribute]


def problem_with_sizes(value: object) -> str | None:
    """What is wrong with this value of `block_sizes`, in one line; None if nothing."""
    if isinstance(value, str | Mapping) or not isinstance(value, Collection):
        return f"block_sizes is a {type(value).__name__}; write a set of sizes in tokens, such as {{16, 256}}"
    wrong = [size for size in value if type(size) is not int or size < 1]
    return f"block_sizes holds {wrong[0]!r}; a size is a number of tokens, 1 or more" if wrong else None
