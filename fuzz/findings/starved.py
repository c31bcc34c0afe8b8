"""`Starved`, the operation that the model need not know: room is asked for while the world gives out.

It is drawn only for a target that offers it, and stands in traces like any other operation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from ...model.ops import OPERATIONS, Allocate, Operation


@dataclass(frozen=True)
class Starved(Allocate):
    """An `Allocate` during which only the first `served` of the calls that the target names are answered; all later
    ones are refused, as by a device without a free page. Refused, and then nothing has changed; or what `Allocate`
    carries, if the core makes do with what it was given."""

    served: int = 0

    @property
    def allocation(self) -> Allocate:
        """The same while the world gives whatever is asked for."""
        return Allocate(**{field.name: getattr(self, field.name) for field in fields(Allocate)})


EVERY_OPERATION: Mapping[str, type[Operation]] = {**OPERATIONS, Starved.__name__: Starved}
"""What a trace may hold, by name."""
