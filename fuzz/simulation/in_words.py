"""A story in words, call by call: what `replay --show` prints of it."""

from typing import Any

from .protocol import ClientRequest, Delivered, Engine, EngineShape, Scheduled, ScheduledBatch, Slots, StepResults
from .tiers import TierEvent


class TellingEngine:
    """An engine that tells its calls. All else is the engine's own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.lines: list[str] = []
        self._steps = 0
        self._numbers: dict[int, int] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._engine, name)
        if name == "tier_events":
            return lambda: self._of_tiers(found())
        if name not in ("reset", "reweigh", "pause", "resume", "fork", "truncate"):
            return found

        def told(*given: Any) -> Any:
            self._begin(" ".join([name, *map(str, given)]))
            self._optional(name, *given)
            return self._delivered(found(*given))

        return told

    def start(self, shape: EngineShape) -> None:
        """See `Engine`."""
        core, groups = shape.core, " and ".join(map(repr, shape.groups))
        limits = f"{core.num_blocks} blocks, at most {core.max_model_len} tokens of a request"
        limits += f", {core.max_num_batched_tokens} tokens and {shape.max_requests} requests in a step"
        options = "".join(f", {name} {value}" for name, value in shape.options.items())
        self._begin(f"start: {groups}, {limits}, {'with' if core.caching else 'no'} prefix cache{options}")
        self._engine.start(shape)

    def add(self, request: ClientRequest) -> Any:
        """See `Engine`."""
        more = [f"{name} {value}" for name in _MORE if (value := getattr(request, name)) not in (None, 0, ())]
        what = f"{list(request.prompt)}, at most {request.max_tokens} more"
        self._begin(f"add {request.id}: {', '.join([what, *more])}")
        self._added(request.id)
        return self._delivered(self._engine.add(request))

    def cancel(self, id: str) -> Any:
        """See `Engine`."""
        self._begin(f"cancel {id}")
        self._gone(id)
        return self._delivered(self._engine.cancel(id))

    def schedule(self) -> ScheduledBatch | None:
        """See `Engine`."""
        batch = self._engine.schedule()
        self._of_network()
        if isinstance(batch, ScheduledBatch):
            self._steps += 1
            self._numbers[id(batch)] = self._steps
            self._begin(f"schedule: step {self._steps}")
            lines = [f"{name} is set back" for name in batch.preempted]
            lines += [f"copies {one.source} to {one.target} in group {one.group}" for one in batch.copies]
            lines += [f"{one.kind} {one.id}: slots {list(one.device)}" for one in batch.transfers]
            for line in (*lines, *map(_part, batch.parts)):
                self._more(line)
            self._delivered(batch.delivered)
        return batch

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> Any:
        """See `Engine`."""
        ended = f"step {self._numbers.pop(id(batch), 0)}" if batch is not None else "no step"
        tokens = ", ".join(f"{name} {list(tokens)}" for name, tokens in results.tokens.items() if tokens)
        more = "".join(f"; {name} has ended" for name in results.transferred)
        more += "".join(f"; {name} has failed" for name in results.failed)
        more += "".join(f"; worker {worker} is done with {name}" for worker, name in results.by_worker)
        self._begin(f"update: {ended} has sampled {tokens or 'nothing'}{more}")
        self._landed(batch, results)
        return self._delivered(self._engine.update(batch, results))

    def _of_tiers(self, events: Any) -> Any:
        for one in events or ():
            if isinstance(one, TierEvent):
                whose = f" for block {one.first} of {one.request}" if one.request else ""
                asked = f" and the {one.asked - 1} behind it" if one.asked > 1 else ""
                self._more(f"{one.tier}: {one.what} {list(one.places)}{whose}{asked}")
        return events

    def _of_network(self) -> None:
        news = self._engine.network().news if hasattr(self._engine, "network") else ()
        while news:
            self._begin(f"network: {news.popleft()}")

    def _delivered(self, told: Any) -> Any:
        for one in told or ():
            if isinstance(one, Delivered):
                ends = f" and ends: {one.ended}" if one.ended else ""
                self._more(f"{one.request} gets {list(one.tokens)}{ends}{f' ({one.why})' if one.why else ''}")
                self._told(one)
        return told

    # For those who do more than tell.

    def _begin(self, text: str) -> None:
        """A call is made."""
        self.lines.append(text)

    def _more(self, text: str) -> None:
        """Something that belongs to it."""
        self.lines.append(f"  {text}")

    def _added(self, id: str) -> None:
        """A request arrives."""

    def _gone(self, id: str) -> None:
        """Its client has gone."""

    def _optional(self, name: str, *given: Any) -> None:
        """A method is called that not every engine has."""

    def _landed(self, batch: ScheduledBatch | None, results: StepResults) -> None:
        """A step has ended."""

    def _told(self, one: Delivered) -> None:
        """A client gets something."""


_MORE = ("stop", "priority", "adapter", "salt", "items", "external")


def _part(part: Scheduled) -> str:
    """One request's part in words."""
    first = "the next position" if part.first is None else str(part.first)
    span = first if part.count == 1 else f"{first} and {part.count - 1} behind it"
    drafts = f", drafts {list(part.drafts)}" if part.drafts else ""
    return f"{part.request} computes {span}{drafts}" + "".join(f", {_slots(slots)}" for slots in part.slots or ())


def _slots(slots: Slots) -> str:
    return f"table {list(slots.table)}" if slots.at is None else f"slots {dict(slots.at)}"
