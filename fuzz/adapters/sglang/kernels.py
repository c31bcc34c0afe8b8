"""What Triton kernels of SGLang do, on a CPU: which slots a request's new tokens get, and where they are noted."""

from collections.abc import Callable
from typing import Any


def enter_slots(
    indices: Any, table: Any, starts: Any, ends: Any, slots: Any, count: int, *_rest: object, **_named: object
) -> None:
    """Write new slots into the rows of their requests, one range after the other."""
    at = 0
    for row, start, end in zip(indices.tolist(), starts.tolist(), ends.tolist(), strict=True):
        table[row, start:end] = slots[at : at + end - start].to(table.dtype)
        at += end - start


class Launched:
    """A function that is called as a kernel is: `kernel[grid](...)`."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return self._function


def slots_for_extend(starts: Any, ends: Any, last: Any, pages: Any, out: Any, _bound: int, page: int) -> None:
    """Slots for the positions from `starts` to `ends` of each request, into `out`: the rest of the page of its last
    slot, then new pages in order. Where there are too few pages the slots are of no use, and the caller refuses."""
    new, at = iter(pages.tolist()), 0
    for start, end, slot in zip(starts.tolist(), ends.tolist(), last.tolist(), strict=True):
        for position in range(start, end):
            slot = next(new, 0) * page if position % page == 0 else slot + 1
            out[at] = slot
            at += 1


def slots_for_decode(ends: Any, last: Any, pages: Any, out: Any, _bound: int, page: int) -> None:
    """A slot for the last of the `ends` positions of each request, into `out`; as `slots_for_extend`."""
    slots_for_extend(ends - 1, ends, last, pages, out, _bound, page)
