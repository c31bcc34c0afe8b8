"""Engines whose requests come as somebody says, step by step: for cases, and for comparisons of two cores."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ....simulation.judges import FATE, MEMORY, PROGRESS
from ....simulation.protocol import ClientRequest, EngineShape
from ....simulation.run import SimulatedRun
from ....simulation.story import Happening, SimulatedStory
from .scheduler_config import Setup
from .simulated import VllmSimulated


@dataclass
class Observed:
    """What was observed in a run; counts are in steps, tokens and blocks."""

    steps: int = 0
    corruption: list[str] = field(default_factory=list)
    """Wrong reads, a line each."""
    error: str = ""
    """What the engine has raised, type first."""
    starved: list[str] = field(default_factory=list)
    preemptions: int = 0
    room: int = 0
    """Blocks of the pool beyond those that the release's start-up check needs for one request of the greatest
    length."""
    missing_blocks: int = 0
    """Blocks that were free at the start but are not free after all requests have ended."""
    hits: dict[str, int] = field(default_factory=dict)
    """Per request, tokens that counted as computed when it was first scheduled."""


class PlayedRun:
    """One engine and its requests."""

    def __init__(self, setup: Setup) -> None:
        """NotImplementedError if the release has no such engine."""
        shape = EngineShape(
            setup.shape,
            setup.max_num_seqs,
            setup.drafts,
            {
                "asynchronous": setup.asynchronous,
                "connector": setup.connector,
                "policy": setup.policy,
                "drafter": "eagle" if setup.shape.eagle else "ngram",
                "retention": setup.retention,
                "adapters_in_place": setup.adapters_in_place,
            },
        )
        self.setup, self.engine = setup, VllmSimulated()
        self._run = SimulatedRun(self.engine, SimulatedStory(shape, (), depth=2, delays=(0,)))
        self.device = self._run.device
        self._hits: dict[str, int] = {}
        self._count_hits()
        self._free_at_start, self._room = self.engine.pool.get_num_free_blocks(), self.engine.built.room

    @property
    def scheduler(self) -> Any:
        """The release's scheduler."""
        return self.engine.scheduler

    def tokens_of(self, name: str) -> tuple[int, ...]:
        """The prompt of a request and what its client got."""
        return self._run.judge.clients[name].tokens

    def _count_hits(self) -> None:
        schedule: Callable[[], Any] = self.scheduler.schedule

        def counted() -> Any:
            output = schedule()
            for data in output.scheduled_new_reqs:
                self._hits.setdefault(self.engine.clients[data.req_id].id, data.num_computed_tokens)
            return output

        self.scheduler.schedule = counted

    def add(self, request: ClientRequest, *rights: int) -> None:
        """It arrives before the next step. `rights`: for one step with drafts after the other, how many are right."""
        self._run.happen(Happening(0, "add", request=request, rights=rights))

    def cancel(self, name: str) -> None:
        """Its client goes away before the next step."""
        self._run.happen(Happening(0, "cancel", id=name))

    def step(self) -> None:
        """One step more."""
        self._run.step()

    @property
    def live(self) -> list[str]:
        """Who is owed something."""
        return [client.request.id for client in self._run.judge.live]

    def run(self, limit: int = 10_000) -> Observed:
        """Steps until all requests have ended, some are starved, or the engine dies; at most `limit` steps in all."""
        while not self._run.is_over and self._run.rounds < limit and not self.stands:
            self.step()
        return self.observed

    @property
    def stands(self) -> bool:
        """True if nothing more can be expected."""
        observed = self.observed
        return bool(observed.error or observed.starved)

    @property
    def observed(self) -> Observed:
        """What was observed so far."""
        reached, found = self._run.reached, self._run.findings
        raised = [one.what.partition(" raises ")[2].partition("; ")[0] for one in found if one.judge == FATE]
        starved = any(one.judge == PROGRESS for one in found)
        ended = not self.live and self._run.is_over
        return Observed(
            steps=self._run.steps,
            corruption=[one.what for one in found if one.judge == MEMORY],
            error=next((what for what in raised if what), ""),
            starved=sorted(self.live) if starved else [],
            preemptions=reached["preemptions"],
            room=self._room,
            missing_blocks=self._free_at_start - self.engine.pool.get_num_free_blocks() if ended else 0,
            hits=dict(self._hits),
        )
