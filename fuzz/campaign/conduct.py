"""A campaign while it goes on: gives out tasks, takes in what they came to, and ends at its limits.

First comes what a session before has left: tasks under way are done again. Then old findings are replayed, so that one
that is gone or has changed is known before anything new is looked for; then the corpus, if asked for. After that the
arms get their tasks (`arms`).
"""

import secrets
import time
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TypeVar

import msgspec

from ..adapters import family_of
from ..engines.seeded import ENGINES
from ..reports.progress import Pace
from .arms import Standing, chosen, next_share
from .checking import problems
from .database import StoreError
from .executor import Done, Executor
from .exporting import write_finding, write_missing
from .rows import write_row
from .settings import CampaignLimits, Settings, joined, seed_of
from .status import Status, status_of
from .store import ANY, Ended, Gain, Store, Subject, read_standings
from .stories import SIMULATION
from .tasks import Task, TaskResult, packed, task_of
from .work import checked_result

T = TypeVar("T")
OF_A_TASK = 25
"""Traces that one task replays."""
WAIT_S = 0.5
TELL_S = 10.0


@dataclass(frozen=True)
class Session:
    """How the campaign is to go on now."""

    limits: CampaignLimits
    """Seconds of this session; operations over all sessions."""
    recheck: bool = True
    """Replay old findings first."""
    corpus: bool = False
    """Replay the corpus before anything is drawn."""
    say: Callable[[str], None] = lambda line: None
    """Is told what is new, a line each."""
    on_progress: Callable[["Conductor"], None] = lambda conductor: None
    """Is told now and then."""
    on_change: Callable[["Conductor", str], None] = lambda conductor, target: None
    """Is told whenever a task on this target has told something."""


def conduct(store: Store, executor: Executor, session: Session) -> Ended:
    """Go on with a campaign until its limits are reached or Ctrl-C ends it.

    Findings are written to the folder of the settings as they come. StoreError if the store cannot be written,
    ExecutorLostError if the executor has gone: the store can be resumed all the same. The executor is left open.
    """
    store.begin_session()
    so_far: dict[int, TaskResult] = {}
    try:
        try:
            return Conductor(store, executor, session, so_far).run()
        finally:
            store.end_session()
    except KeyboardInterrupt:
        store.end_session()  # once more: Ctrl-C may have come in the middle of it
        for result in so_far.values():
            store.finish(result, cut=True)  # unless it has ended meanwhile
        return Ended.INTERRUPTED


