"""Workloads of what is made: requests with their hashes, and pools."""

import gc

from .workload import BLOCK, BenchPiece, BenchWorkload, shape_of


class Creation(BenchWorkload):
    """Creating requests whose full blocks are hashed. One operation is one block.

    Parameters: `tokens` of a prompt, `requests` of a piece, `hash`: the name of the hash function, as users write it.
    """

    def prepare(self) -> None:
        """See `BenchWorkload.prepare`."""
        length = int(self.params["tokens"])
        self._blocks = length // BLOCK
        self.driver.build(shape_of(self.params, 64))
        prompt = [1000 + 7919 * index % 99_000 for index in range(length)]
        self._fields = self.driver.fields("made", prompt, str(self.params["hash"]))

    def digests(self) -> list[str]:
        """See `BenchWorkload.digests`."""
        return self.driver.digests(self.driver.make(self._fields))

    def piece(self) -> BenchPiece:
        """See `BenchWorkload.piece`."""
        each, make, fields = int(self.params["requests"]), self.driver.make, self._fields
        made = []
        ns = sum(self.timed(lambda: made.append(make(fields))) for _ in range(each))
        return BenchPiece(ns, each * self._blocks, {"hashes": len(self.driver.digests(made[-1]))}, {})


class Construction(BenchWorkload):
    """Building cores, the last one deleted beside the clock. One operation is one core.

    Parameters: `pool` blocks, `requests` (cores of a piece).
    """

    def prepare(self) -> None:
        """See `BenchWorkload.prepare`."""
        self._shape = shape_of({**self.params, "model_length": 8192}, int(self.params["pool"]))
        self.driver.build(self._shape)

    def piece(self) -> BenchPiece:
        """See `BenchWorkload.piece`."""
        each, ns = int(self.params["requests"]), 0
        small = shape_of({"model_length": 8192}, 8)
        for _ in range(each):
            self.driver.build(small)
            gc.collect()
            ns += self.timed(lambda: self.driver.build(self._shape))
        return BenchPiece(ns, each, {"cores": each}, {})
