"""Mistakes planted into SGLang's memory on the host, as a change of its code could make them.

Each is a change of one tree: of it, of its controller, or of its pool on the host. Imported in an interpreter that has
SGLang.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import MethodType, SimpleNamespace
from typing import Any

from blockproof.fuzz.adapters.sglang.scheduler import DEFECTS
from blockproof.fuzz.adapters.sglang.simulated import SglangSimulated
from blockproof.fuzz.engines.simulated import SimulatedFamily
from blockproof.fuzz.simulation.run import SimulatedRun


def loses_keys(tree: Any) -> None:
    """Of a hit on the host, the last page is not there."""
    match = tree.match_prefix

    def match_prefix(params: Any) -> Any:
        found = match(params)
        return found._replace(host_hit_length=0, best_match_node=found.last_device_node)

    tree.match_prefix = match_prefix


def frees_twice(tree: Any) -> None:
    """What is evicted from the host is given back twice, and nobody looks whether it was taken."""
    pool = tree.cache_controller.mem_pool_host.anchor_entry.host_pool
    free = pool.free

    def twice(indices: Any) -> int:
        free(indices)
        pool.slot_used[indices.cpu()] = True
        return int(free(indices))

    pool.free = twice


def loads_before_stored(tree: Any) -> None:
    """A copy to the host counts as over before it is: what it reads may be evicted from the device, and is loaded."""
    controller = tree.cache_controller

    def flush() -> None:
        if controller.write_queue:
            type(controller).start_writing(controller)
            for ack in controller.ack_write_queue:
                ack.finish_event.is_over = True

    controller.start_writing = flush


def waits_for_no_load(tree: Any) -> None:
    """A step does not wait for what is loaded for it."""
    ready = tree.ready_to_load_host_cache

    def start() -> int:
        ready()
        return -1

    tree.ready_to_load_host_cache = start


def loads_other_places(tree: Any) -> None:
    """The places that are loaded from are off by one page."""
    controller, page = tree.cache_controller, tree.page_size
    load = controller.load
    size = controller.mem_pool_host.anchor_entry.host_pool.size

    def off(host_indices: Any, **named: Any) -> Any:
        return load((host_indices + page) % size, **named)

    controller.load = off


def stores_other_slots(tree: Any) -> None:
    """What is copied to the host are the slots of the page before."""
    controller, page = tree.cache_controller, tree.page_size
    write = controller.write
    controller.write = lambda slots, **named: write((slots - page).clamp(min=0), **named)


def evicts_while_loading(tree: Any) -> None:
    """What is loaded from is not kept on the host."""
    tree.inc_host_lock_ref = lambda node: SimpleNamespace(to_dec_params=lambda: None)
    tree.dec_host_lock_ref = lambda node, params=None: None
    load = tree._load_back_transfers

    def load_and_evict(**named: Any) -> bool:
        done = bool(load(**named))
        if done:
            tree.host_pool_group.free(tree.cache_controller.load_queue[-1].host_indices)
        return done

    tree._load_back_transfers = load_and_evict


def stores_nothing(tree: Any) -> None:
    """What is to be copied to the host never is."""
    tree.cache_controller.write = lambda *given, **named: None


def leaks_places(tree: Any) -> None:
    """Of what is evicted from the host, the last page does not come back to the pool."""
    pool, page = tree.cache_controller.mem_pool_host.anchor_entry.host_pool, tree.page_size
    free = pool.free
    pool.free = lambda indices: free(indices[:-page]) if len(indices) > page else len(indices)


def keeps_what_is_old(tree: Any) -> None:
    """A reset keeps what is on the host, and the tree."""
    tree.reset = lambda: None


def holds_the_lock(tree: Any) -> None:
    """The end of a load is not heard of."""
    tree.loading_check = lambda finish_count=None: None


def evicts_without_need(tree: Any) -> None:
    """More is evicted from the host than is needed."""
    evict = tree.evict_host
    tree.evict_host = lambda tokens, *kind: evict(tokens + 4 * tree.page_size, *kind)


def stored_without_release(tree: Any) -> None:
    """The device's slots are free while they are copied to the host."""
    track = tree._track_write_through_node

    def tracked(node: Any, lock: Any, publish_node_ids: Any) -> None:
        if lock is not None:
            tree.dec_lock_ref(node, lock)
        track(node, None, publish_node_ids=publish_node_ids)

    tree._track_write_through_node = tracked


def drops_what_is_reached(tree: Any) -> None:
    """What leaves the device is copied to the host, and what hangs on it there is dropped as if it had not been."""
    from sglang.srt.disaggregation.kv_events import StorageMedium

    core, demote = tree.tree_core, tree._demote

    def drop(node_id: Any, tracker: Any) -> bool:
        node, freed, unused = core.node_by_id(node_id), defaultdict[Any, Any](list), defaultdict[Any, Any](list)
        core._release_all_component_layers(node, StorageMedium.CPU, Counter(), unused, freed, cache_actions=[])
        core._remove_leaf_from_parent(node)
        tree._drain_host_frees(freed)
        return False

    def demoted(node_id: Any, tracker: Any) -> None:
        demote(node_id, tracker)
        for child in list(core.node_by_id(node_id).children.values()):
            if not child.children and not child.component_data[0].host_lock_ref:
                tree._drop_subtree_no_host(child.id, tracker)

    tree._demote, tree._drop_subtree_no_host = demoted, drop


_THROUGH = ("hicache=write_through", "host least=1")
_BACK = ("hicache=write_back", "host least=1")
FAULTS: Mapping[str, tuple[Sequence[str], Callable[[Any], None]]] = {
    "loses keys": (_BACK, loses_keys),
    "frees twice": (_BACK, frees_twice),
    "loads before it is stored": (_THROUGH, loads_before_stored),
    "waits for no load": (_BACK, waits_for_no_load),
    "loads other places": (_BACK, loads_other_places),
    "stores other slots": (_THROUGH, stores_other_slots),
    "evicts while loading": (_BACK, evicts_while_loading),
    "stores nothing": ((*_THROUGH, "host percent=200"), stores_nothing),
    "leaks places": (_BACK, leaks_places),
    "keeps what is old": (_THROUGH, keeps_what_is_old),
    "does not hear of the end of a load": (_BACK, holds_the_lock),
    "evicts without need": (_BACK, evicts_without_need),
    "drops what is reached": (_BACK, drops_what_is_reached),
    "is free while it is stored": (_THROUGH, stored_without_release),
}


def planted(name: str, mended: Sequence[str] = DEFECTS) -> SglangSimulated:
    """An engine with this mistake, and without the defects that it is known to have."""
    engine = SglangSimulated(tuple(mended))
    built, plant = engine._built, FAULTS[name][1]

    def with_it(self: SglangSimulated, shape: Any) -> Any:
        cache = built(shape)
        if cache.tree.cache_controller is not None:
            plant(cache.tree)
        return cache

    engine._built = MethodType(with_it, engine)  # type: ignore[method-assign]
    return engine


def found(name: str, steps: int, seed: int = 3) -> tuple[str, int]:
    """The judge that objects to this mistake, and after how many steps; nobody within `steps`."""
    engine, options = planted(name), FAULTS[name][0]
    family, taken, number = SimulatedFamily(engine), 0, 0
    while taken < steps:
        story = family.draw(seed, number, options, ["full"])
        number += 1
        try:
            run = SimulatedRun(engine, story)
        except NotImplementedError:
            continue
        findings = run.run(3000)
        taken += run.steps
        if findings:
            return findings[0].judge, taken
    return "", taken
