"""Names of the oracles, and which of them suit which target (properties.md)."""

from collections.abc import Collection

LOCKSTEP, SHADOW, CONTRACT, LIVENESS = "lockstep", "shadow", "contract", "liveness"
DIFFERENCE = "difference"
"""Not an oracle, but the `Finding.oracle` of a pair run: the two targets differ (`runs.pair`)."""
TARGET = "target"
"""Not an oracle either: the target was lost, or gave no answer that could be judged."""
BLOCKPROOF = "blockproof"
"""Nor this: an oracle, the model or the generator has failed, which says nothing of the target."""
STRICT = "strict"
"""An addition to the names of oracles: known losses, which oracles otherwise only count, are findings too."""
LANDED = "landed"
"""Another one: it is a finding of the contract if somebody beside the device's queue writes into a block before a step
that uses it has landed (S13)."""
EVERY = (LOCKSTEP, SHADOW, CONTRACT, LIVENESS)
"""All oracles, the strictest first."""
ORACLES: tuple[str, ...] = (LOCKSTEP, SHADOW)
"""Default for a target that the model describes exactly."""
MODEL_FREE: tuple[str, ...] = (SHADOW, CONTRACT, LIVENESS)
"""Oracles that need no exact model, so they can judge any target (§§2-4)."""
PASSABLE: tuple[str, ...] = ("S1", "S9", "S10", "S11", "S14", "S17", "S18", "S19")
"""Properties of the contract that need not end a run: where one is violated, the others can still be judged."""
LEFT_OUT: tuple[str, ...] = tuple(f"no-{name}" for name in PASSABLE)
"""Additions to the names of oracles: the contract does not judge this property."""

ADDITIONS: tuple[str, ...] = (STRICT, LANDED, *LEFT_OUT)


def left_out(oracles: Collection[str]) -> frozenset[str]:
    """The properties that additions to the names of oracles leave out."""
    return frozenset(name.removeprefix("no-") for name in oracles if name in LEFT_OUT)


def without(oracles: Collection[str], properties: Collection[str]) -> tuple[str, ...]:
    """The names of oracles, and additions that leave these properties out (of `PASSABLE`)."""
    return tuple(dict.fromkeys([*oracles, *(f"no-{name}" for name in PASSABLE if name in properties)]))
