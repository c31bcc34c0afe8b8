"""Planted faults of first steps that are taken at once: what stands on the long way is passed by there."""

from collections.abc import Callable, Sequence
from sys import maxsize
from typing import Any, NamedTuple

from .registry import fault, wrap


class AskedFor(NamedTuple):
    """What our core's steps are asked for (`begin`)."""

    request: Any
    hit: tuple[int, Sequence[Any] | None]
    new: int
    lookahead: int
    room: int
    whole: bool
    register: bool


def asked_otherwise(manager: Any, change: Callable[[AskedFor], AskedFor]) -> None:
    """Let first steps be asked for otherwise."""
    wrap(manager.coordinator.steps, "begin", lambda begin, *given: begin(*change(AskedFor(*given))))


def done_otherwise(manager: Any, change: Callable[[Any, AskedFor, Any], None]) -> None:
    """Let `change` do something to each group behind a first step that was taken: it gets the group's lane, what was
    asked for, and the new blocks."""
    steps = manager.coordinator.steps

    def begin(original: Callable[..., Any], *given: Any) -> Any:
        rows = original(*given)
        for lane, row in zip(steps.lanes, rows or (), strict=False):
            change(lane, AskedFor(*given), row)
        return rows

    wrap(steps, "begin", begin)


# Room.


@fault("a first step takes its blocks without a look at how many are free", "outcome")
def _begun_without_a_look(manager: Any) -> None:
    asked_otherwise(manager, lambda asked: asked._replace(room=maxsize))


@fault("a first step takes blocks that are reserved", "outcome")
def _begun_on_reserved_blocks(manager: Any) -> None:
    asked_otherwise(manager, lambda asked: asked._replace(room=manager.block_pool.get_num_free_blocks()))


@fault("a first step asks for room for itself alone", "outcome")
def _begun_without_room_for_all(manager: Any) -> None:
    asked_otherwise(manager, lambda asked: asked._replace(whole=False))


@fault("a first step takes no blocks for lookahead", "outcome")
def _begun_without_drafts(manager: Any) -> None:
    asked_otherwise(manager, lambda asked: asked._replace(lookahead=0))


@fault("a first step takes a block more where there is one", "outcome")
def _begun_too_long(manager: Any) -> None:
    pool = manager.block_pool
    for lane in manager.coordinator.steps.lanes:
        wrap(lane, "begin", lambda begin, missing: begin(missing + (missing < pool.get_num_free_blocks())))


# Names.


@fault("of what a first step registers a block counts as full with its last token missing", "registered", "outcome")
def _begun_to_the_last_token(manager: Any) -> None:
    for lane in manager.coordinator.steps.lanes:
        wrap(lane, "register_row", lambda original, *given: original(*given[:-1], given[-1] + 1))


@fault("what a first step registers is not announced", "events")
def _begun_in_silence(manager: Any) -> None:
    pool = manager.block_pool

    def begin(original: Callable[..., Any], *given: Any) -> Any:
        before = len(pool.kv_event_queue)
        rows = original(*given)
        events = pool.kv_event_queue
        events[before:] = [event for event in events[before:] if not hasattr(event, "parent_block_hash")]
        return rows

    wrap(manager.coordinator.steps, "begin", begin)


# Hits, and what is told.


@fault("a first step does not hold the blocks of its hit", "ref_cnt", "free", "outcome")
def _begun_without_its_hit(manager: Any) -> None:
    pool = manager.block_pool

    def begin(original: Callable[..., Any], *given: Any) -> Any:
        pool.touch, touch = (lambda blocks: None), pool.touch
        try:
            return original(*given)
        finally:
            pool.touch = touch

    wrap(manager.coordinator.steps, "begin", begin)


@fault("what a first step has hit does not count as registered", "registered")
def _begun_behind_nothing(manager: Any) -> None:
    def uncount(lane: Any, asked: AskedFor, row: Any) -> None:
        if asked.hit[0]:
            lane.registered[asked.request.request_id] -= asked.hit[0] // lane.size

    done_otherwise(manager, uncount)


@fault("new blocks of a first step stand before its hit", "tables")
def _begun_before_its_hit(manager: Any) -> None:
    def turn(lane: Any, asked: AskedFor, row: Any) -> None:
        table = lane.tables[asked.request.request_id]
        table[:] = [*row, *table[: len(table) - len(row)]]

    done_otherwise(manager, turn)


@fault("new blocks of a first step are not listed", "new_block_ids")
def _begun_unlisted(manager: Any) -> None:
    def forget(lane: Any, asked: AskedFor, row: Any) -> None:
        if lane.manager.new_blocks:
            del lane.manager.new_blocks[-len(row) :]

    done_otherwise(manager, forget)
