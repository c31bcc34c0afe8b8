"""The snapshot: what can be observed of a core after an operation.

Model and targets fill in the same record, so that snapshots are compared with `==`. Identities (content in the model,
digests in a target) appear in it as *labels*: small integers, numbered in the order in which a side first shows an
identity. Both sides are read in the same order, so if all labels agree, contents and digests correspond one to one.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from .attention import RULES
from .identity import ExtraKey
from .ops import Group, Value
from .state import Cleared, Event, Removed


class Snapshot(NamedTuple):
    """One side's state, in blocks and labels. Lists indexed by block start with the null block."""

    free: list[int]  #: the free queue, the next block to be reused in front
    num_free: int  #: the free count as the core reports it
    usage: float
    ref_cnt: list[int]  #: references per block; the null block's entry is always 0, since its count means nothing
    tables: list[dict[str, list[int]]]  #: per group, the table of every request that has one; 0 is the null block
    registered: list[dict[str, int]]  #: per group, registered leading entries of running requests (`num_cached_block`)
    labels: list[int | None]  #: per block, the label of the identity it carries
    earliest: list[int | None]  #: per block that carries an identity, the block that a lookup of this identity yields
    num_identities: int  #: distinct identities that a lookup can find
    events: tuple[Value, ...]  #: not drained yet
    new_block_ids: list[list[int]]  #: per group, not drained yet
    stats: tuple[Value, ...] | None
    """Prefix-cache statistics not drained yet (`TakeStats`), None with statistics off; with sampling these, the blocks
    that are followed, and what has become of others."""


def new_ids_value(ids: Sequence[Sequence[int]] | None, num_groups: int) -> Value:
    """What `Allocate` returns: the new block ids per group, from the form in which a scheduler asks for them in each
    step. None stands there for "none in any group", and nothing else does; else what was told is marked.

    >>> new_ids_value(None, 2), new_ids_value([[], [7]], 2), new_ids_value([[], []], 2)
    (((), ()), ((), (7,)), ('not None', (), ()))
    """
    if ids is None:
        return ((),) * num_groups
    rows = tuple([tuple(row) for row in ids])
    return rows if any(rows) else ("not None", *rows)


class Labels:
    """Numbers identities in the order in which they are first shown."""

    def __init__(self) -> None:
        self._label_of: dict[Hashable, int] = {}

    def __call__(self, identity: Hashable) -> int:
        """The label of this identity: the old one, or the next free number."""
        return self._label_of.setdefault(identity, len(self._label_of))


def event_value(event: Event, labels: Labels, groups: Sequence[Group] = (), sizes: Sequence[int] = ()) -> Value:
    """An event as a plain tuple (core.md §5). Drained events also have their group's kind and window, from `groups`.

    `sizes`: tokens of a block of each group, where events name blocks by digests: a block of another size is then named
    otherwise. As a number, a block has the name of the last small one in it (T22.events.coarse).
    """
    if isinstance(event, Cleared):
        return ("cleared",)
    size = sizes[event.group] if sizes else 0
    if isinstance(event, Removed):
        return ("removed", (labels(("event", event.identity, size)),), event.group)
    stored = tuple([labels(("event", identity, size)) for identity in event.identities])
    parent = labels(("event", event.parent, size)) if event.parent else None
    keys = tuple(_plain_keys(keys, labels) for keys in event.keys) if event.keys is not None else None
    group = groups[event.group] if groups else None
    kind = RULES[group.kind].kinds[group.kind] if group else None
    window = group.window if group and RULES[group.kind].windowed else None
    ahead = (("ahead", *event.ahead),) if event.ahead else ()
    shown = (event.tokens, event.block_size, event.adapter, keys, event.group, kind, window, *ahead)
    return ("stored", stored, parent, *shown)


def _plain_keys(keys: tuple[ExtraKey, ...], labels: Labels) -> Value:
    """Extra keys without their tags, as events show them; embeddings, shown as a digest, become a label."""
    return tuple(("bytes", labels(("bytes", value))) if tag == "embeds" else value for tag, value in keys) or None
