"""Which of two settings finds faults sooner, and whether that is chance: as FuzzBench, Magma and Klees et al. do it.

Times are operations or processor seconds until a fault was found. What was not found within the budget is censored
there. All statistics are SciPy's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any

from .trials import Trial, TrialBudget

NO_CHANCE = 0.01
"""A difference that chance makes less often than this is one."""


@dataclass(frozen=True)
class Curve:
    """How soon a fault is found by one setting."""

    found: int
    trials: int
    mean: float
    """Restricted mean: the area below the survival curve, up to the budget."""
    steps: tuple[tuple[float, float], ...]
    """The Kaplan-Meier curve: from each time on, the share of trials in which it is still not found."""


@dataclass(frozen=True)
class Difference:
    """A setting against another."""

    effect: float
    """Vargha-Delaney A12: how often a trial of the setting is sooner than one of the other; 0.5 is no difference."""
    p: float
    """Mann-Whitney U, both sides."""
    log_rank: float
    """p of the log-rank test, which knows of censored trials; 1 if there is nothing to compare."""


@dataclass(frozen=True)
class Overall:
    """A setting against another, over all faults."""

    effect: float
    """The mean of A12 over the faults."""
    ratio: float
    """The geometric mean, over the faults, of restricted mean by restricted mean: below 1 the setting is sooner."""
    p_faults: float
    """Wilcoxon signed-rank test over the faults, of A12 against 0.5."""
    p_seeds: float
    """Mann-Whitney U over the seeds, of the mean logarithm of the times of all faults: all faults of a seed meet the
    same runs, so a seed is what is independent of others."""

    @property
    def verdict(self) -> str:
        """`better`, `worse` or `no difference`."""
        if self.p_seeds >= NO_CHANCE:
            return "no difference"
        return "better" if self.ratio < 1 else "worse"


def require_scipy() -> Any:
    """The statistics of SciPy. ValueError, with the extra to install, where there is none."""
    try:
        from scipy import stats
    except ImportError:
        raise ValueError("needs SciPy: pip install '/path/to/blockproof[bench]'") from None
    return stats


def curve_of(trials: Sequence[Trial], budget: TrialBudget) -> Curve:
    """The survival curve of one fault."""
    stats = require_scipy()
    spent = [trial.spent(budget) for trial in trials]
    found = [time for is_found, time in spent if is_found]
    if not found:
        return Curve(0, len(spent), budget.size, ((0.0, 1.0),))
    function = stats.ecdf(_censored(spent)).sf
    times, shares = [float(one) for one in function.quantiles], [float(one) for one in function.probabilities]
    steps = [(0.0, 1.0), *zip(times, shares, strict=True)]
    ends = [*(time for time, _ in steps[1:]), budget.size]
    mean = sum((min(end, budget.size) - time) * share for (time, share), end in zip(steps, ends, strict=True))
    return Curve(len(found), len(spent), mean, tuple(steps))


def compared(ours: Sequence[Trial], theirs: Sequence[Trial], budget: TrialBudget) -> Difference:
    """One fault by two settings."""
    stats = require_scipy()
    one, other = ([trial.spent(budget) for trial in trials] for trials in (ours, theirs))
    a, b = [time for _, time in one], [time for _, time in other]
    if len({*a, *b}) == 1:
        return Difference(0.5, 1.0, 1.0)
    test = stats.mannwhitneyu(a, b, alternative="two-sided")
    events = any(found for found, _ in (*one, *other))
    log_rank = float(stats.logrank(_censored(one), _censored(other)).pvalue) if events else 1.0
    return Difference(1 - float(test.statistic) / (len(a) * len(b)), _number(test.pvalue), _number(log_rank))


def overall(ours: Mapping[str, Sequence[Trial]], theirs: Mapping[str, Sequence[Trial]], budget: TrialBudget) -> Overall:
    """All faults, each by two settings."""
    stats = require_scipy()
    effects = [compared(ours[fault], theirs[fault], budget).effect for fault in ours]
    means = [[max(budget.least, curve_of(of[fault], budget).mean) for fault in ours] for of in (ours, theirs)]
    ratios = [one / other for one, other in zip(*means, strict=True)]
    apart = [effect - 0.5 for effect in effects if effect != 0.5]
    p_faults = _number(stats.wilcoxon(apart).pvalue) if apart else 1.0
    a, b = _by_seed(ours, budget), _by_seed(theirs, budget)
    p_seeds = 1.0 if len({*a, *b}) == 1 else _number(stats.mannwhitneyu(a, b, alternative="two-sided").pvalue)
    ratio = exp(sum(map(log, ratios)) / len(ratios))
    return Overall(sum(effects) / len(effects), ratio, p_faults, p_seeds)


def _by_seed(trials: Mapping[str, Sequence[Trial]], budget: TrialBudget) -> list[float]:
    """Of each seed the mean logarithm of its times."""
    times: dict[int, list[float]] = {}
    for of_fault in trials.values():
        for trial in of_fault:
            times.setdefault(trial.seed, []).append(log(max(trial.spent(budget)[1], budget.least)))
    return [round(sum(ours) / len(ours), 12) for ours in times.values()]


def _censored(spent: Sequence[tuple[bool, float]]) -> Any:
    stats = require_scipy()
    found = [time for is_found, time in spent if is_found]
    return stats.CensoredData(uncensored=found, right=[time for is_found, time in spent if not is_found])


def _number(p: float) -> float:
    """A p that could not be computed, since nothing differs, is 1."""
    return 1.0 if p != p else float(p)
