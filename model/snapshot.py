"""The name under which targets import what can be observed of a core; it lies in `shown.snapshot`."""

from .shown.snapshot import Labels, Snapshot, event_value, new_ids_value

__all__ = ["Labels", "Snapshot", "event_value", "new_ids_value"]
