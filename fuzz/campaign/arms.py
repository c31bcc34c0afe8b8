"""Who gets the next task: processor time goes where something new still comes, and nothing starves.

An arm is a target, an attention type, oracles and an engine. What its tasks bring is counted in news: a new cause of
findings is 10, a new situation 3, a new key 1. The rule, in this order:

1. `LEAST_SHARE` of all processor time is for all arms alike. While an arm has had less than its part of that, the arm
   that has had the least is next.
2. Else Thompson sampling. The news of an arm are taken as a Poisson process. Its rate per processor second is drawn
   from the Gamma distribution of what is known of it, and the highest rate is next. Before its first task an arm is
   taken to bring one piece of news a task. What a task brought counts `KEEP` times as much after each later task of the
   same arm, so an arm that has run dry is found out within some ten tasks.

Where all have equal shares (`next_share`), each arm has one task; what cannot be run leaves its share to the others.

Tasks under way count as if they had ended without news. The draw depends on the seed of the campaign and the number of
the task alone: the same results in the same order lead to the same choices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

OF_A_CAUSE, OF_A_SITUATION, OF_A_KEY = 10, 3, 1
LEAST_SHARE = 0.2
KEEP = 0.9
GIVEN_UP_AFTER = 3
"""Tasks of an arm that failed, one after the other, before it gets no more: its target cannot be started."""


@dataclass(frozen=True)
class Arm:
    """What the budget is shared among."""

    target: str
    attention: str
    oracles: tuple[str, ...]
    engine: str

    def __str__(self) -> str:
        return " ".join((self.target, self.attention, "+".join(self.oracles), self.engine))


@dataclass
class Standing:
    """What an arm has had, and what it has brought."""

    arm: Arm
    tasks: int = 0
    """That have ended."""
    operations: int = 0
    seconds: float = 0.0
    """Processor seconds of all its tasks."""
    news: int = 0
    """Of all its tasks."""
    recent_news: float = 0.0
    recent_seconds: float = 0.0
    """The same, of which a task counts `KEEP` times as much after each later one."""
    under_way: int = 0
    assigned: int = 0
    """Tasks that it was ever given: this is what their seeds follow from."""
    failures: int = 0
    """Tasks that failed since the last one that did not."""
    problem: str = ""
    """Of the last task that failed."""

    @property
    def is_given_up(self) -> bool:
        """True once it gets no more tasks."""
        return self.failures >= GIVEN_UP_AFTER

    def ended(self, operations: int, seconds: float, news: int, problem: str = "") -> None:
        """One of its tasks has come to its end."""
        self.tasks += 1
        self.operations += operations
        self.seconds += seconds
        self.news += news
        self.recent_news = self.recent_news * KEEP + news
        self.recent_seconds = self.recent_seconds * KEEP + seconds
        self.failures = self.failures + 1 if problem else 0
        self.problem = problem


def chosen(standings: Sequence[Standing], seed: int, number: int) -> int | None:
    """Index of the arm that gets the task of this number; None if all are given up."""
    able = [index for index, one in enumerate(standings) if not one.is_given_up]
    if not able:
        return None
    usual = _cost(standings)
    spent = {index: _spent(standings[index], usual) for index in able}
    poorest = min(able, key=lambda index: spent[index])
    if spent[poorest] <= sum(spent.values()) * LEAST_SHARE / len(able):
        return poorest
    random = Random(f"{seed}/{number}")
    return max(able, key=lambda index: _rate(standings[index], usual, random))


def next_share(standings: Sequence[Standing]) -> tuple[int, float] | None:
    """The arm that gets the next task where all have equal shares, and which part of what its target has; None if none
    does for now. Each arm has one task, then those that could be run have what was meant for the others."""
    for target in dict.fromkeys(one.arm.target for one in standings):
        mine = {index: one for index, one in enumerate(standings) if one.arm.target == target}
        if any(one.problem and not one.operations for one in mine.values()):
            continue  # it cannot be started
        if new := [index for index, one in mine.items() if not one.assigned]:
            return new[0], 1 / len(mine)
        useful = [index for index, one in mine.items() if one.operations and not one.problem]
        once = [index for index in useful if mine[index].assigned == 1]
        if once and len(useful) < len(mine) and all(one.tasks for one in mine.values()):
            return once[0], (len(mine) - len(useful)) / len(useful) / len(mine)
    return None


def _cost(standings: Sequence[Standing]) -> float:
    """Processor seconds of a task, over all arms; 1 as long as nobody knows."""
    tasks, seconds = (sum(getattr(one, name) for one in standings) for name in ("tasks", "seconds"))
    return seconds / tasks if tasks and seconds else 1.0


def _spent(one: Standing, usual: float) -> float:
    """Processor seconds, with what the tasks under way are expected to take."""
    return one.seconds + one.under_way * _of_a_task(one, usual)


def _of_a_task(one: Standing, usual: float) -> float:
    return one.seconds / one.tasks if one.tasks and one.seconds else usual


def _rate(one: Standing, usual: float, random: Random) -> float:
    """News per processor second, drawn."""
    seconds = usual + one.recent_seconds + one.under_way * _of_a_task(one, usual)
    return random.gammavariate(1.0 + one.recent_news, 1.0 / seconds)
