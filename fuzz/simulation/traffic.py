"""Draws what happens to an engine: prompts that share prefixes, arrivals, cancels at every phase, resets, forks.

All choices are made through `integer` and `choose`, so that one seed gives one run. Swarm weights: of each run it is
drawn first which of these things occur at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...model.arith import cdiv
from ...model.ops import Group, Item, MambaMode, Shape, Value
from ..kinds import KINDS
from ..kinds.draw import Draw
from ..kinds.states import MODES
from .contents import ALPHABET, TokenContents
from .network import DOWN, HALVES, PLACES, WITHIN, draw_faults
from .protocol import LACKS, OFFERS, OPTIONAL, ClientRequest, Engine, EngineShape
from .reports import LONGEST, SURVIVES, patterns
from .run import declared
from .story import Deed, Happening, SimulatedStory

MORE: tuple[Deed, ...] = ("reset", "reweigh", "pause", "fork", "truncate")
"""What happens only to engines that have a method of this name."""
MISHAPS: tuple[Deed, ...] = ("crash", "part")
"""What happens only to those with a network."""
FEATURES = ("adapters", "versions", "items", "salts", "priorities", "external")
"""What requests may have, if the engine offers it."""


@dataclass(frozen=True)
class EngineFacts:
    """What an engine says of itself before it is started."""

    offers: frozenset[str] = frozenset()
    methods: frozenset[str] = frozenset()
    """Of `OPTIONAL`."""
    options: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    attention: tuple[str, ...] = ("full",)
    block_sizes: tuple[int, ...] = (1, 2, 4, 8, 16)
    depth: int = 1
    lacks: frozenset[str] = frozenset()
    unequal_blocks: bool = False
    mamba_modes: tuple[MambaMode, ...] = ("none", "all", "align")
    own_blocks: int = 0
    survives: frozenset[str] = frozenset()
    options_of: Mapping[str, Mapping[str, Sequence[Value]]] = field(default_factory=dict)

    @property
    def pools(self) -> int:
        """How many pools there are, of one size; a pair has two."""
        return len(HALVES) if "network" in self.methods else 1


def facts_of(engine: Engine) -> EngineFacts:
    """What the engine says. ValueError, in a sentence, for what cannot be meant."""
    offers, options = frozenset(declared(engine, "offers")), dict(declared(engine, "options"))
    attention, sizes = tuple(declared(engine, "attention")), tuple(declared(engine, "block_sizes"))
    depth = declared(engine, "depth")
    lacks = frozenset(declared(engine, "lacks"))
    survives = frozenset(declared(engine, "survives"))
    for name, said, known in (("offers", offers, OFFERS), ("lacks", lacks, LACKS), ("survives", survives, SURVIVES)):
        if unknown := sorted(said - known.keys()):
            raise ValueError(f"{name} has {unknown[0]!r}; it may have {', '.join(known)}")
    kinds = {kind for names in attention for kind in names.split("+")}
    if unknown := sorted(kinds - KINDS.keys()) or ([] if attention else ["nothing"]):
        raise ValueError(f"attention has {unknown[0]!r}; it may have {', '.join(KINDS)}, also joined by +")
    if not sizes or not all(type(size) is int and size > 0 for size in sizes):
        raise ValueError(f"block_sizes is {sizes!r}; expected numbers of tokens from 1 on")
    if not isinstance(depth, int) or depth < 1:
        raise ValueError(f"depth is {depth!r}; expected how many steps are in flight at most, from 1 on")
    if empty := [name for name, values in options.items() if not values]:
        raise ValueError(f"options has no value to try for {empty[0]!r}")
    methods = frozenset(name for name in OPTIONAL if callable(getattr(engine, name, None)))
    if "pause" in methods and "resume" not in methods:
        raise ValueError("there is pause, but no resume; write both or none")
    if "network" in methods and ("drafts" in offers or "ids" not in lacks):
        raise ValueError("a pair offers no drafts, and lacks 'ids': two halves may compute one request at once")
    unequal, own = bool(declared(engine, "unequal_blocks")), int(declared(engine, "own_blocks"))
    modes = tuple(declared(engine, "mamba_modes"))
    if unknown := sorted(set(modes) - set(MODES)) or ([] if modes else ["nothing"]):
        raise ValueError(f"mamba_modes has {unknown[0]!r}; it may have {', '.join(sorted(set(MODES)))}")
    more = dict(declared(engine, "options_of"))
    return EngineFacts(offers, methods, options, attention, sizes, depth, lacks, unequal, modes, own, survives, more)


def draw_simulation(draw: Draw, facts: EngineFacts) -> SimulatedStory:
    """An engine and its life, which depend on the choices only."""
    shape = _shape(draw, facts)
    depth = draw.choose((1, facts.depth, facts.depth, draw.integer(1, facts.depth)))
    swarm = _Swarm(draw, facts)
    happenings = _Life(draw, facts, shape, swarm).happenings()
    slow = draw.choose((4, LONGEST))
    delays = tuple(draw.integer(0, slow) for _ in range(draw.integer(1, 5)))
    if "failures" in facts.offers and draw.integer(0, 3) == 0:
        delays += (-1,)
    reports = _reports(draw, facts)
    return SimulatedStory(
        shape, happenings, depth, delays, reports, draw_faults(draw) if "network" in facts.methods else ()
    )


def _reports(draw: Draw, facts: EngineFacts) -> tuple[str, ...]:
    """What becomes of reports, in two of three stories."""
    words = patterns(facts.survives)
    if not words or draw.integer(0, 2) == 0:
        return ()
    often = draw.choose((1, 3, 6))
    return tuple(draw.choose(words) if draw.integer(0, 7) < often else "" for _ in range(draw.integer(1, 7)))


# Engines.


def shape_with(groups: Sequence[Group], blocks: int, length: int, tokens: int, *, caching: bool) -> Shape:
    """The core of such an engine: tokens of a hash and of a scheduler's block follow from its groups."""
    sizes = [group.block_size for group in groups]
    shape = Shape(tuple(groups), blocks, length, min(sizes), max(sizes), tokens, caching=caching)
    return replace(shape, scheduler_block_size=shape.least_scheduler_block_size)


