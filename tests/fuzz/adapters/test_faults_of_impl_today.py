"""Faults planted into our core of today: one that decides a thing otherwise than the rule of today says is found."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from blockproof.fuzz.adapters.impl import TODAY_CORE, TODAY_CORES, bind_impl, open_changed_impl
from blockproof.fuzz.adapters.impl_package import compiled_impl
from blockproof.fuzz.adapters.vllm.style import VllmStyleTarget
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.engines.seeded import run_random
from blockproof.fuzz.faults.registry import wrap, wrap_each
from blockproof.fuzz.findings.offered import OF_TODAY
from blockproof.fuzz.findings.oracle_names import ORACLES
from blockproof.fuzz.opening.oracles import suited_to
from blockproof.fuzz.opening.targets import open_target
from blockproof.fuzz.reports.summary import Summary
from blockproof.fuzz.targets.base import lacking, offering
from blockproof.fuzz.targets.declarations import KINDS_OF_FEW
from blockproof.fuzz.workload.shapes import ATTENTION, possible_attention

from .bulk_faults import BULK

OPERATIONS = 20_000
MOST_OPERATIONS = 60_000
"""In which a wrong decision must be found."""
STATES = ("full+mamba", "full+mamba+mamba")
HYBRIDS = ("full", "full+sliding", "full+sliding+mamba", *STATES)


class Planted(NamedTuple):
    """A wrong decision, and the kinds of cores in which it is looked for."""

    plant: Callable[[Any], None]
    attention: tuple[str, ...] = HYBRIDS


def managers(manager):
    return manager.coordinator.single_type_managers


# The choices.


def freed_by_age(manager):
    """What a request gives back goes to the back, named or not."""
    wrap_each(manager, "_give_back", lambda single, original, blocks: single.block_pool.release(blocks))


def no_place_for_checkpoints(manager):
    """A step is taken to leave one state alone, also where its workers leave a checkpoint."""
    for single in managers(manager):
        if single.moves_blocks:
            single.leaves_one_state = True


def states_before_steps_only(manager):
    """The state behind a step is looked at by the next one."""
    for single in managers(manager):
        if single.moves_blocks:
            wrap(single, "entries_of_step", lambda original, request_id: original(request_id)[:1])


def room_without_hits(manager):
    """Blocks of a hit are not counted where it is asked whether there is room for sure."""
    wrap(manager.coordinator, "most_blocks_to_allocate", lambda original, slots, hit: original(slots, [()]) // 4)


def nothing_behind_a_hit(manager):
    """Where names do not look ahead, drafts go on behind a hit though nothing is cached there."""
    coordinator = manager.coordinator
    alike = [group.terms for group in getattr(coordinator, "attention_groups", ())]
    for terms in alike or [coordinator._terms]:
        terms.behind = 0


def registered_to_the_boundary(manager):
    """The block that drafts need behind a hit is not registered."""
    for single in managers(manager):
        single.use_eagle = False


def windows_kept_to_the_boundary(manager):
    """Under a retention interval nothing is kept for drafts."""

    def wanted(single, original, request, *given):
        eagle, single.use_eagle = single.use_eagle, False
        try:
            return original(request, *given)
        finally:
            single.use_eagle = eagle

    wrap_each(manager, "wanted", wanted)


def outside_to_the_back(manager):
    """An outside holder's blocks go to the back, named or not."""
    pool = manager.block_pool
    pool.free_blocks = lambda blocks, prepend=False: pool._give_back(list(blocks), False)


def windows_not_zeroed(manager):
    for single in managers(manager):
        single.collects_new_block_ids &= single.may_skip is False


def counted_at_once(manager):
    """A lookup counts when it is made, whether its request is admitted or not."""
    record = manager.record_prefix_cache_stats
    manager.record_prefix_cache_stats = lambda request, hits: None

    def find(original, request, *limits):
        found = original(request, *limits)
        record(request, found[1])
        return found

    wrap(manager, "get_computed_blocks", find)


def skipped_by_blocks(manager):
    for single in managers(manager):
        single.reads_any = lambda tokens, settled: True


def adapters_with_version(manager):
    """An event names an adapter as the block's name does."""
    pool = manager.block_pool

    def announce(original, request, *given):
        original(request, *given)
        if request.lora_request is not None and pool.kv_event_queue:
            keys = pool.kv_event_queue[-1].extra_keys or []
            path = request.lora_request.lora_path
            pool.kv_event_queue[-1].extra_keys = [((of[0], path), *of[1:]) if of else of for of in keys]

    wrap(pool, "_announce", announce)


