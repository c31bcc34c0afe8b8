"""What to run, and for how long."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..findings.known import KnownFinding
from ..findings.oracle_names import LOCKSTEP, ORACLES, SHADOW
from ..opening.oracles import memory_named
from ..reports.summary import Summary
from ..runs.canary import Canary, check_oracles
from ..runs.judging import Judging
from ..targets.base import Target, left_out_for
from ..targets.declarations import OFFERS
from ..workload.shapes import ATTENTION, EVERY_ATTENTION, possible_attention
from ..workload.tuning import USUAL_TUNING, Tuning

RUN_OPERATIONS = USUAL_TUNING.operations
"""Operations of one run before its pool is drained."""
SHRINK_SECONDS = 60.0
"""How long the finding of a run is shrunk at most."""
DEFAULT_SECONDS = 30.0
"""How long a run goes on that was given no limit."""


@dataclass(frozen=True)
class Plan:
    """What to run, and for how long. Runs end at whichever limit comes first.

    As many runs whose core cannot be built as there are to be operations are a limit as well, so that a target which
    builds none comes to an end.
    """

    seed: int
    seconds: float | None = None
    operations: int | None = None
    attention: Sequence[str] = tuple(ATTENTION)
    """Names of `shapes.EVERY_ATTENTION`, taken in turn."""
    chaos: bool = False
    """Break preconditions on purpose in every run."""
    without: tuple[str, ...] = ()
    """Known deviations that count as findings all the same (engine `random`)."""
    oracles: tuple[str, ...] = ORACLES
    keep_going: bool = False
    """Go on after a finding, and keep the shortest trace of each cause (engine `random`)."""
    known: tuple[KnownFinding, ...] = ()
    """Findings that are only counted (engine `random`)."""
    known_of: str = ""
    """A target whose findings are only counted (engine `random`); empty for none."""
    roots: Mapping[frozenset[str], str] | None = None
    """To ask for the root cause of each finding (engine `random`): what it is called, by the known deviations."""
    shrink_seconds: float = SHRINK_SECONDS
    """How long a finding is shrunk at most."""
    allow_vacuous: bool = False
    """Take it if the runs test nothing (`reports.vacuity`)."""
    tuning: Tuning = USUAL_TUNING
    """How the generator draws."""
    tensors: str | None = None
    """Where the shadow memory keeps its tags: as `opening.oracles.open_tensor_memory` takes it; None for lists."""

    def judging(self) -> Judging:
        """What judges its runs. Errors as from `memory_named`."""
        return Judging(self.oracles, self.without, memory_named(self.tensors))

    def tried(self, target: Target, judging: Judging) -> Canary | None:
        """Try the oracles before a run on this target; errors as from `check_oracles`. A fault that is planted into
        tensors is what the run has to find, so it is not in those that are tried with."""
        faulty = self.tensors is not None and self.tensors.startswith("fault:")
        return check_oracles(target, replace(judging, new_memory=memory_named("auto")) if faulty else judging)

    def possible_on(self, target: Target) -> "Plan":
        """The plan with the attention types that the target can have. ValueError if there are none."""
        lacks = self.left_out_for(target)
        possible = possible_attention(self.attention, lacks)
        if possible:
            return replace(self, attention=possible)
        every = possible_attention(tuple(EVERY_ATTENTION), lacks)
        remedy = f"choose from {', '.join(every)}" if every else "and nothing else can be built either"
        raise ValueError(f"{target.name} lacks what {', '.join(self.attention)} is made of; {remedy}")

    @property
    def unjudged(self) -> frozenset[str]:
        """What no oracle of the plan knows: two pools are judged by lockstep and by the shadow memory."""
        return frozenset() if {LOCKSTEP, SHADOW}.intersection(self.oracles) else frozenset({"Shape.host_blocks"})

    def left_out_for(self, target: Target | None) -> frozenset[str]:
        """What is not drawn for the target, or for one that offers nothing."""
        return (frozenset(OFFERS) if target is None else left_out_for(target)) | self.unjudged

    def is_over(self, summary: Summary) -> bool:
        """True once the run has come to one of its limits."""
        return (self.seconds is not None and summary.seconds >= self.seconds) or (
            self.operations is not None and max(summary.operations, summary.unbuilt.total()) >= self.operations
        )


OnProgress: TypeAlias = Callable[[Summary], None]