class Conductor:
    """One session."""

    def __init__(self, store: Store, executor: Executor, session: Session, so_far: dict[int, TaskResult]) -> None:
        """`so_far` gets what tasks under way have told, by number."""
        self.store, self.session = store, session
        self.standings: Mapping[int, Standing] = read_standings(store.database, store.arms)
        self.under_way: dict[int, tuple[int | None, bytes]] = {}
        """Arm and task, by number."""
        self.so_far = so_far
        self._executor = executor
        self._out = Path(store.settings.out)
        self._number = store.next_number()
        self._asked = store.asked_operations()
        self._begin = time.monotonic()

    def run(self) -> Ended:
        """All of it. Errors as from `conduct`."""
        write_missing(self.store.database, self._out)
        first, pace, told = deque(self._first()), Pace(), self._begin
        while True:
            ended = self._give_out(first)
            if not self.under_way:
                return ended
            for done in self._executor.done(WAIT_S):
                arm, _ = self.under_way[done.number]
                self._take_in(done)
                if arm is not None:
                    self.session.on_change(self, self.standings[arm].arm.target)
            if pace.due:
                with pace.telling():
                    self.store.beat(len(self.under_way))
            if time.monotonic() - told >= TELL_S:
                told = time.monotonic()
                self.session.on_progress(self)

    def _give_out(self, first: deque[tuple[int, int | None, bytes]]) -> Ended:
        """Tasks, as many as there is room for. Returns why there would be no more."""
        while len(self.under_way) < self._executor.capacity:
            if first:
                self._submit(*first.popleft())
            elif self._is_over():
                break
            elif (drawn := self._drawn()) is not None:
                self._submit(*drawn)
            else:
                return Ended.GIVEN_UP
        return Ended.LIMIT

    def _submit(self, number: int, arm: int | None, task: bytes) -> None:
        self.under_way[number] = (arm, task)
        if arm is not None:
            self.standings[arm].under_way += 1
        self._executor.submit(number, task)

    def _is_over(self) -> bool:
        limits = self.session.limits
        used = time.monotonic() - self._begin
        return (limits.seconds is not None and used >= limits.seconds) or (
            limits.operations is not None and self._asked >= limits.operations
        )

    def _drawn(self) -> tuple[int, int | None, bytes] | None:
        """The next task of the arm whose turn it is, kept in the store; None if there is no arm left."""
        settings, ids = self.store.settings, list(self.standings)
        if settings.shares is not None:
            return self._share(settings.shares)
        index = chosen([self.standings[id] for id in ids], settings.seed, self._number)
        if index is None:
            return None
        standing = self.standings[ids[index]]
        arm = standing.arm
        seed = seed_of(settings.seed, arm, standing.assigned)
        standing.assigned += 1
        self._asked += settings.task_operations
        options = msgspec.structs.replace(
            settings.options,
            known_causes=self.store.known_causes(arm.target),
            known_keys=packed(self.store.known_keys(arm.target, arm.attention)),
        )
        task = Task(
            *(self._number, arm.target, arm.attention, arm.oracles, arm.engine, seed, settings.task_operations),
            options=options,
        )
        return self._kept(task, ids[index])

    def _share(self, whole: CampaignLimits) -> tuple[int, int | None, bytes] | None:
        """The same where all have equal shares."""
        if (placed := next_share([*self.standings.values()])) is None:
            return None
        (id, standing), settings = [*self.standings.items()][placed[0]], self.store.settings
        arm, seed = standing.arm, settings.seed + standing.assigned
        standing.assigned += 1
        task = Task(
            *(self._number, arm.target, arm.attention, arm.oracles, arm.engine, seed),
            operations=ceil((whole.operations or 0) * placed[1]),
            seconds=None if whole.seconds is None else whole.seconds * placed[1],
            options=msgspec.structs.replace(settings.options, known_causes=self.store.known_causes(arm.target)),
        )
        return self._kept(task, id)

    def _kept(self, task: Task, arm: int | None, subject: Subject | None = None) -> tuple[int, int | None, bytes]:
        body = self.store.assign(task, arm, subject)
        self._number += 1
        return task.number, arm, body

    def _take_in(self, done: Done) -> None:
        if not done.over:
            self.so_far[done.number] = so_far = checked_result(done.result or b"", done.number)
            write_row(so_far, self._out, whole=True)  # at once: whatever ends the campaign, it is not lost
            return
        arm, body = self.under_way.pop(done.number)
        before = self.so_far.get(done.number)
        if arm is not None:
            self.standings[arm].under_way -= 1
        problem = done.problem
        try:
            result = None if done.result is None else checked_result(done.result, done.number)
        except ValueError as error:
            result, problem = None, str(error)
        if before is not None and (result is None or result.row is None):
            result = msgspec.structs.replace(before, problem=problem if result is None else result.problem)
        elif result is not None and result.row is not None:
            write_row(result, self._out, whole=False)
        if result is not None:
            gain = self.store.finish(result)
            self.so_far.pop(done.number, None)
            problem = "" if result.lacks else result.problem
        elif self.store.lost(done.number, problem):
            self.session.say(f"task {done.number}: {problem}; it is begun again")
            self._submit(done.number, arm, body)
            return
        else:
            gain = Gain()
        if problem:
            self.session.say(f"task {done.number} failed: {problem.strip().splitlines()[-1]}")
        if gain is None:
            return
        if arm is not None:
            operations, seconds = (0, 0.0) if result is None else (result.operations, result.processor_seconds)
            self.standings[arm].ended(operations, seconds, gain.news, problem)
        for id in gain.causes if result is None or result.row is None else ():
            self.session.say(write_finding(self.store.database, id, self._out))

    def _first(self) -> Iterator[tuple[int, int | None, bytes]]:
        """What comes before the arms: tasks that were under way, old findings, the corpus."""
        left = self.store.open_tasks()
        yield from left
        replays = {
            (task.target, task.attention) for task in (task_of(body) for *_, body in left) if task.kind == "replay"
        }
        if self.session.recheck:
            yield from self._rechecks({target for target, attention in replays if attention == ANY})
        if self.session.corpus:
            yield from self._corpus(replays)

    def _rechecks(self, under_way: Collection[str]) -> Iterator[tuple[int, int | None, bytes]]:
        """Each finding on its own target; and once on every other release of the same family. Not on a target on which
        a session before has left some of that."""
        findings = self.store.findings()
        for target, oracles in self.store.settings.targets.items():
            if target in under_way:
                continue
            family, seen = family_of(target), self.store.rechecked_on(target)
            mine = [
                found
                for found in findings
                if found.target == target
                or (family is not None and family_of(found.target) is family and found.id not in seen)
            ]
            for some in _pieces(mine):
                traces = [found.trace for found in some]
                subject = {"findings": [found.id for found in some]}
                yield self._replay(target, ANY, oracles, traces, subject)

    def _corpus(self, under_way: Collection[tuple[str, str]]) -> Iterator[tuple[int, int | None, bytes]]:
        settings = self.store.settings
        for target, oracles in settings.targets.items():
            for attention in settings.attention:
                if (target, attention) in under_way:
                    continue
                for some in _pieces(self.store.seeds(target, attention)):
                    traces = [zlib.decompress(data).decode() for _, data in some]
                    yield self._replay(target, attention, oracles, traces, {"seeds": [id for id, _ in some]})

    def _replay(
        self, target: str, attention: str, oracles: tuple[str, ...], traces: Sequence[str], subject: Subject
    ) -> tuple[int, int | None, bytes]:
        settings = self.store.settings
        options = msgspec.structs.replace(
            settings.options,
            traces=tuple(traces),
            known_causes=self.store.known_causes(target),
            known_keys=packed(self.store.known_keys(target, attention)),
        )
        task = Task(
            *(self._number, target, attention, oracles, settings.engines[0], settings.seed, 0),
            kind="replay",
            options=options,
        )
        return self._kept(task, None, subject)


