"""Names of blocks as events show them: how much of a hash is left of its number (T22.events)."""

from typing import Any

from ..claims import implies, negation, same, use
from ..symbolic_bytes import byte_string, is_bytes, power
from ..theorem import NegativeControl, Theorem
from .identities import number_of

_ONE_HASH = {"n": "bytes of one hash", "x": "number of one hash"}
_TWO_HASHES = {**_ONE_HASH, "m": "bytes of another hash", "y": "number of the other hash"}

EVENT_BYTES = 8


def _event_injective(f: Any, v: Any) -> Any:
    one, other = byte_string(v.n, v.x), byte_string(v.n, v.y)
    return implies(f.event_hash(one) == f.event_hash(other), one == other)


_LOW_HALF = NegativeControl("the low 32 bits", {"event_hash": lambda x: number_of(x) % 2**32})
_TWO_OF_ONE_LENGTH = {"n": "bytes of both hashes", "x": "number of one hash", "y": "number of the other"}

T22_EVENTS = Theorem(
    id="T22.events",
    sentence="Blocks whose hashes have at most 8 bytes, all of one length, have different numbers in events if their "
    "hashes differ.",
    variables=_TWO_OF_ONE_LENGTH,
    assume=lambda v: [is_bytes(v.n, v.x), is_bytes(v.n, v.y), v.n <= EVENT_BYTES],
    claim=_event_injective,
    controls=(
        _LOW_HALF,
        NegativeControl(
            "hashes of 9 bytes",
            assume=lambda v: [is_bytes(v.n, v.x), is_bytes(v.n, v.y), v.n <= EVENT_BYTES + 1],
        ),
    ),
    meaning="A number of 64 bits says no more than that: T22.events.limit.",
)


def _collides(f: Any, v: Any) -> Any:
    one, other = byte_string(v.n, v.x), byte_string(v.n, v.x + 256**EVENT_BYTES)
    return [negation(one == other), f.event_hash(one) == f.event_hash(other)]


T22_EVENTS_LIMIT = Theorem(
    id="T22.events.limit",
    sentence="Of hashes with more than 8 bytes, each shares its number in events with another one.",
    variables={"n": "bytes of both hashes", "x": "number of the smaller hash"},
    assume=lambda v: [v.n > EVENT_BYTES, is_bytes(v.n, v.x), is_bytes(v.n, v.x + 256**EVENT_BYTES)],
    claim=_collides,
    controls=(NegativeControl("all bytes are shown", {"event_hash": lambda x: x}),),
    meaning="Of 32 bytes of SHA-256, 24 are not shown: among n blocks two share a number with probability about "
    "n * n / 2**65, 1 % at 6.1e8 blocks; a router takes one for the other. VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0 shows "
    "all bytes (T22.events.bytes).",
)

T22_EVENTS_BYTES = Theorem(
    id="T22.events.bytes",
    sentence="Where events show bytes, they show the hash itself, whatever its length.",
    variables=_ONE_HASH,
    assume=lambda v: [is_bytes(v.n, v.x)],
    claim=lambda f, v: f.event_bytes(byte_string(v.n, v.x)) == byte_string(v.n, v.x),
    controls=(NegativeControl("the last byte is left out", {"event_bytes": lambda x: x[:-1]}),),
)

T22_EVENTS_SHORT = Theorem(
    id="T22.events.low",
    sentence="The numbers of two blocks in events are equal exactly if the last 8 bytes of their hashes are.",
    variables=_TWO_HASHES,
    assume=lambda v: [is_bytes(v.n, v.x), is_bytes(v.m, v.y)],
    claim=lambda f, v: same(
        f.event_hash(byte_string(v.n, v.x)) == f.event_hash(byte_string(v.m, v.y)), v.x % 2**64 == v.y % 2**64
    ),
    controls=(_LOW_HALF,),
    meaning="Nothing else is lost: hashes of up to 8 bytes keep their identity in events, if they are of one length.",
)


def _low_bytes_stay(x: Any, unit: Any, quotient: Any, y: Any) -> Any:
    low = 256**EVENT_BYTES
    return implies(unit == low * quotient, (x * unit + y) % low == y % low)


def _event_of_the_last(f: Any, v: Any) -> Any:
    last = byte_string(v.n, v.y)
    use(_low_bytes_stay, v.x, power(v.n), power(v.n - EVENT_BYTES), v.y)
    return f.event_hash(f.coarse_hash([byte_string(v.n, v.x), last])) == f.event_hash(last)


T22_EVENTS_COARSE = Theorem(
    id="T22.events.coarse",
    sentence="A coarser block has the number of the last small block in it, for hashes of 8 bytes or more: events must "
    "be kept apart by their group.",
    variables={"n": "bytes of both hashes", "x": "number of one hash", "y": "number of the next"},
    assume=lambda v: [
        v.n >= EVENT_BYTES,
        is_bytes(v.n, v.x),
        is_bytes(v.n, v.y),
        power(v.n) == 256**EVENT_BYTES * power(v.n - EVENT_BYTES),
    ],
    claim=_event_of_the_last,
    controls=(
        NegativeControl("the first hash alone is the coarser one", {"coarse_hash": lambda hashes: hashes[0]}),
        NegativeControl(
            "hashes of 7 bytes", assume=lambda v: [v.n == EVENT_BYTES - 1, is_bytes(v.n, v.x), is_bytes(v.n, v.y)]
        ),
    ),
    meaning="With block sizes 16 and 32, the block of tokens 0..31 in one group and that of tokens 16..31 in the other "
    "are one number in events, for every content. A consumer that does not keep groups apart (`group_idx`) drops both "
    "when one is removed.",
)

THEOREMS = (
    T22_EVENTS,
    T22_EVENTS_LIMIT,
    T22_EVENTS_BYTES,
    T22_EVENTS_SHORT,
    T22_EVENTS_COARSE,
)
