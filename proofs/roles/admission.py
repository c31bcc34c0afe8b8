"""A whole allocation of a running request, the decision to refuse it included (T16.refusal)."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

from ...model import core, tables
from ...model.ops import Allocate
from ...model.state import Request
from ..bare import bare
from ..symbolic import SymbolicInt
from ..symbolic_builtins import Counted
from ..symbolic_table import SymbolicTable, count
from ..theorem import UnavailableError
from ..wrong_code import with_line
from .hits import has_name
from .model_request import Modelled, keep_tables, seen
from .one_request import REQUEST, Managed, Step


class Allocated(NamedTuple):
    """What came of an allocation."""

    refused: bool
    taken: Any
    length: Any
    """Entries of the table."""


_LONG = 10**9
"""The most tokens of a request, longer than any here."""


def _length(table: Any) -> Any:
    return table.symbolic_len() if isinstance(table, SymbolicTable) else len(table)


def _model_allocated(b: Any, held: Any, c: Any, n: Any, free: Any, known: Any = None, reserved: Any = 0) -> Allocated:
    """Full attention, caching off as far as registering goes; with the gate where `known` tokens are said, all that the
    request has."""
    b, held, c, n, free, reserved = map(count, (b, held, c, n, free, reserved))
    one = Modelled(None, "full", Step(b, held=held, known=known is None, local=c, main=c + n, max_len=_LONG))
    one.shape(caching=False)
    one.state.free = free
    tokens = Counted(c if known is None else count(known))
    one.model.requests = {REQUEST: bare(Request, computed=c, hit=None, tokens=tokens)}
    operation = Allocate(REQUEST, n, gate=known is not None, reserved=reserved)
    try:
        with seen(tuple=keep_tables):
            one.model.allocate(operation)
    except core.Refusal:
        return Allocated(True, one.state.taken, _length(one.after()))
    return Allocated(False, one.state.taken, _length(one.after()))


def _model_settled(c: Any, n: Any) -> Any:
    """Those of `c` computed tokens that cannot be taken back; the request knows `n`."""
    return tables.settled(bare(Request, tokens=Counted(n)), c)


class _Request:
    """What `allocate_slots` reads of a request."""

    request_id = REQUEST
    status = None
    num_in_flight_tokens: Any = 0

    def __init__(self, computed: Any, known: Any) -> None:
        self.num_computed_tokens = computed
        self.num_tokens = self.num_prompt_tokens = known


class _Core:
    """A core's manager with one request in one group: their real methods over a pool that only counts, and the steps of
    this core as its coordinator makes them, if it has any."""

    def __init__(self, names: Any, one: Managed, caching: bool = False) -> None:
        self._one = one
        one.manager.enable_caching = caching
        coordinator = bare(
            names("KVCacheCoordinatorNoPrefixCache"),
            single_type_managers=(one.manager,),
            block_pool=one.pool,
            max_model_len=_LONG,
            _skipping_managers=[one.manager] if getattr(one.manager, "may_skip", False) else [],
            keeping_states=[],
            _told_settled=[True],
            _told_start=[True],
            _counts_by_tokens=getattr(one.manager, "counts_by_tokens", True),
            told_of_requests=(),
            retention_interval=None,
            scheduler_block_size=1,
            drop_eagle_group_ids=set(),
            num_reprefillable_tokens=0,
        )
        self.manager = bare(
            names("KVCacheManager"),
            coordinator=coordinator,
            block_pool=one.pool,
            max_model_len=_LONG,
            enable_caching=caching,
            empty_kv_cache_blocks=names("KVCacheBlocks")(((),)),
            _horizons={},
            _firsts={},
            _due={},
            watermark_blocks=0,
        )
        if hasattr(coordinator, "running_steps"):
            steps = coordinator.steps = self.manager._steps = coordinator.running_steps(None)
            self.manager._begins = steps.known and steps.begins

    def allocated(self, *given: Any, **named: Any) -> Allocated:
        """What comes of `allocate_slots`."""
        answer = self.manager.allocate_slots(*given, **named)
        return Allocated(answer is None, self._one.pool.taken, _length(self._one.after()))


def _api_settled(names: Any) -> Any:
    in_flight_is_said = has_name(names, "replay_boundaries")

    def settled(c: Any, n: Any) -> Any:
        """By how many tokens an allocation cuts windows, with `c` computed and `n` known; a first step cuts none."""
        asked: list[Any] = []
        one = Managed(names, "sliding", Step(1, 1))
        one.has_no_table()
        one.pool.free = 0
        core = _Core(names, one)
        vars(core.manager.coordinator).update(
            remove_skipped_blocks=lambda request_id, tokens, **told: asked.append(tokens),
            get_num_blocks_to_allocate=lambda *arguments, **named: 1,
        )
        request = _Request(c, n)
        if in_flight_is_said:  # all that is computed of what is not known
            request.num_in_flight_tokens = max(0, c - n)
        assert core.allocated(request, 1).refused
        return asked[0] if asked else 0

    return settled


def _api_allocated(names: Any) -> Any:
    def allocated(b: Any, held: Any, c: Any, n: Any, free: Any, known: Any = None, reserved: Any = 0) -> Allocated:
        b, held, c, n, free, reserved = map(count, (b, held, c, n, free, reserved))
        one = Managed(names, "full", Step(b, held=held, known=known is None, local=c, main=c + n))
        one.pool.free = free
        if known is not None and not isinstance(held, SymbolicInt):
            one.has_no_table()
        request = _Request(c, c if known is None else count(known))
        gate = {"full_sequence_must_fit": known is not None, "reserved_blocks": reserved}
        return _Core(names, one).allocated(request, n, **gate)

    return allocated


class Beginning(NamedTuple):
    """A first step, in tokens, and in blocks those of a hit, of which some are eviction candidates (`Step`)."""

    b: Any
    n: Any
    lookahead: Any
    batched: Any
    """Most tokens of one step."""
    known: Any
    """Tokens of the request."""
    whole: Any
    """Whether all of these must find room."""
    free: Any
    reserved: Any
    w: Any = 1
    hit: Any = 0
    first: Any = 0
    end: Any = 0


def _that_begins(names: Any) -> Any:
    """The names. UnavailableError for a core that takes no first step at once."""
    if not hasattr(names("KVCacheCoordinatorNoPrefixCache"), "running_steps"):
        raise UnavailableError("no first step is taken at once")
    return names


def _api_begun(names: Any) -> Any:
    _that_begins(names)

    def begun(kind: str, told: Beginning, at_once: bool, wrong: Sequence[str] = ()) -> tuple[Any, ...]:
        """What comes of it in a group of this kind: whether it is refused, blocks that are taken, entries of the table,
        and how many are registered; as `begin` does it, or the long way. `wrong`: a method of the steps, a line of
        it, and what stands there instead."""
        b, n, lookahead, batched, known, _, free, reserved, w, hit, first, end = map(count, told)
        step = Step(
            b, w, hit=hit, first=first, end=end, local=hit * b, main=hit * b + n, batched=batched, max_len=_LONG
        )
        one = Managed(names, kind, step)
        one.has_no_table()
        one.cap()
        one.pool.free = free
        core = _Core(names, one, caching=True)
        core.manager._begins &= at_once
        hits = names("KVCacheBlocks")((one.hit(),))
        gate = {"full_sequence_must_fit": told.whole, "reserved_blocks": reserved, "delay_cache_blocks": True}
        with with_line(type(core.manager._steps).__mro__, *wrong) if wrong else nullcontext():
            done = core.allocated(_Request(0, known), n, step.local, hits, lookahead, **gate)
        return (*done, one.manager.num_cached_block.get(REQUEST, 0))

    return begun


MODEL: dict[str, Any] = {"allocated_full": _model_allocated, "settled": _model_settled}
API: dict[str, Any] = {
    "core_that_begins": _that_begins,
    "begun": _api_begun,
    "allocated_full": _api_allocated,
    "settled": _api_settled,
}
