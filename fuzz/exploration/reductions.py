"""Checks that the reductions are sound: small scopes are explored with and without them, and the states compared.

**Symmetry** (`packing`): explored with every block and request under its own name, each state brought into canonical
form afterwards, a scope has the same states as explored canonically. **One at a time** (`moves`): with all requests'
operations in any order, the states at rest are the same, requests apart that merely wait and hold nothing. **Once**
(`expansion`): with every operation made in every state, the states are the same, met in the same order on the same
ways.
"""

from dataclasses import replace

from .packing import ARRIVING, RESTING, Focus
from .properties import Broken
from .scope import Scope
from .search import EXHAUSTED, Exploration, ExploredFinding, Limits, Search
from .workers import Plant

ENOUGH = Limits(200_000)
"""A scope with more states is too large for a check."""


def states_of(scope: Scope, plant: Plant | None, limits: Limits, **reductions: bool) -> Search:
    """All states of a scope. ValueError if there are too many, or if something else is wrong."""
    search = Search(scope, plant, **reductions)
    done = search.run(limits)
    if done.ended != EXHAUSTED or done.finding is not None:
        raise ValueError(f"scope {scope.name}: {done.finding or done.ended}; take a smaller scope that shows nothing")
    return search


def symmetry(scope: Scope, plant: Plant | None = None, limits: Limits = ENOUGH) -> tuple[list[Broken], int, int]:
    """What renaming loses or adds; how many states there are with names and without."""
    named, canonical = states_of(scope, plant, limits, canonical=False), states_of(scope, plant, limits)
    packer = Search(scope).expansion.packer
    quotient = set()
    for state in named.states:
        look, focus, _ = packer.unpack(state, renamed=False)
        quotient.add(packer.canonical(look, focus).state)
    different = quotient.symmetric_difference(canonical.states)
    broken = [("symmetry", f"{len(different)} states stand on one side only")] if different else []
    return broken, len(named.states), len(canonical.states)


def one_at_a_time(scope: Scope, plant: Plant | None = None, limits: Limits = ENOUGH) -> tuple[list[Broken], int, int]:
    """What looking at one request at a time loses; how many states at rest there are without it and with it."""
    every, reduced = states_of(scope, plant, limits, reduced=False), states_of(scope, plant, limits)
    all_rests, rests = _at_rest(every), _at_rest(reduced)
    different = all_rests.symmetric_difference(rests)
    broken = [("one at a time", f"{len(different)} states at rest stand on one side only")] if different else []
    return broken, len(all_rests), len(rests)


def _at_rest(search: Search) -> set[bytes]:
    """States in which nobody is in the middle of anything, without the requests that wait."""
    packer = search.expansion.packer
    found = set()
    for state in search.states:
        look, focus, _ = packer.unpack(state, renamed=True)
        if focus.phase != RESTING or any(0 < scheduled < ARRIVING for _, _, scheduled in look.requests):
            continue
        running = [request if request[1] else (0, 0, 0) for request in look.requests]
        found.add(packer.canonical(look._replace(requests=running), Focus()).state)
    return found


def once(scope: Scope, plant: Plant | None = None, limits: Limits = ENOUGH) -> tuple[list[Broken], int, int]:
    """What making each operation once loses or adds; how many moves there are, and how many of them are made."""
    every, kept = states_of(scope, plant, limits, once=False), states_of(scope, plant, limits)
    same = (every.states, every.parents, every.moves, every.reached) == (
        kept.states,
        kept.parents,
        kept.moves,
        kept.reached,
    )
    broken = [] if same else [("once", f"{len(every.states)} states become {len(kept.states)}, or other ways to them")]
    return broken, every.expansion.made, kept.expansion.made


CHECKS = {"symmetry": symmetry, "one at a time": one_at_a_time, "once": once}
"""The checks of the reductions, by the name of the property."""


def as_exploration(scope: Scope, plant: Plant) -> Exploration:
    """The check that a fault of the exploration itself was planted for, told like the exploration of a scope."""
    from .faults import FAULTS

    search = states_of(scope, plant, Limits())
    done = search.run()
    broken, _, _ = CHECKS[FAULTS[plant].found_by](scope, plant)
    return replace(done, finding=ExploredFinding(tuple(broken), ()) if broken else None)
