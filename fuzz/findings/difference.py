"""The difference between two snapshots, for a reader."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest

from ...model.ops import NULL
from ...model.snapshot import Snapshot
from .visible import visible_name


def first_difference(ours: Snapshot, theirs: Snapshot) -> str | None:
    """Name of the first field in which two snapshots differ, or None."""
    if ours == theirs:
        return None
    return next(name for name in Snapshot._fields if getattr(ours, name) != getattr(theirs, name))


_COUNTS = frozenset({"num_free", "usage", "ref_cnt", "num_identities", "registered"})
"""Fields whose numbers are amounts; elsewhere they name blocks and contents, but for the first ones of an answer."""
_WAYS = ("less", "more", "missing", "there", "other")
"""How a value can differ, in the order in which one is told where parts differ in several ways."""


def kind_of(field: str, ours: object, theirs: object) -> str:
    """In which way the target's value differs from the model's, whatever its numbers are: a field of a snapshot, or
    what a call returned (`outcome`).

    >>> kind_of("free", [1, 2], [2, 1]), kind_of("free", [1, 2], [2]), kind_of("outcome", (8, ((1, 2),)), (4, ((1,),)))
    ('order', 'less', 'less')
    """
    if field == "stats":
        return ""  # numbers of many kinds in a row
    if isinstance(ours, int | float) and isinstance(theirs, int | float):
        return _WAYS[theirs > ours]
    if field == "free" and isinstance(ours, list) and isinstance(theirs, list) and Counter(ours) == Counter(theirs):
        return "order"
    if field == "outcome" and isinstance(ours, tuple) and isinstance(theirs, tuple):
        match ours[:1], theirs[:1]:
            case (int(tokens),), (int(others),) if tokens != others:  # the length of a hit, before its blocks
                return _WAYS[others > tokens]
    return _kind_of(ours, theirs, field in _COUNTS)


def _kind_of(ours: object, theirs: object, counts: bool) -> str:
    pairs: Iterable[tuple[object, object]]
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        pairs = ((ours.get(name), theirs.get(name)) for name in {*ours, *theirs})
    elif isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        if len(ours) != len(theirs):
            return _WAYS[len(theirs) > len(ours)]
        pairs = zip(ours, theirs, strict=True)
    elif counts and isinstance(ours, int) and isinstance(theirs, int):
        return _WAYS[theirs > ours]
    else:
        nothing = (None, NULL)
        return "missing" if theirs in nothing else "there" if ours in nothing else "other"
    ways = {_kind_of(one, other, counts) for one, other in pairs if one != other}
    return min(ways, key=_WAYS.index, default="other")


def difference(before: Snapshot, after: Snapshot) -> list[str]:
    """What changed, one line each, in the reader's terms.

    >>> blank = Snapshot([1, 2], 2, 0.0, [0, 0, 0], [{}], [{}], [None] * 3, [None] * 3, 0, (), [[]], None)
    >>> difference(blank, blank._replace(free=[2], num_free=1))
    ['free: [1, 2] -> [2]', 'num_free: 2 -> 1']
    """
    return [line for name in Snapshot._fields for line in _changes(name, getattr(before, name), getattr(after, name))]


def _changes(name: str, old: object, new: object) -> Iterator[str]:
    if old == new:
        return
    if name in ("ref_cnt", "labels", "earliest") and isinstance(old, list) and isinstance(new, list):
        pairs = zip_longest(old, new)
        changed = (f"{block}: {was} -> {now}" for block, (was, now) in enumerate(pairs) if was != now)
        yield f"{name}: block " + ", ".join(changed)
    elif name in ("tables", "registered") and isinstance(old, list) and isinstance(new, list):
        for group, (was, now) in enumerate(zip(old, new, strict=True)):
            for request in sorted(was.keys() | now.keys()):
                if was.get(request) != now.get(request):
                    shown = visible_name(request)
                    yield f"{name}: group {group}, {shown}: {was.get(request)} -> {now.get(request)}"
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple) and new[: len(old)] == old:
        yield f"{name}: ... + {new[len(old) :]}"
    else:
        yield f"{name}: {old} -> {new}"
