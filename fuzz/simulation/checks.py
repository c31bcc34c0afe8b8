"""The short stories with which an engine is looked at for the first time: each asks one thing, and says what to look
for where the answer is wrong.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from ...model.ops import Item
from ..kinds import KINDS
from .judges import CAPACITY, CHECKS, FATE, MEMORY, PROGRESS, TIER, TOKENS
from .protocol import ClientRequest, EngineShape
from .story import Happening, SimulatedStory
from .traffic import EngineFacts, room_for, shape_with

PROMPT = (1, 2, 3, 4, 5, 1, 2, 3, 4, 5)
HINTS: Mapping[str, str] = {
    TOKENS: "deliver what `StepResults.tokens` has for the request, once, in order; end with `stop` behind a token of "
    "`stop`, with `length` after `max_tokens`",
    MEMORY: "`first` and `count` say which positions the step computes; `Slots.table` lists the blocks in the order of "
    "positions, those of earlier steps too; who begins behind position 0 must find the tokens before there",
    PROGRESS: "`schedule` is asked again after each `update`; what was set back or refused for lack of room must come "
    "again; a request that ends says so in `Delivered.ended`",
    FATE: "what one request does must not end the engine: refuse it by `Delivered(id, ended='refused')`",
    CAPACITY: "`idle()` is True and `look().free` as at the start once all have ended, those that were cancelled too",
    CHECKS: "`objections()` returns what the engine's own checks object to, and nothing else",
    TIER: "`tier_events()` tells in its order what was done since it was asked last; place n has the slots from n * b "
    "on, b being the block size",
}
"""What to look at, by judge. The engine may be wrong, or what shows it."""


METHODS: Mapping[str, tuple[str, tuple[Happening, ...]]] = {
    "reset": ("reset, while a request runs", (Happening(2, "reset"),)),
    "reweigh": ("new weights, while a request runs", (Happening(2, "reweigh"),)),
    "pause": ("a request that is parked, and goes on", (Happening(2, "pause", id="a"), Happening(5, "resume", id="a"))),
    "fork": ("a fork of a request that runs", (Happening(3, "fork", id="a", new="b"),)),
    "truncate": ("other tokens from position 4 on", (Happening(2, "truncate", id="a", length=4, then=(5, 5)),)),
}
"""What is asked of who has a method."""


class EngineCheck(NamedTuple):
    """One story, and what it asks."""

    asks: str
    story: SimulatedStory


def checks_for(facts: EngineFacts) -> Iterator[EngineCheck]:
    """What is asked of an engine that says this of itself."""
    shape = _shape(facts)
    one = _add("a")

    def check(asks: str, *happenings: Happening, depth: int = 1, within: EngineShape = shape) -> EngineCheck:
        return EngineCheck(asks, SimulatedStory(within, happenings, depth, (1,)))

    yield check("one request", one)
    yield check("a prompt in pieces, 4 tokens a step", one, within=_tokens(shape, 4))
    yield check("two requests of the same prompt, one behind the other", one, _add("b", 20))
    yield check("three requests at once", one, _add("b"), _add("c", prompt=PROMPT[3:]))
    yield check(
        "two requests that share blocks, of which one ends first; then others need room",
        one,
        _with(_add("b", 1), max_tokens=12),
        *(_add(name, 8, prompt=PROMPT[at:] * 2) for at, name in ((1, "c"), (2, "d"))),
    )
    if "stops" not in facts.lacks:
        yield check("stop tokens", _with(one, stop=(1, 2, 3)), _with(_add("b"), stop=(4, 5)))
    gone = Happening(2, "cancel", flying=True, id="a")
    if "cancel" not in facts.lacks:
        yield check("a cancel before anything is computed", one, replace(gone, at=0, flying=False), _add("b"))
        yield check("a cancel while it is answered", one, gone, _add("b", 1))
    if "ids" not in facts.lacks:
        again = _add("a", 2, prompt=PROMPT[:4])
        if "cancel" not in facts.lacks:
            yield check("a cancel, and its id used again", one, gone, again, depth=facts.depth)
        yield check("an id that is used again", one, again)
    yield check("a prompt that is too long", _add("a", prompt=PROMPT * 3), _add("b"))
    yield check("more than there is room for", *(_add(name, prompt=PROMPT[at:] * 2) for at, name in enumerate("abcd")))
    if facts.depth > 1:
        yield check(f"{facts.depth} steps in flight", one, _add("b", 1), depth=facts.depth)
    for method, (asks, happenings) in METHODS.items():
        if method in facts.methods:
            yield check(asks, one, *happenings, _add("c", 6), depth=facts.depth)
    yield from _of_offers(facts, shape)


def _shape(facts: EngineFacts) -> EngineShape:
    """Room for two requests of the greatest length, 24 tokens."""
    size = min(facts.block_sizes, key=lambda size: abs(size - 4))
    kinds = facts.attention[0].split("+")
    groups = [KINDS[kind].usual(size, 2 * size) for kind in kinds]  # type: ignore[index]  # looked at before
    core = shape_with(groups, 2 * facts.pools * room_for(groups, 24), 24, 48, caching=True)
    return EngineShape(core, 4, options={name: values[0] for name, values in facts.options.items()})


def _tokens(shape: EngineShape, many: int) -> EngineShape:
    return replace(shape, core=replace(shape.core, max_num_batched_tokens=many))


def _add(id: str, at: int = 0, prompt: tuple[int, ...] = PROMPT) -> Happening:
    return Happening(at, "add", request=ClientRequest(id, prompt, 4))


def _with(one: Happening, **changes: object) -> Happening:
    assert one.request is not None
    return replace(one, request=replace(one.request, **changes))  # type: ignore[arg-type]  # fields of a request


def _of_offers(facts: EngineFacts, shape: EngineShape) -> Iterator[EngineCheck]:
    one, other = _add("a"), _add("b", 1)
    if "drafts" in facts.offers:
        drafted = replace(shape, drafts=2)
        rights = (replace(one, rights=(2, 0, 1)), replace(other, rights=(0, 1)))
        yield EngineCheck("drafts, right ones and wrong ones", SimulatedStory(drafted, rights))
    both: Mapping[str, tuple[str, dict[str, object]]] = {
        "adapters": ("the same prompt under another adapter", {"adapter": "x"}),
        "salts": ("the same prompt with a salt", {"salt": "s"}),
        "items": ("the same prompt with an image in it", {"items": (Item("u", 1, 3),)}),
        "priorities": ("a request that is more urgent", {"priority": -1}),
    }
    for offer, (asks, changes) in both.items():
        if offer in facts.offers:
            later = _with(_add("b", 20), **changes)
            yield EngineCheck(asks, SimulatedStory(shape, (one, later)))
