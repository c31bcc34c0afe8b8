"""What else than tokens goes into an identity: adapters, items, salts, embeddings (T23).

What the block of a request contains is said by content, not by keys: which adapter computes it, whose salt it has,
which rows are embedded. Items are the business of `items`.
"""

from typing import Any

from ..claims import every, implies, same, some
from ..roles.extra_keys import Content, embedded
from ..symbolic_bytes import Name, alike, text
from ..theorem import NegativeControl, Theorem, on_releases

NAMES = {"adapter": "number of the adapter's name, 0 for none", "salt": "number of the salt, 0 for none"}
_ROWS = {"rows": "number of the embedded row of the block, 0 for none"}
_BLOCK = {"start": "first token of the block", "b": "tokens per block"}


def _two(meanings: dict[str, str]) -> dict[str, str]:
    """Variables of two requests."""
    return {
        **meanings,
        **{f"{name}2": f"{meaning} (in the other request)" for name, meaning in meanings.items()},
    }


def _named(v: Any, *names: str) -> list[Any]:
    return [getattr(v, f"{name}{which}") >= 0 for name in names for which in ("", "2")]


def _block(v: Any) -> list[Any]:
    return [v.start >= 0, v.b >= 1]


def _plain_contents(v: Any) -> tuple[Content, Content]:
    return (
        Content(v.adapter, v.salt, places=embedded(v.rows)),
        Content(v.adapter2, v.salt2, places=embedded(v.rows2)),
    )


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
    return (*adapters, *salts, *(Name("row", row) for _, row in content.places))


def _lacking(field: str) -> Any:
    """A wrong rule: one thing does not count."""

    def keys(content: Content, start: Any, end: Any) -> tuple[Any, ...]:
        first = content.salt if start == 0 else 0
        found = {"adapter": content.adapter, "salt": first, "rows": content.places[0][1] if content.places else 0}
        return tuple((kind, number) for kind, number in found.items() if kind != field)

    return keys


_TEXTS: Any = {
    "variables": {**_two({**NAMES, **_ROWS}), **_BLOCK},
    "assume": lambda v: [*_named(v, "adapter", "salt", "rows"), *_block(v)],
}
COLLISION = (
    "an adapter and a salt of the same name give the first block one identity: a request with the adapter is served "
    "the block of the base model and the other way round, b tokens of wrong keys and values in every layer"
)

T23 = Theorem(
    id="T23",
    sentence="Extra keys determine adapter, salt and embeddings of a block.",
    **_TEXTS,
    claim=lambda f, v: _texts_told_apart(f.extra_keys, v),
    controls=(
        *(
            NegativeControl(f"{name} does not count", {"extra_keys": _lacking(name)})
            for name in ("adapter", "salt", "rows")
        ),
        NegativeControl("without tags", {"extra_keys": _untagged}),
    ),
    refuted_on={"vllm==0.23.0": COLLISION},
    meaning="An adapter, a salt and an item of one name are three contents: no request is served what another kind of "
    "thing of that name has computed.",
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
    sentence="Of adapter, salt and embeddings, extra keys confuse at most a salt and an adapter, each alone, in the "
    "first block.",
    **_TEXTS,
    claim=lambda f, v: implies(
        _equal(f.extra_keys, _plain_contents(v), v),
        some(every(v.adapter == v.adapter2, v.rows == v.rows2, some(v.salt == v.salt2, v.start != 0)), _mistaken(v)),
    ),
    controls=tuple(
        NegativeControl(f"{name} does not count", {"extra_keys": _lacking(name)}) for name in ("adapter", "salt")
    ),
    meaning="Where keys have no tags, at most b tokens of a request are served wrongly: from the second block on, the "
    "key of the adapter stands in every block and that of the salt in none.",
)


