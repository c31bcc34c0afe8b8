"""One trial: a planted fault is hunted from one seed, by one setting, up to a budget.

A setting is a way of drawing runs; settings are held against one another by name.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from pathlib import Path

import msgspec

from ..engines.mutants import MUTANTS, own_mistake
from ..engines.plan import Plan
from ..engines.seeded import run_engine
from ..faults import Fault, Part
from ..opening.targets import open_target
from ..reports.summary import Summary
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


_PACKAGE = Path(__file__).resolve().parents[2]
_DECIDES = ("model", "impl", *(f"fuzz/{name}" for name in ("adapters", "oracles", "runs", "targets", "engines")))
"""Folders that decide when a fault is found, besides the generator and the fault's own module."""


@dataclass(frozen=True)
class TrialBudget:
    """How long a fault is looked for; one of them is set."""

    operations: int | None = None
    seconds: float | None = None
    """Of processor time."""

    @property
    def unit(self) -> str:
        """What it is counted in."""
        return "seconds" if self.operations is None else "operations"

    @property
    def least(self) -> float:
        """A shorter time counts as this one where logarithms are taken: some faults show when a core is built."""
        return 0.001 if self.operations is None else 1.0

    @property
    def size(self) -> float:
        """How much that is."""
        return float(self.operations or self.seconds or 0)


class TrialTask(msgspec.Struct, frozen=True):
    """What is to be tried."""

    fault: str
    seed: int
    setting: str
    operations: int | None = None
    seconds: float | None = None


class Trial(msgspec.Struct):
    """What became of it."""

    fault: str
    seed: int
    setting: str
    found: bool
    operations: int
    """Until it was found, or that were made in vain."""
    seconds: float
    """The same in processor time."""
    lookups: int = 0
    hits: int = 0
    key: str = ""
    """Of the code that decided it (`key_of`)."""

    def spent(self, budget: TrialBudget) -> tuple[bool, float]:
        """Whether it was found within the budget, and how much of that was spent."""
        spent = float(getattr(self, budget.unit))
        return (True, spent) if self.found and spent <= budget.size else (False, budget.size)

    def settles(self, budget: TrialBudget) -> bool:
        """True if it says all that a trial with this budget would."""
        return self.found or float(getattr(self, budget.unit)) >= budget.size


class _OverError(Exception):
    """The processor time is spent."""


def run_trial(task: TrialTask) -> Trial:
    """Hunt the fault of `MUTANTS`. What it finds, and after how many operations, is the same on every machine.

    An error of the code that plants the fault counts as not found.
    """
    fault, setting, begin = MUTANTS[task.fault], SETTINGS[task.setting], time.process_time()
    named = f"fault:{fault.name}"
    target = open_target(named if fault.part == Part.CORE else "impl")
    plan = Plan(
        task.seed + setting.seeds_from,
        None,
        task.operations,
        attention=setting.attention,
        chaos=setting.chaos,
        oracles=fault.oracles,
        tuning=setting.tuning,
        tensors=None if fault.part == Part.CORE else named,
    )
    done = Summary(target.name, setting.engine, plan.seed)

    def watch(_: Summary) -> None:
        if task.seconds is not None and time.process_time() - begin >= task.seconds:
            raise _OverError

    try:
        run_engine(target, plan, done, watch)
    except _OverError:
        pass
    finally:
        target.close()
    found = done.finding is not None and not own_mistake(fault, done.finding)
    seconds = round(time.process_time() - begin, 3)
    reached = done.hits["lookups"], done.hits["hits"]
    return Trial(task.fault, task.seed, task.setting, found, done.operations, seconds, *reached)


def key_of(fault: Fault, setting: Setting) -> str:
    """A digest of all code that decides how a trial ends, of the oracles that judge and of the setting."""
    generator = setting.generator or _PACKAGE / "fuzz" / "workload"
    digest = sha256(_digest(generator).encode())
    for name in _DECIDES:
        digest.update(_digest(_PACKAGE / name).encode())
    digest.update(_PACKAGE.joinpath("fuzz", "faults", _module_of(fault)).read_bytes())
    what = (
        sorted(setting.changed.items()),
        setting.engine,
        setting.chaos,
        setting.attention,
        setting.seeds_from,
        fault.oracles,
    )
    digest.update(repr(what).encode())
    return digest.hexdigest()[:16]


def _module_of(fault: Fault) -> str:
    return fault.plant.__module__.rpartition(".")[2] + ".py"


@cache
def _digest(folder: Path) -> str:
    digest = sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
