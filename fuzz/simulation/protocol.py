"""What an engine shows to be simulated: its own scheduler runs, its clients and its device are ours.

An author writes `start`, `add`, `cancel`, `schedule`, `update` and `idle`. The driver repeats: requests come and go,
`schedule` says what the next step computes, the device computes it, `update` takes what was sampled. What an engine has
beside that is found by the presence of a method (`OPTIONAL`) or declared by an attribute (`DECLARED`). What a batch
does not show is not judged, and the report says so.

Lengths and positions are in tokens. A slot is where one token's keys and values of one group lie, a number; a state of
a group of Mamba layers lies in a slot, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from ...model.ops import Group, Item, Shape, Value

Ended: TypeAlias = Literal["", "stop", "length", "refused", "failed", "cancelled"]
"""Why a request ends: a token of its `stop` was sampled; it has all its tokens; it can never be served; something went
wrong with it; its client went away. Empty: it goes on."""

OFFERS: Mapping[str, str] = {
    "drafts": "tokens proposed by `StepResults.drafts` are computed ahead, and judged by the device",
    "priorities": "`ClientRequest.priority` is obeyed",
    "adapters": "`ClientRequest.adapter` is obeyed",
    "versions": "adapters are loaded anew under their names: `ClientRequest.adapter_version` tells their weights apart",
    "items": "`ClientRequest.items` (images and the like) are obeyed",
    "salts": "`ClientRequest.salt` keeps requests apart in the prefix cache",
    "external": "the first `ClientRequest.external` tokens can come from outside (`SlotTransfer.request`)",
    "failures": "a transfer may fail",
}
"""What an engine may name in its attribute `offers`; what is not named is not asked of it."""

LACKS: Mapping[str, str] = {
    "cancel": "clients never go away: it needs no method `cancel`",
    "stops": "requests have no stop tokens",
    "ids": "the engine itself names requests: no name is used again",
    "uncached": "its prefix cache cannot be switched off",
}
"""What an engine may name in its attribute `lacks`: it is not asked of it then."""

OPTIONAL: Mapping[str, str] = {
    "reset": "reset() forgets the prefix cache; what runs goes on",
    "reweigh": "reweigh() says that the model has new weights: nothing computed before may be used again",
    "pause": "pause(id) parks a request, as when its grammar is not ready; resume(id) lets it go on",
    "resume": "see pause",
    "fork": "fork(id, new): a new request that begins with all tokens of the other one that were delivered",
    "truncate": "truncate(id, length, then): `then` replaces its tokens from position `length` on, and it goes on, "
    "or ends by what is returned, as from add()",
    "look": "look() returns an EngineView",
    "objections": "objections() returns what the engine's own checks object to since the last call, as `RULE: words`",
    "counts": "counts() returns numbers of what the engine has reached, by name, for the report",
    "tiers": "tiers() says after each start which lower tiers there are: a LowerTier for each `SlotTransfer.tier`",
    "tier_events": "tier_events() returns what was done with them since the last call, a TierEvent each",
    "network": "network() says after each start what lies between the halves of a pair: a Network (`pair`)",
    "close": "close() ends what was started",
}
"""Methods that an engine may have."""

DECLARED: Mapping[str, object] = {
    "name": "engine",
    "version": "",
    "depth": 1,
    "offers": frozenset(),
    "lacks": frozenset(),
    "options": {},
    "options_of": {},
    "attention": ("full",),
    "block_sizes": (1, 2, 4, 8, 16),
    "unequal_blocks": False,
    "mamba_modes": ("none", "all", "align"),
    "own_blocks": 0,
    "floors": {},
    "separate_pools": False,
    "reads_first": False,
    "samples": False,
    "survives": frozenset(),
    "workers": 1,
}
"""Attributes that an engine may have, and what is assumed without them; read again after each `start`.

* `depth`: the most steps in flight: 1, 2 (one behind), or n.
* `options`: by name the values to try, as in `{"asynchronous": (False, True)}`, the plainest first;
  `EngineShape.options` has one of each.
