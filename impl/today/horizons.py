"""Horizons of running requests by the rule of today: looked for when they are asked for."""

from typing import Any

from ..managers.steps import OneGroupSteps, RunningSteps

_BEFORE_ALL = -1
"""A horizon that no step ends before."""


class LaterHorizons(RunningSteps):
    """Horizons are found when they are asked for: many a request that was given room takes no step of the short way."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.due: dict[str, int] = {}
        """Requests whose horizon is not known, with how many of their tokens were settled."""
        self._widest = max([lane.size for lane in self.lanes], default=1)

    def note(self, request_id: str, num_settled_tokens: int) -> None:
        """As before, but later."""
        if self.known:
            self.horizons.pop(request_id, None)
            self.due[request_id] = num_settled_tokens

    def look(self, request_id: str, num_new_tokens: int) -> int:
        """The horizon of a request for which it is due. A step of so many tokens that it needs a block is behind every
        one: it is told one before all steps, which costs less to find."""
        settled = self.due.pop(request_id)
        if self._moving or num_new_tokens < self._widest:
            super().note(request_id, settled)
            return self.horizons[request_id]
        for lane in self._skipping:
            lane.look_ahead(request_id, settled)
        self.horizons[request_id] = _BEFORE_ALL
        return _BEFORE_ALL

    def forget(self, request_id: str) -> None:
        """As before."""
        self.due.pop(request_id, None)
        RunningSteps.forget(self, request_id)


class LaterOfOneGroup(LaterHorizons, OneGroupSteps):
    """The same for a group that gives nothing back."""


class StepsBehindPrompts(LaterHorizons):
    """Steps of running requests where ends of prompts get names inside blocks: within its prompt a request goes the
    long way, and behind it nothing is named but whole blocks."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.behind: set[str] = set()
        """Requests that have named all of their prompt."""

    def note(self, request_id: str, num_settled_tokens: int) -> None:
        """As before, for those."""
        if request_id in self.behind:
            LaterHorizons.note(self, request_id, num_settled_tokens)

    def forget(self, request_id: str) -> None:
        """As before."""
        self.behind.discard(request_id)
        if request_id in self.horizons or request_id in self.due:
            LaterHorizons.forget(self, request_id)

    def forget_horizons(self) -> None:
        """Names have been lost, which the next step of a request may give again."""
        for request_id in [*self.horizons, *self.due]:
            super().forget(request_id)
