"""What a conformance check says: a line for each answer, in scenarios."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias

FORM = frozenset({
    "types", "per-group", "lists", "not-per-group", "allocate-value", "lookup-value", "labels-order", "ref-cnt-length",
    "labels-length", "earliest-length", "hit-in-blocks",
})  # fmt: skip
"""Mistakes in the form of an answer, which the target makes alone: types, units, how labels are numbered."""
ENGINE: Mapping[str, str] = {
    "ids": "it uses a block that it does not have (S4): its kernels would read or write other memory",
    "null-block": "it frees or hands out the block that it keeps for nothing (S4)",
    "pool-size": "it builds a pool of another size than it is asked for",
    "free-twice": "a block stands twice in its free list, so two requests will get it (S1, S2)",
    "free-list": "it has freed a block that is still held: a use after free (S1), and whoever gets it writes there",
    "num-free": "its count of free blocks is not right (S1)",
    "free-without-cached": "it has lost blocks: nobody holds them, and they are never free again (S1)",
    "free-too-many": "it has freed blocks that are held, or that it does not have (S1)",
    "references": "it counts references wrongly, so that a block is given back too early or never (S1)",
    "changed-when-refused": "its refusal leaves something behind (S8)",
    "changed-when-answered": "a call that only asks changes what it holds or finds",
    "raised-for-no-room": "it fails where it has to refuse (S8); a scheduler would lose its requests",
    "raised": "it fails at a call that makes sense (S8)",
    "not-refused": "it admits more than it has room for, so that blocks of others are used (S2) or too few (S15)",
    "refused-with-room": "it refuses although there is room: it counts what is cached or held as taken (L1)",
    "refused": "it refuses what it has to do",
    "free-unknown": "it fails when somebody frees what it does not know (S12), as happens when a client hangs up",
    "lookup-refused": "its lookup gives up where it finds nothing, or has no room",
    "hash-blocks": "it does not know the tokens that it was told, or hashes another number of blocks",
    "no-hit": "it loses what was computed, or does not find it (S14)",
    "hit-of-all": "it hits the last token, too, so that nothing is left to compute (S7)",
    "hit-too-long": "it finds what is not the same content, or not there any more (S7): others' tokens would be read",
    "hit-blocks": "its hit has more or fewer blocks than tokens (S7)",
    "new-blocks": "it gives too few blocks, so that tokens have no place (S15), or more than are needed",
    "pieces": "it gives too few blocks, so that tokens have no place (S15), or more than are needed",
    "not-only-new": "it hands out blocks that the request holds already (S2)",
    "table": "what it answers is not what it holds: who is told the answer writes elsewhere (S5)",
    "external-room": "it gives no room to tokens that come from outside (S15)",
    "table-left": "it keeps blocks of a request that has gone (S12)",
    "builds-nothing": "it fails to build what it is asked for",
    "crash": "it ends its process: that is a finding",
    "hang": "it does not come back: that is a finding",
    "memory": "it takes more and more memory: that is a finding",
    "protocol": "it raises where nothing is wrong with the call: then `failed(error)` shows it as what it is",
}
"""By mistake: what the engine does wrong, if the target shows it as it is."""


def engine_does(mistake: str) -> str:
    """What the engine does wrong if it is not the target that does, after "or the engine: "; empty if only the target
    can be wrong."""
    if mistake in FORM:
        return ""
    if mistake.startswith("value-of-"):
        return f"it does something else at {mistake.removeprefix('value-of-')} than a scheduler relies on"
    violated = f"it violates {mistake}, and the target shows it as it is: keep it as a finding"
    return ENGINE.get(mistake, violated)


WHICH = (
    "whose it is: look at what the engine itself has at that call (its free list, its counts, its table). If it has "
    "what is shown, the engine is wrong: leave the target as it is, and go on with blockproof fuzz"
)
"""How to tell them apart."""


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
