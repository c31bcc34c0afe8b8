"""What the router, prefill and decode tell each other. An attempt is a request and the number of its attempt."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Compute:
    """Router to prefill: compute these tokens, and sample the next one."""

    id: str
    attempt: int
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Computed:
    """Prefill to router: the token, and where the blocks lie until when."""

    id: str
    attempt: int
    token: int
    blocks: tuple[int, ...]
    life: int
    until: int


@dataclass(frozen=True)
class Decode:
    """Router to decode, in the life that the router knows of: load the blocks, and go on to the end."""

    id: str
    attempt: int
    tokens: tuple[int, ...]
    end: int  # tokens in all at most
    stop: tuple[int, ...]
    source: Computed
    life: int


@dataclass(frozen=True)
class Loaded:
    """Decode to prefill: the blocks of this attempt will not be read any more."""

    id: str
    attempt: int


@dataclass(frozen=True)
class Tokens:
    """Decode to router: all tokens of this attempt, the first of them at this position."""

    id: str
    attempt: int
    at: int
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Lapsed:
    """Decode to router: the blocks could not be loaded in time."""

    id: str
    attempt: int


@dataclass(frozen=True)
class Beat:
    """An engine to the router: which life it has, and which attempts it works on."""

    life: int
    held: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Drop:
    """Router to an engine: this attempt is of no use any more."""

    id: str
    attempt: int