* `options_of`: more options that only mean something beside one value of another, by that as in `"store=disk"`.
* `attention`: what groups of layers it is tried with, as in `("full", "full+sliding")`; `block_sizes`: in tokens.
* `unequal_blocks`: groups may have blocks of different sizes; `mamba_modes`: which states Mamba layers keep.
* `own_blocks`: how many blocks of the pool no request gets, such as a null block.
* `floors`: what a run must have reached at least by 2,000 steps, by name, beside what every engine must.
* `separate_pools`: equal slots of two groups are two places; else all groups share one memory, as pages do.
* `reads_first`: a step reads old tokens before it writes new ones; else it writes first, as paged attention does.
* `samples`: its own worker computes and samples; results carry no tokens, and the same engine serving each request
  alone says what is right.
* `survives`: what may become of the reports of transfers (`reports.SURVIVES`).
* `workers`: how many report the end of each transfer, one for itself, by `StepResults.by_worker`.
"""


@dataclass(frozen=True)
class EngineShape:
    """What engine is built: the core's shape and its limits, and the options that were drawn."""

    core: Shape
    """Groups of layers, `num_blocks` of the pool (ids 0 to num_blocks - 1), `max_model_len`, `max_num_batched_tokens`
    of a step, `caching` (prefixes are kept)."""
    max_requests: int = 8
    """The most requests that run at once."""
    drafts: int = 0
    """The most drafts of a request in a step."""
    options: Mapping[str, Value] = field(default_factory=dict)
    """An engine gets all of its own; in a story one that is left out has its first value."""

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups of layers."""
        return self.core.groups

    @property
    def num_blocks(self) -> int:
        """Blocks of the pool."""
        return self.core.num_blocks

    @property
    def max_length(self) -> int:
        """The most tokens of a request, prompt and answer."""
        return self.core.max_model_len

    @property
    def max_tokens(self) -> int:
        """The most tokens of a step."""
        return self.core.max_num_batched_tokens


@dataclass(frozen=True)
class ClientRequest:
    """What a client asks for."""

    id: str
    """May be used again once the request of this name has ended."""
    prompt: tuple[int, ...]
    max_tokens: int
    """It ends with `length` after so many tokens of an answer, or when it has `max_length` in all."""
    stop: tuple[int, ...] = ()
    """It ends with `stop` behind one of these, which is delivered, too."""
    priority: int = 0
    """The smaller, the earlier."""
    adapter: str | None = None
    adapter_version: int = 0
    """Of the weights that the adapter's name means when the request arrives."""
    salt: str | None = None
    items: tuple[Item, ...] = ()
    external: int = 0
    """So many of its first tokens can come from outside."""


@dataclass(frozen=True)
class Slots:
    """Where the tokens of one request lie in one group of layers.

    With a table, position p lies in slot p % b of block table[p // b], b being the group's block size; None is a block
    that is not there. Without, `at` says the slot of each position that is read or written: rings, pools in tokens.
    `written` is where the step's own tokens go, if that is not where `at` or the table says. Of Mamba layers the table
    has the blocks of states, and the model's rule says which are read and written; or `at` says it by the number of
    tokens that the state has seen: that before the step is read, the others are written.
    """

    table: Sequence[int | None] = ()
    at: Mapping[int, int] | None = None
    written: Mapping[int, int] | None = None


@dataclass(frozen=True)
class Scheduled:
    """One request's part of a step."""

    request: str
    first: int | None
    """Position of the first token that is computed; None: the one behind what the device has computed, drafts that
    were rejected left out, as where steps with drafts are in flight."""
    count: int
    """How many tokens are computed, drafts among them."""
    drafts: tuple[int, ...] = ()
    """The last of them that are not known yet; -1: the device takes the one that it proposed itself."""
    slots: tuple[Slots, ...] | None = None
    """For each group; None: not shown."""
    tokens: tuple[int, ...] | None = None
    """What the worker would be given; -1 where it is sampled by a step in flight. None: not shown."""
    samples: bool | None = None
    """True if a token is sampled behind its last one; None: if all tokens that the device knows of it end there. Say so
    where results of steps in flight may be dropped: then their tokens are sampled again."""
    begins: bool = False
    """True in its first step, also behind a preemption; needed only for states of drafts."""


@dataclass(frozen=True)
class SlotCopy:
    """Copy a whole block of a group onto another one before the step computes; with `tokens` only its first ones.
    Where slots are told by `at`, `source` and `target` are slots."""

    group: int
    source: int
    target: int
    tokens: int | None = None


