"""In which order the attention types come, and what is special about some of their runs.

Special runs come once each type has had its turn, behind the usual runs of a turn: so the first runs of a seed are the
same whatever else is drawn later.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Literal, NamedTuple, TypeAlias

from .bounds import keeps_states_of
from .rounds import takes_rounds
from .shapes import ATTENTION, EVERY_ATTENTION, hits_end_inside
from .steps import takes_steps

About: TypeAlias = Literal["", "rounds", "steps"]
"""What a run is about; nothing special for a usual one."""
FIRST = len(ATTENTION)
"""So many usual runs come before the first one about steps, also where few types are asked for."""
SHARE = 4
"""Types without states have a run about steps in every so many turns."""
MANY = 4 * FIRST
"""After so many usual runs those about steps come seldom: they take longer than others."""


class Turn(NamedTuple):
    """One run of a seed."""

    number: int
    """Of the turn."""
    attention: str
    """A name in `EVERY_ATTENTION`."""
    about: About


def in_turn(names: Sequence[str], rounds: int, steps: int = 0, inside: int = 0) -> Iterator[Turn]:
    """Without end: the runs of a seed over these types.

    In each turn come so many more for every type whose hits may end `inside` a block; in each but the first, so many
    about `rounds` again for every type that can show something there; once there have been `FIRST` usual runs, so many
    about `steps`, for every type that keeps states, and for each other in some turns.
    """
    names = [*names, *[name for name in names if hits_end_inside(EVERY_ATTENTION[name])] * inside]
    again = [name for name in names if takes_rounds(EVERY_ATTENTION[name])] * rounds
    stepping = [name for name in names if takes_steps(EVERY_ATTENTION[name])]
    for turn in count():
        yield from (Turn(turn, name, "") for name in names)
        yield from (Turn(turn, name, "rounds") for name in again if turn)
        done = turn * len(names)
        if steps and done >= FIRST:
            yield from (Turn(turn, name, "steps") for name in _stepping(stepping, turn, done >= MANY) * steps)


def _stepping(names: Sequence[str], turn: int, few: bool) -> list[str]:
    """Those of the types that have a run about steps in this turn, some of them two; `few`: one in eight of these."""
    stated = [name for name in names if keeps_states_of(EVERY_ATTENTION[name])]
    others = [name for name in names if name not in stated]
    if few:
        return [*stated[turn % SHARE :: SHARE], *others[turn % (4 * SHARE) :: 4 * SHARE]]
    return [*stated, *stated, *others[turn % SHARE :: SHARE]]
