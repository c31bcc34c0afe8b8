"""The interface through which a core is timed (`Driver`): the calls of a scheduler, with nothing around them.

A `Target` looks at the whole state after each call, which takes longer than the call. A driver does not look. What it
does in a call is what a scheduler has to do to make it; what a scheduler does anyway, such as counting tokens, is in
calls of its own (`ran`, `append`), so that a clock can leave it out.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

from ...model.ops import Shape
from .base import Target


class Driver(Protocol):
    """One core, to be timed. What it does not have, it says with NotImplementedError, in a line."""

    clock: Callable[[], int]
    """Processor time of this thread in nanoseconds."""

    def build(self, shape: Shape) -> object:
        """Build a core of this shape in place of the last one, and return it. NotImplementedError if there is none."""
        ...

    def request(self, name: str, prompt: list[int]) -> Any:
        """A new request with these tokens, hashed as the core built last wants it."""
        ...

    def report_hits(self, request: Any) -> None:
        """Let events tell of what a lookup finds for this request. NotImplementedError if there is no such thing."""
        ...

    def lookup(self, request: Any) -> int:
        """Tokens of the longest cached prefix, which the next `admit` of this request uses."""
        ...

    def admit(self, request: Any, hit: int, tokens: int) -> bool:
        """Room for the first step of a request: `tokens` behind a hit of `hit`. False if it is refused."""
        ...

    def proceed(self, request: Any, tokens: int) -> bool:
        """Room for a further step of known tokens. False if it is refused."""
        ...

    def decode(self, requests: Sequence[Any]) -> Any:
        """Room for one more token of each request, in order. The first request that is refused; None if none is."""
        ...

    def decode_batch(self, requests: Sequence[Any]) -> Any:
        """The same in one call for all of them, where the core has such a call; else as `decode`."""
        ...

    def free(self, requests: Sequence[Any]) -> None:
        """These requests have ended."""
        ...

    def tables(self, requests: Sequence[Any]) -> None:
        """Read the block ids of each request."""
        ...

    def take_events(self) -> Any:
        """The events since the last call."""
        ...

    # Beside the clock.

    def ran(self, requests: Sequence[Any], tokens: int) -> None:
        """The step of each request has run: so many more of its tokens are computed, hits included."""
        ...

    def append(self, requests: Sequence[Any], token: int) -> None:
        """This token was sampled for each request."""
        ...

    def preempt(self, request: Any) -> None:
        """The request gives its blocks back and starts again later."""
        ...

    def reset(self) -> bool:
        """Forget the content of all blocks. False while any is in use."""
        ...

    def held(self, requests: Sequence[Any]) -> tuple[int, int]:
        """Entries of the requests' tables, and how many of them are blocks."""
        ...

    def removed(self, events: Any) -> int:
        """How many blocks have lost their content according to these events."""
        ...

    def fields(self, name: str, prompt: list[int], hash_name: str) -> Mapping[str, Any]:
        """What `make` needs for a request that is hashed with this function."""
        ...

    def make(self, fields: Mapping[str, Any]) -> Any:
        """A request; only this is on the clock where the creation of requests is timed."""
        ...

    def digests(self, request: Any) -> list[str]:
        """The hashes of the request's full blocks, in hexadecimal digits."""
        ...


def driver_of(target: Target) -> Driver:
    """What times this target: what its method `driver` returns. NotImplementedError if it has none."""
    make = getattr(target, "driver", None)
    if make is None:
        raise NotImplementedError(f"{target.name} cannot be timed: it has no method driver() (targets.driver.Driver)")
    return cast(Driver, make())