def in_flight_is_settled(manager):
    """Windows are cut by tokens of steps that still run."""

    def allocate(original, request, *given, **named):
        request.num_in_flight_tokens, kept = 0, request.num_in_flight_tokens
        try:
            return original(request, *given, **named)
        finally:
            request.num_in_flight_tokens = kept

    wrap(manager, "allocate_slots", allocate)


# Names that look ahead, and the watermark.


def events_without_what_is_ahead(manager):
    manager.block_pool.num_hash_lookahead_tokens = 0


def registered_a_block_early(manager):
    """The last block is taken for named although the token behind it is not known."""

    def cache(single, original, request, num_tokens, *more):
        before = single.num_cached_block.get(request.request_id, 0)
        original(request, num_tokens, *more)
        table = single.req_to_blocks.get(request.request_id, ())
        if single.num_cached_block.get(request.request_id, 0) > before and len(table) > before + 1:
            single.num_cached_block[request.request_id] += request.num_tokens % single.block_size == 0

    wrap_each(manager, "cache_blocks", cache)


def no_watermark(manager):
    manager.watermark_blocks = 0


def watermark_for_all(manager):
    """It stays free for running requests, too."""
    blocks, manager.watermark_blocks = manager.watermark_blocks, 0

    def allocate(original, request, *given, **named):
        if named.get("has_scheduled_reqs", True):
            named["reserved_blocks"] = named.get("reserved_blocks", 0) + blocks
        return original(request, *given, **named)

    wrap(manager, "allocate_slots", allocate)


# Retention and junctions, blocks that outlive their request.


def junctions_not_kept(manager):
    """What is read where others share the prefix is not kept."""

    def wanted(single, original, request, *given):
        request.shared_prefix_boundary, kept = 0, request.shared_prefix_boundary
        try:
            return original(request, *given)
        finally:
            request.shared_prefix_boundary = kept

    wrap_each(manager, "wanted", wanted)


def nothing_before_junctions(manager):
    """Nor is what is read a block before, where drafts lack one behind."""
    for single in managers(manager):
        single.lacking_at_junction = 0


def everything_kept(manager):
    """A retention interval thins out nothing."""
    wrap_each(manager, "wanted", lambda single, original, *given: original(*given[:-1], None))


def kept_forgets_to_renew(manager):
    manager.pop_blocks_for_free = lambda request: manager.coordinator.pop_tables(request.request_id)


def read_on_by_name(manager):
    """Blocks that are read on are reused like all others."""
    pool = manager.block_pool

    def unpin(original, blocks, on_reuse):
        read = list(blocks)
        original((), on_reuse)
        pool._watchers.update((block.block_id, on_reuse) for block in read)
        pool.free_blocks(read)

    wrap(pool, "unpin_blocks", unpin)


def readers_not_told(manager):
    manager.block_pool._tell_watchers = lambda blocks: None


# Hits inside a block.


def whole_blocks_only(manager):
    """Hits end where all blocks do."""
    coordinator, unit = manager.coordinator, manager.coordinator.scheduler_block_size

    def find(original, hashes, most):
        found = original(hashes, most)
        return found if found.tokens % unit == 0 else found._replace(blocks=tuple([] for _ in found.blocks), tokens=0)

    wrap(coordinator, "find_hit", find)


def written_in_place(manager):
    """A request writes on in the block that it shares."""

    def private(single, original, request_id):
        tail = single.tails[request_id]
        if tail.named:
            return original(request_id)
        del single.tails[request_id]
        return []

    wrap_each(manager, "_make_private", private, having="tails")


def copies_not_counted(manager):
    """Room for a copy is not asked for."""

    def needed(single, original, request_id, slots, hit, computed, *more):
        copied = len(hit) * single.block_size > computed and bool(hit)
        return original(request_id, slots, hit, computed, *more) - (copied or request_id in single.tails)

    wrap_each(manager, "get_num_blocks_to_allocate", needed, having="tails")


def names_stay_with_the_writer(manager):
    """Of a state that the request has named itself the copy gets no name."""
    pool = manager.block_pool
    pool.move_names = lambda source, target: None


def part_names_stay(manager):
    """Names of a part stay when the whole block is named."""
    pool = manager.block_pool

    def give(original, block):
        if block.block_id not in pool.partial:
            original(block)

    wrap(pool, "unname", give)


