"""Workloads of whole prompts: lookup, allocation, release; cold, with hits, in chunks, in a full pool."""

from typing import Any

from .workload import BLOCK, BenchPiece, BenchWorkload, Facts, require, shape_of, table_facts, use_every_block


class BenchPrompts(BenchWorkload):
    """Some requests a piece, one after the other. One operation is one block of a prompt, or one request.

    Parameters: `tokens` of a prompt; `shared` tokens of it that all prompts begin with, cached before the first piece;
    `chunk` tokens of a step (0: one step); `requests` of a piece; `pool` blocks; `timed`: which of `lookup`,
    `allocate`, `free`, `take_events`; `full`: the pool is full of cached blocks, so that each allocation evicts; else
    no block is cached but those of the shared prompt, and every block was used before; `fresh`: each piece begins with
    a new core, no block of which was ever used; `per`: the operation, `block` or `request`.

    Where nothing but `take_events` is timed, the events of all requests of a piece are taken in one call: one request's
    take less time than a clock does, and the ratio was what the memory allocator made of it.
    """

    def prepare(self) -> None:
        """See `BenchWorkload.prepare`."""
        params = self.params
        self._length, self._shared = int(params["tokens"]), int(params.get("shared", 0))
        self._chunk = int(params.get("chunk", 0)) or self._length
        self._timed = frozenset(params["timed"])
        self._events = "take_events" in self._timed
        self._at_once = self._timed == {"take_events"}
        self._pool = int(params["pool"])
        self._full = bool(params.get("full"))
        self._common = list(range(1000, 1000 + self._shared))
        self._rest = list(range(5000, 5000 + self._length - self._shared - 1))
        self._shape = shape_of(params, self._pool, self._events)
        self.driver.build(self._shape)
        self._used = 0
        if not params.get("fresh"):
            use_every_block(self.driver, self._shape)
            if not self._full:
                self._forget()

    def piece(self) -> BenchPiece:
        """See `BenchWorkload.piece`."""
        each = int(self.params["requests"])
        groups = len(self.params.get("groups", ("full",)))
        fresh = (-(-(self._length - self._shared) // BLOCK) + 1) * each * groups
        if self.params.get("fresh"):
            self.driver.build(self._shape)
        elif not self._full and self._used + fresh + -(-self._shared // BLOCK + 1) * groups >= self._pool:
            self._forget()
        self._used += fresh
        ns, facts, notes = 0, {"hit": 0, "entries": 0}, {"blocks": 0}
        for _ in range(each):
            request = self._request()
            ns += self._prefill(request, facts)
            ns += self._end(request, facts, notes)
        if self._at_once:
            ns += self.timed(self.driver.take_events)
        operations = each * (-(-self._length // BLOCK) if self.params.get("per", "block") == "block" else 1)
        return BenchPiece(ns, operations, facts, notes)

    def _request(self) -> Any:
        number = self.number()
        prompt = [*self._common, 2_000_000 + number, *self._rest]
        return self.driver.request(f"p{number}", prompt)

    def _prefill(self, request: Any, facts: Facts) -> int:
        """Nanoseconds of lookup and allocation, as far as they are timed."""
        driver, clock = self.driver, self.driver.clock
        begin = clock()
        hit = driver.lookup(request)
        ns = clock() - begin if "lookup" in self._timed else 0
        facts["hit"] += hit
        done, allocated = 0, 0
        while done < self._length:
            step = min(self._chunk, self._length - max(hit, done))
            begin = clock()
            admitted = driver.proceed(request, step) if done else driver.admit(request, hit, step)
            allocated += clock() - begin
            require(admitted, "a prefill was refused")
            driver.ran([request], step if done else hit + step)
            done += step if done else hit + step
        return ns + (allocated if "allocate" in self._timed else 0)

    def _end(self, request: Any, facts: Facts, notes: Facts) -> int:
        """Nanoseconds of the release of this request, and of reading events, as far as they are timed."""
        driver, requests, ns = self.driver, [request], 0
        for total, new in zip((facts, notes), table_facts(driver, requests), strict=True):
            total.update({name: total[name] + count for name, count in new.items()})
        freed = self.timed(lambda: driver.free(requests))
        ns += freed if "free" in self._timed else 0
        if self._events and not self._at_once:
            ns += self.timed(driver.take_events)
        return ns

    def _forget(self) -> None:
        """Forget what is cached, and cache the shared prompt anew."""
        driver = self.driver
        require(driver.reset(), "the cache could not be reset although no request runs")
        self._used = 0
        if self._shared:
            request = self._request()
            self._prefill(request, {"hit": 0})
            driver.free([request])
        if self._events:
            driver.take_events()
