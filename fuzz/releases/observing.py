"""Observes written-up findings again: what their traces, and the cases of an engine's scheduler, show on a release."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from ..adapters import family_of
from ..findings.oracle_names import MODEL_FREE, STRICT
from ..runs.judging import Judging
from ..targets.base import Target, TargetLostError
from ..traces.replay import replay
from ..traces.trace_file import TraceFile
from .bisect import judges_of
from .findings import FindingEntry, Observations, by_scheduler
from .scheduler_cases import NOT_BUILT, NOTHING, SHOWS, run_cases

OnSeen = Callable[[str, str, Sequence[str]], None]
"""Is told the release, the key of an observation, and what was seen each time."""


def observe(entry: FindingEntry, file: TraceFile, target: Target) -> str:
    """What the trace of a finding shows on a target, in a few words: the finding, nothing, or something else."""
    observable = file.finding.observable if file.finding else ""
    judges = judges_of(observable, MODEL_FREE, by_model=MODEL_FREE)
    finding, applied = replay(file.trace, target, Judging((*judges, *((STRICT,) if entry.strict else ()))))
    if finding is None:
        return NOTHING if applied.operations or not file.trace.operations else NOT_BUILT
    said = file.finding
    if said is not None and any(one.kind == (observable, said.operation) for one in finding.every):
        return SHOWS
    return f"{finding.kind[0]} at {finding.kind[1]}"


def observe_releases(
    entries: Mapping[str, FindingEntry],
    traces: Mapping[str, TraceFile],
    specs: Sequence[str],
    times: int,
    open_isolated: Callable[[str], Target],
    on_seen: OnSeen,
) -> tuple[Observations, list[str]]:
    """Observe all findings so many times on each release.

    `open_isolated` opens a release in a process of its own, a new one each time. Returns what was observed the first
    time, and a line for each observation that was not the same every time.
    """
    observed: Observations = {}
    problems = []
    for spec in specs:
        rounds = [_observe_once(entries, traces, spec, open_isolated) for _ in range(times)]
        for key, what in rounds[0].items():
            seen = [one[key] for one in rounds]
            if len(set(seen)) > 1:
                problems.append(f"{key} on {spec}: {', '.join(seen)}")
            observed.setdefault(key, {})[spec] = what
            on_seen(spec, key, seen)
    return observed, problems


def _observe_once(
    entries: Mapping[str, FindingEntry],
    traces: Mapping[str, TraceFile],
    spec: str,
    open_isolated: Callable[[str], Target],
) -> dict[str, str]:
    """What each trace, and each case of the scheduler, shows on a release."""
    seen = {}
    family = family_of(spec)
    with closing(open_isolated(spec)) as core:
        for name in [name for name in entries if name in traces and family is family_of(traces[name].target)]:
            try:
                seen[name] = observe(entries[name], traces[name], core)
            except TargetLostError as lost:
                seen[name] = lost.kind
    cases = {entry.case: name for name, entry in entries.items() if entry.case}
    if cases and family is not None and family.scheduler:
        seen |= {by_scheduler(cases[case]): what for case, what in run_cases(spec, list(cases)).items()}
    return seen


def differences(recorded: Observations, observed: Observations) -> list[str]:
    """A line for each observation that is not what was recorded."""
    return [
        f"{name} on {spec}: {what}, recorded was {recorded.get(name, {}).get(spec, 'nothing at all')}"
        for name, row in observed.items()
        for spec, what in row.items()
        if recorded.get(name, {}).get(spec) != what
    ]
