"""What a workload is: a state that is built once, and pieces of work that are timed, each after the last one."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...model.ops import Group, Shape
from ..targets.driver import Driver

BLOCK = 16
"""Tokens of a block, in every workload."""
MODEL_LENGTH = 1 << 21
"""The longest sequence, in tokens."""
BATCHED = 8192
"""Most tokens of a step, as the core is told; windows reserve room for so many."""
USED_BY = 8192
"""Tokens of each request by which the blocks of a pool are used before anything is timed."""
Params = Mapping[str, Any]
"""Numbers and names that say what a workload does, as JSON has them."""
Facts = dict[str, int]


class BenchPiece(NamedTuple):
    """What a piece took and did."""

    ns: int
    """Processor time, in nanoseconds, of what is timed in it."""
    operations: int
    """How many operations that was, in the unit of the workload."""
    facts: Facts
    """What was done, in numbers; on every core the same, or the times cannot be compared."""
    notes: Facts
    """What may differ between engines that evict or give up blocks at other times; the same on cores that agree in
    everything."""


class WrongWorkError(Exception):
    """The core did not do what the workload asked for: refused, or gave the wrong answer. A line says which."""


class BenchWorkload(ABC):
    """One workload on one core."""

    def __init__(self, driver: Driver, params: Params) -> None:
        self.driver = driver
        self.params = params
        self._numbers = 0

    @abstractmethod
    def prepare(self) -> None:
        """Build the core and bring it into the state in which the first piece begins. NotImplementedError, with the
        reason, if this core has no such thing."""

    @abstractmethod
    def piece(self) -> BenchPiece:
        """Do and time one piece. WrongWorkError if the core did something else."""

    def digests(self) -> list[str]:
        """Hashes that must be equal on all cores; none if that is not what the workload is about."""
        return []

    def summary(self) -> Facts:
        """What is worth telling about all of it, beside the times; may take as long as many pieces."""
        return {}

    def number(self) -> int:
        """A number that was not given out before."""
        self._numbers += 1
        return self._numbers

    def timed(self, work: Callable[[], object]) -> int:
        """Nanoseconds of this call. What it returns lives on, so that taking that apart is no part of them."""
        clock = self.driver.clock
        begin = clock()
        result = work()
        end = clock()
        del result
        return end - begin


def shape_of(params: Params, num_blocks: int, events: bool = False) -> Shape:
    """The core of a workload: the groups of `params["groups"]`, with caching, in a pool of this size."""
    return Shape(
        groups=tuple(group_of(name) for name in params.get("groups", ("full",))),
        num_blocks=num_blocks,
        max_model_len=int(params.get("model_length", MODEL_LENGTH)),
        hash_block_size=BLOCK,
        scheduler_block_size=max(group_of(name).block_size for name in params.get("groups", ("full",))),
        max_num_batched_tokens=BATCHED,
        events=events,
        retention_interval=params.get("retention"),
        watermark=int(params.get("watermark", 0)),
    )


def group_of(name: str) -> Group:
    """`full`, `mamba` (states in mode align), `full-N` and `mamba-N` with blocks of N tokens, `checkpoint-N` (such
    states, which a step leaves inside it, too), or `sliding-N` with a window of N tokens.

    >>> group_of("sliding-1024").window
    1024
    """
    kind, _, size = name.partition("-")
    if kind == "sliding":
        return Group("sliding", BLOCK, window=int(size))
    block = int(size or BLOCK)
    if kind == "full":
        return Group("full", block)
    return Group("mamba", block, mamba_mode="align", checkpoint=BLOCK if kind == "checkpoint" else 0)


def use_every_block(driver: Driver, shape: Shape) -> None:
    """Use each block of an idle pool once; what they then hold stays cached.

    Blocks are taken in the order of the free queue, so that enough requests, one after the other, use them all.
    """
    num_blocks = shape.num_blocks
    length = min(USED_BY, max(BLOCK, (num_blocks - 1) // (4 * len(shape.groups)) * BLOCK))
    widest = max(group.block_size for group in shape.groups)  # a request takes so many tokens' block at least
    for number in range(num_blocks * widest // length + 2):
        request = driver.request(f"used{number}", [number, *range(1, length)])
        fill(driver, request, length)
        driver.free([request])


def fill(driver: Driver, request: Any, length: int, chunk: int = 0) -> int:
    """Prefill a request of this length, in one step or in chunks of so many tokens; the tokens of its hit.

    WrongWorkError if it is refused.
    """
    hit = driver.lookup(request)
    step = min(chunk or length, length - hit)
    require(driver.admit(request, hit, step), "a prefill was refused")
    driver.ran([request], hit + step)
    done = hit + step
    while done < length:
        step = min(chunk, length - done)
        require(driver.proceed(request, step), "a chunk of a prefill was refused")
        driver.ran([request], step)
        done += step
    return hit


def require(done: bool, problem: str) -> None:
    """WrongWorkError with this text, unless it was done."""
    if not done:
        raise WrongWorkError(problem)


def table_facts(driver: Driver, requests: Sequence[Any]) -> tuple[Facts, Facts]:
    """The sizes of these requests' tables, as facts and notes: when an entry becomes null is up to an engine."""
    entries, blocks = driver.held(requests)
    return {"entries": entries}, {"blocks": blocks}
