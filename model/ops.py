"""Shapes, operations and outcomes: the data that the model, the targets and the traces share.

A *shape* says which core is built; an *operation* is one call that a scheduler makes on it; an *outcome* is what came
back: a value, a refusal (the pool is too full right now) or an error, of which only the kind counts. All of them are
frozen data, so that a list of operations can be stored, replayed and shrunk.

Units: lengths and counts of tokens are in tokens, ids and counts of blocks in blocks. Block 0 is the null block.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from math import lcm
from typing import Any, Literal, TypeAlias

_Most = Literal["full", "mla", "tq", "sink", "sliding", "sliding_mla", "chunked", "mamba", "cross"]
Kind = Literal[_Most, "rswa", "ring", "hosted", "resident", "hot"]
MambaMode: TypeAlias = Literal["none", "all", "align"]  #: which states a Mamba layer keeps (core.md §7)
Value: TypeAlias = "int | float | str | bool | tuple[Value, ...] | None"  #: what an outcome carries

NULL = 0  #: id of the null block (core.md §1)


class _Brief:
    """A record that is printed as the call that makes it, without fields at their default."""

    __slots__ = ()

    def __repr__(self) -> str:
        assert is_dataclass(self)
        values = ((field, getattr(self, field.name)) for field in fields(self))
        shown = ", ".join(f"{field.name}={value!r}" for field, value in values if value != field.default)
        return f"{type(self).__name__}({shown})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # what Hypothesis and IPython call
        printer.text(repr(self))


@dataclass(frozen=True, slots=True, repr=False)
class Group(_Brief):
    """Layers that share one block table and one spec. Groups with equal fields (but for `eagle`) have equal specs."""

    kind: Kind
    block_size: int
    window: int = 0  #: kinds with a window: a query attends to itself and the `window - 1` tokens before it
    chunk: int = 0  #: chunked kind: a query attends within its chunk of so many tokens
    mamba_mode: MambaMode = "none"
    speculative_blocks: int = 0  #: mamba kind: blocks set aside for states of drafts
    checkpoint: int = 0  #: mamba kind: a step leaves a state a multiple of so many tokens behind its start, too; or 0
    sink_len: int = 0  #: sink kind: tokens whose blocks are taken from the pool once and for all
    num_heads: int = 1  #: no rule reads it; it makes specs differ
    eagle: bool = False

    @property
    def spec(self) -> tuple[object, ...]:
        """What two groups must agree on to have equal specs: everything but the eagle flag."""
        return tuple(getattr(self, field.name) for field in fields(self) if field.name != "eagle")


@dataclass(frozen=True, slots=True, repr=False)
class Shape(_Brief):
    """Which core is built: its groups, its pool, its switches (core.md §§5, 9, 10)."""

    groups: tuple[Group, ...]
    num_blocks: int  #: size of the pool, the null block counted
    max_model_len: int
    hash_block_size: int  #: tokens whose content one hash names; divides every group's block size
    scheduler_block_size: int  #: multiple of all block sizes (times the parallel ranks); hits end at its multiples
    max_num_batched_tokens: int
    caching: bool = True
    eagle: bool = False
    events: bool = False
    stats: bool = False
    retention_interval: int | None = None
    decode_parallel: int = 1
    prefill_parallel: int = 1
    event_digests: bool = False  #: events name a block by its whole digest, not by a number of 64 bits
    sampling: int = 0  #: metrics follow the first of so many blocks that are handed out; 0: there is no collector
    names_junctions: bool = False  #: with drafts, a state inside a block is named where a prefix ends that others share
    watermark: int = 0  #: blocks that stay free when a request is admitted while others run
    old_names: bool = False  #: with drafts, names do not look ahead (a connector's): a hit needs what is behind it
    host_blocks: int = 0  #: blocks of the pool of the host, its null block counted, where there is one (`hosted`)
    reads_ahead: int = 1  #: tokens behind a step that draft models read, in a chain; all but one are prefilled again

    @property
    def parallel(self) -> int:
        """Context-parallel ranks: a block table entry covers the spec's block size times this many tokens."""
        return self.decode_parallel * self.prefill_parallel

    def taken(self, op: "Allocate", hit: int) -> int:
        """Tokens of a hit of so many that an allocation takes: whole blocks only, where tokens from outside follow."""
        tail = hit % self.least_scheduler_block_size if op.hit and op.external else 0
        return hit - tail if op.hit else 0

    @property
    def least_scheduler_block_size(self) -> int:
        """Smallest legal scheduler block size, in tokens."""
        return lcm(*(group.block_size * self.parallel for group in self.groups)) if self.groups else 1


@dataclass(frozen=True, slots=True)
class Item:
    """A multimodal item: its identifier and the placeholder tokens `offset .. offset + length - 1` it fills."""

    identifier: str
    offset: int
    length: int


@dataclass(frozen=True)
class Operation:
    """One call on a core: the classes below, each with what `Done` carries in return (None where it is not said)."""


@dataclass(frozen=True)
class OnRequest(Operation):
    """A call that names a request."""

    request: str


@dataclass(frozen=True)
class Submit(OnRequest):
    """A request arrives. Done(number of full hash blocks its prompt has, 0 with caching off)."""

    prompt: tuple[int, ...]
    adapter: str | None = None
    adapter_version: str = ""  #: tells weights apart that were loaded under one name, where the caller can say so
    salt: str | None = None
    items: tuple[Item, ...] = ()  #: may overlap, nest and stand in any order
    embeds: tuple[int | None, ...] | None = None  #: content of the embedding row at each position; None: the token
    skip_lookup: bool = False
    reports_hits: bool = False  #: events tell of the blocks that a lookup finds for it, too