def room_for(groups: Sequence[Group], length: int) -> int:
    """Blocks in which one request of so many tokens fits, with one to spare for each group."""
    return sum(cdiv(length, group.block_size) + group.speculative_blocks + 1 for group in groups)


def _groups(draw: Draw, facts: EngineFacts, size: int, drafts: int) -> list[Group]:
    """Groups of layers, of which no two are equal; blocks of about so many tokens."""
    groups = list[Group]()
    for kind in draw.choose(facts.attention).split("+"):
        other = draw.choose((size, size, size // 2, 2 * size)) if facts.unequal_blocks and groups else size
        group = KINDS[kind].drawn(draw, max(1, other), 4 * size)  # type: ignore[index]  # looked at before
        if group.kind == "mamba":
            group = replace(group, mamba_mode=draw.choose(facts.mamba_modes), speculative_blocks=drafts)
        group = replace(group, num_heads=1 + sum(one.kind == kind for one in groups))
        groups.append(group)
    return groups


def _shape(draw: Draw, facts: EngineFacts) -> EngineShape:
    size, drafts = draw.choose(facts.block_sizes), draw.choose((0, 1, 2, 3)) if "drafts" in facts.offers else 0
    groups = _groups(draw, facts, size, drafts)
    length = draw.integer(8, 24) if size < 4 else size * draw.integer(3, 8) + draw.choose((0, 0, 1, size - 1))
    tight = -len(groups)
    blocks = facts.own_blocks + room_for(groups, length) + draw.choose((tight, tight, 0, 1, 2, 4, 8, 16, 40))
    if draw.integer(0, 9) == 0:
        blocks = max(2, blocks // 2)
    blocks *= facts.pools
    tokens = draw.choose((2 + drafts, size, 2 * size, 4 * size + 1, length, 2 * length, 4 * length))
    caching = draw.integer(0, 9) > 0 or "uncached" in facts.lacks
    core = shape_with(groups, blocks, length, max(tokens, 2 + drafts), caching=caching)
    options = {name: draw.choose(values) for name, values in facts.options.items()}
    for name, value in list(options.items()):
        for other, values in facts.options_of.get(f"{name}={value}", {}).items():
            options.setdefault(other, draw.choose(values))
    return EngineShape(core, min(draw.choose((1, 2, 3, 4, 8, 8)), core.max_num_batched_tokens), drafts, options)


# Lives.


class _Swarm:
    """How often what happens in this run; of eight, 0 for never."""

    def __init__(self, draw: Draw, facts: EngineFacts) -> None:
        def often(*weights: int) -> int:
            return draw.choose(weights)

        self.cancels = 0 if "cancel" in facts.lacks else often(0, 1, 3, 6)
        self.impatient = 0 if "cancel" in facts.lacks else often(0, 0, 3)
        self.stops = 0 if "stops" in facts.lacks else often(0, 2, 6)
        self.again = 0 if "ids" in facts.lacks else often(0, 0, 2, 5)
        self.shares = often(0, 4, 6, 7)
        self.too_long = often(0, 0, 0, 1)
        self.exact = often(0, 1, 3)
        self.long = often(0, 3, 7)
        self.deeds: dict[Deed, int] = {what: often(0, 0, 1, 3) for what in MORE if what in facts.methods}
        if "network" in facts.methods:
            self.deeds |= {what: often(0, 1, 1, 3) for what in MISHAPS}
        self.features = {name: often(0, 0, 4) for name in FEATURES}
        self.pace = often(0, 0, 1, 3, 8)
        self.alike = often(0, 2)


class _Life:
    """The happenings of one run, drawn one after the other."""

    def __init__(self, draw: Draw, facts: EngineFacts, shape: EngineShape, swarm: _Swarm) -> None:
        self._draw, self._facts, self._shape, self._swarm = draw, facts, shape, swarm
        self._jobs: list[ClientRequest] = []
        self._ids: list[str] = []
        self._made: list[Happening] = []
        self._version = 0

    def _maybe(self, of_eight: int) -> bool:
        return of_eight > 0 and self._draw.integer(0, 7) < of_eight

    def happenings(self) -> tuple[Happening, ...]:
        """All of them, in order."""
        draw, at = self._draw, 0
        for number in range(draw.integer(3, 24)):
            self._request(number, at)
            for what, of_eight in self._swarm.deeds.items():
                if self._maybe(of_eight):
                    self._deed(what, number, at)
            at += draw.integer(0, self._swarm.pace)
        return tuple(sorted(self._made, key=lambda one: one.at))

    def _when(self, at: int, most: int = 12) -> tuple[int, bool]:
        """Some time after this round, and whether a step is in flight then."""
        return at + self._draw.choose((0, 1, 2, self._draw.integer(0, most))), self._draw.integer(0, 1) == 0

    def _request(self, number: int, at: int) -> None:
        draw, swarm = self._draw, self._swarm
        prompt, answer = self._prompt()
        id = f"r{number}"
        if self._ids and self._maybe(swarm.again):
            id = draw.choose(self._ids)
        self._ids.append(id)
        request = ClientRequest(id, prompt, answer)
        if self._maybe(swarm.stops):
            request = replace(request, stop=(draw.integer(1, ALPHABET),))
        if self._feature("adapters"):
            self._version += self._feature("versions")
            request = replace(request, adapter=draw.choose(("a", "b")), adapter_version=self._version)
        if self._feature("salts"):
            request = replace(request, salt=draw.choose(("s", "t")))
        if self._feature("priorities"):
            request = replace(request, priority=draw.integer(0, 2))
        if self._feature("items"):
            request = replace(request, items=self._items(len(prompt)))
        if self._feature("external"):
            request = replace(request, external=draw.integer(1, len(prompt)))
        self._jobs.append(request)
        rights = tuple(draw.integer(0, self._shape.drafts) for _ in range(3)) if self._shape.drafts else ()
        patience = draw.integer(1, 16) if self._maybe(swarm.impatient) else 0
        self._made.append(Happening(at, "add", request=request, rights=rights, patience=patience))
        if self._maybe(swarm.cancels):
            when, flying = self._when(at)
            self._made.append(Happening(when, "cancel", flying, id=id))

    def _feature(self, name: str) -> bool:
        return name in self._facts.offers and self._maybe(self._swarm.features[name])

    def _prompt(self) -> tuple[tuple[int, ...], int]:
        """A prompt, often the beginning of an earlier one, and how many tokens may follow."""
        draw, most = self._draw, self._shape.max_length
        length = draw.integer(1, most - 1)
        if draw.integer(0, 2) == 0:
            size = self._shape.groups[0].block_size
            length = max(1, min(most - 1, size * draw.integer(1, max(1, most // size)) + draw.choose((-1, 0, 0, 1))))
        answer = draw.choose((1, 2, 4, 8, 16))
        if self._maybe(self._swarm.too_long):
            length, answer = most + draw.integer(0, 4), 4
        elif self._maybe(self._swarm.exact):
            answer = most - length
        elif self._maybe(self._swarm.long):
            answer = draw.integer(1, most)
        prompt: tuple[int, ...] = ()
        if self._jobs and self._maybe(self._swarm.shares):
            before = self._told(draw.choose(self._jobs))
            prompt = before[: draw.choose((len(before), len(before), draw.integer(1, len(before))))]
        if self._swarm.alike:
            tail = tuple(draw.integer(1, 2) for _ in range(length))
        else:
            tail = tuple(draw.integer(1, ALPHABET) for _ in range(length))
        prompt = (prompt + tail)[:length]
        return prompt, max(1, answer if length >= most else min(answer, most - length))

    def _told(self, job: ClientRequest) -> tuple[int, ...]:
        """Its prompt; or, as in a conversation, with what was answered."""
        contents = TokenContents(job)
        for _ in range(job.max_tokens if self._draw.integer(0, 1) else 0):
            contents.extend((contents.next_token(),))
        return tuple(contents.tokens)

    def _items(self, length: int) -> tuple[Item, ...]:
        draw, items, at = self._draw, list[Item](), self._draw.integer(0, 3)
        for _ in range(draw.integer(1, 2)):
            size = draw.integer(1, 6)
            if at + size > length:
                break
            items.append(Item(f"{draw.choose('uv')}{size}", at, size))
            at += size + draw.choose((0, 2))
        return tuple(items)

    def _deed(self, what: Deed, number: int, at: int) -> None:
        draw = self._draw
        when, flying = self._when(at)
        id = draw.choose(self._ids)
        if what in ("reset", "reweigh"):
            self._made.append(Happening(when, what, flying))
        elif what in MISHAPS:
            half, when = draw.choose(HALVES if what == "crash" else PLACES), at + draw.integer(0, draw.choose(WITHIN))
            self._made.append(Happening(when, what, flying, half=half, rounds=draw.choose(DOWN)))
        elif what == "pause":
            self._made.append(Happening(when, "pause", flying, id=id))
            later, flying = self._when(when + 1, 20)
            self._made.append(Happening(later, "resume", flying, id=id))
        elif what == "fork":
            self._made.append(Happening(when, "fork", flying, id=id, new=f"f{number}"))
            self._ids.append(f"f{number}")
            if self._swarm.cancels and self._maybe(2):
                later, flying = self._when(when, 4)
                self._made.append(Happening(later, "cancel", flying, id=draw.choose((id, f"f{number}"))))
        else:
            then = tuple(draw.integer(1, ALPHABET) for _ in range(draw.integer(0, 3)))
            length = draw.integer(1, self._shape.max_length // 2)
            self._made.append(Happening(when, "truncate", flying, id=id, length=length, then=then))
