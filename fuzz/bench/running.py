"""Workloads of running requests: decode steps, reading tables, many short requests from begin to end."""

from random import Random
from typing import Any

from .workload import BLOCK, BenchPiece, BenchWorkload, Facts, fill, require, shape_of, table_facts

TOKEN = 7


class Decode(BenchWorkload):
    """Decode steps of all running requests, in whole periods of a block's tokens. One operation is one request's step.

    Parameters: `running` requests, of `shortest` to `longest` tokens at first, in steps of one token each; they start
    again, beside the clock, when they have `grown` tokens more. `periods` of a piece (1), least `pool` in blocks; with
    `batch` in one call for all requests, where the core has one.
    """

    def prepare(self) -> None:
        """See `BenchWorkload.prepare`."""
        params = self.params
        self._running = int(params["running"])
        self._longest, self._periods = int(params["longest"]), int(params.get("periods", 1))
        self._grown = max(int(params["grown"]), BLOCK * self._periods)
        blocks = -(-(self._longest + self._grown) // BLOCK) + 2
        needed = self._running * blocks * len(params.get("groups", ("full",))) + 1
        self.driver.build(shape_of(params, max(int(params.get("pool", 0)), needed)))
        self.driver.decode([])  # says so if there is no such step
        draw = Random(1)
        lengths = [draw.randint(int(params["shortest"]), self._longest) for _ in range(self._running)]
        self._prompts = [[2_000_000 + index, *range(1000, 999 + length)] for index, length in enumerate(lengths)]
        self._requests: list[Any] = []
        self._restart()

    def _restart(self) -> None:
        driver = self.driver
        driver.free(self._requests)
        driver.reset()
        self._requests = []
        for prompt in self._prompts:
            request = driver.request(f"d{self.number()}", prompt)
            fill(driver, request, len(prompt))
            self._requests.append(request)
        self._steps = 0

    def piece(self) -> BenchPiece:
        """See `BenchWorkload.piece`."""
        steps = BLOCK * self._periods
        if self._steps + steps > self._grown:
            self._restart()
        driver, requests, clock = self.driver, self._requests, self.driver.clock
        decode = driver.decode_batch if self.params.get("batch") else driver.decode
        ns = 0
        for _ in range(steps):
            driver.append(requests, TOKEN)
            begin = clock()
            refused = decode(requests)
            ns += clock() - begin
            require(refused is None, "a decode step was refused")
            driver.ran(requests, 1)
        self._steps += steps
        return BenchPiece(ns, steps * len(requests), *table_facts(driver, requests))


class Tables(Decode):
    """Reading the block ids of all running requests, as the scheduler does for the worker. Parameters as `Decode`."""

    def piece(self) -> BenchPiece:
        """See `BenchWorkload.piece`."""
        driver, requests = self.driver, self._requests
        repeats = int(self.params.get("repeats", 16))
        ns = sum(self.timed(lambda: driver.tables(requests)) for _ in range(repeats))
        return BenchPiece(ns, repeats * len(requests), *table_facts(driver, requests))


class Short(BenchWorkload):
    """Short requests, so many at a time, from lookup to release. One operation is one request.

    Parameters: `tokens` of a prompt, `steps` of decode, `together` requests at a time, `pool` blocks.
    """

    def prepare(self) -> None:
        """See `BenchWorkload.prepare`."""
        self.driver.build(shape_of(self.params, int(self.params["pool"])))
        self.driver.decode([])  # says so if there is no such step
        self._length, self._together = int(self.params["tokens"]), int(self.params["together"])

    def piece(self) -> BenchPiece:
        """See `BenchWorkload.piece`."""
        driver, clock, length = self.driver, self.driver.clock, self._length
        numbers = [self.number() for _ in range(self._together)]
        requests = [driver.request(f"s{number}", [number, *range(1, length)]) for number in numbers]
        facts: Facts = {"hit": 0}
        begin = clock()
        for request in requests:
            hit = driver.lookup(request)
            facts["hit"] += hit
            require(driver.admit(request, hit, length - hit), "a prefill was refused")
        ns = clock() - begin
        driver.ran(requests, length)
        for _ in range(int(self.params["steps"])):
            driver.append(requests, TOKEN)
            begin = clock()
            refused = driver.decode(requests)
            ns += clock() - begin
            require(refused is None, "a decode step was refused")
            driver.ran(requests, 1)
        entries, notes = table_facts(driver, requests)
        ns += self.timed(lambda: driver.free(requests))
        require(driver.reset(), "the cache could not be reset although no request runs")
        return BenchPiece(ns, len(requests), facts | entries, notes)
