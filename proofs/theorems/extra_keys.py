"""What else than tokens goes into an identity: adapters, items, salts, embeddings (T23).

What the block of a request contains is said by content, not by keys: which adapter computes it, whose salt it has,
which rows are embedded. Items are the business of `items`.
"""

from typing import Any

from ..claims import every, implies, some
from ..roles.extra_keys import Content
from ..symbolic_bytes import Name, alike, text
from ..theorem import NegativeControl, Theorem

NAMES = {"adapter": "number of the adapter's name, 0 for none", "salt": "number of the salt, 0 for none"}
_ROWS = {"rows": "number of what the embedded rows of the block contain, 0 for none"}
_BLOCK = {"start": "first token of the block", "b": "tokens per block"}


def _two(meanings: dict[str, str]) -> dict[str, str]:
    """Variables of two requests."""
    return {
        **meanings,
        **{f"{name}2": f"in the other request: {meaning}" for name, meaning in meanings.items()},
    }


def _named(v: Any, *names: str) -> list[Any]:
    return [getattr(v, f"{name}{which}") >= 0 for name in names for which in ("", "2")]


def _block(v: Any) -> list[Any]:
    return [v.start >= 0, v.b >= 1]


def _plain_contents(v: Any) -> tuple[Content, Content]:
    return Content(v.adapter, v.salt, rows=v.rows), Content(v.adapter2, v.salt2, rows=v.rows2)


def _equal(keys: Any, contents: tuple[Content, Content], v: Any) -> Any:
    return alike(*(keys(content, v.start, v.start + v.b) for content in contents))


def _texts_told_apart(keys: Any, v: Any) -> Any:
    equal = _equal(keys, _plain_contents(v), v)
    return [
        implies(equal, v.adapter == v.adapter2),
        implies(every(equal, v.start == 0), v.salt == v.salt2),
        implies(equal, v.rows == v.rows2),
    ]


def _untagged(content: Content, start: Any, end: Any) -> tuple[Any, ...]:
    """A wrong rule: names without their kind."""
    salts = (text(content.salt),) if content.salt != 0 and start == 0 else ()
    adapters = (text(content.adapter),) if content.adapter != 0 else ()
    return (*adapters, *salts, *((Name("rows", content.rows),) if content.rows != 0 else ()))


def _lacking(field: str) -> Any:
    """A wrong rule: one thing does not count."""

    def keys(content: Content, start: Any, end: Any) -> tuple[Any, ...]:
        first = content.salt if start == 0 else 0
        found = {"adapter": content.adapter, "salt": first, "rows": content.rows}
        return tuple((kind, number) for kind, number in found.items() if kind != field)

    return keys


_TEXTS: Any = {
    "variables": {**_two({**NAMES, **_ROWS}), **_BLOCK},
    "assume": lambda v: [*_named(v, "adapter", "salt", "rows"), *_block(v)],
}
COLLISION = (
    "an adapter and a salt of the same name give the first block one identity: a request with the adapter is served "
    "the block of the base model and the other way round, {} tokens of wrong keys and values in every layer"
)

T23 = Theorem(
    id="T23",
    sentence="Extra keys determine adapter, salt and embeddings of a block.",
    formal="keys(x) == keys(y)  =>  adapter, rows and (in the first block) salt of x and y are equal",
    **_TEXTS,
    claim=lambda f, v: _texts_told_apart(f.extra_keys, v),
    controls=tuple(
        NegativeControl(f"{name} does not count", {"extra_keys": _lacking(name)})
        for name in ("adapter", "salt", "rows")
    ),
    refuted_on={"impl": COLLISION.format("b"), "vllm==0.23.0": COLLISION.format("b")},
    meaning="Our core keeps the untagged form by default, to share identities with the reference; T23.tagged is the "
    "switch that fixes it.",
)

T23_TAGGED = Theorem(
    id="T23.tagged",
    sentence="With tags, extra keys determine adapter, salt and embeddings of a block.",
    formal="tagged keys(x) == tagged keys(y)  =>  adapter, rows and (in the first block) salt of x and y are equal",
    **_TEXTS,
    claim=lambda f, v: _texts_told_apart(f.tagged_extra_keys, v),
    controls=(NegativeControl("without tags", {"tagged_extra_keys": _untagged}),),
)


def _mistaken(v: Any) -> Any:
    """True if one request has an adapter where the other has a salt of that name."""
    return every(
        v.start == 0,
        v.rows == v.rows2,
        some(
            every(v.adapter == v.salt2, v.salt == 0, v.adapter2 == 0),
            every(v.adapter2 == v.salt, v.salt2 == 0, v.adapter == 0),
        ),
    )


