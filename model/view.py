"""How identities and events look from outside: with labels in place of content."""

from collections.abc import Mapping, Sequence

from .identity import ExtraKey
from .ops import SLIDING_FAMILY, Kind, Shape, Value
from .snapshot import Labels
from .state import Cleared, Event, Key, Removed

KIND_NAMES: Mapping[Kind, str] = {
    "full": "full_attention",
    "tq": "full_attention",
    "mla": "mla_attention",
    "sink": "sink_full_attention",
    "sliding": "sliding_window",
    "sliding_mla": "sliding_window_mla",
    "chunked": "chunked_local_attention",
    "mamba": "mamba",
    "cross": "cross_attention",
}


def labels_of(identity: Mapping[int, Key], num_blocks: int, labels: Labels) -> list[int | None]:
    """The label of what each block carries, in the order of block ids."""
    return [labels(identity[block]) if block in identity else None for block in range(num_blocks)]


def event_values(events: Sequence[Event], shape: Shape, labels: Labels, *, drained: bool) -> tuple[Value, ...]:
    """Events as plain tuples (core.md §5). The spec's kind and window are added when they are drained (§10)."""
    return tuple(_event_value(event, shape, labels, drained) for event in events)


def _event_value(event: Event, shape: Shape, labels: Labels, drained: bool) -> Value:
    if isinstance(event, Cleared):
        return ("cleared",)
    if isinstance(event, Removed):
        return ("removed", (labels(("event", event.identity)),), event.group)
    group = shape.groups[event.group]
    return (
        "stored",
        tuple(labels(("event", identity)) for identity in event.identities),
        labels(("event", event.parent)) if event.parent else None,
        event.tokens,
        event.block_size,
        event.adapter,
        tuple(_plain_keys(keys, labels) for keys in event.keys) if event.keys is not None else None,
        event.group,
        KIND_NAMES[group.kind] if drained else None,
        group.window if drained and group.kind in SLIDING_FAMILY else None,
    )


def _plain_keys(keys: tuple[ExtraKey, ...], labels: Labels) -> Value:
    """Extra keys without their tags, as events show them; embeddings, shown as a digest, become a label."""
    return tuple(("bytes", labels(("bytes", value))) if tag == "embeds" else value for tag, value in keys) or None
