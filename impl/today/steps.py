"""Steps where ends of prompts get names inside blocks: within a prompt, and behind it."""

from collections.abc import Sequence
from typing import Any

from ..hashing.extra_keys import CacheableRequest
from ..managers.lane import Lane
from ..managers.steps import KnownHit, Rows, RunningSteps
from ..pool.block import KVCacheBlock
from .managers import Tail


class StepsBehindPrompts(RunningSteps):
    """Within its prompt a request has no horizon, and behind it nothing is named but whole blocks."""

    def __init__(self, *given: object) -> None:
        RunningSteps.__init__(self, *given)  # type: ignore[arg-type]
        self.behind: set[str] = set()
        """Requests that have named all of their prompt."""
        self.begins = len(self.lanes) == len(self._managers) and all(map(_begins, self.lanes))
        managers: list[Any] = [lane.manager for lane in self.lanes]
        self._most_apart = sum([manager.most_blocks(0) + 1 for manager in managers]) if self.begins else 0
        self._keeping = [manager for manager in managers if manager.keeps_states]
        self._told = [manager for manager in self._keeping if not manager.leaves_one_state]

    def note(self, request_id: str, num_settled_tokens: int) -> None:
        """As before, for those."""
        if request_id in self.behind:
            RunningSteps.note(self, request_id, num_settled_tokens)

    def forget(self, request_id: str) -> None:
        """As before."""
        self.behind.discard(request_id)
        if request_id in self.horizons or request_id in self.due:
            RunningSteps.forget(self, request_id)

    def forget_horizons(self) -> None:
        """Names have been lost, which the next step of a request may give again."""
        for request_id in [*self.horizons, *self.due]:
            RunningSteps.forget(self, request_id)

    def begin(
        self,
        request: CacheableRequest,
        hit: KnownHit,
        num_new_tokens: int,
        num_lookahead_tokens: int,
        room: int,
        whole: bool,
        register: bool,
    ) -> Rows | None:
        """As before, for every step of known tokens that is not behind a prompt, where there is room to spare."""
        request_id, (found, blocks), lanes = request.request_id, hit, self.lanes
        start, tokens = request.num_computed_tokens + found, request.num_tokens
        end, begins = start + num_new_tokens, request_id not in lanes[0].tables
        if num_lookahead_tokens or not register or end > tokens or end > self._max_model_len:
            return None
        most = (tokens if whole else end) // self._least_size * len(lanes) + self._most_apart
        if found:
            if not begins or start > found or blocks is None or not self._fit(found, blocks):
                return None
            most += sum(map(len, blocks))
        elif (begins and start) or (blocks is not None and any(blocks)):
            return None
        if most > room or request_id in self.behind or getattr(request, "num_in_flight_tokens", False):
            return None
        for lane in lanes:
            if begins is (request_id in lane.tables) or (begins and request_id in lane.registered):
                return None
        for manager in self._told:
            manager.note_request(request)
        if not begins:
            for manager in self._keeping:
                manager.remove_skipped_blocks(request_id, start)
        elif found and blocks is not None:
            for lane, row in zip(lanes, blocks, strict=True):
                self._attach(lane, request_id, found, row)
        rows = tuple([lane.manager.allocate_new_blocks(request_id, end, end, start) for lane in lanes])
        for manager in self._keeping:
            manager.note_step(request_id, start, tokens, end)
        self._cache_blocks(request, end)
        self.note(request_id, start)
        return rows

    def _fit(self, found: int, blocks: Sequence[Sequence[KVCacheBlock]]) -> bool:
        """Whether the rows of a hit of so many tokens have no block too many or too few, and states that no step of now
        writes."""
        for lane, row in zip(self.lanes, blocks, strict=True):
            manager: Any = lane.manager
            if not 0 <= len(row) * lane.size - found < lane.size:
                return False
            if lane.keeps_states and (row[-1] is self._pool.null_block or manager.cached_blocks_this_step):
                return False
        return True

    def _attach(self, lane: Lane, request_id: str, found: int, row: Sequence[KVCacheBlock]) -> None:
        """Begin the table of a request with the row of a hit of so many tokens."""
        manager: Any = lane.manager
        entry = len(row) - 1
        if lane.keeps_states:
            self._pool.touch(row[entry:])
            lane.tables[request_id] = [*[self._pool.null_block] * entry, row[entry]]
            manager.num_leading_nulls[request_id] = entry
        else:
            self._pool.touch(row)
            lane.tables[request_id] = [*row]
        if len(row) * lane.size > found:
            manager.tails[request_id] = Tail(entry, row[entry])
            lane.registered[request_id] = entry
        else:
            lane.registered[request_id] = entry + 1


def _begins(lane: Lane) -> bool:
    """Whether tables of a group begin with blocks for their tokens, or with one running state, and nothing else."""
    manager: Any = lane.manager
    if not manager.is_ours or not lane.caching or manager.use_eagle or lane.extra:
        return False
    return lane.moves if lane.keeps_states else not lane.may_skip