@dataclass(frozen=True)
class SlotTransfer:
    """Slots that are loaded or stored beside the steps, between the device and another memory, named by its `tier`.

    A store begins when the step of its batch has run, a load before that. Its end is told by `StepResults.transferred`.
    With `now` it is over before the step computes, in the order of the batch, and not told. A load of `request` comes
    from outside, with the right content of these positions.
    """

    id: str
    kind: Literal["load", "store"]
    group: int
    device: tuple[int, ...]
    """Slots on the device; block b of a table has those from b * w on, w being the largest block size of all groups."""
    tier: str = "host"
    other: tuple[int, ...] = ()
    """Slots in the other memory, one for each."""
    above: str = ""
    """The tier in which `device` are slots, where a block goes from one tier to a lower one (a store) or comes up from
    there (a load); empty: the device."""
    request: str = ""
    positions: tuple[int, ...] = ()
    """Of `request`, one for each."""
    now: bool = False
    kept: bool = False
    """What begins a block that is stored must stay there until the end; who goes on behind it is free to."""
    fails: bool = False
    """Nobody is there from where it loads."""


@dataclass(frozen=True)
class Delivered:
    """What a client gets."""

    request: str
    tokens: tuple[int, ...] = ()
    ended: Ended = ""
    why: str = ""
    """More on how it ended, for people."""


@dataclass(frozen=True)
class ScheduledBatch:
    """A step. It may compute nothing, and only tell or transfer."""

    parts: tuple[Scheduled, ...] = ()
    copies: tuple[SlotCopy, ...] = ()
    """In this order, before anything is loaded or computed."""
    transfers: tuple[SlotTransfer, ...] = ()
    delivered: tuple[Delivered, ...] = ()
    """What clients get already, such as refusals."""
    preempted: tuple[str, ...] = ()
    """Requests that were set back for it; counted only."""
    own: Any = None
    """For the engine alone: `update` gets the batch back as it is."""
    cleared: tuple[int, ...] = ()
    """Blocks that are emptied before anything is copied."""
    awaited: tuple[str, ...] = ()
    """Ids of transfers that are over before all of that, stores of the batch itself among them. Loads of the batch are
    over before it computes, and may fail: the end of both is told."""


@dataclass(frozen=True)
class StepResults:
    """What a step came to, or what has happened beside the steps."""

    tokens: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By request of the batch: accepted drafts and one token more; none where known tokens are left."""
    drafts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By request, proposals for the step behind it."""
    transferred: tuple[str, ...] = ()
    """Ids of transfers that have ended."""
    failed: tuple[str, ...] = ()
    """Ids of transfers that have failed: nothing can be said of what lies there."""
    by_worker: tuple[tuple[int, str], ...] = ()
    """With several workers, in place of `transferred`: who says that his part of which transfer is done."""


@dataclass(frozen=True)
class EngineView:
    """What an engine shows of itself between steps."""

    free: int | None = None
    """Blocks (or slots) that a new request could get, those of the prefix cache counted."""
    capacity: int | None = None
    """How many that are when nothing runs."""
    tiers: Mapping[str, int] = field(default_factory=dict)
    """How many blocks each lower tier holds."""


class PoolTooSmallError(NotImplementedError):
    """An engine does not start, since its start-up check refuses the pool: no story can show anything of it."""


class Engine(Protocol):
    """An engine without its device. Whatever a method raises is a finding."""

    def start(self, shape: EngineShape) -> None:
        """Build a new engine in place of the last one. NotImplementedError if there is none of this shape."""
        ...

    def add(self, request: ClientRequest) -> Sequence[Delivered] | None:
        """A request arrives. Returns what its client gets at once, such as a refusal."""
        ...

    def cancel(self, id: str) -> Sequence[Delivered] | None:
        """The client has gone: it is owed nothing any more."""
        ...

    def schedule(self) -> ScheduledBatch | None:
        """The next step, or None if there is nothing to do until something else happens."""
        ...

    def update(self, batch: ScheduledBatch | None, results: StepResults) -> Sequence[Delivered]:
        """The oldest step in flight has ended: what clients get. `batch` is None if only transfers have ended."""
        ...

    def idle(self) -> bool:
        """True if no request waits or runs, and nothing is transferred."""
        ...
