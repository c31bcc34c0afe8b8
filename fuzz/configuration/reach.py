"""The counts of a run over drawn configurations, for its report and for the floors that it must reach."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..reports.document import Table, counted, crossed
from ..reports.run import Declared, deviation_table
from ..reports.summary import unseen
from ..runs.canary import Canary
from ..targets.deviations import Deviation
from .draw import Answer, Configuration
from .findings import ConfigurationFinding, manner

TABLES = ("total", "ops", "answers", "specs", "situations", "invariants")
"""Tables of a floors file for configurations."""
LONG_RUN = 10_000
"""Configurations from which on a declared deviation that never showed counts as stale."""
TOTALS = ("configurations", "questions")


@dataclass
class Reach:
    """The counts of one run."""

    target: str
    seed: int | None = None
    configurations: int = 0
    questions: int = 0
    seconds: float = 0.0
    interrupted: bool = False
    ops: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    """Questions by op and how the target's answer ends."""
    specs: Counter[str] = field(default_factory=Counter)
    """Configurations by the classes and quantisation modes of their specs."""
    situations: Counter[str] = field(default_factory=Counter)
    invariants: Counter[str] = field(default_factory=Counter)
    """Configurations in which an invariant had answers to look at."""
    lacking: Counter[str] = field(default_factory=Counter)
    """Questions about something that the target lacks: not asked, or asked without it."""
    deviations: Counter[str] = field(default_factory=Counter)
    """Questions in which a known deviation of the target showed, by id; 0 for those that never did."""
    declared: tuple[Deviation, ...] = ()
    """The known deviations of the target; a `Judge` sets them."""
    findings: list[ConfigurationFinding] = field(default_factory=list)
    """One of each kind."""
    canary: Canary | None = None
    """What was planted before the run, and what has seen it."""

    def add_question(self, op: str, answer: Answer) -> None:
        """Count a question and the answer to it."""
        self.questions += 1
        self.ops[op] += 1
        self.answers[f"{op}: {manner(answer)}"] += 1
        if op == "groups" and "output" in answer:
            self.situations.update(_grouping(answer["output"]))

    def add_configuration(self, configuration: Configuration) -> None:
        """Count a configuration and what it is made of."""
        self.configurations += 1
        self.specs.update({str(spec["type"]) for spec in configuration.specs.values()})
        self.specs.update(
            {str(spec["kv_quant_mode"]) for spec in configuration.specs.values() if "kv_quant_mode" in spec}
        )
        self.situations[f"workers: {len(configuration.workers)}"] += 1
        if any(configuration.workers) and not all(configuration.workers):
            self.situations["a worker without layers"] += 1
        self.situations.update(f"set: {name}" for name in configuration.vllm_config)

    def tables(self) -> Sequence[Table]:
        """The tables of the report."""
        answers: dict[str, dict[str, int]] = {}
        for name, times in self.answers.items():
            op, _, how = name.partition(": ")
            answers.setdefault(op, {})[how] = times
        declared = [Declared(one.id, self.deviations[one.id], one.reason, 0, one.chaos_only) for one in self.declared]
        declared.sort(key=lambda one: one.id)
        return (
            crossed("Questions and answers", "question", answers, ("output",)),
            counted("Specs", ("class or quantisation", "configurations"), self.specs),
            counted("Situations reached", ("situation", "times"), self.situations),
            counted("Invariants (specs-and-config.md §15)", ("id", "configurations"), self.invariants),
            *([counted("What the release lacks", ("what", "questions"), self.lacking)] if self.lacking else []),
            deviation_table(declared, long_run=self.configurations >= LONG_RUN),
        )

    def stale(self) -> list[str]:
        """Known deviations that never showed."""
        return unseen(self.declared, self.deviations)

    def as_json(self) -> dict[str, Any]:
        """The counts as one document; of findings, only how many."""
        return {
            "target": self.target,
            "seed": self.seed,
            "configurations": self.configurations,
            "questions": self.questions,
            "seconds": round(self.seconds, 3),
            "interrupted": self.interrupted,
            "canary": self.canary and self.canary.as_json(),
            **{
                name: dict(sorted(getattr(self, name).items()))
                for name in ("ops", "answers", "specs", "situations", "invariants", "lacking", "deviations")
            },
            "stale_deviations": self.stale(),
            "findings": len(self.findings),
        }

    def unmet(self, floors: Mapping[str, Mapping[str, int]]) -> list[str]:
        """A line for each floor that was not reached."""
        total = {"configurations": self.configurations, "questions": self.questions}
        return [
            f"{table}: {name!r} {times} times, floor {floor}"
            for table, wanted in floors.items()
            for name, floor in wanted.items()
            if (times := (total if table == "total" else getattr(self, table)).get(name, 0)) < floor
        ]


def _grouping(answer: Mapping[str, Any]) -> set[str]:
    """Which ways of grouping an answer shows."""
    groups, specs = answer["groups"], answer["specs"]
    if not groups:
        return {"groups: none"}
    uniform = ["members" in group for group in groups]
    if len(groups) == 1:
        shown = {"groups: one type" if uniform[0] else "groups: one spec"}
    elif all(uniform):
        shown = {"groups: several types"}
    else:
        shown = {"groups: two" if len(groups) == 2 else "groups: three to five" if len(groups) < 6 else "groups: more"}
        if len({len(group["layers"]) for group in groups}) > 1:
            shown.add("groups: padded")
    if len(groups) > 1 and any(spec["type"] == "HiddenStateCacheSpec" for spec in specs):
        shown.add("groups: hidden states")
    if any(group.get("eagle") for group in groups):
        shown.add("groups: eagle mark")
    return shown
