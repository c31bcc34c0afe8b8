"""A whole allocation of a running request, the decision to refuse it included (T16.refusal)."""

from types import SimpleNamespace
from typing import Any, NamedTuple

from ...model import core, tables
from ...model.ops import Allocate
from ...model.state import Request
from ..bare import bare
from ..symbolic_builtins import Counted
from ..symbolic_table import SymbolicTable, count
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


def _api_settled(names: Any) -> Any:
    manager_class, blocks_class = names("KVCacheManager"), names("KVCacheBlocks")
    in_flight_is_said = has_name(names, "replay_boundaries")

    def settled(c: Any, n: Any) -> Any:
        """By how many tokens an allocation cuts windows, with `c` computed and `n` known."""
        asked: list[Any] = []
        coordinator = SimpleNamespace(
            remove_skipped_blocks=lambda request_id, tokens, **told: asked.append(tokens),
            get_num_blocks_to_allocate=lambda *arguments, **named: 1,
            most_blocks_to_allocate=lambda *arguments: 1,
            least_blocks_to_allocate=lambda *arguments: 0,
            told_of_requests=(),
        )
        manager = bare(
            manager_class,
            coordinator=coordinator,
            block_pool=SimpleNamespace(get_num_free_blocks=lambda: 0),
            max_model_len=_LONG,
            enable_caching=False,
            empty_kv_cache_blocks=blocks_class(((),)),
            _horizons={},
            _firsts={},
            _due={},
            _begins=False,
            watermark_blocks=0,
        )
        request = _Request(c, n)
        if in_flight_is_said:  # all that is computed of what is not known
            request.num_in_flight_tokens = max(0, c - n)
        assert manager.allocate_slots(request, 1) is None
        return asked[0]

    return settled


def _api_allocated(names: Any) -> Any:
    manager_class, coordinator_class = names("KVCacheManager"), names("KVCacheCoordinatorNoPrefixCache")
    blocks_class = names("KVCacheBlocks")

    def allocated(b: Any, held: Any, c: Any, n: Any, free: Any, known: Any = None, reserved: Any = 0) -> Allocated:
        b, held, c, n, free, reserved = map(count, (b, held, c, n, free, reserved))
        one = Managed(names, "full", Step(b, held=held, known=known is None, local=c, main=c + n))
        one.pool.free = free
        one.manager.enable_caching = False
        coordinator = bare(
            coordinator_class,
            single_type_managers=(one.manager,),
            block_pool=one.pool,
            _skipping_managers=[],
            keeping_states=[],
            _told_settled=[True],
            _told_start=[True],
            _counts_by_tokens=True,
            told_of_requests=(),
            retention_interval=None,
            scheduler_block_size=1,
            drop_eagle_group_ids=set(),
            num_reprefillable_tokens=0,
            steps=SimpleNamespace(note=lambda *arguments: None),
        )
        manager = bare(
            manager_class,
            coordinator=coordinator,
            block_pool=one.pool,
            max_model_len=_LONG,
            enable_caching=False,
            empty_kv_cache_blocks=blocks_class(((),)),
            _horizons={},
            _firsts={},
            _due={},
            _begins=False,
            watermark_blocks=0,
        )
        request = _Request(c, c if known is None else count(known))
        answer = manager.allocate_slots(request, n, full_sequence_must_fit=known is not None, reserved_blocks=reserved)
        return Allocated(answer is None, one.pool.taken, _length(one.after()))

    return allocated


MODEL: dict[str, Any] = {"allocated_full": _model_allocated, "settled": _model_settled}
API: dict[str, Any] = {"allocated_full": _api_allocated, "settled": _api_settled}
