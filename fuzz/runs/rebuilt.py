"""Block tables of a target that does not show them, made up from its answers."""

from collections.abc import Mapping

from ...model import ops
from ...model.arith import cdiv
from ...model.ops import Done, Operation, Outcome, Shape
from ...model.state import Request


class RebuiltTables:
    """Tables of full attention: the hit of the lookup that an allocation uses, and the new blocks of each."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._tables: list[dict[str, list[int]]] = [{} for _ in shape.groups]

    @staticmethod
    def follows(shape: Shape) -> bool:
        """True if the tables of such a core follow from answers: nothing is given up while a request goes on."""
        return all(group.kind in ("full", "mla", "tq") for group in shape.groups)

    def tables(self) -> list[dict[str, list[int]]]:
        """The tables, per group."""
        return [{name: list(table) for name, table in of_group.items()} for of_group in self._tables]

    def follow(self, operation: Operation, outcome: Outcome, requests: Mapping[str, Request]) -> bool:
        """Follow an answer; `requests` as they are after it. False if it does not name all blocks of a table."""
        if not isinstance(outcome, Done):
            return True
        match operation:
            case ops.Allocate(name) if name in requests:
                return self._allocated(operation, outcome, requests[name])
            case ops.Free(name) | ops.Preempt(name):
                for of_group in self._tables:
                    of_group.pop(name, None)
        return True

    def _allocated(self, operation: ops.Allocate, outcome: Done, request: Request) -> bool:
        value, count = outcome.value, len(self.shape.groups)
        if not isinstance(value, tuple) or len(value) != count:
            return False
        tokens, rows = request.hit if operation.hit and request.hit else (0, [[] for _ in range(count)])
        for group, (of_group, row, new) in enumerate(zip(self._tables, rows, value, strict=True)):
            if not isinstance(new, tuple) or not all(type(block) is int for block in new):
                return False
            size = self.shape.groups[group].block_size * self.shape.parallel
            table = of_group.setdefault(operation.request, [])
            table += [*row[: cdiv(tokens, size)], *(block for block in new if isinstance(block, int))]
            if len(table) * size < min(request.computed + request.scheduled, self.shape.max_model_len):
                return False
            if tokens % size:
                return False  # a hit that ends inside a block: it is copied, and nobody says where to
        return True
