"""Known defects of SGLang's disaggregation (docs/evidence/pairs.md), and what mends each in an experiment."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ...simulation.judges import FATE, MEMORY, PROGRESS
from .pair_half import SglangHalf
from .scheduler import PINNED

ELSEWHERE = (PINNED,)
"""Those of a single engine that a pair may meet."""


class PairDefect(NamedTuple):
    """A known defect: which judge it is noticed by, a text of the line, and what mends it."""

    judge: str
    said: str
    mend: Callable[[SglangHalf], None]


def _register_again(half: SglangHalf) -> None:
    """The second engine says where its memory is with each room, as long as the first one does not know it; which
    does not hear of the room before."""
    manager, world = half.manager, half.world
    if half.is_first:
        world.accepts = lambda parts: not parts[0].isdigit() or parts[3].decode() in manager.decode_kv_args_table
        return
    build = manager.build_receiver_metadata_message

    def built(**about: object) -> object:
        other = world.other()
        if other is not None and world.session not in other.manager.decode_kv_args_table:
            world.send(f"tcp://{other.session}", manager.build_receiver_registration_message())
        return build(**about)

    manager.build_receiver_metadata_message = built


def _tell_who_was_given_up(half: SglangHalf) -> None:
    """Who asks for a room that the first engine has given up is told so at once."""
    if not half.is_first:
        return
    manager, accepts, over = half.manager, half.world.accepts, set[int]()
    record = manager.record_failure

    def recorded(room: int, reason: str) -> None:
        over.add(room)
        record(room, reason)

    def accepted(parts: list[bytes]) -> bool:
        if not parts[0].isdigit() or (room := int(parts[0])) not in over or room in manager.request_status:
            return accepts(parts)
        manager.send_kv_status_message(targets=[(parts[1].decode(), int(parts[2]))], bootstrap_room=room, status=0)
        return False

    manager.record_failure, half.world.accepts = recorded, accepted


def _keep_what_was_matched(half: SglangHalf) -> None:
    """The order of who waits at the second engine does not change what was found of its prompt."""
    if half.is_first:
        return
    policy = half.scheduler.policy
    order = policy.calc_priority

    def ordered(waiting: list[Any], *about: Any) -> Any:
        found = [(request, request.prefix_len) for request in waiting]
        answer = order(waiting, *about)
        for request, length in found:
            request.prefix_len = length
        return answer

    policy.calc_priority = ordered


def _notice_a_new_life(half: SglangHalf) -> None:
    """Where the first engine has begun anew, the second one forgets it, as where it does not answer."""
    if half.is_first:
        return
    manager, world, known = half.manager, half.world, set[str]()

    def heard(address: str) -> None:
        if (other := world.other()) is not None and other.session not in known:
            if known:
                manager._handle_node_failure(address)
            known.add(other.session)

    manager._on_heartbeat_success = heard
    if (other := world.other()) is not None:
        known.add(other.session)


def _try_again(half: SglangHalf) -> None:
    """Whom a write has failed to is written to again (the release's own SGLANG_ENABLE_FAILED_SESSION_PROBE does so)."""
    if half.is_first:
        half.manager.failed_sessions = Forgotten()


class Forgotten(set[str]):
    """Nobody is noted."""

    def add(self, session: str) -> None:
        """Nothing happens."""


def _admit_who_fits_alone(half: SglangHalf) -> None:
    """Who is alone there is admitted if his prompt fits."""
    if half.is_first:
        return
    queue = half.scheduler.disagg_decode_prealloc_queue
    required = queue._required_admission_tokens

    def asked(req: Any, allocated_tokens: int, *about: int) -> int:
        return allocated_tokens if _is_alone(queue) else int(required(req, allocated_tokens, *about))

    queue._required_admission_tokens = asked


def _is_alone(queue: Any) -> bool:
    """True if nobody has anything at the second engine who might give it back."""
    return not queue._active_req_count() and not queue.retracted_queue


def _ask_for_a_window(half: SglangHalf) -> None:
    """Who is alone there is admitted if the window's pool has a window, whatever he is to answer."""
    if half.is_first or (window := half.scheduler.sliding_window_size) is None:
        return
    queue = half.scheduler.disagg_decode_prealloc_queue
    fits, page = queue._prealloc_reservation_fits, queue.token_to_kv_pool_allocator.page_size

    def asked(full: int, swa: int, **budgets: Any) -> bool:
        return bool(fits(full, min(swa, window + 2 * page) if _is_alone(queue) else swa, **budgets))

    queue._prealloc_reservation_fits = asked


DEFECTS: Mapping[str, PairDefect] = {
    "registration-is-lost": PairDefect(FATE, "Transfer thread failed", _register_again),
    "failed-once-is-dead": PairDefect(PROGRESS, "", _try_again),
    "window-kept-that-never-came": PairDefect(MEMORY, "(group 1", lambda half: None),
    "no-room-for-the-window": PairDefect(FATE, "KV cache is full", lambda half: None),
    "matched-again-by-decode": PairDefect(FATE, "negative dimension", _keep_what_was_matched),
    "given-up-is-not-told": PairDefect(PROGRESS, "", _tell_who_was_given_up),
    "restart-is-not-noticed": PairDefect(PROGRESS, "", _notice_a_new_life),
    "never-admitted-by-decode": PairDefect(PROGRESS, "", _admit_who_fits_alone),
    "answer-asked-of-the-window": PairDefect(PROGRESS, "", _ask_for_a_window),
}