def no_further_names(manager):
    """A block has one name."""
    pool = manager.block_pool

    def add(original, block, name, covers):
        if block.content is None:
            original(block, name, covers)

    wrap(pool, "add_name", add)


def ends_not_named(manager):
    wrap_each(manager, "name_end", lambda single, original, *given: None, having="tails")


def offers_lost(manager):
    manager.take_boundary_state_offloads = dict


def last_offers_lost(manager):
    manager.finalize_partial_tail_offloads = lambda request: []


def horizons_survive_eviction(manager):
    """A request whose names were taken goes on as if it had them."""
    manager.coordinator.evicted = lambda: None


# Lookups for a connector, reports, checkpoints.


def states_needed_by_connectors(manager):
    manager.coordinator.find_for_connector = manager.coordinator.find_hit


def never_lags(manager):
    wrap(manager.coordinator, "find_for_connector", lambda original, *given: original(*given)._replace(lags=False))


def beyond_the_limit(manager):
    wrap(manager, "get_computed_blocks", lambda original, request, *limit: original(request))


def zeroed_all_the_same(manager):
    wrap(manager, "allocate_slots", lambda original, *given, **named: original(*given, **(named | _ZEROED)))


_ZEROED = {"skip_zeroing_group_ids": ()}


def reported_without_the_end(manager):
    def report(single, original, request, row, length):
        original(request, row[:-1], length)

    wrap_each(manager, "report", report, having="tails")


def checkpoints_at_blocks_only(manager):
    for single in manager.coordinator.leaving_checkpoints:
        single.checkpoint_unit = single.block_size


def checkpoints_without_names(manager):
    def name(single, original, request, *given):
        if single._written(request.request_id) is None:
            original(request, *given)

    wrap_each(manager, "name_end", name, having="grid")


def transient_checkpoints_named(manager):
    """A checkpoint that nobody resumes at keeps the name of its block."""
    wrap(manager.block_pool, "evict_blocks", lambda original, blocks: None)


def checkpoints_without_blocks(manager):
    for single in manager.coordinator.leaving_checkpoints:
        single.wanted_of = lambda *given: None


def table_read_as_a_whole(manager):
    manager.get_block_ids_for_computed_tokens = lambda request_id, tokens: manager.get_block_ids(request_id)


def rings_named(manager):
    """The block of a ring counts as registered."""

    def attach(single, original, request_id, *given):
        missing = original(request_id, *given)
        single.num_cached_block.setdefault(request_id, 0)
        return missing

    wrap_each(manager, "attach_computed_blocks", attach, having="make_endless")


def gaps_never_open(manager):
    wrap_each(manager, "remove_skipped_blocks", lambda single, original, *given: None, having="prompts")


def gaps_from_the_start(manager):
    """Blocks of the prompt go, too."""

    def note(single, original, request):
        single.prompts[request.request_id] = 0

    wrap_each(manager, "note_request", note, having="prompts")


