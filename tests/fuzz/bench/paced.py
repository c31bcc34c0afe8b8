"""Our core as targets with a clock of their own: each call takes so many nanoseconds, however fast the machine is.

The environment variable PACED says how many percent of that the target `paced` takes; `reference` always takes all.
"""

import os

from blockproof.fuzz.adapters.impl import bind_impl, open_changed_impl
from blockproof.fuzz.adapters.vllm.driver import VllmStyleDriver
from blockproof.fuzz.adapters.vllm.style import VllmStyleTarget

COST = 1000


class Paced(VllmStyleDriver):
    """A driver whose clock stands still but for the calls of the core."""

    def __init__(self, binding, percent):
        super().__init__(binding)
        self._now, self._cost = 0, COST * percent // 100

    def clock(self):
        return self._now

    def lookup(self, request):
        self._now += self._cost
        return super().lookup(request)

    def admit(self, request, hit, tokens):
        self._now += self._cost
        return super().admit(request, hit, tokens)

    def proceed(self, request, tokens):
        self._now += self._cost
        return super().proceed(request, tokens)

    def decode(self, requests):
        self._now += self._cost * len(requests)
        return super().decode(requests)

    def free(self, requests):
        self._now += self._cost * len(requests)
        super().free(requests)


class PacedTarget(VllmStyleTarget):
    def __init__(self, percent):
        super().__init__("paced", bind_impl())
        self._percent = percent

    def driver(self):
        return Paced(bind_impl(), self._percent)


def paced():
    return PacedTarget(int(os.environ.get("PACED", "100")))


def reference():
    return PacedTarget(100)


def never_hits():
    """Its lookups find nothing: less work, and wrong."""

    def change(manager):
        manager.get_computed_blocks = lambda request: (manager.empty_kv_cache_blocks, 0)

    return open_changed_impl("never-hits", change)


def refuses():
    """It refuses every allocation."""

    def change(manager):
        manager.allocate_slots = lambda *arguments, **options: None

    return open_changed_impl("refuses", change)


def hashes_otherwise():
    """Its requests have other hashes than ours."""

    class Driver(Paced):
        def digests(self, request):
            return [digest[::-1] for digest in super().digests(request)]

    class Target(PacedTarget):
        def driver(self):
            return Driver(bind_impl(), 100)

    return Target(100)


class Untimed:
    """A target that has no driver."""

    name = "untimed"

    def start(self, shape):
        raise NotImplementedError

    step = start

    def close(self):
        pass


def untimed():
    return Untimed()
