"""A whole allocation of a running request, the decision to refuse it included (T16.refusal)."""

from typing import Any, NamedTuple

from ...model import core
from ...model.ops import Allocate
from ...model.requests import Request
from ..symbolic_table import SymbolicTable, count
from .bare import bare
from .modelled import Modelled, keep_tables, seen
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


def _model_allocated(b: Any, held: Any, c: Any, n: Any, free: Any) -> Allocated:
    """Full attention, caching off as far as registering goes."""
    b, held, c, n, free = map(count, (b, held, c, n, free))
    one = Modelled(None, "full", Step(b, held=held, known=True, local=c, main=c + n, max_len=_LONG))
    one.shape(caching=False)
    one.state.free = free
    one.model.requests = {REQUEST: bare(Request, computed=c, hit=None, tokens=[])}
    try:
        with seen(tuple=keep_tables):
            one.model.allocate(Allocate(REQUEST, n))
    except core.Refusal:
        return Allocated(True, one.state.taken, _length(one.after()))
    return Allocated(False, one.state.taken, _length(one.after()))


class _Request:
    """What `allocate_slots` reads of a request."""

    request_id = REQUEST

    def __init__(self, computed: Any) -> None:
        self.num_computed_tokens = computed
        self.num_tokens = computed


def _api_allocated(names: Any) -> Any:
    manager_class, coordinator_class = names("KVCacheManager"), names("KVCacheCoordinatorNoPrefixCache")
    blocks_class = names("KVCacheBlocks")

    def allocated(b: Any, held: Any, c: Any, n: Any, free: Any) -> Allocated:
        b, held, c, n, free = map(count, (b, held, c, n, free))
        one = Managed(names, "full", Step(b, held=held, known=True, local=c, main=c + n))
        one.pool.free = free
        one.manager.enable_caching = False
        coordinator = bare(
            coordinator_class, single_type_managers=(one.manager,), block_pool=one.pool, _skipping_managers=[]
        )
        manager = bare(
            manager_class,
            coordinator=coordinator,
            block_pool=one.pool,
            max_model_len=_LONG,
            enable_caching=False,
            empty_kv_cache_blocks=blocks_class(((),)),
        )
        answer = manager.allocate_slots(_Request(c), n)
        return Allocated(answer is None, one.pool.taken, _length(one.after()))

    return allocated


MODEL: dict[str, Any] = {"allocated_full": _model_allocated}
API: dict[str, Any] = {"allocated_full": _api_allocated}
