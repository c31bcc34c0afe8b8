"""All trials of a benchmark: what is known already is not tried again, the rest is shared among processes."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import msgspec

from ..faults import Fault
from ..opening.workers import Pool
from .trials import Setting, Trial, TrialBudget, TrialTask, key_of, run_trial
from .worker import make_trial


class TrialError(Exception):
    """A process that makes trials failed; the text is one line."""


@dataclass(frozen=True)
class TrialBench:
    """What is tried."""

    faults: Sequence[Fault]
    settings: Sequence[Setting]
    seeds: Sequence[int]
    budget: TrialBudget

    def known(self, trials: Collection[Trial]) -> dict[tuple[str, int, str], Trial]:
        """Those of the trials that belong to it and were decided by the code as it is now."""
        keys = {(fault.name, one.name): key_of(fault, one) for fault in self.faults for one in self.settings}
        return {
            (trial.fault, trial.seed, trial.setting): trial
            for trial in trials
            if keys.get((trial.fault, trial.setting)) == trial.key
            and trial.seed in self.seeds
            and trial.settles(self.budget)
        }

    def of(self, trials: Collection[Trial], setting: str, fault: str) -> list[Trial]:
        """The trials of one fault by one setting, by their seeds."""
        return sorted((t for t in trials if (t.setting, t.fault) == (setting, fault)), key=lambda trial: trial.seed)


def run_all(bench: TrialBench, known: Collection[Trial], jobs: int, done: Callable[[Trial], None]) -> None:
    """Make the trials that are missing; `done` is told each, in this thread. TrialError if a process fails."""
    there = bench.known(known)
    for setting in bench.settings:
        keys = {fault.name: key_of(fault, setting) for fault in bench.faults}
        tasks = [
            TrialTask(fault.name, seed, setting.name, bench.budget.operations, bench.budget.seconds)
            for seed in bench.seeds
            for fault in bench.faults
            if (fault.name, seed, setting.name) not in there
        ]

        def tell(trial: Trial, keys: dict[str, str] = keys) -> None:
            trial.key = keys[trial.fault]
            done(trial)

        if jobs == 1 and setting.generator is None:
            for task in tasks:
                tell(run_trial(task))
        else:
            _shared(tasks, jobs, setting, tell)


def _shared(tasks: Sequence[TrialTask], jobs: int, setting: Setting, tell: Callable[[Trial], None]) -> None:
    """The tasks among so many processes, which are ended whatever happens."""
    with Pool(make_trial, jobs) as pool:
        for number, task in enumerate(tasks):
            name = "usual" if setting.generator is not None else task.setting  # there it draws as usual
            pool.submit(number, (setting.generator, msgspec.structs.asdict(task) | {"setting": name}))
        while pool.busy:
            for event in pool.events():
                if isinstance(event.said, Exception):
                    raise TrialError(f"{setting.name}: {str(event.said).strip().splitlines()[-1]}")
                event.said.setting = setting.name
                tell(event.said)
