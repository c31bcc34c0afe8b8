"""A story on an engine: what the driver does at which moment, and what it makes of what the engine does."""

from dataclasses import replace

import pytest
from blockproof.fuzz.simulation.faults import FAULTS, SEEN_BY, OneAtATime
from blockproof.fuzz.simulation.judges import FATE, JUDGES, MEMORY, PROGRESS, TIER, TOKENS
from blockproof.fuzz.simulation.protocol import ClientRequest, Delivered, Scheduled, ScheduledBatch, Slots, SlotTransfer
from blockproof.fuzz.simulation.run import SimulatedRun
from blockproof.fuzz.simulation.story import Happening, SimulatedStory

from .engines import Scripted, shape_of

REQUESTS = tuple(ClientRequest(f"r{number}", (1, 2, 3 + number % 2), 3) for number in range(6))
STORY = SimulatedStory(shape_of(), tuple(Happening(0, "add", request=request) for request in REQUESTS))


def test_the_smallest_engine_is_right_and_what_it_reached_is_counted():
    run = SimulatedRun(OneAtATime(), STORY)
    assert run.run(500) == []
    assert run.reached["ended: length"] == 6
    assert run.reached["tokens delivered"] == 18
    assert run.reached["reads checked"] == 18
    assert run.reached["looks at an idle engine"] > 0


@pytest.mark.parametrize("fault", FAULTS)
def test_each_planted_fault_is_seen_by_its_judge(fault):
    ((judge, what),) = {(one.judge, one.what) for one in SimulatedRun(FAULTS[fault](OneAtATime()), STORY).run(500)}
    assert judge == SEEN_BY[fault], what


def test_there_is_a_fault_for_each_judge():
    assert {*SEEN_BY.values(), TIER} == {*JUDGES}  # that of a tier: tests/fuzz/simulation/test_tiers.py


def test_going_on_behind_a_finding():
    engine = FAULTS["other-blocks"](OneAtATime())
    found = SimulatedRun(engine, STORY).run(500, goes_on=True)
    assert {one.judge for one in found} == {MEMORY, TOKENS}


class Tidies(OneAtATime):
    """Once all have ended, it stores one block after the other."""

    left = 12

    def schedule(self):
        if not super().idle() or not self.left:
            return super().schedule()
        self.left -= 1
        return ScheduledBatch(transfers=(SlotTransfer(f"s{self.left}", "store", 0, (0,), other=(self.left,)),))

    def update(self, batch, results):
        return super().update(batch, results) if batch and batch.parts else ()

    def idle(self):
        return super().idle() and not self.left


@pytest.mark.parametrize("delays", [(), (7,)])
def test_an_engine_may_tidy_up_as_long_as_it_transfers_something(delays):
    engine = Tidies()
    assert SimulatedRun(engine, replace(STORY, delays=delays)).run(500) == []
    assert engine.left == 0


def test_an_engine_that_transfers_for_ever_is_found():
    engine = Tidies()
    engine.left = 10**9
    (found,) = SimulatedRun(engine, STORY).run(3000)
    assert (found.judge, found.what) == (PROGRESS, "the engine: computes on and on, and nobody is owed anything")


def test_what_an_engine_raises_names_the_place_and_who_is_lost():
    class Broken(OneAtATime):
        def schedule(self):
            return self._next()

        def _next(self):
            raise KeyError("r0")

    ((found),) = SimulatedRun(Broken(), STORY).run(500)
    assert (found.judge, found.rule) == (FATE, "KeyError in _next < schedule")
    assert "6 requests are lost with it" in found.what


def told(engine, story: SimulatedStory, depth: int) -> list[str]:
    """The calls of a run, but questions."""
    calls: list[str] = []

    class Told(type(engine)):  # type: ignore[misc]  # whatever it is
        def schedule(self):
            batch = super().schedule()
            calls.append("schedule" if batch else "nothing")
            return batch

        def update(self, batch, results):
            calls.append("update")
            return super().update(batch, results)

        def cancel(self, id):
            calls.append(f"cancel {id}")
            return super().cancel(id)

    made = Told(engine._batches, depth=depth)
    assert SimulatedRun(made, story).run(50) == []
    return calls


def scripted(*firsts: tuple[int, int]) -> Scripted:
    """An engine that computes these positions of `a`, so many from each on."""
    slots = (Slots((0, 1, 2, 3, 4)),)
    return Scripted([ScheduledBatch((Scheduled("a", at, many, slots=slots),)) for at, many in firsts])


def happens(*more: Happening, tokens: int = 3) -> tuple[Happening, ...]:
    return (Happening(0, "add", request=ClientRequest("a", (1, 2, 3), tokens)), *more)


def test_with_one_step_in_flight_each_is_told_at_once():
    story = SimulatedStory(shape_of(), happens(), depth=2)
    calls = told(scripted((0, 3), (3, 1), (4, 1)), story, depth=1)
    assert calls == ["schedule", "update"] * 3


