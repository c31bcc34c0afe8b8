"""What came out for a theorem and a core."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from .kernel import Evidence
from .solver import Obligation

Status: TypeAlias = Literal["proved", "refuted", "undecided", "unavailable"]


@dataclass
class Verdict:
    """What came out for one theorem and one core. Plain data."""

    theorem: str
    subject: str
    status: Status
    paths: int = 0
    questions: int = 0
    seconds: float = 0.0
    counterexample: dict[str, int] | None = None
    replayed: bool = False
    """True if the counterexample was run on the real code and the claim failed there."""
    covered: dict[str, str] = field(default_factory=dict)
    """Functions of the core that ran, `module:name`, with a hash of their source."""
    roles: list[str] = field(default_factory=list)
    """The roles that were asked for, where the claim is about symbols."""
    controls: dict[str, Status] = field(default_factory=dict)
    smtlib: list[str] = field(default_factory=list)
    """Every obligation that the solver proved."""
    needed: dict[str, str] = field(default_factory=dict)
    """For such an obligation the stronger one, with those hypotheses only that the solver took, as far as it said."""
    satisfiable: list[str] = field(default_factory=list)
    """Questions of which a second solver must find that they can be satisfied: the assumptions, each counterexample."""
    message: str = ""
    """Why it is undecided or unavailable; how the replay ended."""
    bounded: str = ""
    """What is not symbolic (`Statement.bounded`): a proof is one within these bounds."""
    replays: int = 0
    """Runs of the real code on plain values: examples of its paths, random models of the assumptions, tried cases."""
    largest: int = 0
    """The largest number among these values."""
    evidence: str = ""
    """Of what was tried and not derived: a digest of all cases (`kernel.Evidence`)."""

    def note_replay(self, values: dict[str, int]) -> None:
        """Note a run of the real code on these values."""
        self.replays += 1
        self.largest = max([self.largest, *(abs(value) for value in values.values())])

    def note_evidence(self, evidence: Evidence) -> None:
        """Note the cases that were tried on the real code."""
        self.paths, self.replays, self.evidence = evidence.cases, evidence.run, evidence.digest

    def note_proof(self, obligation: Obligation) -> None:
        """Note an obligation that the solver proved."""
        text = obligation.smtlib()
        self.smtlib.append(text)
        self.needed[text] = obligation.needed()

    def note_counterexample(self, values: dict[str, int], how: str) -> None:
        """Note values for which the claim failed on the real code, and how."""
        self.status, self.counterexample, self.replayed, self.message = "refuted", values, True, how

    def note_control(self, wrong: str, raises: str, outcome: "Verdict") -> None:
        """Note what came out for a negative control: this is `undecided` unless it is refuted on the real code, by a
        claim that fails there, or by the error that the control says it `raises`."""
        self.controls[wrong] = outcome.status
        problem = ""
        if outcome.status != "refuted" or not outcome.replayed:
            problem = f"is {outcome.status}, not refuted. {outcome.message}"
        elif outcome.raised != raises:
            meant = f"by {raises}" if raises else "by a claim that fails"
            problem = f"is refuted only because it {outcome.message}, and not {meant}"
            self.controls[wrong] = "undecided"
        if problem:
            self.status = "undecided"
            self.message += f"negative control '{wrong}' {problem}"
        else:
            self.satisfiable += outcome.satisfiable[1:]

    @property
    def raised(self) -> str:
        """The type of the error by which it is refuted; empty if a claim fails."""
        head, _, rest = self.message.partition("raises ")
        return rest.partition(":")[0] if rest and not head else ""