def _pieces(several: Sequence[T]) -> Iterator[Sequence[T]]:
    """What one task replays at a time."""
    return (several[at : at + OF_A_TASK] for at in range(0, len(several), OF_A_TASK))


def opened(path: Path, settings: Callable[[int], Settings] | None, seed: int | None) -> Store:
    """The store of a campaign. With `settings`, by seed, a new one is begun, or one that is there goes on with them.

    A seed is drawn if none is given. StoreError if the file cannot be used, is not whole or is of another campaign.
    """
    store = Store(path, None if settings is None else settings(secrets.randbelow(2**32) if seed is None else seed))
    try:
        if wrong := problems(store.database):
            raise StoreError(f"{path}: is not whole: {wrong[0]}; take a copy that is")
        if gone := [name for name in store.settings.engines if name not in (*ENGINES, SIMULATION)]:
            what = "`blockproof campaign export` writes what it has found"
            raise StoreError(f"{path}: is of the engine {gone[0]}, which has gone; {what}; begin another one")
        if settings is not None:
            _go_on_with(store, settings(store.settings.seed if seed is None else seed))
    except BaseException:
        store.close()
        raise
    return store


def _go_on_with(store: Store, asked: Settings) -> None:
    try:
        wanted = joined(store.settings, asked)
    except ValueError as error:
        raise StoreError(f"{store.database.path}: {error}; leave that as it was, or name another file") from None
    store.change(wanted)


def left(store: Store, given: tuple[int | None, float | None] | None) -> CampaignLimits:
    """The limits of a session: those in operations and seconds that are `given` for it alone, if any; else what is left
    of those of the campaign."""
    operations, seconds = given or (None, None)
    if (operations, seconds) != (None, None):
        return CampaignLimits(seconds, None if operations is None else operations + store.asked_operations())
    whole = store.settings.limits
    rest = None if whole.seconds is None else max(0.0, whole.seconds - status_of(store.database).seconds)
    return CampaignLimits(rest, whole.operations)


def exit_code(status: Status, ended: Ended) -> int:
    """1 if there is a finding, 130 if Ctrl-C ended it before, 3 if nothing was or can be tested, else 0."""
    if status.there:
        return 1
    if ended is Ended.INTERRUPTED:
        return 130
    return 0 if status.operations and ended is not Ended.GIVEN_UP else 3
