"""The scheduler of a release over its own core and over ours: the same random requests, compared step by step.

Where the two part, the first call on the core that was answered differently is looked for, and judged: the model with
the known deviations of the release must answer as the release's core did, the model without them as ours did, and the
deviations that occurred until then are the explanation. A difference without one is a finding.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from ...model.core import Model
from ..adapters import family_of
from ..adapters.impl import rule_for
from ..findings.ops_json import operation_from_json, shape_from_json, to_json
from ..opening.commands import Printing
from ..opening.known_deviations import model_for
from ..opening.targets import python_of
from ..targets.base import TargetUnavailableError
from ..targets.deviations import DeviatingModel
from ..targets.family import unpatched
from .own_tests import COMPILED, OURS, PACKAGES

THEIRS = "theirs"
_REGISTER, _PROCESSED = "register", "processed"
_CALL_COUNT = "calls"
"""In a step: how many calls on the core there were until then, which is not compared."""


@dataclass(frozen=True)
class ScheduleMix:
    """One mix of requests over both cores."""

    number: int
    shape: str
    setup: str
    steps: int
    preemptions: int
    hits: int
    """Tokens that counted as computed when a request was first scheduled."""
    first: int | None
    """The first step that differs; None if all are identical."""
    explained: tuple[str, ...] = ()
    """The deviations that explain the difference."""
    what: str = ""
    """What differs, for people."""

    @property
    def unexplained(self) -> bool:
        """Whether it differs and nothing explains that."""
        return self.first is not None and not self.explained


@dataclass
class ScheduleComparison:
    """All mixes of a run."""

    seed: int
    mixes: list[ScheduleMix] = field(default_factory=list)

    @property
    def findings(self) -> list[ScheduleMix]:
        """Mixes that differ without an explanation."""
        return [mix for mix in self.mixes if mix.unexplained]

    def lines(self) -> list[str]:
        """The comparison for people."""
        steps, preemptions = sum(mix.steps for mix in self.mixes), sum(mix.preemptions for mix in self.mixes)
        lines = [f"seed {self.seed}: {len(self.mixes)} mixes, {steps} steps, {preemptions} preemptions"]
        for shape in sorted({mix.shape for mix in self.mixes}):
            mixes = [mix for mix in self.mixes if mix.shape == shape]
            same = sum(mix.first is None for mix in mixes)
            why = Counter(name for mix in mixes for name in mix.explained)
            causes = ", ".join(f"{name} {count}" for name, count in why.most_common())
            lines.append(f"  {shape}: {same} of {len(mixes)} identical{'; ' + causes if causes else ''}")
        for mix in self.findings:
            lines.append(f"mix {mix.number} ({mix.setup}) differs at step {mix.first}: {mix.what}")
        return lines

    def as_json(self) -> dict[str, object]:
        """The comparison for machines."""
        return {
            "seed": self.seed,
            "mixes": len(self.mixes),
            "identical": sum(mix.first is None for mix in self.mixes),
            "explained": Counter(name for mix in self.mixes for name in mix.explained),
            "findings": [vars(mix) for mix in self.findings],
        }


def compare_mixes(
    release: str, seed: int, numbers: range, fault: str = "", compiled: bool = False
) -> ScheduleComparison:
    """Run these mixes over both cores and compare. `fault`, for tests, is made in our core.

    TargetUnavailableError if the release is not installed or has no scheduler to run, or if a process fails.
    """
    comparison = ScheduleComparison(seed)
    with _children(release) as child:
        given = [str(seed), str(numbers.start), str(len(numbers))]
        theirs = child(THEIRS, *given)
        ours = child(COMPILED if compiled else OURS, *given, *([fault] if fault else []))
        for mine, other in zip(theirs, ours, strict=False):
            comparison.mixes.append(_compared(release, mine, other))
    if (came := len(comparison.mixes)) < len(numbers):
        raise TargetUnavailableError(f"{release}: of {len(numbers)} mixes {came} came back, then a process had ended")
    return comparison


def time_schedulers(release: str, rounds: int = 5, steps: int = 100, compiled: bool = False) -> list[dict[str, object]]:
    """Scheduler steps per second over both cores, measured in turn (A B A B ...): for each workload the median of each,
    and the median, least and greatest of the ratios of pairs. Errors as for `compare_mixes`."""
    times: dict[str, list[tuple[float, float]]] = {}
    with _children(release) as child:
        for _ in range(rounds):
            pair = [list(child(core, "time", str(steps))) for core in (THEIRS, COMPILED if compiled else OURS)]
            for mine, other in zip(*pair, strict=True):
                times.setdefault(mine["name"], []).append((mine["ns"], other["ns"]))
    found: list[dict[str, object]] = []
    for name, pairs in times.items():
        ratios = [mine / other for mine, other in pairs]
        per_second = [round(1e9 / median(side)) for side in zip(*pairs, strict=True)]
        spread = {"ratio": median(ratios), "least": min(ratios), "greatest": max(ratios)}
        found.append({"workload": name, "theirs_per_s": per_second[0], "ours_per_s": per_second[1], **spread})
    return found


@contextmanager
def _children(release: str) -> Iterator[Callable[..., Iterator[dict[str, Any]]]]:
    """A function that runs the adapter's module in the release's interpreter and yields what it prints."""
    family = family_of(release)
    if family is None or not family.mixes or unpatched(release).partition("==")[2] not in family.replaced:
        raise TargetUnavailableError(f"{release}: there is no scheduler to run over two cores")
    module = family.mixes
    with python_of(release, PACKAGES) as python, ExitStack() as started:

        def child(*given: str) -> Iterator[dict[str, Any]]:
            return _told(started.enter_context(Printing(python.words(module, *given), python.environment)), given[0])

        yield child


def _told(printing: Printing, core: str) -> Iterator[dict[str, Any]]:
    yield from printing
    if status := printing.status():
        raise TargetUnavailableError(f"the scheduler over {core} ended with exit status {status}")


def _compared(release: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> ScheduleMix:
    one, other = _comparable(theirs), _comparable(ours)
    facts = (theirs["mix"], theirs["shape"], theirs["setup"], len(one), theirs["preemptions"], theirs["hits"])
    if one == other:
        return ScheduleMix(*facts, first=None)
    first = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    explained, what = explained_difference(release, theirs["calls"], ours["calls"])
    return ScheduleMix(*facts, first=first, explained=explained, what=what)


def _comparable(told: Mapping[str, Any]) -> list[object]:
    """The steps, and how the run ended."""
    steps: list[object] = [{**step, _CALL_COUNT: None} for step in told["steps"]]
    return [*steps, [told["starved"], bool(told["error"])]]


def explained_difference(
    release: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]
) -> tuple[tuple[str, ...], str]:
    """The deviations that explain the first call that was answered differently; none, and what happened, if none do."""
    pairs = zip(theirs["calls"], ours["calls"], strict=False)
    at = next((i for i, (mine, other) in enumerate(pairs) if mine != other), None)
    if at is None:
        return (), "no call on the core that a step depends on was answered differently"
    shape = shape_from_json(theirs["shape"])
    family = family_of(release)
    core = family.replaced[unpatched(release).partition("==")[2]] if family else ""
    released, right = model_for(release, shape), Model(shape, rule_for(core))
    for side, told, model in (("the release", theirs, released), ("ours", ours, right)):
        if problem := _disagreement(model, told["calls"][: at + 1]):
            return (), f"{side} and its model: {problem}"
    assert isinstance(released, DeviatingModel)
    occurred = tuple(sorted(name for name, count in released.deviated.items() if count))
    return occurred, f"call {at}: {theirs['calls'][at]}, over ours {ours['calls'][at]}"


def _disagreement(model: Model, calls: Sequence[Any]) -> str:
    """What a model answers otherwise than it was told; empty if it agrees with every answer."""
    for number, (raw, told) in enumerate(calls):
        if _REGISTER in raw:  # no operation: a scheduler registers what it has learnt late
            model.register(raw[_REGISTER], raw["tokens"])
            continue
        if _PROCESSED in raw:  # asynchronous steps end later than their tokens are counted
            model.requests[raw[_PROCESSED]].processed = raw["tokens"]
            continue
        outcome = to_json(model.apply(operation_from_json(raw)))
        if told is not None and outcome != told:
            return f"call {number}, {raw}: {told}, not {outcome}"
    return ""
