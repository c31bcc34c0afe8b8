"""What an allocation is predicted to take, what it takes, and what tables hold meanwhile (T3, T7, T15, T16)."""

from collections.abc import Callable
from typing import Any, NamedTuple

from ...model import arith, tables
from ...model.ops import NULL
from ...model.state import State
from ..bare import bare
from ..claims import every
from ..symbolic_table import SymbolicTable, count, pick
from .kinds import STATES
from .model_request import Modelled
from .one_request import KINDS, Managed, Step, made


def _step(step: Step) -> Step:
    return Step(*(value if isinstance(value, bool) else count(value) for value in step))


def _roles(names: Any, one: Any) -> dict[str, Callable[..., Any]]:
    """The roles that are about allocations; `one` makes a manager, or a model, with one request."""
    roles: dict[str, Callable[..., Any]] = {}
    for kind in KINDS:
        roles[f"predicted_{kind}"] = lambda step, kind=kind: one(names, kind, _step(step)).predicted()
        roles[f"gate_{kind}"] = lambda step, kind=kind: one(names, kind, _step(step)).predicted(gate=True)
        roles[f"taken_{kind}"] = lambda step, kind=kind: one(names, kind, _step(step)).taken()
        roles[f"nulled_{kind}"] = lambda *numbers, kind=kind: _nulled(_Kind(names, one, kind), *numbers)
    roles["nulled_open"] = lambda *numbers: _nulled(_Kind(names, one, STATES, True), *numbers)
    roles["states"] = lambda *numbers: _states(_Kind(names, one, "align"), *numbers)
    return roles


class Table:
    """A block table of a core, as ids."""

    def __init__(self, one: Any, table: Any) -> None:
        self.table = table
        self.write = one.codec.write

    @property
    def length(self) -> Any:
        """Entries."""
        return self.table.symbolic_len() if isinstance(self.table, SymbolicTable) else len(self.table)

    @property
    def real(self) -> Any:
        """Entries that are not null (where the marks of a symbolic table stand for that)."""
        if isinstance(self.table, SymbolicTable):
            return self.table.marked()
        return sum(self.write(block) != NULL for block in self.table)

    def __getitem__(self, index: Any) -> Any:
        """The id at an index; 0, as for null, outside."""
        if isinstance(self.table, SymbolicTable):
            return pick(every(index >= 0, index < self.length), self.table.entry(index), 0)
        return self.write(self.table[index]) if 0 <= index < len(self.table) else NULL


class Nulled(NamedTuple):
    """After entries were nulled."""

    table: Table
    """An id is the index plus one."""
    returned: list[Any]
    """Ids given back, in this order."""


class _Kind(NamedTuple):
    """One kind of attention of one core."""

    names: Any
    """The core's names; None for the model."""
    one: Any
    """Makes a manager, or a model, with one request."""
    kind: str
    noted: bool = False
    """Whether it knows how many entries of a table are null."""


def _nulled(of: _Kind, b: Any, size: Any, length: Any, nulls: Any, c: Any, registered: Any) -> Nulled:
    """Null what is out of sight with `c` tokens computed, in a table of `length` entries, the first `nulls` null.

    `registered`: do its blocks carry an identity?
    """
    step = _step(Step(b, size, known=True, held=length))
    carries = bool(registered)

    def block(number: Any) -> Any:
        return of.one.block(number, b"content" if carries else None)

    codec = of.one.codec._replace(read=lambda number: block(0 if number == 0 else number))
    table = made(
        step.symbolic,
        step.held,
        lambda i: pick(i < nulls, 0, i + 1),
        lambda i: pick(i <= nulls, 0, i - nulls),
        codec,
        block,
    )
    subject = of.one(of.names, of.kind, step, table)
    if of.noted:
        subject.note_nulls(count(nulls))
    subject.null(count(c))
    return Nulled(Table(of.one, subject.after()), [codec.write(block) for block in subject.returned])


class Held(NamedTuple):
    """A request in align mode before a step."""

    b: Any
    p: Any
    marks: tuple[Any, ...]
    """Of each entry of its table, 1 if it holds a state."""
    registered: Any
    """0 if none of these carries an identity."""


