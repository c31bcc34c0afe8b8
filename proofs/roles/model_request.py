"""The model with one request in one group, as `one_request` has a manager."""

from contextlib import AbstractContextManager
from typing import Any

from ...model import core, tables
from ...model.attention import Mamba, demand
from ...model.metrics import Metrics
from ...model.ops import NULL, Allocate, Group, Shape
from ...model.state import State
from ..bare import bare
from ..claims import some
from ..solver import ProofError
from ..symbolic import running
from ..symbolic_bytes import seeing
from ..symbolic_table import IDS, SymbolicTable
from .kinds import ALIGN, kind_of
from .one_request import REQUEST, Step, candidates_below, hit_entry, made


class _Counting(State):
    """A state whose pool only counts."""

    def __init__(self, step: Step, table: Any) -> None:
        self.tables = [{REQUEST: table}]
        self.symbolic = step.symbolic
        self.free: Any = None
        """Free blocks at the start, where somebody asks."""
        self.taken: Any = 0
        self.returned: list[Any] = []
        self.identity: Any = _Identities(step.registered)
        self.metrics = Metrics(0, caching=False)

    def num_free(self) -> Any:
        """Blocks still in the queue."""
        return self.free - self.taken

    def references(self) -> Any:
        """One each: that of the table. Hits are counted by their tables."""
        return _Once(self)

    def take(self, count: Any) -> Any:
        """So many blocks; ValueError for a negative number."""
        demand(count >= 0, "ValueError")
        self.taken = self.taken + count
        if self.symbolic:
            return SymbolicTable(count, lambda i: 1, lambda i: i)
        return [1_000 + i for i in range(count)]

    def let_go(self, blocks: Any, front: bool = False) -> None:
        """Remember them."""
        self.returned.extend(blocks)

    def let_go_by_identity(self, blocks: Any) -> None:
        """Remember them."""
        self.returned.extend(blocks)


class _Identities:
    """Which blocks carry an identity: all or none."""

    def __init__(self, registered: Any) -> None:
        self.registered = registered

    def get(self, block: Any) -> None:
        """Not one that was registered in this step."""

    def __contains__(self, block: object) -> bool:
        return bool(self.registered != 0)


class _Once(list[int]):
    """Reference counts: 1 for each block that is asked for; of the others, as many are free as the state says."""

    def __init__(self, state: _Counting) -> None:
        super().__init__()
        self._state = state

    def __getitem__(self, block: Any) -> Any:
        return 1

    def count(self, value: Any) -> Any:
        """How many have none: those in the queue, and the null block."""
        return self._state.num_free() + 1 if value == 0 and self._state.free is not None else super().count(value)


def seen(**replaced: Any) -> AbstractContextManager[None]:
    """While it lasts, the model's tables see these under these names."""
    return seeing(vars(tables), replaced)


def _candidates(hit: Any, counts: list[int]) -> Any:
    return hit.marked() if isinstance(hit, SymbolicTable) else _REAL_CANDIDATES(hit, counts)


class _Real:
    """The real entries of a symbolic table, `count` of them; where they are gone through, those that are marked."""

    def __init__(self, table: SymbolicTable, count: Any) -> None:
        self._table, self._count = table, count

    def symbolic_len(self) -> Any:
        """How many."""
        return self._count

    def __getitem__(self, index: slice) -> list[Any]:
        """All of them, the last first. ProofError if there may be more than `Run.unroll`, or for another slice."""
        found: list[Any] = []
        run, table = running(), self._table
        if index != slice(None, None, -1):
            raise ProofError(f"{run.name}: real entries can be had from the end only, not as {index}")
        i = table.symbolic_len()
        while table.below(i) > 0:
            if len(found) == run.unroll:
                raise ProofError(f"{run.name}: a table has more than {len(found)} real entries: bound it")
            i = i - 1
            found.append(table[i])
        return [block for block in found if block != NULL]


def keep_tables(values: Any = ()) -> Any:
    """The model returns the added entries as a tuple, which nobody reads here."""
    return values if isinstance(values, SymbolicTable) else tuple(values)


_REAL_CANDIDATES = tables.candidates
_REAL_REAL = tables.real


