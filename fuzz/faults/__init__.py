"""Planted faults: small mistakes made on purpose, each of which an oracle must find. Who checks the checkers?

`fault:NAME` on the command line opens our core, its configuration arithmetic or tensors with one of them;
`fault:NAME@impl-compiled` the compiled core.
`blockproof mutants` hunts those of the core and of the tensors; the clean core must show nothing. The modules are named
after what their faults break.
"""

from collections.abc import Mapping

from ..findings.oracle_names import CONTRACT, EVERY
from ..findings.words import did_you_mean
from . import (
    allocation,
    asked,
    block_answers,
    bulk,
    configuration,
    first_steps,
    identities,
    liveness,
    loads,
    observed,
    pool,
    real_hits,
    real_others,
    real_pool,
    real_registration,
    real_sizing,
    real_steps,
    registration,
    reporting,
    rooms,
    search,
    steps,
    tables,
    tensors,
)
from .real_bugs import planted_bugs
from .registry import Fault, Part

__all__ = ["CATALOGUED", "FAULTS", "MADE_UP", "MODULES", "REAL_MODULES", "Fault", "Part", "fault_named", "faults_in"]

MODULES = (
    *(pool, tables, registration, identities, allocation, search, steps, bulk, reporting, observed, liveness, tensors),
    *(first_steps, block_answers, rooms, loads, configuration, asked),
)
"""Where those are written that were made up, or made after a report before there was a catalogue."""

REAL_MODULES = (real_hits, real_others, real_pool, real_registration, real_sizing, real_steps)
"""Where those are written that the catalogue of real bugs asks for (`real_bugs`)."""

LIST = "see blockproof mutants --list"


def _rank(fault: Fault) -> tuple[int, int, int]:
    """By the part it breaks, then by the strictest oracle that must find it; those of the contract by property."""
    property_number = int(fault.observables[0][1:]) if fault.oracles == (CONTRACT,) else 0
    return list(Part).index(fault.part), EVERY.index(fault.oracles[0]), property_number


FAULTS: Mapping[str, Fault] = {
    fault.name: fault
    for fault in sorted(
        (found for module in (*MODULES, *REAL_MODULES) for found in vars(module).values() if isinstance(found, Fault)),
        key=_rank,
    )
}
"""All of them by name."""

CATALOGUED: Mapping[str, Fault] = {name: FAULTS[name] for _, _, name in planted_bugs()}
"""Those that stand for an entry of the catalogue of real bugs, in its order. KeyError for a name that is no fault's."""

MADE_UP: Mapping[str, Fault] = {
    name: fault for name, fault in FAULTS.items() if fault.plant.__module__ not in {m.__name__ for m in REAL_MODULES}
}
"""Those of `MODULES`."""


def faults_in(part: Part) -> Mapping[str, Fault]:
    """Those that break this part, by name."""
    return {name: fault for name, fault in FAULTS.items() if fault.part == part}


def fault_named(spec: str, part: Part) -> Fault | None:
    """The fault that `fault:NAME` or `fault:NAME@CORE` stands for where this part is asked for; None for another form.

    ValueError if no fault of this part has the name.
    """
    if not spec.startswith("fault:"):
        return None
    name, known = spec.removeprefix("fault:").partition("@")[0], faults_in(part)
    if name not in known:
        raise ValueError(f"unknown fault {name!r}; {did_you_mean(name, known, LIST)}")
    return known[name]
