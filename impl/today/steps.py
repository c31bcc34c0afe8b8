"""Steps of running requests where ends of prompts get names inside blocks."""

from ..managers.steps import RunningSteps


class StepsBehindPrompts(RunningSteps):
    """Within its prompt a request goes the long way, and behind it nothing is named but whole blocks."""

    def __init__(self, *given: object) -> None:
        RunningSteps.__init__(self, *given)  # type: ignore[arg-type]
        self.behind: set[str] = set()
        """Requests that have named all of their prompt."""
        self.begins = False

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
