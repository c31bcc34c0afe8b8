"""One engine from its start to its end: the driver that plays clients, device and clock to its scheduler."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from ..findings.story_finding import StoryFinding, rule_of
from .answers import AnswerFormError, EngineRaisedError, is_from_outside, problem_with
from .contents import branch_of
from .device import SimulatedDevice
from .device_records import RanStep
from .judges import CHECKS, FATE, MEMORY, TIER, TOKENS, Client, ClientJudge
from .memory import Slot
from .network import HALVES, Network
from .protocol import DECLARED, Delivered, Engine, ScheduledBatch, StepResults
from .reports import TransferReports
from .story import Happening, SimulatedStory
from .tier_judge import TierJudge
from .tiers import LowerTier

Fates: TypeAlias = Mapping[str, tuple[str, tuple[int, ...]]]
"""By the name of a request: why it has ended, and the tokens that its client got."""
TIMELY = ("reweigh", "fork", "truncate")
"""What a client gets depends on when these happen to it."""
MOST_REFUSED = 3
"""Requests that an engine refuses or gives up are tried alone, at most so many of a story."""
ALONE_ROUNDS = 2000
TIDY = 5
"""Rounds that an engine has to tidy up after the last request; a pair has its timeout more."""


def declared(engine: object, name: str) -> Any:
    """What an engine says of itself, or what is assumed where it says nothing."""
    return getattr(engine, name, DECLARED[name])


def _tiers_of(engine: object) -> Mapping[str, LowerTier]:
    """The lower tiers that it shows."""
    return engine.tiers() if hasattr(engine, "tiers") and hasattr(engine, "tier_events") else {}


class SimulatedRun:
    """A story on an engine. Whatever the engine raises is a finding; what we raise is a mistake of ours."""

    def __init__(self, engine: Engine, story: SimulatedStory, *, among_others: bool = True) -> None:
        """Starts the engine; NotImplementedError, or whatever else it raises, if it cannot be built. `among_others` is
        False for a request that is served alone, to be compared with."""
        self.engine, self.story, self._among_others = engine, story, among_others
        plain = {name: values[0] for name, values in declared(engine, "options").items()}
        engine.start(replace(story.shape, options={**plain, **story.shape.options}))
        self.network: Network | None = getattr(engine, "network", lambda: None)()
        if self.network is not None:
            self.network.begin(story.network)
        self.depth = max(1, min(story.depth, declared(engine, "depth")))
        self.samples = bool(declared(engine, "samples"))
        self._checks = getattr(engine, "objections", None)
        """Called as it is: what it raises says nothing of the engine."""
        self.device = SimulatedDevice(
            story.shape,
            separate=bool(declared(engine, "separate_pools")),
            reads_first=bool(declared(engine, "reads_first")),
            delays=story.delays,
            halves=self.network is not None,
        )
        self._timeout = 0 if self.network is None else self.network.timeout
        self.judge = ClientJudge(story.shape.max_length, samples=self.samples, timeout=self._timeout)
        self.tiers = TierJudge(tiers, self.device) if (tiers := _tiers_of(engine)) else None
        self._reports = TransferReports(story.reports, declared(engine, "workers"), declared(engine, "survives"))
        self.findings: list[StoryFinding] = []
        self.steps = self.rounds = self.tokens = 0
        self._counts: Counter[str] = Counter()
        self._events = deque(story.happenings)
        self._held: list[Happening] = []
        """Requests whose id is in use: they arrive as soon as it is free."""
        self._flying: deque[tuple[ScheduledBatch, RanStep]] = deque()
        self._seen: set[tuple[str, str, str]] = set()
        self._moved = self._idle_now = self._transferred = False
        self._still = 0
        """Rounds in a row in which nobody is owed anything."""

    # The whole run.

    def run(self, steps: int, *, goes_on: bool = False) -> list[StoryFinding]:
        """Take at most so many rounds. Returns what was found, one finding of each kind; without `goes_on` only the
        first, with which it ends."""
        try:
            self._look()
            while self.rounds < steps and not self.is_over and (goes_on or not self.findings):
                self._round()
            if self.is_over and not self.findings:
                self.judge.over(self._is_idle())
                self._look()
                self._collect()
            if self._among_others and not self.findings:
                self._compare_with_alone()
        except EngineRaisedError as raised:
            self._raised(raised)
        except AnswerFormError as wrong:
            self.findings.append(StoryFinding(FATE, rule_of(f": {wrong}"), str(wrong), self.steps))
        return self.findings if goes_on else self.findings[:1]

    @property
    def is_over(self) -> bool:
        """True if nothing is left to happen, and nobody is owed anything."""
        if self._events or self._held or self._flying or self.device.busy or self._reports.busy(self.rounds):
            return False
        return not self.judge.live and (self._idle_now or self._still >= TIDY + self._timeout)

    def _find(self, judge: str, line: str) -> None:
        self._add_finding(StoryFinding(judge, rule_of(line), line, self.steps))

    def _add_finding(self, finding: StoryFinding) -> None:
        if finding.kind not in self._seen:
            self._seen.add(finding.kind)
            self.findings.append(finding)

    def _raised(self, raised: EngineRaisedError) -> None:
        self.findings.append(raised.finding(self.step_of(raised.method), len(self.judge.live)))

    def step_of(self, method: str) -> int:
        """Number of the step to which a call belongs that does not come back as it should."""
        return self.steps + (method == "schedule")

    def happen(self, one: Happening) -> None:
        """It happens now; for who plays by hand, with `step`. Findings are kept."""
        try:
            self._do(one)
        except EngineRaisedError as raised:
            self._raised(raised)

    def step(self) -> None:
        """One round more."""
        try:
            self._round()
        except EngineRaisedError as raised:
            self._raised(raised)

    def _call(self, method: str, *given: object) -> Any:
        try:
            answer = getattr(self.engine, method)(*given)
        except BaseException as error:
            if is_from_outside(error):
                raise
            raise EngineRaisedError(method) from error
        if problem := problem_with(method, answer, self.story.shape):
            raise AnswerFormError(problem)
        return answer

    # Rounds.

    def _round(self) -> None:
        self._moved = False
        self._resume_if_only_paused()
        self._lose_patience(flying=False)
        self._happen(flying=False)
        computed, batch = 0, self._call("schedule")
        if batch is not None:
            self._moved |= self.judge.deliver(batch.delivered)
            computed = sum(part.count for part in batch.parts) or len(batch.transfers)
            self._launch(batch)
        else:
            self._hear()
        self._lose_patience(flying=True)
        self._happen(flying=True)
        self._land(drain=batch is None or not batch.parts)
        moving = self.device.busy or self._reports.busy(self.rounds)
        waiting = (
            moving or bool(self._events and not self.judge.live) or any(client.paused for client in self.judge.live)
        )
        troubled = self.network is not None and self.network.troubled
        self.judge.round(computed=computed, moved=self._moved or troubled, waiting=waiting or self._transferred)
        self.rounds += 1
        self._idle_now = not self.judge.live and self._is_idle()
        busy = self._moved or self.judge.live or self._flying or moving or self._transferred or troubled
        busy = busy or (computed > 0 and self.network is not None)  # a half may finish what its router has forgotten
        self._still = 0 if busy else self._still + 1
        if self._idle_now and not self._flying:
            self._look()
        self._collect()

    def _launch(self, batch: ScheduledBatch) -> None:
        flying: frozenset[Slot] = frozenset().union(*(ran.writes for _, ran in self._flying))
        ran = self.device.launch(batch, self.rounds, flying)
        self.steps += 1
        self.tokens += sum(part.count for part in batch.parts)
        for line in ran.wrong:
            self._find(MEMORY, line)
        for part in batch.parts:
            client = self.judge.clients.get(part.request)
            if client is not None and client.live and client.paused:
                self._find(FATE, f"{part.request}: is computed while it is parked")
        self._counts["preemptions"] += len(batch.preempted)
        self._counts["steps with several requests"] += len(batch.parts) > 1
        self._counts["drafts"] += sum(len(part.drafts) for part in batch.parts)
        sampled = ran.results.tokens
        self._counts["steps with drafts rejected"] += any(
            part.drafts and len(sampled.get(part.request, ())) <= len(part.drafts) for part in batch.parts
        )
        if self.samples:
            ran = replace(ran, results=StepResults())
        if self.tiers is not None:
            self._hear()
            self.tiers.launched(batch)
            self.tiers.delivered(batch.delivered)
        self._flying.append((batch, ran))
        self._counts["steps in flight beside another"] += len(self._flying) > 1

    def _land(self, drain: bool) -> None:
        """Tell the engine of the oldest step if there are as many in flight as may be, or nothing new was begun; and of
        transfers."""
        done, failed = self.device.ended(self.rounds)
        self._counts["transfers ended"] += len(done)
        self._counts["transfers failed"] += len(failed)
        heard = self._reports.tell(done, failed, self.device.under_way, self.rounds)
        if self.tiers is not None:
            lost = self._reports.lost
            self.tiers.ended([id for id in done if id not in lost], (*failed, *lost))
        self._reports.lost.clear()
        told = self._transferred = bool(heard)
        if self._flying and (len(self._flying) >= self.depth or drain):
            batch, ran = self._flying.popleft()
            self.device.voids.landed()
            if self.tiers is not None:
                self.tiers.landed()
            self._deliver(self._call("update", batch, heard.beside(ran.results)))
        elif told:
            self._deliver(self._call("update", None, heard.beside(StepResults())))

    def _deliver(self, told: Iterable[Delivered]) -> None:
        """Clients get this."""
        self._moved |= self.judge.deliver(told)
        if self.tiers is not None:
            self._hear()
            self.tiers.delivered(told)

    def _hear(self) -> None:
        """What was done with lower tiers."""
        if self.tiers is not None:
            self.tiers.hear(self._call("tier_events"))

    def _is_idle(self) -> bool:
        return bool(self._call("idle"))

    def _look(self) -> None:
        view = self._call("look") if hasattr(self.engine, "look") else None
        self.judge.look(view)
        if self.tiers is not None and not self.device.busy:
            self.tiers.idle(None if view is None else view.tiers)

    def _collect(self) -> None:
        for judge, line in self.judge.found:
            self._find(judge, line)
        self.judge.found.clear()
        if self.tiers is not None:
            self.tiers.round()
            for line in self.tiers.found:
                self._find(TIER, line)
            self.tiers.found.clear()
        if self._checks is not None:
            for line in self._checks():
                self._add_finding(StoryFinding(CHECKS, line.partition(": ")[0], line, self.steps))

    # What happens.

    def _resume_if_only_paused(self) -> None:
        """Nobody stays parked for ever: those who are left go on once nothing else is to happen."""
        live = self.judge.live
        if not self._events and not self._flying and live and all(client.paused for client in live):
            for client in live:
                self._resume(client)

    def _resume(self, client: Client) -> None:
        client.paused = False
        self._call("resume", client.request.id)

    def _happen(self, *, flying: bool) -> None:
        """What is due; what comes later, too, as long as nobody is owed anything."""
        for held in [one for one in self._held if one.request and self._found_live(one.request.id) is None]:
            self._held.remove(held)
            self._do(held)
        while self._events:
            one = self._events[0]
            if one.flying and not flying:
                return
            if one.at > self.rounds and (self.judge.live or self._flying or not self._is_quiet()):
                return
            self._events.popleft()
            self._moved = True
            self._do(one)
            self._counts[f"{one.what}{' in flight' if self._flying else ''}"] += 1

    def _do(self, one: Happening) -> None:
        if self.tiers is not None:
            self.tiers.will_happen(one)
        DEEDS[one.what](self, one)
        if self.tiers is not None:
            self._hear()
            self.tiers.happened(one)

    def _is_quiet(self) -> bool:
        return not self.device.busy and (self._is_idle() or self._still >= TIDY + self._timeout)

    def _found_live(self, id: str) -> Client | None:
        client = self.judge.clients.get(id)
        return client if client is not None and client.live else None

    def _add(self, one: Happening) -> None:
        request = one.request
        assert request is not None
        if self._found_live(request.id) is not None:
            self._held.append(one)
            return
        self.judge.add(request, patience=one.patience)
        self.device.add(request, one.rights)
        self._moved |= self.judge.deliver(self._call("add", request) or ())

    def _cancel(self, one: Happening) -> None:
        if (client := self._found_live(one.id)) is not None:
            self._leave(client)

    def _leave(self, client: Client) -> None:
        self._counts["cancelled before their first token"] += not client.got
        client.gone = True
        self.judge.deliver(self._call("cancel", client.request.id) or ())

    def _lose_patience(self, *, flying: bool) -> None:
        """Who has got nothing for as long as it waits goes away."""
        for client in self.judge.live:
            if client.patience and client.silent >= client.patience and client.patience % 2 == flying:
                self._moved = True
                self._counts["cancelled for want of patience"] += 1
                self._do(Happening(self.rounds, "cancel", id=client.request.id))

    def _reset(self, one: Happening) -> None:
        self._call("reset")

    def _reweigh(self, one: Happening) -> None:
        self.device.reweigh()
        self.judge.reweigh()
        self._call("reweigh")

    def _pause(self, one: Happening) -> None:
        client = self._found_live(one.id)
        if client is None or client.paused == (one.what == "pause"):
            return
        if one.what == "resume":
            self._resume(client)
            return
        client.paused = True
        self._call("pause", one.id)

    def _fork(self, one: Happening) -> None:
        parent = self._found_live(one.id)
        if parent is None or self._found_live(one.new) is not None:
            return
        left = parent.request.max_tokens - len(parent.got)
        request = replace(parent.request, id=one.new, prompt=parent.tokens, max_tokens=left)
        self.judge.add(request, branch=branch_of(one.new))
        self.device.fork(request)
        self._moved |= self.judge.deliver(self._call("fork", one.id, one.new) or ())

    def _truncate(self, one: Happening) -> None:
        client = self._found_live(one.id)
        if client is None or one.length > len(client.tokens) or not one.length + len(one.then):
            return
        self.judge.truncate(client, one.length, one.then)
        self.device.truncate(one.id, one.length, one.then)
        self._moved |= self.judge.deliver(self._call("truncate", one.id, one.length, one.then) or ())

    def _mishap(self, one: Happening) -> None:
        if self.network is not None and one.what == "crash":
            self.device.lose(HALVES.index(one.half), len(HALVES))
            self.network.crash(one.half, one.rounds)
        elif self.network is not None:
            self.network.part(one.half, one.rounds)

    # Alone.

    def _compare_with_alone(self) -> None:
        """Who was refused or given up, and everybody where the engine samples itself, is served alone and must fare the
        same."""
        everybody = [*self.judge.past, *self.judge.clients.values()]
        given_up = ("refused",) if self.network is not None and self.network.may_give_up else ("refused", "failed")
        odd = [one for one in everybody if one.ended in given_up][:MOST_REFUSED]
        for client in odd:
            alone = self._alone(client)
            if alone is not None and alone.ended != client.ended:
                name, what = client.request.id, f"ends as {client.ended} ({client.why})"
                self._find(FATE, f"{name}: {what}, alone it ends as {alone.ended or 'nothing'}")
        for client in everybody if self.samples else ():
            alone = self._alone(client)
            if alone is not None and alone.got[: len(client.got)] != client.got:
                self._find(TOKENS, f"{client.request.id}: gets {client.got}, alone it gets {alone.got}")

    def _alone(self, client: Client) -> Client | None:
        """The same request by itself, on a new engine; None where that is no fair comparison."""
        if client.forked or client.cut or len(client.contents) > 1:
            return None
        self._counts["requests served alone to compare"] += 1
        happenings = (Happening(0, "add", request=client.request),)
        alone = SimulatedRun(self.engine, replace(self.story, happenings=happenings, network=()), among_others=False)
        alone.run(ALONE_ROUNDS)
        return alone.judge.clients[client.request.id]

    # Reports.

    @property
    def happened(self) -> int:
        """How many of the story's happenings there were."""
        return len(self.story.happenings) - len(self._events)

    @property
    def fates(self) -> Fates:
        """Of all requests that were served to their end, whatever else has happened. Empty for a story in which they
        depend on when something happens (`TIMELY`)."""
        return {} if any(one.what in TIMELY for one in self.story.happenings) else self.judge.fates()

    @property
    def reached(self) -> Counter[str]:
        """What the run reached."""
        counts = Counter(self._counts)
        counts.update(self.judge.reached)
        requests = len(self.judge.clients) + len(self.judge.past)
        counts.update({"steps": self.steps, "tokens": self.tokens, "requests": requests, **self.device.reached})
        counts.update({"reports of transfers that were odd": self._reports.odd})
        counts.update(self.story.asked_for())
        if self.tiers is not None:
            counts.update(self.tiers.reached)
        if hasattr(self.engine, "counts"):
            counts.update(self.engine.counts())
        return counts


DEEDS: Mapping[str, Callable[[SimulatedRun, Happening], None]] = {
    "add": SimulatedRun._add,
    "cancel": SimulatedRun._cancel,
    "reset": SimulatedRun._reset,
    "reweigh": SimulatedRun._reweigh,
    "pause": SimulatedRun._pause,
    "resume": SimulatedRun._pause,
    "fork": SimulatedRun._fork,
    "truncate": SimulatedRun._truncate,
    "crash": SimulatedRun._mishap,
    "part": SimulatedRun._mishap,
}