class Arranged(NamedTuple):
    """The same after the step."""

    table: Table
    """The id of a block that was there is its old index plus one."""
    foreseen: Any
    """Blocks that it was predicted to take, and took."""
    taken: Any


def _states(of: _Kind, held: Held, settled: Any, computed: Any, main: Any) -> Arranged:
    """A step from `computed` to `main` tokens of a running request: null, predict, allocate."""
    step = _step(Step(held.b, held.p, known=True, held=len(held.marks), registered=held.registered))
    marks = [count(mark) for mark in held.marks]

    def entry(i: Any) -> Any:
        found: Any = 0
        for place, mark in enumerate(marks):
            found = pick(every(i == place, mark != 0), place + 1, found)
        return found

    def below(i: Any) -> Any:
        return sum([pick(every(place < i, mark != 0), 1, 0) for place, mark in enumerate(marks)], start=0)

    def block(number: Any) -> Any:
        return of.one.block(number, b"content" if step.registered != 0 else None)

    codec = of.one.codec._replace(read=lambda number: block(0 if number == 0 else number))
    table = made(step.symbolic, step.held, entry, below, codec, block)
    subject = of.one(of.names, of.kind, step, table)
    subject.null(count(settled))
    numbers = count(main), count(computed), count(settled)
    foreseen = subject.foreseen(*numbers)
    subject.grow(*numbers)
    return Arranged(Table(of.one, subject.after()), foreseen, subject.taken_so_far())


# Eviction candidates, on real blocks.


class _Queue:
    """A free queue that counts what is taken out of it."""

    def __init__(self) -> None:
        self.removed = 0

    def remove(self, block: Any) -> None:
        """One block leaves it."""
        self.removed += 1


def _model_touched(nulls: Any, held: Any) -> tuple[Any, Any]:
    """Candidates counted among the blocks of a hit, and blocks that leave the free queue when a table holds it."""
    state = State(len(held) + 1, 1)
    state.outside = [block for block, other in enumerate(held, 1) if other]
    hit = [NULL if null else block for block, null in enumerate(nulls, 1)]
    counted, before = tables.candidates(hit, state.references()), state.num_free()
    state.tables[0]["request"] = hit
    return counted, before - state.num_free()


def _api_touched(names: Any) -> Callable[..., tuple[Any, Any]]:
    manager, pool_class, block_class = names("FullAttentionManager"), names("BlockPool"), names("KVCacheBlock")

    def touched(nulls: Any, held: Any) -> tuple[Any, Any]:
        blocks = [block_class(number) for number in range(len(held) + 1)]
        null = blocks[0]
        null.is_null = True
        hit = [null if is_null else block for block, is_null in zip(blocks[1:], nulls, strict=True)]
        for block, other in zip(blocks[1:], held, strict=True):
            block.ref_cnt = int(bool(other))
        queue = _Queue()
        own = "_made" if isinstance(getattr(pool_class, "blocks", None), property) else "blocks"
        pool = bare(
            pool_class,
            **{own: blocks},
            _num_shared=0,
            num_gpu_blocks=len(blocks),
            null_block=null,
            free_block_queue=queue,
            metrics_collector=None,
        )
        counted = manager._get_num_evictable_blocks(hit)
        pool.touch(hit)
        return counted, queue.removed

    return touched


MODEL: dict[str, Any] = {
    **{role: bound for role, bound in _roles(None, Modelled).items() if role != "nulled_open"},
    "missing_blocks": arith.missing_blocks,
    "touched": _model_touched,
}


def _api_role(role: str) -> Callable[[Any], Callable[..., Any]]:
    return lambda names: _roles(names, Managed)[role]


def _missing_blocks(names: Any) -> Callable[..., Any]:
    """What a running request of full attention is predicted to take, with blocks of one token."""

    def missing(required: Any, present: Any) -> Any:
        step = Step(1, held=present, known=True, local=required, main=required, slots=required)
        return Managed(names, "full", _step(step)).predicted()

    return missing


API: dict[str, Any] = {
    **{role: _api_role(role) for role in _roles(None, Managed)},
    "touched": _api_touched,
    "missing_blocks": _missing_blocks,
}
