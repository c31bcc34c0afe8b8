"""Planted faults over several seeds, and which detector sees which of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..faults import Fault, Part
from ..faults.real_bugs import planted_bugs
from ..findings.oracle_names import CONTRACT, LIVENESS, LOCKSTEP, SHADOW
from ..reports.faults import HuntRow
from ..reports.progress import OnStep
from .mutants import FUZZ_CONFIG, Caught, Hunt, Search, catch

DETECTORS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "lockstep": ((LOCKSTEP,), "random"),
    SHADOW: ((SHADOW,), "random"),
    CONTRACT: ((CONTRACT,), "random"),
    LIVENESS: ((LIVENESS,), "random"),
    FUZZ_CONFIG: ((), ""),
}
"""What can be asked about each fault, by name: the oracles and the engine. The last one is for faults in configuration
answers, the others for all other faults."""
NOT_RUN: Mapping[str, str] = {
    "explore": "it plants faults of its own, each in the scope that reaches it (`explore --fault`)",
    "prove": "it proves rules of the model, and sees no core",
    "unit tests": "they come with the sources, not with the package",
}
"""Other detectors, and why they are not asked here: shown as not run, never as missed."""


@dataclass(frozen=True)
class Result:
    """What became of one fault."""

    caught: Sequence[Caught]
    """One for each seed."""
    detectors: Mapping[str, Sequence[Hunt]] = field(default_factory=dict)
    """What each detector that was asked has come to, one hunt for each seed."""
    bug: str = ""
    """Id of the entry in the catalogue of real bugs, if the fault stands for one."""
    link: str = ""

    @property
    def median(self) -> Hunt:
        """The hunt in the middle, by operations; those that found nothing come last. With the size of the trace, from
        whichever seed that is."""
        found, shown = middle([caught.hunt for caught in self.caught]), self.shown.hunt
        return replace(found, shrunk_to=shown.shrunk_to, shrink_seconds=shown.shrink_seconds)

    @property
    def shown(self) -> Caught:
        """The first that found something, and was reduced; the first of all if none did."""
        return next((caught for caught in self.caught if caught.hunt.found), self.caught[0])

    def row(self, matrix: bool) -> HuntRow:
        """The median hunt, what it stands for, each seed if there are several, and the detectors."""
        row = HuntRow(**asdict(self.median))
        if self.bug:
            row.bug, row.link = self.bug, self.link
        if len(self.caught) > 1:
            names = ("seed", "found", "operations", "processor_seconds")
            row.seeds = [{name: getattr(one.hunt, name) for name in names} for one in self.caught]
        if matrix:
            row.detectors = {name: cell_of(self.detectors.get(name)) for name in (*DETECTORS, *NOT_RUN)}
        return row


def middle(hunts: Sequence[Hunt]) -> Hunt:
    """The one in the middle, by operations; those that found nothing come last. Of an even number the later one."""
    return sorted(hunts, key=lambda hunt: (not hunt.found, hunt.operations))[len(hunts) // 2]


def results(
    faults: Sequence[Fault],
    search: Search,
    seeds: int = 1,
    matrix: bool = False,
    on_step: OnStep = lambda done, now: None,
) -> Iterator[Result]:
    """One fault after the other, each with so many seeds from that of `search` on.

    With `matrix` every detector is asked that can be, each with the whole budget. Errors as from `catch`. `on_step` is
    told how many faults are done and which is hunted now.
    """
    bugs = {name: (bug_id, bug.link) for bug_id, bug, name in planted_bugs()}
    searches = [replace(search, seed=search.seed + number) for number in range(seeds)]
    for done, fault in enumerate(faults):
        on_step(done, fault.name)
        caught: list[Caught] = []
        for one in searches:
            again = any(earlier.hunt.found for earlier in caught)  # one trace is enough, and reducing takes longest
            caught.append(catch(fault, replace(one, shrink_seconds=0.0) if again else one))
        asked = dict(detected(fault, searches, [one.hunt for one in caught])) if matrix else {}
        yield Result(caught, asked, *bugs.get(fault.name, ("", "")))


def detected(
    fault: Fault, searches: Sequence[Search], known: Sequence[Hunt] = ()
) -> Iterator[tuple[str, Sequence[Hunt]]]:
    """What each detector comes to that can see a fault of this part, one hunt for each search.

    `known` is what searching with the oracles of the first search came to: that is not done again.
    """
    if fault.part == Part.CONFIGURATION:
        yield FUZZ_CONFIG, known or [catch(fault, replace(one, shrink_seconds=0.0)).hunt for one in searches]
        return
    for name, (oracles, engine) in DETECTORS.items():
        if known and (oracles, engine) == (searches[0].oracles or fault.oracles, searches[0].engine):
            yield name, known
        elif engine:
            how = [replace(one, oracles=oracles, engine=engine, shrink_seconds=0.0) for one in searches]
            yield name, [catch(fault, one).hunt for one in how]


def cell_of(hunts: Sequence[Hunt] | None) -> dict[str, Any] | None:
    """What a detector has come to, JSON-ready; None if it was not run."""
    if not hunts:
        return None
    found = middle(hunts)
    return {name: getattr(found, name) for name in ("found", "operations", "processor_seconds", "observable")}
