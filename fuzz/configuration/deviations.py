"""Known defects of a release in the arithmetic of configurations, as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ..adapters import known_of
from .answers import Json


@dataclass(frozen=True)
class ConfigurationDeviation:
    """A known defect of the release, under the chapter's id: what it does instead, and when that shows."""

    id: str
    reason: str
    condition: str


class DeviatingRules(Protocol):
    """The arithmetic with the defects of a release."""

    fired: set[str]
    """Ids of the defects that made a difference since the set was last cleared."""

    def answer(self, op: str, inputs: Mapping[str, object]) -> dict[str, Json]:
        """The release's answer to a question."""
        ...


def declared_for(target_name: str) -> tuple[ConfigurationDeviation, ...]:
    """The defects that are declared for a target."""
    known = known_of(target_name)
    return () if known is None else known.configuration_deviations