class Modelled:
    """The model with one request in one group."""

    codec = IDS

    @staticmethod
    def block(number: Any, content: bytes | None = b"content") -> Any:
        """The id; what content a block has is none of the model's table's business."""
        return number

    def __init__(self, names: Any, kind: str, step: Step, table: Any = None) -> None:
        of = kind_of(kind)
        self.step, self.kind = step, kind
        held = made(step.symbolic, step.held, lambda i: 1, lambda i: i, IDS, lambda number: number)
        self.state = _Counting(step, held if table is None else table)
        self.returned = self.state.returned
        group = Group(of.name, 0, mamba_mode="align" if kind == ALIGN else "none")
        self._shape = shape = bare(
            Shape,
            groups=(group,),
            caching=True,
            num_blocks=0,
            max_num_batched_tokens=step.batched,
            max_model_len=step.max_len,
        )
        fields: dict[str, Any] = {"p": 0, "behind": 0, "sinks": False} | ({of.letter: step.size} if of.letter else {})
        self.model: Any = bare(
            core.Model,
            policy=tables.Policy(),
            rules=[bare(of.rule, group=group, shape=shape, b=step.b, **fields)],
            shape=shape,
            state=self.state,
            registered=[{REQUEST: 0} if step.known else {}],
            registered_this_step=set(),
            new_block_ids=[SymbolicTable(0, lambda i: 0, lambda i: 0) if step.symbolic else []],
        )

    def shape(self, **switches: Any) -> None:
        """Set fields of the shape."""
        for name, value in switches.items():
            object.__setattr__(self._shape, name, value)

    def hit(self) -> Any:
        """The blocks of the hit."""
        step = self.step
        return made(
            step.symbolic, step.hit, hit_entry(self.kind, step), candidates_below(step), IDS, lambda number: number
        )

    def _plan(self) -> tables.Plan:
        step = self.step
        op = Allocate(REQUEST, step.main - step.total, external=step.external, lookahead=step.lookahead)
        return tables.Plan(op, [self.hit()], step.total, step.total, step.main, step.slots)

    def _is_candidate(self, number: int) -> bool:
        return bool(self.step.first < number <= self.step.end)

    def predicted(self, gate: bool = False) -> Any:
        """What the model predicts."""
        step = self.step
        blocks = range(0 if step.symbolic else max(step.hit, step.held) + 1)
        counts = [int(not self._is_candidate(number)) for number in blocks] or self.state.references()
        with seen(candidates=_candidates, real=self._real):
            return tables.predicted(self.model, 0, self._plan(), counts, gate)

    def _real(self, blocks: Any) -> Any:
        """The real entries: of a table those that are marked, of a hit (whose marks are eviction candidates) all."""
        if not isinstance(blocks, SymbolicTable):
            return _REAL_REAL(blocks)
        if blocks is self.state.tables[0][REQUEST]:
            return _Real(blocks, blocks.marked())
        if kind_of(self.kind).rule is Mamba:
            raise ProofError("the hit of a state has null entries, too: they cannot be told from its real one here")
        return _Real(blocks, blocks.symbolic_len())

    def taken(self) -> Any:
        """What the allocation takes: new blocks, and the eviction candidates that a table holds after `attach`."""
        step, plan = self.step, self._plan()
        candidates: Any = 0
        with seen(tuple=keep_tables):
            if some(step.hit > 0, step.external > 0):
                missing = self.model.attach(0, plan)
                table: Any = self.state.tables[0][REQUEST]
                if not step.known:
                    real = isinstance(table, SymbolicTable)
                    candidates = table.marked() if real else sum(self._is_candidate(number) for number in table)
                if some(missing > 0):
                    self.model.grow(0, self.state.tables[0][REQUEST], missing)
            self.model.extend(0, plan)
        return self.state.taken + candidates

    def after(self) -> Any:
        """The table."""
        return self.state.tables[0][REQUEST]

    def null(self, computed: Any) -> None:
        """Entries out of sight become null."""
        with seen(real=lambda blocks: _Real(blocks, None) if isinstance(blocks, SymbolicTable) else _REAL_REAL(blocks)):
            self.model.null_skipped(0, REQUEST, computed)

    def grow(self, main: Any, computed: Any, settled: Any) -> None:
        """Room for so many tokens, without lookahead."""
        with seen(tuple=keep_tables):
            self.model.extend(0, self._running(main, computed, settled))

    def foreseen(self, main: Any, computed: Any, settled: Any) -> Any:
        """What the model predicts that this takes."""
        with seen(candidates=lambda blocks, counts: 0):
            return tables.states(self.model, 0, self._running(main, computed, settled), self.state.references(), False)

    def _running(self, main: Any, computed: Any, settled: Any) -> tables.Plan:
        return tables.Plan(Allocate(REQUEST, 1), [[]], computed, settled, main, main)

    def taken_so_far(self) -> Any:
        """Blocks that were new."""
        return self.state.taken