def test_with_two_the_next_one_is_begun_before():
    story = SimulatedStory(shape_of(), happens(), depth=2)
    calls = told(scripted((0, 3), (3, 1), (4, 1)), story, depth=2)
    assert calls == ["schedule", "schedule", "update", "schedule", "update", "nothing", "update"]


def test_what_flies_happens_between_a_step_and_the_news_of_one():
    cancel = Happening(1, "cancel", flying=True, id="a")
    story = SimulatedStory(shape_of(), happens(cancel), depth=2)
    calls = told(scripted((0, 3), (3, 1)), story, depth=2)
    assert calls[:4] == ["schedule", "schedule", "cancel a", "update"]


def test_who_gets_nothing_loses_patience_and_who_is_served_does_not():
    both = tuple(Happening(0, "add", request=ClientRequest(name, (1, 2, 3), 6), patience=2) for name in "ab")
    run = SimulatedRun(OneAtATime(), SimulatedStory(shape_of(), both))
    assert run.run(50) == []
    assert run.reached["cancelled for want of patience"] == 1
    assert {name: ended for name, (ended, _) in run.fates.items()} == {"a": "length"}


@pytest.mark.parametrize(
    ("patience", "calls"),
    [(1, ["schedule", "schedule", "cancel a", "update"]), (2, ["schedule", "schedule", "update", "cancel a"])],
)
def test_with_an_odd_number_patience_ends_when_a_step_was_just_begun(patience, calls):
    first = replace(happens()[0], patience=patience)
    story = SimulatedStory(shape_of(), (first,), depth=2)
    assert told(scripted((0, 1), (1, 1)), story, depth=2)[:4] == calls


def test_an_id_in_use_waits_until_it_is_free():
    again = Happening(0, "add", request=ClientRequest("r0", (4, 4), 2))
    run = SimulatedRun(OneAtATime(), replace(STORY, happenings=(*STORY.happenings, again)))
    assert run.run(500) == []
    assert run.reached["requests"] == 7
    assert run.reached["ids used again"] == 1


class _Refuses(OneAtATime):
    """Refuses who comes second, though it would serve him alone."""

    def start(self, shape):
        super().start(shape)
        self.came = 0

    def add(self, request):
        self.came += 1
        return (Delivered(request.id, ended="refused", why="busy"),) if self.came == 2 else super().add(request)


def test_who_is_refused_must_be_refused_alone_too():
    ((found),) = SimulatedRun(_Refuses(), STORY).run(500)
    assert found.judge == FATE
    assert found.what == "r1: ends as refused (busy), alone it ends as length"
    long = Happening(0, "add", request=ClientRequest("long", (1,) * 11, 9))
    run = SimulatedRun(OneAtATime(), replace(STORY, happenings=(*STORY.happenings, long)))
    assert run.run(500) == []
    assert run.reached["requests served alone to compare"] == 1


class _OwnWorker(OneAtATime):
    """Samples itself; with `leaks` the number of requests before changes what it samples."""

    samples = True
    leaks = False

    def start(self, shape):
        super().start(shape)
        self.served = 0

    def update(self, batch, results):
        (part,) = batch.parts
        request = self._waiting[0]
        token = (sum(request.prompt) + len(self._got) + self.leaks * self.served) % 5
        told = super().update(batch, replace(results, tokens={part.request: (token,)}))
        self.served += bool(told[0].ended)
        return told


def test_an_engine_that_samples_itself_is_compared_with_itself_alone():
    run = SimulatedRun(_OwnWorker(), STORY)
    assert run.run(500) == []
    assert run.reached["requests served alone to compare"] == 6

    class Leaks(_OwnWorker):
        leaks = True

    ((found),) = SimulatedRun(Leaks(), STORY).run(500)
    assert found.judge == TOKENS
    assert "alone it gets" in found.what


class _Parks(OneAtATime):
    def start(self, shape):
        super().start(shape)
        self.parked = set()

    def pause(self, id):
        self.parked.add(id)

    def resume(self, id):
        self.parked.discard(id)

    def schedule(self):
        self._waiting.sort(key=lambda one: one.id in self.parked)
        return None if self._waiting and self._waiting[0].id in self.parked else super().schedule()


def test_who_is_parked_goes_on_in_the_end():
    story = replace(STORY, happenings=(*STORY.happenings, Happening(0, "pause", id="r0")))
    assert SimulatedRun(_Parks(), story).run(500) == []

    class Deaf(_Parks):
        def schedule(self):
            return OneAtATime.schedule(self)

    ((found),) = SimulatedRun(Deaf(), story).run(500)
    assert (found.judge, found.rule) == (FATE, "is computed while it is parked")


def test_an_engine_that_is_not_tidy_in_the_end():
    class Busy(OneAtATime):
        def idle(self):
            return False

    ((found),) = SimulatedRun(Busy(), STORY).run(500)
    assert found.what == "the engine: is not idle, and all requests have ended"


def test_a_standstill_ends_the_run():
    class Stands(OneAtATime):
        def schedule(self):
            return None

    ((found),) = SimulatedRun(Stands(), STORY).run(500)
    assert found.judge == PROGRESS