@dataclass(frozen=True)
class Lookup(OnRequest):
    """Ask for the longest cached prefix. Done((tokens, block ids per group)); the next `Allocate` may use it."""

    limit: int | None = None  #: tokens of the longest one that may be found
    for_connector: bool = False  #: states may lag behind: a connector brings those at the end of external tokens


@dataclass(frozen=True)
class Allocate(OnRequest):
    """Reserve room for the next step. Done(new block ids per group), or Refused. The ids are asked for in the form that
    a scheduler uses, in which no new block in any group is None (`snapshot.new_ids_value`)."""

    new_tokens: int
    hit: bool = False  #: hand over the blocks of the `Lookup` just made
    lookahead: int = 0
    external: int = 0  #: tokens that come from outside (a connector) behind the hit
    delay: bool = False  #: the external tokens arrive later: register nothing now
    encoder_tokens: int = 0
    gate: bool = False  #: refuse unless the whole sequence fits (`full_sequence_must_fit`)
    reserved: int = 0
    in_flight: int = 0  #: computed tokens of steps whose outcome is not known yet: windows are not cut by them
    alone: bool = False  #: nobody else is scheduled in this step, so no blocks are kept free (`Shape.watermark`)
    unzeroed: tuple[int, ...] = ()  #: groups whose blocks for external tokens are not listed to be zeroed


@dataclass(frozen=True)
class Advance(OnRequest):
    """The step that was allocated has run: its tokens are computed, but for `rejected` drafts; `sampled` tokens follow.
    Done(number of full hash blocks known now, 0 with caching off)."""

    sampled: tuple[int, ...] = ()
    rejected: int = 0


@dataclass(frozen=True)
class Reject(OnRequest):
    """Drafts are rejected after their step was counted (asynchronous scheduling): `count` fewer tokens are computed."""

    count: int


@dataclass(frozen=True)
class Arrive(OnRequest):
    """The external tokens of a delayed allocation have arrived and are registered now (core.md §6, `cache_blocks`)."""

    missing: int = 0  #: so many of them have not, counted from the end: the load has failed there (core.md §10)


class Landed(OnRequest):
    """The oldest running step of the request has left the device, or its load has ended; also if it has gone."""


@dataclass(frozen=True)
class Free(OnRequest):
    """The request has finished or is aborted, or was never submitted. Done(ids of blocks that are kept)."""

    keep: bool = False  #: steps that still run may write its blocks: an outside holder has them, group by group


class Preempt(OnRequest):
    """The request gives its blocks back and starts again from 0 computed tokens."""


class RemoveSkipped(OnRequest):
    """Null the entries that no query from the computed tokens on attends to."""


class CommonPrefix(OnRequest):
    """Done(leading blocks shared by all running requests, per group)."""


class ReadTable(OnRequest):
    """Done(block ids per group)."""


@dataclass(frozen=True)
class AllocateBatch(Operation):
    """Several requests get room for their next step in one call: as by one `Allocate` after the other, also
    behind a refusal; copies run behind the call. Done(what each of them carries, None for a refusal)."""

    requests: tuple[str, ...]
    new_tokens: int = 1
    lookahead: int = 0
    in_flight: int = 0

    @property
    def allocations(self) -> list[Allocate]:
        """One for each request."""
        new, ahead, flight = self.new_tokens, self.lookahead, self.in_flight
        return [Allocate(name, new, lookahead=ahead, in_flight=flight) for name in self.requests]


@dataclass(frozen=True)
class Evict(Operation):
    """Forget the identity of these blocks, in use or not."""

    blocks: tuple[int, ...]


class Reset(Operation):
    """Forget every identity. Done(False) while any block is in use."""


class StepStart(Operation):
    """A scheduler step begins."""


class TakeEvents(Operation):
    """Done(events since the last call)."""


class TakeNewBlockIds(Operation):
    """Done(ids of the blocks newly handed to attention groups since the last call)."""


class TakeStats(Operation):
    """Done(prefix-cache statistics since the last call), None with statistics off; with sampling, a pair of these and
    of what became of followed blocks: seconds of life, since the last use, between the last uses."""


@dataclass(frozen=True)
class Take(Operation):
    """An outside holder (a connector) takes blocks from the pool. Done(ids)."""

    count: int


@dataclass(frozen=True)
class Touch(Operation):
    """An outside holder holds these blocks, too: one more reference for each time an id is listed."""

    blocks: tuple[int, ...]


@dataclass(frozen=True)
class Release(Operation):
    """An outside holder gives references back."""

    blocks: tuple[int, ...]
    prepend: bool = False
    watched: bool = False  #: it reads on until it is told that a block is handed out again: they are reused last


OPERATIONS: Mapping[str, type[Operation]] = {
    kind.__name__: kind for kind in (*OnRequest.__subclasses__(), *Operation.__subclasses__()) if kind is not OnRequest
}


@dataclass(frozen=True, slots=True)
class Done:
    """The call returned."""

    value: Value = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The call said "not now": there is no room."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The call raised an exception whose first built-in class has this name."""

    error: str
    cause: Any = field(default=None, compare=False, repr=False)  #: what else is known of it; no rule reads it


Outcome: TypeAlias = Done | Refused | Failed
DONE = Done()  #: of the many calls that return nothing


def error_kind(error: BaseException) -> str:
    """Name of the first built-in class of an exception: `ValueError` for every subclass of it."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")
