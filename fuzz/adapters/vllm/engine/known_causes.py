"""Findings under a release's scheduler that are known: written up (`docs/evidence/findings`), declared of a release, or
reported upstream; and how an engine is made that lacks one.

A name is given by experiment: the story runs again on the engine without the known cause, and with nothing else
changed. Only if the finding is gone then, it was that cause. Which causes are tried at all follows from the judge, the
exception, the release, and from what is in the story: it is shrunk before it is named, so what is left is needed.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from .....model.attention import rules_for
from .....model.ops import Item
from ....simulation.judges import CAPACITY, CHECKS, FATE, MEMORY, PROGRESS, TOKENS
from ....simulation.protocol import ClientRequest
from ....simulation.story import SimulatedStory
from ....workload.bounds import keeps_states
from . import connector_remedies, remedies
from .loads import LATER, NOW
from .scheduler_config import Setup, setup_of

READS = (MEMORY, CHECKS)
"""Judges of what a request reads."""


BETWEEN_ENGINES = ("nixl", "nixl-push", "mooncake", "multi")
"""Connectors by which an engine may go on with a prompt that another one has computed."""


CHUNKS = ("offloading", "multi")
"""Those with, perhaps, a store of chunks."""
SIMPLE = ("simple-offload", "multi")
"""Those with, perhaps, a store of single blocks."""


def _nothing(engine: Any) -> None:
    """Nothing is changed."""


class KnownCause(NamedTuple):
    """A known defect, when it may be the cause, and how an engine is without it."""

    judges: tuple[str, ...]
    fits: Callable[[SimulatedStory, Setup], bool]
    rule: str = ""
    """A pattern that the line must contain; empty for any."""
    fixed: str = ""
    """The first release that no longer has it; empty if the newest one has it."""
    setup: Callable[[Setup], Setup] = lambda setup: setup
    """The engine that is built instead."""
    request: Callable[[ClientRequest], ClientRequest] = lambda request: request
    """What it is given instead of a request."""
    engine: Callable[[Any], None] = _nothing
    """What is changed in the engine that was built."""


def _has_states(setup: Setup) -> bool:
    return keeps_states(setup.shape)


def _has_full(setup: Setup) -> bool:
    return any(rule.is_full for rule in rules_for(setup.shape))


def _has_chunks(setup: Setup) -> bool:
    return any(group.chunk for group in setup.shape.groups)


def _has_windows(setup: Setup) -> bool:
    return any(rule.windowed for rule in rules_for(setup.shape))


def _gives_up(setup: Setup) -> bool:
    """True if blocks are given up behind a window or a chunk."""
    return any(rule.cap() is not None for rule in rules_for(setup.shape))


def _unequal_blocks(setup: Setup) -> bool:
    return len({group.block_size for group in setup.shape.groups}) > 1


def _apart(one: Item, other: Item) -> bool:
    return one.offset >= other.offset + other.length or other.offset >= one.offset + one.length


def _overlap(story: SimulatedStory) -> bool:
    """True if two items of one request are on the same token."""
    return any(
        not _apart(one, other)
        for job in story.jobs
        for number, one in enumerate(job.items)
        for other in job.items[number + 1 :]
    )


def _versions(story: SimulatedStory, in_place: bool) -> bool:
    """True if two versions of an adapter occur, in one place or in several."""
    versions = {job.adapter_version for job in story.jobs if job.adapter is not None}
    return len(versions) > 1 and bool(story.shape.options.get("adapters_in_place")) == in_place


def _whole_prompt(story: SimulatedStory, setup: Setup) -> bool:
    """True if a whole prompt is loaded while its request waits; its last token is then taken back."""
    whole = any(job.external >= len(job.prompt) for job in story.jobs)
    return ((whole and setup.connector == LATER) or setup.connector in BETWEEN_ENGINES) and _gives_up(setup)


def _resets_while_running(story: SimulatedStory) -> bool:
    return bool(story.shape.options.get("resets_running")) and any(one.what == "reset" for one in story.happenings)


def _salt_named_like_adapter(story: SimulatedStory) -> bool:
    adapters = {job.adapter for job in story.jobs} - {None}
    return bool(adapters & {job.salt for job in story.jobs})


def _named_by_all(request: ClientRequest) -> ClientRequest:
    """Each item is named by all of the request's items: whichever is looked at, tells two requests apart."""
    named = "; ".join(f"{item.identifier} at {item.offset}" for item in request.items)
    return replace(request, items=tuple(replace(item, identifier=named) for item in request.items))


