"""Mistakes planted between two SGLang engines, as a change of the release's code could make them.

Imported in an interpreter that has SGLang.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from blockproof.fuzz.adapters.sglang.disaggregation import SglangPair
from blockproof.fuzz.adapters.sglang.pair_defects import DEFECTS, ELSEWHERE
from blockproof.fuzz.adapters.sglang.pair_half import SglangHalf
from blockproof.fuzz.engines.simulated import SimulatedFamily
from blockproof.fuzz.simulation.run import SimulatedRun

SUCCESS = 4


def _around_chunks(half: SglangHalf, change: Callable[[Any], Any]) -> None:
    add = half.manager.add_transfer_request
    half.manager.add_transfer_request = lambda room, pages, *rest, **named: add(room, change(pages), *rest, **named)


def sends_in_another_order(half: SglangHalf) -> None:
    """The pages of a chunk are taken from its end on."""
    if half.is_first:
        _around_chunks(half, lambda pages: pages[::-1].copy())


def leaves_out_the_last_page(half: SglangHalf) -> None:
    """Of what is written at once, the last piece is not."""
    if half.is_first:
        write = half.manager._transfer_data
        half.manager._transfer_data = lambda session, pieces: write(session, pieces[:-1] if len(pieces) > 2 else pieces)


def forgets_the_first_piece(half: SglangHalf) -> None:
    """Of a prompt that is computed in pieces, only what comes behind the first one is written."""
    if half.is_first:
        write, seen = half.manager.add_transfer_request, set[int]()

        def added(room: int, pages: Any, part: slice, is_last: bool, **named: Any) -> None:
            if is_last or room in seen:
                write(room, pages, part, is_last, **named)
            seen.add(room)

        half.manager.add_transfer_request = added


def gives_back_while_it_is_written(half: SglangHalf) -> None:
    """Who is given up at the second engine gives his pages back at once."""
    half.manager.enable_deferred_decode_kv_release = False


def ends_before_it_has_sent(half: SglangHalf) -> None:
    """A request is over at the first engine when the last of it is to be sent."""
    if half.is_first:
        sent, add, ask = set[int](), half.manager.add_transfer_request, half.manager.check_status

        def added(room: int, pages: Any, part: Any, is_last: bool, **named: Any) -> None:
            add(room, pages, part, is_last, **named)
            if is_last:
                sent.add(room)

        half.manager.add_transfer_request = added
        half.manager.check_status = lambda room: SUCCESS if room in sent else ask(room)


def keeps_places_of_results(half: SglangHalf) -> None:
    """The places in which first tokens arrive are never free again."""
    if not half.is_first:
        half.scheduler.req_to_metadata_buffer_idx_allocator.free = lambda place: None


def forgets_the_prefix(half: SglangHalf) -> None:
    """The first engine is not told what the second one has of a prompt already."""
    if not half.is_first:
        build = half.manager.build_receiver_metadata_message
        half.manager.build_receiver_metadata_message = lambda **about: build(**about | {"decode_prefix_len": 0})


def frees_what_it_holds(half: SglangHalf) -> None:
    """Pages that were asked for are taken for free by the next request."""
    if not half.is_first:
        allocator = half.scheduler.token_to_kv_pool_allocator
        names = ("alloc", "alloc_extend")
        for name in names:
            take = getattr(allocator, name)

            def taken(*about: Any, take: Any = take, **named: Any) -> Any:
                slots = take(*about, **named)
                if slots is not None and len(slots) > 1:
                    slots[-1] = slots[0]
                return slots

            setattr(allocator, name, taken)


FAULTS: Mapping[str, tuple[Sequence[str], Callable[[SglangHalf], None]]] = {
    "sends in another order": ((), sends_in_another_order),
    "leaves out the last page": ((), leaves_out_the_last_page),
    "forgets the first piece": ((), forgets_the_first_piece),
    "gives back while it is written": ((), gives_back_while_it_is_written),
    "ends before it has sent": ((), ends_before_it_has_sent),
    "keeps places of results": ((), keeps_places_of_results),
    "forgets the prefix": (("decode keeps prefixes=True",), forgets_the_prefix),
    "two tokens in one slot": ((), frees_what_it_holds),
}


class Planted(SglangPair):
    """A pair with this mistake, and without the defects that it is known to have."""

    def __init__(self, name: str) -> None:
        self._fault = name
        super().__init__((*DEFECTS, *ELSEWHERE))

    def _half(self, shape: Any, port: Any) -> SglangHalf:
        half = super()._half(shape, port)
        if self._fault:
            FAULTS[self._fault][1](half)
        return half


def found(name: str, stories: int, seed: int = 5) -> tuple[str, int]:
    """The judge that objects to this mistake, and in which story; nobody within so many."""
    pair, options = Planted(name), FAULTS[name][0] if name else ()
    family = SimulatedFamily(pair)
    for number in range(stories):
        try:
            findings = SimulatedRun(pair, family.draw(seed, number, options, [])).run(3000)
        except NotImplementedError:
            continue
        if findings:
            pair.close()
            return findings[0].judge, number
    pair.close()
    return "", stories
