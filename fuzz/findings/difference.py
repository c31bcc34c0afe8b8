"""The difference between two snapshots, for a reader."""

from collections.abc import Iterator
from itertools import zip_longest

from ...model.shown.snapshot import Snapshot
from .visible import visible_name


def first_difference(ours: Snapshot, theirs: Snapshot) -> str | None:
    """Name of the first field in which two snapshots differ, or None."""
    if ours == theirs:
        return None
    return next(name for name in Snapshot._fields if getattr(ours, name) != getattr(theirs, name))


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
