"""A lower tier by definition: what it would hold and find with as many places, under each policy.

Nothing is pinned and nothing takes time, so that a real tier may find a little less.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Protocol


class IdealTier(Protocol):
    """What is stored, by content."""

    def __init__(self, places: int) -> None: ...

    def find(self, key: Hashable) -> bool:
        """True if it is stored; that counts as a use."""
        ...

    def store(self, key: Hashable) -> None:
        """It is stored from now on, in place of another one if there is no room."""
        ...


class Fifo:
    """Who was stored first leaves first."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._held: OrderedDict[Hashable, None] = OrderedDict()

    def find(self, key: Hashable) -> bool:
        """See `IdealTier`."""
        return key in self._held

    def store(self, key: Hashable) -> None:
        """See `IdealTier`."""
        if key not in self._held and self._places:
            if len(self._held) >= self._places:
                self._held.popitem(last=False)
            self._held[key] = None


class Lru(Fifo):
    """Who was stored or found longest ago leaves first."""

    def find(self, key: Hashable) -> bool:
        """See `IdealTier`."""
        if key not in self._held:
            return False
        self._held.move_to_end(key)
        return True


class Arc:
    """Adaptive replacement: who was used once, and who was used again, in two queues whose shares follow what is asked
    for soon after it was evicted."""

    def __init__(self, places: int) -> None:
        self._places, self._share = places, 0.0
        """Of the places, how many are for who was used once."""
        self._once: OrderedDict[Hashable, None] = OrderedDict()
        self._again: OrderedDict[Hashable, None] = OrderedDict()
        self._once_gone: OrderedDict[Hashable, None] = OrderedDict()
        self._again_gone: OrderedDict[Hashable, None] = OrderedDict()

    def find(self, key: Hashable) -> bool:
        """See `IdealTier`."""
        for queue in (self._once, self._again):
            if key in queue:
                del queue[key]
                self._again[key] = None
                return True
        return False

    def store(self, key: Hashable) -> None:
        """See `IdealTier`."""
        once, again, once_gone, again_gone = self._once, self._again, self._once_gone, self._again_gone
        if key in once or key in again or not self._places:
            return
        if key in once_gone or key in again_gone:
            was_once = key in once_gone
            more = len(again_gone) / len(once_gone) if was_once else len(once_gone) / len(again_gone)
            moved = self._share + max(1.0, more) if was_once else self._share - max(1.0, more)
            self._share = min(max(0.0, moved), float(self._places))
            self._evict(was_again=not was_once)
            del (once_gone if was_once else again_gone)[key]
            again[key] = None
            return
        if len(once) + len(once_gone) >= self._places and once_gone:
            once_gone.popitem(last=False)
        elif sum(map(len, (once, again, once_gone, again_gone))) >= 2 * self._places and again_gone:
            again_gone.popitem(last=False)
        self._evict(was_again=False)
        once[key] = None

    def _evict(self, *, was_again: bool) -> None:
        once, share = len(self._once), self._share
        if once + len(self._again) < self._places:
            return
        if once and (once > share or (was_again and once == share) or not self._again):
            self._once_gone[self._once.popitem(last=False)[0]] = None
        else:
            self._again_gone[self._again.popitem(last=False)[0]] = None


def shares_found(reached: Mapping[str, int]) -> dict[str, float]:
    """Of the blocks that were looked for in lower tiers, the share that was found, and what would have been by the
    definition of each policy; empty if nobody looked."""
    asked = reached.get("tier blocks asked for", 0)
    if not asked:
        return {}
    ideal = {name: reached.get(f"tier blocks found by the definition, {name}", 0) / asked for name in sorted(IDEAL)}
    return {"found": reached.get("tier: looked", 0) / asked, **ideal}


def hit_ratios(reached: Mapping[str, int]) -> str:
    """The same in a line."""
    shares = shares_found(reached)
    if not shares:
        return ""
    found, asked = shares.pop("found"), reached["tier blocks asked for"]
    ideal = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    return f"hit ratio of lower tiers: {found:.1%} of {asked:,} blocks asked for; by the definition {ideal}"


IDEAL: Mapping[str, Callable[[int], IdealTier]] = {"lru": Lru, "fifo": Fifo, "arc": Arc}
"""The definition of each policy."""
