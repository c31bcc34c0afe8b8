"""What a conformance check says: a line for each answer, in scenarios."""

from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias

from .blame import engine_does

Verdict: TypeAlias = Literal["ok", "wrong", "hint", "left out", "bug"]


BUILDS_NOTHING = "builds-nothing"
"""The mistake of a target that builds no core that could be asked."""


class Wrong(Exception):
    """An answer is not what it must be. Caught where the question was asked."""

    def __init__(self, mistake: str, expected: str, advice: str) -> None:
        super().__init__(expected)
        self.mistake = mistake
        self.expected = expected
        self.advice = advice


@dataclass(frozen=True)
class Line:
    """One answer, or one thing that the target says of itself."""

    verdict: Verdict
    asked: str
    """The question."""
    came: str
    """The answer."""
    expected: str
    """What the answer must be; of a right answer, why it is right."""
    advice: str = ""
    """What to do if the target is wrong; empty for a right answer."""
    mistake: str = ""
    """Name of the mistake, one for each that is known; empty for a right answer."""

    @property
    def engine(self) -> str:
        """What the engine does wrong, if it is not the target that is; empty where only the target can be."""
        return engine_does(self.mistake) if self.verdict == "wrong" else ""

    def lines(self) -> list[str]:
        """The answer as text: one line, or three or four if there is something to do."""
        head = f"  {self.verdict.upper() if self.verdict in ('wrong', 'bug') else self.verdict:8}  {self.asked}"
        came = f" -> {self.came}" if self.came else ""
        if not self.advice:
            return [f"{head}{came}" + (f": {self.expected}" if self.expected else "")]
        told = [f"{head}{came}", f"            expected: {self.expected}"]
        if not self.engine:
            return [*told, f"            do: {self.advice}"]
        return [*told, f"            either the target: {self.advice}", f"            or the engine: {self.engine}"]


@dataclass
class Scenario:
    """A scripted story on one core."""

    name: str
    lines: list[Line] = field(default_factory=list)


@dataclass
class Conformance:
    """What was asked of a target, and how it answered."""

    scenarios: list[Scenario] = field(default_factory=list)
    asked: int = 0
    """Operations that were asked."""
    shares_running: bool = True
    """False if the blocks of a running request are not found by others; those of a finished one must be."""

    def of(self, verdict: Verdict) -> list[Line]:
        """All lines of this verdict, in order."""
        return [line for scenario in self.scenarios for line in scenario.lines if line.verdict == verdict]

    @property
    def mistakes(self) -> list[str]:
        """Names of the mistakes, in the order in which they were seen."""
        return [line.mistake for line in self.of("wrong")]

    @property
    def code(self) -> int:
        """Exit code of the check: 0 if all is well, 1 if an answer is wrong, 3 if nothing could be asked, 70 if none
        is, but blockproof has failed."""
        if self.mistakes:
            return 3 if BUILDS_NOTHING in self.mistakes else 1
        return 70 if self.of("bug") else 0

    def lines(self, *, all_of_them: bool = True) -> list[str]:
        """The report as text; without `all_of_them` only the scenarios in which something is to be done."""
        told = []
        for scenario in self.scenarios:
            if all_of_them or any(line.advice for line in scenario.lines):
                told += [scenario.name, *(text for line in scenario.lines for text in line.lines())]
        return told

    def as_json(self) -> dict[str, object]:
        """The report as a JSON document."""
        scenarios = [
            {"name": each.name, "lines": [asdict(line) | {"engine": line.engine} for line in each.lines]}
            for each in self.scenarios
        ]
        return {
            "asked": self.asked,
            "wrong": len(self.of("wrong")),
            "hints": len(self.of("hint")),
            "scenarios": scenarios,
        }
