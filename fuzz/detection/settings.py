"""Ways of drawing runs that can be held against one another, by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..workload.shapes import ATTENTION
from ..workload.tuning import USUAL_TUNING, Tuning

THREE = tuple(name for name, kinds in ATTENTION.items() if len(kinds) == 3)
FEWER = tuple(name for name in ATTENTION if name not in THREE)
OTHER_SEEDS = 1_000_000
"""How far the seeds of the setting `again` lie from those of the others."""


@dataclass(frozen=True)
class Setting:
    """One way of drawing runs."""

    name: str
    describe: str
    changed: Mapping[str, object] = field(default_factory=dict)
    """Fields of `Tuning` that are not as usual."""
    engine: str = "random"
    """Name of one of `ENGINES`."""
    chaos: bool = False
    attention: tuple[str, ...] = tuple(ATTENTION)
    seeds_from: int = 0
    """Added to every seed."""
    generator: Path | None = None
    """A folder with the generator of another commit, in place of `fuzz/workload`."""

    @property
    def tuning(self) -> Tuning:
        """How its generator draws. TypeError for a field that a generator of another commit does not have."""
        return replace(USUAL_TUNING, **self.changed) if self.changed else USUAL_TUNING  # type: ignore[arg-type]


def _tuned(name: str, describe: str, **changed: object) -> Setting:
    return Setting(name, describe, changed)


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("usual", "as every run draws"),
        Setting("again", "as usual, from other seeds: what chance alone does", seeds_from=OTHER_SEEDS),
        Setting("chaos", "misuse in every run", chaos=True),
        Setting("triples", "only hybrids of three groups", attention=THREE),
        Setting("no-triples", "no hybrids of three groups", attention=FEWER),
        _tuned("no-swarm", "every action as frequent as any run has it on average", swarm=(1,)),
        _tuned("cold-prefixes", "prompts share no prefix but with those that are sent again", hot_prefixes=False),
        _tuned("no-again", "no prompt is sent again on its own account", again=(0,)),
        _tuned("no-boundaries", "prompts of any length", boundaries=0),
        _tuned("no-cuts", "blocks of an earlier request are not evicted before it is sent again", cuts=0),
        _tuned("no-peels", "no hit loses a block before it is used", peels=(0,)),
        _tuned("no-ladders", "hits that lose a block lose further ones as others do", ladder=0),
        _tuned("other-answers", "what is sent again is answered anew", answers=0),
        _tuned("loose", "reservations leave any number of blocks", tight=0),
        _tuned("freed-back", "what makes room after a refusal is mostly freed, seldom preempted", preempting=(1,)),
        _tuned("no-deep", "hybrids with few places where a hit may end", deep=0),
        _tuned("no-rounds", "no more runs about lookups that take several rounds than about others", rounds=0),
        _tuned("no-steps", "no runs about steps of long requests, batches and tokens in flight", steps=0),
        _tuned("small-pools", "pools of few blocks", pools="small"),
        _tuned("large-pools", "pools with room for everything", pools="large"),
        _tuned("no-drain", "runs end without giving back what is held", drain=False),
        _tuned("short-runs", "runs of 50 operations", operations=50),
        _tuned("runs-of-200", "runs of 200 operations", operations=200),
        _tuned("long-runs", "runs of 800 operations", operations=800),
        _tuned("reads-only", "calls that only read, so nothing can be found: checks the benchmark", reads_only=True),
    )
}
"""All of them by name; a script may add its own."""
