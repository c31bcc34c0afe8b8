"""Known deviations and known findings in a report: how often each occurred, and which may no longer be true."""

from collections.abc import Iterator, Mapping, Sequence

from ..findings.known import KnownFinding
from ..targets.deviations import Deviation
from .tables import Section


def deviation_table(declared: Sequence[Deviation], counts: Mapping[str, int], *, long_run: bool) -> Iterator[Section]:
    """A row for each; none if none is declared. One that never occurred counts as stale if the run was a long one."""
    if declared:
        rows = ((deviation.id, _occurred(deviation, counts, long_run), deviation.reason) for deviation in declared)
        yield Section("Known deviations of the target", ("id", "times", "what it does"), tuple(rows))


def _occurred(deviation: Deviation, counts: Mapping[str, int], long_run: bool) -> str:
    if times := counts.get(deviation.id, 0):
        return f"{times:,}"
    if deviation.chaos_only:
        return "needs --chaos"
    return "STALE? never" if long_run else "not seen"


def unseen(declared: Sequence[Deviation], counts: Mapping[str, int]) -> list[str]:
    """Ids of declared deviations that did not occur; without those that only chaos shows."""
    return [one.id for one in declared if not counts.get(one.id, 0) and not one.chaos_only]


def known_table(
    entries: Sequence[KnownFinding], counts: Mapping[str, int], compared: Mapping[str, int], long_run: bool
) -> Iterator[Section]:
    """A row for each known finding; none if none is declared. Stale ones as for deviations."""
    if entries:
        never = "STALE? never" if long_run else "not seen"
        seen = {id: f"{times:,}" for id, times in counts.items() if times}
        rows = ((one.id, seen.get(one.id, never), f"{compared.get(one.id, 0):,}", one.reason) for one in entries)
        yield Section("Known findings", ("id", "times", "compared", "what it is"), tuple(rows))