T23_ONLY = Theorem(
    id="T23.only",
    sentence="Extra keys without tags make one mistake only: a salt in place of an adapter, alone, in the first block.",
    formal="keys(x) == keys(y)  =>  x and y are equal, or start == 0 and one's adapter is the other's salt, and "
    "neither has the other thing",
    **_TEXTS,
    claim=lambda f, v: implies(
        _equal(f.extra_keys, _plain_contents(v), v),
        some(every(v.adapter == v.adapter2, v.rows == v.rows2, some(v.salt == v.salt2, v.start != 0)), _mistaken(v)),
    ),
    controls=tuple(
        NegativeControl(f"{name} does not count", {"extra_keys": _lacking(name)}) for name in ("adapter", "salt")
    ),
    meaning="At most b tokens of a request are served wrongly: from the second block on, the keys of the adapter stand "
    "in every block and those of the salt in none.",
)


T23_CONVERSE = Theorem(
    id="T23.converse",
    sentence="Contents that are equal have equal keys; the salt counts in the first block only.",
    formal="adapter, rows and (in the first block) salt of x and y are equal  =>  keys(x) == keys(y)",
    **_TEXTS,
    claim=lambda f, v: implies(
        every(v.adapter == v.adapter2, v.rows == v.rows2, some(v.salt == v.salt2, v.start > 0)),
        _equal(f.extra_keys, _plain_contents(v), v),
    ),
    controls=(
        NegativeControl(
            "the salt counts in every block", {"extra_keys": lambda content, start, end: _untagged(content, 0, end)}
        ),
    ),
    meaning="No hit is lost: all blocks behind the first inherit the salt from it.",
)


# What is in no key.


def _in_no_key(*names: str, **fixed: Any) -> Any:
    def claim(f: Any, v: Any) -> Any:
        (name,) = names
        one, other = (Content(**{**fixed, name: value}) for value in (v.one, v.other))
        return implies(_equal(f.full_extra_keys, (one, other), v), v.one == v.other)

    return claim


def _assumed(v: Any) -> list[Any]:
    return [v.one >= 0, v.other >= 0, *_block(v)]


def _not_in_keys(
    id: str, sentence: str, formal: str, meaning: str, field: str, consequence: str, **fixed: Any
) -> Theorem:
    return Theorem(
        id=id,
        sentence=sentence,
        formal=formal,
        variables={"one": f"{meaning} in one request", "other": f"{meaning} in the other", **_BLOCK},
        assume=_assumed,
        claim=_in_no_key(field, **fixed),
        controls=(NegativeControl("nothing has keys", {"full_extra_keys": lambda content, start, end: ()}),),
        refuted_on=dict.fromkeys(("impl", "vllm==0.23.0"), consequence),
    )


T23_DTYPE = _not_in_keys(
    "T23.dtype",
    "Requests whose embeddings have the same bytes but other numbers have different keys.",
    "same bytes and keys(x) == keys(y)  =>  dtype(x) == dtype(y)",
    "number of the dtype of the rows",
    "dtype",
    "the digest is of bare bytes: 0x3c00 is 1.0 in float16 and 0.0078125 in bfloat16. Whoever hands over tensors in "
    "several dtypes gets the blocks of other numbers; casting to the model's dtype before, as the release's HTTP "
    "server does, fixes it",
    rows=1,
)
T23_MASK = _not_in_keys(
    "T23.mask",
    "Requests of which other positions are embedded have different keys.",
    "same tokens and rows and keys(x) == keys(y)  =>  mask(x) == mask(y)",
    "number of the mask of token positions",
    "mask",
    "`prompt_is_token_ids` is in no key: a prompt that embeds a row of zeros where the placeholder token stands and "
    "one that has that very token as text share the block",
    rows=1,
)
T23_RELOADED = _not_in_keys(
    "T23.reloaded",
    "Requests with other weights of an adapter have different keys.",
    "same name and keys(x) == keys(y)  =>  file(x) == file(y)",
    "number of the file of the adapter",
    "adapter_file",
    "only the name counts: after an adapter is loaded again under its name (`load_inplace`), requests are served "
    "blocks that the old weights have computed, until they are evicted or `reset_prefix_cache` is called",
    adapter=1,
)

THEOREMS = (T23, T23_TAGGED, T23_ONLY, T23_CONVERSE, T23_DTYPE, T23_MASK, T23_RELOADED)
