"""What the simulated engine of the shadow memory knows about its requests, and which tag belongs in which slot."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from ....model import ops
from ....model.attention import Mamba, Step
from ....model.kinds.rswa import has_gap
from ....model.ops import Shape
from ....model.snapshot import Snapshot
from ...kinds.compressed import Compressed, rules_with
from ...targets.declarations import COUNTS_AT_LAUNCH, EXCHANGES
from .memory import GARBAGE, POISON, ListMemory, Memory


class StateStep(NamedTuple):
    """A step of a request, as far as Mamba layers go; lengths in tokens."""

    start: int
    length: int
    known: int  # tokens of it that are no drafts
    tables: list[list[int]]  # per group, the entries that the worker knows since the step was allocated

    @property
    def first_draft(self) -> int:
        """Position of its first draft; behind the step if it has none."""
        return self.start + self.known

    @property
    def end(self) -> int:
        """Position behind the step."""
        return self.start + self.length

    @property
    def step(self) -> Step:
        """The step as the rules of attention know it."""
        return Step(self.start, self.end, self.length - self.known)


@dataclass
class EngineRequest:
    """What the engine knows of a request; lengths in tokens."""

    submit: ops.Submit
    contents: list[int]
    """Per known token, the content of the prefix that ends with it."""
    tags: list[list[int]] = field(default_factory=list)
    """Per group: the tags of these contents, as far as anybody has asked for them."""
    hit: int = 0  # tokens of the hit that the last lookup found
    attached: int = 0  # tokens of the hit with which the tables began
    computed: int = 0
    most_computed: int = 0  # largest number of computed tokens for which skipped blocks may have been given back
    scheduled: int = 0
    arriving: tuple[int, int] | None = None  # first and last + 1 of the external tokens that are being loaded
    lookahead: int = 0
    encoder_tokens: int = 0
    drafts: list[dict[int, int]] = field(default_factory=list)
    """Per group: position to tag, for positions that were written before their token was known."""
    states: list[dict[int, int]] = field(default_factory=list)
    """Per group of Mamba layers: number of tokens up to which a state is computed, to the block that holds it."""
    rows: list[list[int]] = field(default_factory=list)
    """Per group: which block a worker was told last for each table entry. It does not learn which have become null."""
    started: bool = False
    """True if a step was allocated since the tables were empty."""
    rings: dict[int, list[int]] = field(default_factory=dict)
    """Per group of rings: the tags in the request's one block, once a step has written there."""
    waiting: list[StateStep] = field(default_factory=list)
    """Steps that were allocated before it was known which drafts before them are accepted, the first one first. They
    run when that is known; each draft that is rejected lets them begin one token further left."""
    ran: StateStep | None = None
    """The last step that did run."""

    def first_query(self, designs: Collection[str]) -> int:
        """Position of the first query of the scheduled step whose keys and values must be there until it is over; where
        tokens count as computed at launch, that of the last token that cannot be taken back."""
        end = self.computed + self.scheduled
        early = COUNTS_AT_LAUNCH in designs
        return max(self.computed, min(end, len(self.contents) - 1)) if early else self.computed

    def cut(self) -> None:
        """Blocks that no query from the computed tokens on reads may have been given back now."""
        self.most_computed = max(self.most_computed, self.computed)

    def start_again(self) -> None:
        """The request holds nothing any more."""
        self.computed = self.most_computed = self.scheduled = self.lookahead = self.encoder_tokens = 0
        self.attached = 0
        self.arriving, self.started, self.ran = None, False, None
        self.waiting.clear()
        self.rings.clear()
        for per_group in (*self.drafts, *self.states):
            per_group.clear()
        for row in self.rows:
            row.clear()


class EngineState:
    """The state that all parts of the engine share."""

    def __init__(
        self,
        shape: Shape,
        new_memory: Callable[[Shape], Memory] = ListMemory,
        *,
        losses: Collection[str] = (),
        designs: Collection[str] = (),
    ) -> None:
        """`new_memory` makes the memory for tags; `losses`: what the target is known for (`targets.base.losing`);
        `designs`: what it does otherwise than most (`targets.base.designs_of`)."""
        self.shape = shape
        self.memory = new_memory(shape)
        self.losses = frozenset(losses)
        self.designs = frozenset(designs)
        self._exchanges = EXCHANGES in self.designs
        self.reached: Counter[str] = Counter()
        self.rules = rules_with(shape, self.designs)
        self._gaps = any(has_gap(rule) for rule in self.rules)
        self._keeps_states = any(isinstance(rule, Mamba) for rule in self.rules)
        self._compressed = any(isinstance(rule, Compressed) for rule in self.rules)
        self._attention = [(g, rule) for g, rule in enumerate(self.rules) if not isinstance(rule, Mamba)]
        """Groups whose queries read keys and values."""
        self._requests: dict[str, EngineRequest] = {}
        self._numbers: dict[Hashable, int] = {}
        self._draft_numbers = count(-1, -1)
        self._states_of_this_step: set[tuple[int, int]] = set()
        self._shown: Snapshot | None = None  # as the last operation left it

    def _number(self, what: Hashable) -> int:
        return self._numbers.setdefault(what, len(self._numbers) + 1)

    def _tag(self, request: EngineRequest, group: int, position: int) -> int | None:
        """The tag of a position in a group; None if its token is not known."""
        known = position < len(request.contents)
        return request.contents[position] * len(self.rules) + group if known else None

    def _tags(self, request: EngineRequest, group: int, start: int, end: int) -> list[int]:
        """The tags of positions `start .. end - 1` in a group, as far as their tokens are known."""
        tags, groups = request.tags[group], len(self.rules)
        if len(tags) < end:
            tags += [content * groups + group for content in request.contents[len(tags) : end]]
        return tags[start:end]

    def _encoder_tag(self, request: EngineRequest, group: int, position: int) -> int:
        return self._number(("encoder", request.submit.request, position)) * len(self.rules) + group

    def _expected(self, request: EngineRequest, group: int, position: int) -> int | None:
        tag = self._tag(request, group, position)
        return request.drafts[group].get(position) if tag is None else tag

    def _expected_run(self, request: EngineRequest, group: int, start: int, end: int) -> list[int | None]:
        """The tags that positions `start .. end - 1` must hold; None for positions that were never written."""
        if self.rules[group].by_encoder:
            return [self._encoder_tag(request, group, position) for position in range(start, end)]
        tags, drafts = self._tags(request, group, start, end), request.drafts[group]
        behind = range(start + len(tags), end)
        return [*tags, *[drafts.get(position) for position in behind]] if behind else list(tags)

    def _is_excused(self, loss: str) -> bool:
        """True, and counted, if the target is known for this loss."""
        if loss in self.losses:
            self.reached[f"shadow: known loss {loss}"] += 1
        return loss in self.losses

    def _describe(self, tag: int) -> str:
        if tag == POISON:
            return "what nobody wrote"
        if tag == GARBAGE:
            return "bytes that were not written together"
        if tag < 0:
            return "a draft"
        return "another content"


def first_draft(request: EngineRequest, start: int, end: int) -> int:
    """First position of the drafts in the step `start .. end - 1`; the first token of a step is never a draft."""
    return max(start + 1, min(end, len(request.contents)))


def table_text(name: str, group: int, snapshot: Snapshot) -> str:
    """A request's table, as text for a message."""
    return f"its table is {snapshot.tables[group].get(name, [])}"
