"""One engine that lives through a story: the release's own scheduler over a device that keeps contents."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ....model.ops import NULL, Operation, Outcome, Refused, Shape
from ....model.shown.snapshot import Snapshot
from .releases import release_of
from .scheduler_config import module
from .scheduler_connectors import MINIMAL
from .scheduler_run import Observed, SchedulerRun
from .scheduler_story import Story, StoryEvent
from .scheduler_watch import NOT_LOOKED_AT, ManagerWatch

LATE_STEPS = 50
"""How many steps a connector has at the end for what is still under way."""


class StoryEngine:
    """Built from a story; `step` it until `over`. Whatever its scheduler raises is not caught here."""

    def __init__(self, story: Story, plant: Callable[[SchedulerRun], None] | None = None) -> None:
        """`plant` makes a mistake in the engine before it runs, for tests. NotImplementedError if the release has no
        such engine."""
        self.story, self.run = story, SchedulerRun(story.setup)
        if plant is not None:
            plant(self.run)
        release, manager = release_of(module("version").__version__), self.run.scheduler.kv_cache_manager
        self.shape: Shape = replace(
            story.setup.shape,
            hash_block_size=self.run.hash_block_size,
            scheduler_block_size=max(self.run.scheduler_block_size, story.setup.shape.scheduler_block_size),
        )
        hidden = release.hides(manager)
        self.hides = hidden | NOT_LOOKED_AT
        self.loses = release.loses - {"states-by-scheduler"}  # here is the scheduler, and it has to
        self.judge: Callable[[Operation, Outcome, Snapshot, Snapshot], None] | None = None
        """Told of each operation on the core, once it is set."""
        self.reached: Counter[str] = Counter()
        self.expected: set[str] = set()
        """Requests that arrived and were not aborted: they must end."""
        self._events, self._clock, self._late = list(story.events), 0, 0
        self._watch = ManagerWatch(manager, self.run.jobs, hidden, self._told)
        self._count("evictions", self.run.pool, "_maybe_evict_cached_block", lambda evicted: bool(evicted))
        self._count("loads", self.run.device, "load_now", lambda _: True)

    @property
    def observed(self) -> Observed:
        """What was observed so far."""
        return self.run.observed

    @property
    def shown(self) -> Snapshot:
        """The state of the core when it was last looked at."""
        return self._watch.shown

    def outside(self, shown: Snapshot) -> list[int]:
        """Blocks that a connector holds, or that are freed once a running step has ended; once for each reference that
        no table has. Only where there is a connector that may hold some: its references are believed."""
        if self.story.setup.connector in ("", MINIMAL):
            return []
        held = Counter(block for tables in shown.tables for table in tables.values() for block in table)
        counts = enumerate(shown.ref_cnt)
        return [block for block, count in counts for _ in range(count - held[block]) if block != NULL]

    @property
    def over(self) -> bool:
        """True if all that was to happen has happened, or some request is starved."""
        if self.observed.starved:
            return True
        return not (self._events or self.run.scheduler.has_unfinished_requests() or self._busy())

    def _busy(self) -> bool:
        """True while the connector has something under way after the last request."""
        self._late += not self.run.scheduler.has_unfinished_requests()
        return self._late < LATE_STEPS and bool(getattr(self.run.scheduler.connector, "arrived", None))

    def _count(self, name: str, owner: Any, method: str, counts: Callable[[Any], bool]) -> None:
        call = getattr(owner, method)

        def counted(*given: Any, **named: Any) -> Any:
            result = call(*given, **named)
            self.reached[name] += counts(result)
            return result

        setattr(owner, method, counted)

    def _told(self, operation: Operation, outcome: Outcome, before: Snapshot, after: Snapshot) -> None:
        self.reached["refused allocations"] += isinstance(outcome, Refused)
        if self.judge is not None:
            self.judge(operation, outcome, before, after)

    # Steps.

    def step(self) -> None:
        """What is due happens, and the scheduler takes a step."""
        idle = not self.run.scheduler.has_unfinished_requests()
        while self._events and (self._events[0].at <= self._clock or idle):
            event = self._events[0]
            if event.what == "abort-in-flight" and not idle:
                break
            self._happens(self._events.pop(0))
            idle = not self.run.scheduler.has_unfinished_requests()
        output = self.run.begin_step()
        scheduler = self.run.scheduler
        self.reached["tokens"] += output.total_num_scheduled_tokens
        if self.story.setup.asynchronous:
            self._watch.all_learnt(scheduler.requests.values())
        while self._events and self._events[0].at <= self._clock and self._events[0].what == "abort-in-flight":
            self._happens(self._events.pop(0))
        self._note_drafts(output)
        self.run.end_step(output)
        self._watch.all_learnt(scheduler.requests.values())
        self._clock += 1

    def finish(self) -> None:
        """Report what waits, and look whether all blocks are free again."""
        self.run.drain()
        self._watch.all_learnt(())

    def _note_drafts(self, output: Any) -> None:
        for name, drafts in output.scheduled_spec_decode_tokens.items():
            self.reached["drafts"] += len(drafts)
            judged = self.run.jobs[name].drafts
            self.reached["steps with drafts rejected"] += bool(judged) and any(right < many for many, right in judged)

    def _happens(self, event: StoryEvent) -> None:
        scheduler = self.run.scheduler
        if event.job is not None:
            self.run.add(event.job)
            self.expected.add(event.job.submit.request)
        elif event.request:
            if event.request in scheduler.requests:
                status = module("v1.request").RequestStatus.FINISHED_ABORTED
                scheduler.finish_requests(event.request, status)
                self.reached["aborts" if event.what == "abort" else "aborts of a running step"] += 1
            self.expected.discard(event.request)
        else:
            preempts = event.what == "reset-running"
            done = scheduler.reset_prefix_cache(reset_running_requests=preempts)
            self.reached["resets"] += bool(done)

    def counts(self) -> Mapping[str, int]:
        """What the run reached."""
        observed, jobs = self.observed, self.story.jobs
        self.reached |= {
            "steps": observed.steps,
            "preemptions": observed.preemptions,
            "requests": len(observed.hits),
            "hits": sum(tokens > 0 for tokens in observed.hits.values()),
            "requests with an adapter": sum(job.submit.adapter is not None for job in jobs),
            "requests with items": sum(bool(job.submit.items) for job in jobs),
            "requests with a salt": sum(job.submit.salt is not None for job in jobs),
        }
        return self.reached