FAULTS = {
    **{name: Planted(*bulk) for name, bulk in BULK.items()},
    "freed-by-age": Planted(freed_by_age),
    "no-place-for-checkpoints": Planted(no_place_for_checkpoints, STATES),
    "states-before-steps-only": Planted(states_before_steps_only, STATES),
    "room-without-hits": Planted(room_without_hits, ("full",)),
    "nothing-behind-a-hit": Planted(nothing_behind_a_hit, ("full+sliding", *STATES)),
    "registered-to-the-boundary": Planted(registered_to_the_boundary, ("full+sliding", *STATES)),
    "windows-kept-to-the-boundary": Planted(windows_kept_to_the_boundary, ("full+sliding",)),
    "outside-to-the-back": Planted(outside_to_the_back, ("full",)),
    "windows-not-zeroed": Planted(windows_not_zeroed, ("full+sliding+mamba",)),
    "counted-at-once": Planted(counted_at_once),
    "skipped-by-blocks": Planted(skipped_by_blocks, ("sliding", "chunked", "full+sliding")),
    "adapters-with-version": Planted(adapters_with_version, ("full",)),
    "in-flight-is-settled": Planted(in_flight_is_settled, ("sliding", "full+sliding")),
    "events-without-what-is-ahead": Planted(events_without_what_is_ahead, ("full",)),
    "registered-a-block-early": Planted(registered_a_block_early, ("full",)),
    "no-watermark": Planted(no_watermark, ("full",)),
    "watermark-for-all": Planted(watermark_for_all, ("full",)),
    "junctions-not-kept": Planted(junctions_not_kept, ("full+sliding",)),
    "nothing-before-junctions": Planted(nothing_before_junctions, ("full+sliding",)),
    "everything-kept": Planted(everything_kept, ("full+sliding",)),
    "kept-forgets-to-renew": Planted(kept_forgets_to_renew, ("mamba", *STATES)),
    "read-on-by-name": Planted(read_on_by_name, ("full",)),
    "readers-not-told": Planted(readers_not_told, ("full",)),
    "whole-blocks-only": Planted(whole_blocks_only, STATES),
    "written-in-place": Planted(written_in_place, STATES),
    "copies-not-counted": Planted(copies_not_counted, STATES),
    "names-stay-with-the-writer": Planted(names_stay_with_the_writer, STATES),
    "part-names-stay": Planted(part_names_stay, STATES),
    "no-further-names": Planted(no_further_names, STATES),
    "ends-not-named": Planted(ends_not_named, STATES),
    "offers-lost": Planted(offers_lost, STATES),
    "last-offers-lost": Planted(last_offers_lost, STATES),
    "horizons-survive-eviction": Planted(horizons_survive_eviction, STATES),
    "states-needed-by-connectors": Planted(states_needed_by_connectors, STATES),
    "never-lags": Planted(never_lags, STATES),
    "beyond-the-limit": Planted(beyond_the_limit, ("full",)),
    "zeroed-all-the-same": Planted(zeroed_all_the_same, STATES),
    "reported-without-the-end": Planted(reported_without_the_end, ("full",)),
    "checkpoints-at-blocks-only": Planted(checkpoints_at_blocks_only, STATES),
    "checkpoints-without-names": Planted(checkpoints_without_names, STATES),
    "transient-checkpoints-named": Planted(transient_checkpoints_named, STATES),
    "checkpoints-without-blocks": Planted(checkpoints_without_blocks, STATES),
    "rings-named": Planted(rings_named, ("full+ring",)),
    "gaps-never-open": Planted(gaps_never_open, ("rswa",)),
    "gaps-from-the-start": Planted(gaps_from_the_start, ("rswa",)),
    "table-read-as-a-whole": Planted(table_read_as_a_whole, ("full",)),
}


def run(target, attention, operations=OPERATIONS, seed=1):
    done = Summary(target.name, "random", seed)
    run_random(target, Plan(seed, operations=operations, attention=attention), done)
    return done


@pytest.mark.few_are_quick
@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_decision_is_found(name):
    planted = FAULTS[name]
    faulty = open_changed_impl(f"fault:{name}@{TODAY_CORE}", planted.plant, TODAY_CORE)
    done = run(faulty, planted.attention, MOST_OPERATIONS)
    assert done.finding is not None, f"not found in {done.operations} operations"


@pytest.mark.parametrize(
    ("options", "attention"),
    [(lambda shape: {}, ("rswa",)), (lambda shape: {"reference_window": 0}, ("full",))],
    ids=["names-without-the-prompt", "names-with-every-prompt"],
)
def test_a_wrong_name_is_found(options, attention):
    binding = replace(bind_impl(TODAY_CORE), hasher_options_of=options)
    done = run(VllmStyleTarget(f"fault:names@{TODAY_CORE}", binding), attention)
    assert done.finding is not None, f"not found in {done.operations} operations"


def test_it_says_what_it_has_of_the_rule_of_today():
    """All that is drawn for vLLM 0.33.0 but a pool of the host, and tokens in flight and batches."""
    target = open_target(TODAY_CORE)
    besides = {"Arrive.missing", "Allocate.in_flight", "AllocateBatch"}
    assert offering(target) == (OF_TODAY - {"Shape.host_blocks"}) | KINDS_OF_FEW | besides
    assert lacking(target) == {"Release.prepend"}
    assert suited_to(TODAY_CORE, target) == ORACLES


@pytest.mark.parametrize("core", TODAY_CORES)
def test_our_core_of_today_agrees_with_the_rule_of_today(core):
    if core != TODAY_CORE and compiled_impl() is None:
        pytest.skip("our core has not been compiled from its present sources; run: blockproof fast")
    target = open_target(core)
    done = run(target, possible_attention(tuple(ATTENTION), lacking(target)), 3_000, 7)
    assert done.finding is None, done.finding
