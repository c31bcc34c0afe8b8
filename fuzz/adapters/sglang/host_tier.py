"""SGLang's memory on the host (HiCache) under its radix tree: its own tree, pools and controller; see `host_copies`.

What is done there is seen where the tree and the controller ask for it: places are pages of the host's pool, reserved
when they are allocated, stored when the tree hears that they are, evicted when they are freed, or stranded where the
tree drops what they hang on. They are pinned from when a load is asked for until the tree has heard of its end.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ...simulation.protocol import SlotTransfer
from ...simulation.tiers import NOBODY, LowerTier, TierDeed, TierEvent
from .engine import Cache
from .host_copies import TIER, Copies
from .host_settings import DEVICE, HostSettings
from .refused import is_refused


class HostTier:
    """The host's memory of one cache, and what was done with it since it was asked last."""

    def __init__(self, cache: Cache, settings: HostSettings, called: Callable[[str], str]) -> None:
        """`called`: the client's name of a request."""
        self._page, self._tree, self._settings, self._called = cache.page, cache.tree, settings, called
        controller = self._tree.cache_controller
        self._pool = controller.mem_pool_host.anchor_entry.host_pool
        self.copies = Copies(controller)
        self.is_stale = False
        """What is on the device was computed under old weights, and is about to be forgotten."""
        self._events: list[TierEvent] = []
        self._is_dropping = False
        """The tree drops a node of the device that it cannot copy to the host, and all below it."""
        self._shown = 0
        """So many of them are to be told: the device knows of the copies that they are about."""
        self._owner: dict[int, tuple[str, int]] = {}
        """By page of the device, a request that has this block, and its number there."""
        self._owner_there: dict[int, tuple[str, int]] = {}
        self._writing: dict[int, list[tuple[int, ...]]] = {}
        """By the number under which copies to the host are acknowledged, their places."""
        self._on_the_way: set[int] = set()
        self._held: set[int] = set()
        self._pinned: list[tuple[int, tuple[int, ...]]] = []
        """The number under which a load is acknowledged, and its places."""
        self._around(controller, "write", after=self._reserved)
        self._around(controller, "load", after=self._to_be_loaded)
        self._around(self._pool, "free", before=self._freed)
        self._around(self._pool, "clear", before=self._cleared)
        self._around(self._tree, "match_prefix", after=self._looked)
        self._around(self._tree, "_drop_subtree_no_host", before=self._dropping, after=self._has_dropped)
        self._around(self._tree, "_finish_write_through_ack", before=self._acknowledged)
        self._around(self._tree, "loading_check", after=self._unpin)

    @staticmethod
    def _around(owner: Any, name: str, *, before: Any = None, after: Any = None) -> None:
        method = getattr(owner, name)

        def called(*given: Any, **named: Any) -> Any:
            if before is not None:
                before(*given, **named)
            answer = method(*given, **named)
            if after is not None:
                after(answer, *given, **named)
            return answer

        setattr(owner, name, called)

    # What the simulation asks.

    def facts(self) -> LowerTier:
        """What it says of itself; nodes of the tree leave as a whole."""
        is_kept = self._settings.policy == "write_through" and self._settings.percent > DEVICE
        keeps: Any = frozenset({"ended"} if is_kept else ())
        return LowerTier(self._pool.page_num, keeps=keeps, together=True)

    @property
    def blocks(self) -> int:
        """How many it holds, by its own count of free slots."""
        return int(self._pool.page_num - self._pool.available_size() // self._page)

    def taken(self) -> list[TierEvent]:
        """What was done with it."""
        taken, self._events = self._events[: self._shown], self._events[self._shown :]
        self._shown = 0
        return taken

    def copied(self) -> tuple[tuple[SlotTransfer, ...], tuple[str, ...]]:
        """See `Copies.taken`."""
        self._shown = len(self._events)
        return self.copies.taken()

    def renew(self) -> None:
        """New weights: nobody knows any more whose content it is that was copied and not told of yet."""
        self.is_stale = True
        self._events = [replace(one, request="") for one in self._events if one.what != "looked"]

    def owned(self, name: str, slots: Mapping[int, int], *, is_refused: bool) -> None:
        """By position, the slots that a request writes in a step; one that is refused writes what nobody asked for."""
        for position, slot in slots.items():
            number = NOBODY if is_refused else position // self._page
            self._owner[slot // self._page] = "" if is_refused else self._called(name), number

    # What the release does.

    def _pages(self, slots: Any) -> tuple[int, ...]:
        return tuple((slots[:: self._page] // self._page).tolist())

    def _say(self, what: TierDeed, places: tuple[int, ...], request: str = "", first: int = 0, asked: int = 0) -> None:
        if places or asked or what == "emptied":
            self._events.append(TierEvent(what, TIER, places, request, first, asked))

    def _reserved(self, host: Any, device_indices: Any, *given: Any, node_id: int = -1, **named: Any) -> None:
        if host is None:
            return
        places = self._pages(host)
        request, last = self._owner.get(self._pages(device_indices)[-1], ("", 0))
        if self.is_stale and last != NOBODY:
            request, last = "", 0
        first = NOBODY if last == NOBODY else last - len(places) + 1  # on the way of whoever has the last one
        for number, place in enumerate(places, first):
            self._owner_there[place] = request, number
        self._say("reserved", places, request, first if request or last == NOBODY else 0)
        self._on_the_way.update(places)
        self._writing.setdefault(node_id, []).append(places)

    def _acknowledged(self, ack_id: int) -> None:
        for places in self._writing.pop(ack_id, ()):
            there = tuple(place for place in places if place in self._on_the_way)
            self._on_the_way.difference_update(there)
            self._held.update(there)
            self._say("stored", there)

    def _dropping(self, *given: Any) -> None:
        self._is_dropping = True

    def _has_dropped(self, *given: Any) -> None:
        self._is_dropping = False

    def _freed(self, indices: Any) -> None:
        places = self._pages(indices)
        held = tuple(place for place in places if place in self._held)
        self._say("stranded" if self._is_dropping else "evicted", held)
        self._say("released", tuple(place for place in places if place in self._on_the_way))
        self._held.difference_update(places)
        self._on_the_way.difference_update(places)

    def _cleared(self) -> None:
        self._say("released", tuple(sorted(self._on_the_way)))
        self._on_the_way.clear()
        self._writing.clear()
        self._unpin()
        self._say("emptied", ())
        self._held.clear()

    def _looked(self, found: Any, params: Any) -> None:
        if params.req is None or self._tree.disable or is_refused(params.req):
            return
        first = found.device_prefix_len // self._page
        asked = len(params.key) // self._page - first
        slots = self._tree.tree_core.build_load_back_spec(found.best_match_node)[0].host_indices
        if len(slots) == found.host_hit_length:  # else another load of these nodes is being asked for
            self._say("looked", self._pages(slots), self._called(params.req.rid), first, asked)

    def _to_be_loaded(self, device: Any, host_indices: Any, *given: Any, node_id: int = -1, **named: Any) -> None:
        if device is None or not len(host_indices):
            return
        places = self._pages(host_indices)
        for page, place in zip(self._pages(device), places, strict=True):
            self._owner[page] = self._owner_there.get(place, ("", 0))
        self._say("pinned", places)
        self._pinned.append((node_id, places))

    def _unpin(self, *given: Any, **named: Any) -> None:
        """The tree has heard of the end of loads."""
        for one in [one for one in self._pinned if one[0] not in self._tree.ongoing_load_back]:
            self._pinned.remove(one)
            self._say("unpinned", one[1])
