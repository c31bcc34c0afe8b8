"""Checks of what a core tells besides its outcomes (S16): states that it offers to a connector, what it keeps for one
who writes on in it, blocks of which one who reads on is told, and what is computed of a table that is read.
"""

from collections.abc import Iterator
from typing import Any

from ....model import ops
from ....model.arith import cdiv
from ....model.attention import Mamba
from ....model.ops import NULL, Done
from .moves import Move
from .properties import Break
from .run_record import RunRecord
from .tracked import Tracked

_HANDS_OUT = (ops.Allocate, ops.AllocateBatch, ops.Take)


class Told:
    """Judges what is told."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self._watched: dict[int, None] = {}
        """Blocks that somebody reads who holds them no more."""

    def check(self, move: Move) -> None:
        """S16 for one operation, whose effect is recorded."""
        operation, record = move.operation, self.record
        self._check_watched(move)
        if not isinstance(move.outcome, Done):
            return
        match operation:
            case ops.Release(blocks, _, True):
                self._watched.update(dict.fromkeys(blocks))
            case ops.Free(keep=True):
                tables = move.before.tables
                held = tuple(block for table in tables for block in table.get(move.name, ()) if block != NULL)
                if move.outcome.value != held:
                    what = f"{move.name} held {held}, and {move.outcome.value} is said to be kept"
                    raise Break("S16", what, "kept another")
                record.reached["contract: S16 of kept blocks"] += bool(held)
            case ops.ReadTable() if move.request is not None and move.told:
                self._check_read(move, move.request)
            case ops.Allocate() | ops.Free():
                self._check_offers(move)

    def _check_watched(self, move: Move) -> None:
        """Who reads a block on is told in the operation in which it is handed out again, or all is forgotten."""
        if not self._watched:
            return
        operation, gone = move.operation, list[int]()
        if isinstance(operation, _HANDS_OUT):
            taken = {*move.taken, *(target for _, target in move.copies)}
            gone = [block for block in self._watched if block in taken]
        elif isinstance(operation, ops.Reset) and move.outcome == Done(True):
            gone = [*self._watched]
        told = [one for one in move.told if type(one) is int] if isinstance(operation, (*_HANDS_OUT, ops.Reset)) else []
        if sorted(told) != sorted(gone):
            what = f"of the blocks {[*self._watched]} that somebody reads on {gone} are gone, and he is told of {told}"
            raise Break("S16", what, "reader untold")
        self.record.reached["contract: S16 of watched blocks"] += bool(gone)
        for block in gone:
            del self._watched[block]

    def _check_read(self, move: Move, request: Tracked) -> None:
        """The free blocks behind the one that is reused next, what is computed of a table, group by group, and how many
        tokens are cached."""
        free, *rows, cached = move.told
        rules, behind = self.record.rules, tuple(move.after.free[1:])
        if self.record.shows("free") and free != behind:
            what = f"{move.name}: free behind the next block are {behind}, and {free} is told"
            raise Break("S16", what, "other free blocks")
        for group, rule in enumerate(rules):
            table = move.after.tables[group].get(move.name, [])
            every = isinstance(rule, Mamba) or rule.by_encoder
            computed = tuple(table if every else table[: cdiv(request.computed, rule.group.block_size)])
            if len(rows) != len(rules) or rows[group] != computed:
                what = f"{move.name}, group {group}: {move.told} is told of {table}, with {request.computed} computed"
                raise Break("S16", what, "another part")
        if not isinstance(cached, int) or not 0 <= cached <= len(request.contents):
            raise Break(
                "S16", f"{move.name}: {cached} of {len(request.contents)} tokens are said to be cached", "cached"
            )
        self.record.reached["contract: S16 of computed blocks"] += 1

    def _check_offers(self, move: Move) -> None:
        """A state is offered once in an operation, and is the one that it is said to be."""
        offers: list[Any] = [one for one in move.told if isinstance(one, tuple)]
        if len({*offers}) < len(offers):
            raise Break("S16", f"{move.name}: a state is offered twice: {offers}", "offered twice")
        for problem in self._wrong(move, offers):
            raise Break("S16", f"{move.name}: the offers {offers}: {problem}", "another state offered")
        self.record.reached["contract: S16 of offered states"] += bool(offers)

    def _wrong(self, move: Move, offers: list[Any]) -> Iterator[str]:
        record = self.record
        copied = {target: source for source, target in move.copies}
        for name, group, block, tokens in offers:
            rule, request = record.rules[group], move.request if name == move.name else record.requests.get(name)
            if not isinstance(rule, Mamba) or request is None:
                yield f"group {group} keeps no state of {name}"
            elif not 0 < tokens <= len(request.contents):
                yield f"{tokens} tokens of {len(request.contents)}"
            elif tokens % rule.b == 0 and record.key(request, group, tokens // rule.b - 1) not in (
                record.content[block],
                record.content[copied.get(block, block)],
            ):
                yield f"block {block} does not hold the state of {tokens} tokens"