T23_CONVERSE = Theorem(
    id="T23.converse",
    sentence="Contents that are equal have equal keys; the salt counts in the first block only.",
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


# Adapters.

_SAID = {
    "name": "number of the adapter's name",
    "path": "number of the path that it was read from",
    "version": "number of what it says of its weights, 0 if it says nothing",
}


def _adapters(v: Any) -> tuple[Content, Content]:
    return (
        Content(v.name, path=v.path, version=v.version),
        Content(v.name2, path=v.path2, version=v.version2),
    )


def _same_adapter(v: Any) -> Any:
    """True if nothing that the caller can say differs; the path says nothing of weights that say a version."""
    return every(v.name == v.name2, v.version == v.version2, some(v.version != 0, v.path == v.path2))


T23_RELOADED = Theorem(
    id="T23.reloaded",
    sentence="Two adapters have equal keys exactly if they agree in name and in what tells their weights apart: the "
    "version that they state, or else the path that they were read from.",
    variables={**_two(_SAID), **_BLOCK},
    assume=lambda v: [
        *(value >= 1 for value in (v.name, v.name2, v.path, v.path2)),
        *(value >= 0 for value in (v.version, v.version2)),
        *_block(v),
    ],
    claim=lambda f, v: same(_equal(f.extra_keys, _adapters(v), v), _same_adapter(v)),
    controls=(
        NegativeControl(
            "only the name counts", {"extra_keys": lambda content, start, end: (("adapter", text(content.adapter)),)}
        ),
        NegativeControl(
            "the path counts where a version is stated",
            {
                "extra_keys": lambda content, start, end: (
                    (text(content.adapter), text(content.version), text(content.path)),
                )
            },
        ),
    ),
    refuted_on={
        "vllm==0.23.0": "only the name counts: after an adapter is loaded again under its name (`load_inplace`), or "
        "another one from another path, requests are served blocks that the old weights have computed, until they are "
        "evicted or `reset_prefix_cache` is called",
        "vllm==0.33.0": "name and path count, a stated version does not: blocks of weights that changed in place are "
        "served on, and the same weights from another path are not found",
    },
    meaning="Weights that change under one name and path are told apart only if the adapter says so by "
    "`content_version`. A version is the same on every machine, so shared caches are hit whatever the path.",
)


# Embeddings.

_POSITIONS = {
    "e0": "whether a row is read at the first position",
    "r0": "number of the bytes of the row there",
    "e1": "whether a row is read at the second position",
    "r1": "number of the bytes of the row there",
    "dtype": "number of the dtype of the rows",
    "width": "elements of a row",
}


def _embedded_twice(v: Any) -> tuple[Content, Content]:
    return (
        Content(places=((v.e0, v.r0), (v.e1, v.r1)), dtype=v.dtype, width=v.width),
        Content(places=((v.e02, v.r02), (v.e12, v.r12)), dtype=v.dtype2, width=v.width2),
    )


def _same_rows(v: Any) -> Any:
    """True if the same positions are embedded, with rows of the same numbers; what stands elsewhere is not read."""
    return every(
        same(v.e0, v.e02),
        same(v.e1, v.e12),
        implies(v.e0, v.r0 == v.r02),
        implies(v.e1, v.r1 == v.r12),
        implies(some(v.e0, v.e1), every(v.dtype == v.dtype2, v.width == v.width2)),
    )


def _rows_without(field: str) -> Any:
    """A wrong rule: dtype, mask or width does not count, or rows that are not read do."""

    def keys(content: Content, start: Any, end: Any) -> tuple[Any, ...]:
        rows = [Name("row", row) for is_row, row in content.places if field == "mask" or is_row]
        places = [place for place, (is_row, _) in enumerate(content.places) if field != "mask" and is_row]
        meaning = {"dtype": Name("dtype", content.dtype), "width": Name("width", content.width)} if rows else {}
        return (tuple(places), tuple(rows), tuple(value for name, value in meaning.items() if name != field))

    return keys


T23_EMBEDDINGS = Theorem(
    id="T23.embeddings",
    sentence="Two prompts have equal keys of embeddings exactly if the same positions of the block are embedded, with "
    "the same numbers.",
    variables={**_two(_POSITIONS), **_BLOCK},
    assume=_block,
    claim=lambda f, v: same(_equal(f.extra_keys, _embedded_twice(v), v), _same_rows(v)),
    controls=tuple(
        NegativeControl(f"the {field} does not count", {"extra_keys": _rows_without(field)})
        for field in ("dtype", "mask", "width")
    ),
    bounded="blocks of two positions: masks are walked position by position, rows are handed on as bytes",
    refuted_on=on_releases(
        "the digest is of the bare bytes of all rows: it holds neither dtype nor mask (T23.dtype, "
        "T23.mask), and rows that are not read, so that text in a prompt with embeddings never hits plain text"
    ),
    meaning="Text before and behind an embedded part is cached as text.",
)


def _told_apart(field: str, place: Any) -> Any:
    """Claim: of two contents that differ at most in this, given by `place(one or other)`, equal keys mean equality."""

    def claim(f: Any, v: Any) -> Any:
        one, other = (Content(places=place(value), **_meaning(field, value)) for value in (v.one, v.other))
        return implies(_equal(f.extra_keys, (one, other), v), same(v.one == 1, v.other == 1))

    return claim


def _meaning(field: str, value: Any) -> dict[str, Any]:
    return {"dtype": value} if field == "dtype" else {}


def _one_or_two(v: Any) -> list[Any]:
    return [v.one >= 1, v.one <= 2, v.other >= 1, v.other <= 2, *_block(v)]


_NOTHING = (NegativeControl("nothing has keys", {"extra_keys": lambda content, start, end: ()}),)

T23_DTYPE = Theorem(
    id="T23.dtype",
    sentence="Requests whose embeddings have the same bytes but other numbers have different keys.",
    variables={"one": "dtype of the rows in one request, 1 or 2", "other": "dtype in the other", **_BLOCK},
    assume=_one_or_two,
    claim=_told_apart("dtype", lambda dtype: embedded(1)),
    controls=_NOTHING,
    refuted_on=on_releases(
        "the digest is of bare bytes: 0x3c00 is 1.0 in float16 and 0.0078125 in bfloat16. Whoever "
        "hands over tensors in several dtypes gets the blocks of other numbers; casting to the model's dtype before, "
        "as the release's HTTP server does, fixes it"
    ),
)
T23_MASK = Theorem(
    id="T23.mask",
    sentence="Requests of which other positions are embedded have different keys.",
    variables={
        "one": "position of the block that is embedded in one request, 1 or 2",
        "other": "position that is embedded in the other",
        **_BLOCK,
    },
    assume=_one_or_two,
    claim=_told_apart("mask", lambda place: ((place == 1, 1), (place == 2, 1))),
    controls=_NOTHING,
    refuted_on=on_releases(
        "`prompt_is_token_ids` is in no key: a prompt that embeds a row of zeros where the placeholder "
        "token stands and one that has that very token as text share the block"
    ),
)

THEOREMS = (T23, T23_ONLY, T23_CONVERSE, T23_RELOADED, T23_EMBEDDINGS, T23_DTYPE, T23_MASK)
