"""For every property of the contract the faults of our core that it is the first to report, each with a story.

A story is a short sequence of operations at whose end the property must report the fault. On the clean core nothing is
to be reported in the same story.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from blockproof.model.ops import (
    Advance,
    Allocate,
    Arrive,
    Evict,
    Free,
    Group,
    Lookup,
    Operation,
    ReadTable,
    RemoveSkipped,
    Shape,
    Submit,
    Take,
    TakeNewBlockIds,
)


class Story(NamedTuple):
    """What shows a fault; `property` reports it at the last operation, and nothing is reported before."""

    property: str
    shape: Shape
    operations: tuple[Operation, ...]


def _shape(*groups: Group, num_blocks: int = 12, **more: Any) -> Shape:
    size = max(group.block_size for group in groups)
    return Shape(groups, num_blocks, 16, groups[0].block_size, size, 16, **more)


def computed(name: str, *prompt: int) -> tuple[Operation, ...]:
    """A request whose prompt is computed in one step."""
    return (Submit(name, prompt), Allocate(name, len(prompt)), Advance(name))


_FULL = Group("full", 2)
_BY_TOKEN = Group("full", 1)
_WINDOW = Group("sliding", 1, window=2)
_STATES = Group("mamba", 1, mamba_mode="all")
_TIGHT_HIT = (*computed("a", 0, 0), Free("a"), Submit("b", (0, 0, 0, 0)), Lookup("b"), Allocate("b", 2, hit=True))
REPLAY = (*computed("a", 0, 0, 0, 0), Submit("b", (0, 0, 0, 0)), Lookup("b"))
_TOLD = _shape(_FULL, events=True)
_TWO_CHUNKS = (Submit("a", (0, 1, 2, 3, 4)), Allocate("a", 2), Advance("a"), Allocate("a", 3))


_WINDOW_LOAD = (0, 1, 2, 3)


def _load(prompt: tuple[int, ...], external: int) -> tuple[Operation, ...]:
    """A request waits for the first tokens of its prompt."""
    return (Submit("a", prompt), Allocate("a", 0, external=external, delay=True))


def _by_one(name: str, steps: int) -> tuple[Operation, ...]:
    """Steps of one token each."""
    return (Allocate(name, 1), Advance(name)) * steps


STORIES: Mapping[str, Story] = {
    "one-block-leaks": Story("S1", _shape(_FULL), (*computed("a", 0, 1, 2, 3), Free("a"))),
    "free-count-drifts": Story(
        "S1",
        _shape(_BY_TOKEN),
        (*computed("a", 0, 0), Free("a"), Submit("b", (0, 0)), Lookup("b"), Allocate("b", 1, hit=True)),
    ),
    "held-block-handed-out": Story(
        "S2", _shape(_FULL), (Submit("a", (0, 0)), Allocate("a", 2), Submit("b", (1,)), Allocate("b", 1))
    ),
    "null-block-freed": Story("S4", _shape(_FULL), (*computed("a", 0, 1), Submit("b", (1,)), Free("b"))),
    "old-entries-swapped": Story("S5", _shape(_FULL), (*computed("a", 0, 1, 2, 3), Allocate("a", 1))),
    "skipped-off-by-one": Story(
        "S6", _shape(_WINDOW), (Submit("a", (0, 1, 2)), Allocate("a", 2), Advance("a"), Allocate("a", 1))
    ),
    "last-token-hit": Story("S7", _shape(_FULL), REPLAY),
    "hit-in-wrong-order": Story("S7", _shape(_BY_TOKEN), REPLAY),
    "same-step-rule-dropped": Story(
        "S7",
        _shape(_BY_TOKEN, _STATES),
        (Submit("a", (0, 0)), Allocate("a", 2), Submit("b", (0, 0)), Lookup("b"), Allocate("b", 1, hit=True)),
    ),
    "evictable-hits-uncounted": Story("S8", _shape(_BY_TOKEN, num_blocks=4), _TIGHT_HIT),
    "refusal-pins-hits": Story("S8", _shape(_BY_TOKEN, num_blocks=4), _TIGHT_HIT),
    "taken-from-the-back": Story("S9", _shape(_FULL), (Submit("a", (0, 1)), Allocate("a", 2))),
    "identity-lost-when-freed": Story("S10", _shape(_FULL), (*computed("a", 0, 1), Free("a"))),
    "eviction-does-nothing": Story("S10", _shape(_FULL), (*computed("a", 0, 1), Evict((1,)))),
    "delay-ignored": Story("S10", _shape(_FULL), (Submit("a", (0, 1, 2)), Allocate("a", 0, external=2, delay=True))),
    "removed-event-missing": Story(
        "S11",
        _shape(_BY_TOKEN, num_blocks=3, events=True),
        (*computed("a", 0, 0), Free("a"), Submit("b", (1,)), Allocate("b", 1)),
    ),
    "unknown-free-moves-the-queue": Story("S12", _shape(_FULL), (Free("a"),)),
    "last-group-not-freed": Story("S12", _shape(_BY_TOKEN, _WINDOW), (*computed("a", 0, 1), Free("a"))),
    "window-cut-ahead-of-the-step": Story(
        "S13", _shape(_WINDOW), (Submit("a", (0, 1, 2)), Allocate("a", 2), RemoveSkipped("a"))
    ),
    "window-cut-under-a-load": Story("S13", _shape(_WINDOW), (*_load(_WINDOW_LOAD, 3), RemoveSkipped("a"), Take(1))),
    "in-flight-forgotten": Story(
        "S13",
        _shape(_WINDOW, caching=False),
        (*computed("a", *_WINDOW_LOAD), Allocate("a", 1, in_flight=4), Take(2)),
    ),
    "missing-tokens-registered": Story("S10", _shape(_FULL), (*_load((0, 1, 2, 3, 4), 4), Arrive("a", 1))),
    "failure-cut-a-block-late": Story("S10", _shape(_FULL), (*_load((0, 1, 2, 3, 4), 4), Arrive("a", 2))),
    "failed-blocks-given-back": Story("S5", _shape(_FULL), (*_load((0, 1, 2, 3, 4), 4), Arrive("a", 2))),
    "eagle-drop-twice": Story(
        "S14", _shape(_FULL, eagle=True), (*computed("a", 0, 0, 0, 0, 0), Submit("b", (0, 0, 0, 0, 0)), Lookup("b"))
    ),
    "replay-boundary-lost": Story("S14", _shape(_WINDOW, retention_interval=0), REPLAY),
    "lookahead-ignored": Story("S15", _shape(_FULL), (Submit("a", (0, 1)), Allocate("a", 2, lookahead=1))),
    "event-with-the-first-tokens": Story("S11", _TOLD, _TWO_CHUNKS),
    "event-with-the-last-tokens": Story("S11", _TOLD, computed("a", 0, 1, 2, 3)[:2]),
    "event-behind-itself": Story("S11", _TOLD, _TWO_CHUNKS),
    "event-without-adapter": Story("S11", _TOLD, (Submit("a", (0, 1), adapter="x"), Allocate("a", 2))),
    "new-block-told-twice": Story("S16", _shape(_FULL), computed("a", 0, 1)[:2]),
    "hit-told-as-new": Story("S16", _shape(_FULL), (*REPLAY, Allocate("b", 2, hit=True))),
    "last-new-block-not-told": Story("S16", _shape(_FULL), (*computed("a", 0), *computed("b", 0, 1, 2)[:2])),
    "new-blocks-told-again": Story("S16", _shape(_FULL), (*computed("a", 0, 1), TakeNewBlockIds())),
    "answer-lacks-a-block": Story("S16", _shape(_FULL), _TWO_CHUNKS),
    "table-read-without-its-end": Story("S16", _shape(_FULL), (*computed("a", 0, 1), ReadTable("a"))),
    "partial-hits-not-counted": Story("S19", _shape(_FULL, stats=True), REPLAY),
    "count-runs-ahead": Story(
        "S18", _shape(_FULL), (Submit("a", (0,) * 9), *(Allocate("a", 3), Advance("a")) * 3, Free("a"))
    ),
    "decoded-blocks-unregistered": Story(
        "S18",
        _shape(_FULL),
        (*computed("a", 0, 1, 2, 3, 4)[:1], Allocate("a", 3), Advance("a"), *_by_one("a", 2), Free("a")),
    ),
    "arrived-blocks-unregistered": Story(
        "S18",
        _shape(_FULL),
        (
            *(*computed("b", 5, 6), Submit("a", (0, 1, 2)), Allocate("a", 0, external=2, delay=True), Arrive("a")),
            *(Allocate("a", 1), Advance("a"), Free("a")),
        ),
    ),
    "named-by-its-own-tokens": Story(
        "S7", _shape(_FULL), (*computed("a", 0, 1, 2, 3), Submit("b", (2, 3)), Allocate("b", 2))
    ),
    "last-used-evicted-first": Story(
        "S9", _shape(_FULL), (*computed("a", 0, 1), *computed("b", 2, 3), Free("a"), Free("b"))
    ),
    "one-evicted-too-many": Story(
        "S10", _shape(_FULL, num_blocks=3), (*computed("a", 0, 1, 2, 3), Free("a"), Submit("b", (4,)), Allocate("b", 1))
    ),
    "gate-left-open": Story("S17", _shape(_FULL, num_blocks=3), (Submit("a", (0,) * 8), Allocate("a", 2, gate=True))),
    "gate-takes-hits-for-held": Story(
        "S17",
        _shape(_FULL, num_blocks=4),
        (
            *(*computed("a", 0, 1), Free("a"), *computed("b", 5, 6), Submit("c", (0, 1, 2, 3, 4))),
            *(Lookup("c"), Allocate("c", 1, hit=True, gate=True)),
        ),
    ),
    "cached-blocks-not-free": Story(
        "S17", _shape(_FULL, num_blocks=3), (*computed("a", 0, 1, 2, 3), Free("a"), Submit("b", (4,)), Allocate("b", 1))
    ),
    "held-blocks-needed-again": Story(
        "S17",
        _shape(_BY_TOKEN, num_blocks=11),
        (
            *(*computed("a", 0, 1, 2, 3), *computed("b", 9), *computed("c", 5, 6, 7)),
            *(Allocate("b", 1), Advance("b"), Free("c"), Allocate("a", 1)),
        ),
    ),
    "window-keeps-unregistered": Story(
        "S17",
        _shape(_WINDOW, caching=False),
        (Submit("a", (0,) * 9), *_by_one("a", 5), Allocate("a", 1)),
    ),
    "one-reserved-block-taken": Story(
        "S17", _shape(_FULL, num_blocks=3), (Submit("a", (0,)), Allocate("a", 1, reserved=2))
    ),
}
"""By the name of the fault, in the order of the document."""
