"""Runs unmodified methods on blocks that link to each other, of which there may be any number. Trusted, as `symbolic`.

A block of the heap is an object of a subclass of the core's own block class. Its fields are read from, and written to,
functions over *references*: integers, of which `NONE` is None and every other is some block. What is trusted:

* **One reference, one object.** A link that is read is compared with None and with every block met so far on the path;
  the run forks over the answers, and only a link that is none of them makes a new object. So all objects of a path have
  different references, and Python's `is` and `is None`, on which linked lists rest, are exact.
* **Writes.** Since objects of a path are different, a write to a field of one leaves every other object as it was, met
  or not: `Heap.value` is the field of any reference, as it is now.
* **What is assumed of the fields** at first comes from `assumed`, for each reference that is met and for no other: so a
  statement about all blocks is used for finitely many, which leaves obligations without quantifiers. Assuming too
  little can only leave a theorem unproved.
* An identity (`_block_hash`) is None or not, by a fork; nothing else is known of it.

Any other field of a block raises AttributeError when it is read. How a block prints itself is not run: the text of a
message is no part of any theorem.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

import z3

from .symbolic import SymbolicBool, SymbolicInt, running, term

NONE = -1
"""The reference that is Python's None."""

LINKS = ("prev_free_block", "next_free_block")
_SORTS = {
    **dict.fromkeys(LINKS, z3.IntSort()),
    "ref_cnt": z3.IntSort(),
    "block_id": z3.IntSort(),
    "is_null": z3.BoolSort(),
    "_block_hash": z3.BoolSort(),  # has it one?
}
_OWN_POOL = "pool"
"""Where a block says whose it is, it is of the pool that asks: None stands for that."""


class Identity:
    """Some identity of a block."""


class Heap:
    """All blocks of one path. Make it inside the run: a new path begins with a new heap."""

    SORTS: ClassVar[Mapping[str, z3.SortRef]] = _SORTS
    """The fields of a block."""

    def __init__(self, kind: type, name: str, assumed: Callable[[z3.ArithRef], None]) -> None:
        """`kind`: the core's block class; `name` tells the fields of several heaps apart; `assumed` is told each
        reference that is met, once, and assumes what holds of it."""
        self._kind = _heap_kind(kind, tuple(self.SORTS))
        self._fields = {field: z3.Function(f"{field}_{name}", z3.IntSort(), sort) for field, sort in self.SORTS.items()}
        self._assumed = assumed
        self._met: dict[int, z3.ArithRef] = {}
        self._written: dict[str, dict[int, tuple[Any, Any]]] = {field: {} for field in self.SORTS}
        self.blocks: list[Any] = []
        """The objects of this path."""

    def meet(self, reference: z3.ArithRef) -> None:
        """Assume what holds of the block with this reference, unless that was done already."""
        if reference.get_id() not in self._met:
            self._met[reference.get_id()] = reference  # kept, so that the number stays its own
            self._assumed(reference)

    def block(self, reference: z3.ArithRef) -> Any:
        """The object with this reference, or None. Forks, unless it is known which."""
        reference = z3.simplify(reference)
        for block in self.blocks:
            if block.reference.eq(reference):
                return block
        if z3.is_int_value(reference) and reference.as_long() == NONE:
            return None
        self.meet(reference)
        is_none = reference == NONE
        which = [reference == block.reference for block in self.blocks]
        if running().decide(z3.Or(is_none, *which)):
            for block, is_it in zip(self.blocks, which, strict=True):
                if running().decide(is_it):
                    return block
            return None
        new: Any = object.__new__(self._kind)
        new.heap, new.reference = self, reference
        self.blocks.append(new)
        return new

    def read(self, block: Any, field: str) -> Any:
        """What the block's field holds now; a link that is read for the first time may fork."""
        _, value = self._written[field].get(id(block), (block, self._fields[field](block.reference)))
        if not isinstance(value, z3.ExprRef):
            return value
        if field in LINKS:
            value = self.block(value)
        elif field == "_block_hash":
            value = Identity() if running().decide(value) else None
        else:
            return SymbolicInt(value) if field != "is_null" else SymbolicBool(value)
        self.write(block, field, value)
        return value

    def write(self, block: Any, field: str, value: Any) -> None:
        """Let the block's field hold this."""
        self._written[field][id(block)] = block, value

    def before(self, field: str, reference: z3.ArithRef) -> Any:
        """The term of a field at first."""
        return self._fields[field](reference)

    def value(self, field: str, reference: z3.ArithRef) -> Any:
        """The term of a field now, for any reference."""
        result = self._fields[field](reference)
        for block, value in self._written[field].values():
            result = z3.If(reference == block.reference, self._term(field, value), result)
        return result

    def _term(self, field: str, value: Any) -> Any:
        if field in LINKS:
            return z3.IntVal(NONE) if value is None else value.reference
        return z3.BoolVal(value is not None) if field == "_block_hash" else term(value)


@cache
def _heap_kind(kind: type, fields: tuple[str, ...]) -> type:
    """The core's block class, with its fields on a heap."""

    def on_heap(field: str) -> property:
        def read(block: Any) -> Any:
            return block.heap.read(block, field)

        def write(block: Any, value: Any) -> None:
            block.heap.write(block, field, value)

        return property(read, write)

    def show(block: Any) -> str:
        return f"block {block.reference}"

    owned: dict[str, Any] = {_OWN_POOL: None} if hasattr(kind, _OWN_POOL) else {}
    members = {
        "__slots__": ("heap", "reference"),
        "__repr__": show,
        **{field: on_heap(field) for field in fields},
        **owned,
    }
    return type(f"Heap{kind.__name__}", (kind,), members)