def _named_by_version(request: ClientRequest) -> ClientRequest:
    if request.adapter is None:
        return request
    return replace(request, adapter=f"{request.adapter}, version {request.adapter_version}")


def _other_salt(request: ClientRequest) -> ClientRequest:
    return replace(request, salt=request.salt and f"the salt {request.salt}")


def _not_whole(request: ClientRequest) -> ClientRequest:
    return replace(request, external=min(request.external, len(request.prompt) - 1))


def _set_up(**changes: Any) -> Callable[[Setup], Setup]:
    return lambda setup: replace(setup, **changes)


def _without_eagle(setup: Setup) -> Setup:
    return replace(setup, shape=replace(setup.shape, eagle=False), method="ngram")


KNOWN: Mapping[str, KnownCause] = {
    "overlapping-items": KnownCause(READS, lambda story, setup: _overlap(story), request=_named_by_all),
    "adapter-changed-in-place": KnownCause(
        READS, lambda story, setup: _versions(story, in_place=True), request=_named_by_version
    ),
    "adapter-loaded-anew": KnownCause(
        *(READS, lambda story, setup: _versions(story, in_place=False)), fixed="0.31", request=_named_by_version
    ),
    "untagged-extra-keys": KnownCause(
        *(READS, lambda story, setup: _salt_named_like_adapter(story)), fixed="0.31", request=_other_salt
    ),
    "items-lost-on-restart": KnownCause(
        READS,
        lambda story, setup: any(len(job.items) > 1 for job in story.jobs) and not _overlap(story),
        fixed="0.31",
        request=_named_by_all,
    ),
    "chunk-astride-block": KnownCause(
        (*READS, FATE, PROGRESS),
        lambda story, setup: any(group.chunk % group.block_size for group in setup.shape.groups),
        engine=remedies.count_no_tokens_between_chunks,
    ),
    "state-from-outside": KnownCause(
        (FATE,),
        lambda story, setup: bool(setup.connector) and _has_states(setup),
        rule="raises ValueError",
        engine=remedies.count_one_state_more,
    ),
    "state-demand-shrinks": KnownCause(
        (FATE,),
        lambda story, setup: setup.drafts > 0 and not setup.connector and _has_states(setup),
        rule="raises AssertionError",
        fixed="0.23",
        engine=remedies.count_no_states_below_zero,
    ),
    "vllm-project/vllm#45407": KnownCause(
        (FATE,),
        lambda story, setup: bool(setup.connector),
        rule="External KV connector is not verified yet",
        fixed="0.23",
        setup=_set_up(connector=""),
    ),
    "vllm-project/vllm#46453": KnownCause(
        (*READS, FATE, PROGRESS),
        lambda story, setup: bool(setup.connector) and _has_states(setup) and len(setup.shape.groups) > 1,
        fixed="0.28",
        engine=remedies.look_up_all_groups_at_once,
    ),
    "vllm-project/vllm#45357": KnownCause(
        READS,
        lambda story, setup: setup.asynchronous and setup.connector == LATER,
        fixed="0.26",
        setup=_set_up(asynchronous=False),
    ),
    "vllm-project/vllm#42043": KnownCause(
        (*READS, FATE, PROGRESS),
        lambda story, setup: setup.asynchronous and _resets_while_running(story),
        fixed="0.28",
        engine=remedies.reset_only_when_idle,
    ),
    "vllm-project/vllm#49674": KnownCause(
        *((PROGRESS,), lambda story, setup: setup.asynchronous and bool(setup.connector)),
        rule="computed again and again",
        fixed="0.31",
        engine=remedies.free_who_is_set_back_at_once,
    ),
    "vllm-project/vllm#52520": KnownCause(
        (PROGRESS,),
        lambda story, setup: setup.asynchronous and _has_states(setup),
        rule="computed again and again",
        setup=_set_up(asynchronous=False),
    ),
    "vllm-project/vllm#57104": KnownCause(
        (PROGRESS,),
        lambda story, setup: setup.drafts > 0 and bool(setup.connector),
        engine=remedies.load_beside_no_drafts,
    ),
    "loads-block-each-other": KnownCause(
        (PROGRESS,),
        lambda story, setup: (
            len(story.jobs) > 1
            and (_gives_up(setup) if setup.connector == LATER else bool(setup.connector) and setup.connector != NOW)
        ),
        setup=lambda setup: replace(setup, connector="" if setup.connector == LATER else setup.connector),
        engine=remedies.load_one_by_one,
    ),
    "vllm-project/vllm#45388": KnownCause(
        (PROGRESS,),
        lambda story, setup: bool(setup.connector) and setup.policy == "priority" and len(story.jobs) > 1,
        rule="nothing happens",
        engine=remedies.serve_who_holds_blocks_first,
    ),
    "vllm-project/vllm#54392": KnownCause(
        (MEMORY,),
        lambda story, setup: setup.drafts > 0 and bool(setup.connector) and _has_states(setup),
        rule="drafts, and has",
        fixed="0.29",
        engine=remedies.keep_padded_steps_whole,
    ),
    "vllm-project/vllm#53962": KnownCause(
        (FATE,),
        lambda story, setup: setup.asynchronous and setup.drafts > 0 and bool(setup.connector),
        rule="with count=-",
        fixed="0.29",
        engine=remedies.pad_no_step_up_to_the_end,
    ),
    "lookup-asserts": KnownCause(
        (FATE,),
        lambda story, setup: _has_states(setup) and _has_windows(setup),
        rule="does not support fine-grained",
        fixed="0.28",
        engine=remedies.look_up_whole_blocks,
    ),
    "vllm-project/vllm#46384": KnownCause(
        (CHECKS, PROGRESS),
        lambda story, setup: setup.shape.caching and _has_states(setup) and _unequal_blocks(setup),
        rule="^S17: .* was refused|nothing happens|computed again and again",
        fixed="0.33",
        engine=remedies.count_copied_states_once,
    ),
    "hit-too-large-for-the-pool": KnownCause(
        (PROGRESS,),
        lambda story, setup: setup.shape.caching and _has_states(setup) and len(setup.shape.groups) > 1,
        rule="nothing happens",
        engine=remedies.look_up_whole_blocks,
    ),
    "vllm-project/vllm#55450": KnownCause(
        (CHECKS,),
        lambda story, setup: setup.asynchronous and _has_states(setup),
        rule="^S17: .* have not been read",
        fixed="0.33",
        engine=remedies.give_up_states_behind_gaps,
    ),
    "admission-deadlock": KnownCause(
        (PROGRESS,),
        lambda story, setup: not setup.connector and _gives_up(setup),
        fixed="0.20",
        engine=remedies.admit_without_room_for_all,
    ),
    "hit-taken-for-external": KnownCause(
        READS,
        lambda story, setup: bool(setup.connector) and len(setup.shape.groups) > 1,
        fixed="0.24",
        engine=remedies.hold_hits_first,
    ),
    "hit-not-cut": KnownCause(
        (*READS, FATE, PROGRESS, CAPACITY),
        lambda story, setup: len(setup.shape.groups) > 2,
        fixed="0.29",
        engine=remedies.cut_every_hit,
    ),
    "vllm-project/vllm#49118": KnownCause(
        *((FATE,), lambda story, setup: setup.connector in CHUNKS),
        rule="^schedule raises AssertionError",
        fixed="0.27",
        engine=connector_remedies.store_nothing_of_who_never_ran,
    ),
    "vllm-project/vllm#52170": KnownCause(
        *((FATE,), lambda story, setup: setup.connector in CHUNKS),
        rule="^schedule raises AssertionError",
        fixed="0.27",
        engine=connector_remedies.store_what_has_blocks,
    ),
    "chunks-not-offloaded": KnownCause(
        *((FATE,), lambda story, setup: setup.connector in CHUNKS and _has_chunks(setup)),
        rule="^add raises AssertionError",
        fixed="0.28",
        setup=lambda setup: replace(setup, connector="") if _has_chunks(setup) else setup,
    ),
    "load-over-stored-block": KnownCause(
        *(READS, lambda story, setup: setup.connector == "multi"),
        fixed="0.33",
        engine=connector_remedies.wait_for_stores_of_loaded_blocks,
    ),
    "copy-over-stored-block": KnownCause(
        *(READS, lambda story, setup: setup.connector in CHUNKS and _has_states(setup)),
        fixed="0.29",
        engine=connector_remedies.wait_for_stores_of_copied_blocks,
    ),
    "hole-in-a-stored-chunk": KnownCause(
        *(READS, lambda story, setup: setup.connector in CHUNKS and _has_windows(setup)),
        fixed="0.33",
        engine=connector_remedies.store_behind_the_last_hole,
    ),
    "simple-offload-asserts": KnownCause(
        (FATE,),
        lambda story, setup: setup.connector in SIMPLE and not _has_full(setup),
        rule="^add raises AssertionError",
        setup=lambda setup: (
            setup if _has_full(setup) or setup.connector not in SIMPLE else replace(setup, connector="")
        ),
    ),
    "host-hit-within-a-block": KnownCause(
        *((FATE,), lambda story, setup: setup.connector in SIMPLE and _has_states(setup)),
        rule="^schedule raises AssertionError",
        fixed="0.31",
        engine=remedies.look_up_whole_blocks_on_the_host,
    ),
    "block-of-another-group-stored": KnownCause(
        *((FATE,), lambda story, setup: setup.connector in SIMPLE and len(setup.shape.groups) > 1),
        rule="^update raises AssertionError",
        engine=connector_remedies.store_own_blocks_only,
    ),
    "lazy-offload-never-rests": KnownCause(
        *((CHECKS,), lambda story, setup: setup.connector in SIMPLE),
        rule="^never at rest",
        engine=connector_remedies.rest_without_requests,
    ),
    "prompt-loaded-whole": KnownCause(
        *((*READS, PROGRESS), _whole_prompt), request=_not_whole, engine=connector_remedies.leave_last_token_out
    ),
    "window-cut-too-early": KnownCause(
        READS,
        lambda story, setup: setup.asynchronous and setup.drafts > 0 and _gives_up(setup),
        fixed="0.26",
        engine=remedies.cut_windows_by_known_tokens,
    ),
    "states-by-scheduler": KnownCause(
        READS, lambda story, setup: _has_states(setup), engine=remedies.register_written_states_only
    ),
    "mamba-eagle-margin": KnownCause(
        READS,
        lambda story, setup: setup.shape.eagle and _has_states(setup),
        fixed="0.26",
        engine=remedies.search_states_without_margin,
    ),
    "window-missing-in-hit": KnownCause(
        READS,
        lambda story, setup: setup.shape.eagle and _has_windows(setup) and _unequal_blocks(setup),
        fixed="0.20",
        setup=_without_eagle,
    ),
    "short-prompt-loses-hit": KnownCause(
        (CHECKS,),
        lambda story, setup: setup.shape.eagle and _has_windows(setup),
        rule="^S14",
        fixed="0.33",
        setup=_without_eagle,
    ),
    "replay-boundary-eagle": KnownCause(
        (CHECKS,),
        lambda story, setup: setup.drafts > 0 and _has_states(setup),
        rule="^S14: .* the replay boundary",
        fixed="0.31",
        engine=remedies.register_all_states,
    ),
    "chunked-cap": KnownCause(
        (PROGRESS,),
        lambda story, setup: any(group.chunk % group.block_size for group in setup.shape.groups),
        rule="nothing happens",
        engine=remedies.refuse_pools_without_room_for_chunks,
    ),
}
"""By id, in the order in which they are tried."""


def suspected(release: str, judge: str, what: str, story: SimulatedStory, connector: str = "") -> list[str]:
    """The causes that a finding on this release (a version) may have. `connector`: where no option says it."""
    setup = setup_of(story.shape)
    setup = replace(setup, connector=setup.connector or connector)
    also = READS if judge == TOKENS else (judge,)  # a wrong token follows from a wrong read
    return [
        id
        for id, known in KNOWN.items()
        if not is_fixed(known.fixed, release)
        and set(also) & {*known.judges}
        and re.search(known.rule, what)
        and known.fits(story, setup)
    ]


def is_fixed(since: str, release: str) -> bool:
    """True if a release (a version) has what is fixed since another one, empty for none."""
    return bool(since) and _minor(release) >= _minor(since)


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
