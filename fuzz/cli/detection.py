"""`blockproof mutants --against`: how soon planted faults are found, by one way of drawing and by another."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import typer

from .options import known_or_usage, timed_teller, usage

if TYPE_CHECKING:
    from ..detection.report import Results
    from ..detection.runs import TrialBench
    from ..detection.trials import Setting, Trial
    from ..faults import Fault

OPERATIONS = 20_000
"""The budget of a trial, where nothing is said."""
MOST_KEPT = 1 << 30
"""Bytes of a file that trials are kept in."""
SAVED_EVERY = 50
"""Trials, after which the file is written again."""


@dataclass(frozen=True)
class TrialComparison:
    """What is asked: by which ways of drawing faults are hunted, and what they are held against."""

    settings: Sequence[str]
    against: str | None
    against_git: str | None
    seeds: range
    operations: int | None
    seconds: float | None
    only: Sequence[str]
    jobs: int
    keep: Path | None
    write: Path | None
    as_json: bool
    command: str


def list_settings() -> None:
    """Name the ways of drawing."""
    from ..detection.trials import SETTINGS

    print("\n".join(f"{one.name:16} {one.describe}" for one in SETTINGS.values()))


def compare(asked: TrialComparison) -> int:
    """Hunt all planted faults from many seeds and tell how soon each is found. The exit code of `mutants`."""
    from ..detection.report import require_scipy
    from ..detection.runs import TrialBench, TrialError
    from ..detection.trials import SETTINGS, TrialBudget

    if asked.operations is not None and asked.seconds is not None:
        raise typer.BadParameter("--seconds: a budget is in operations or in seconds; name one of them")
    if asked.against is not None and asked.against_git is not None:
        raise typer.BadParameter("--against-git: not with --against; name one of them")
    with usage():
        require_scipy()
    named = [*asked.settings, *([asked.against] if asked.against else [])]
    known_or_usage("--setting: no setting", named, SETTINGS, "see --settings")
    chosen, faults = [SETTINGS[name] for name in dict.fromkeys(asked.settings or ["usual"])], _faults(asked.only)
    budget = TrialBudget(asked.operations or OPERATIONS) if asked.seconds is None else TrialBudget(None, asked.seconds)
    with TemporaryDirectory(prefix="blockproof-") as folder:
        base = _base(asked.against, asked.against_git, Path(folder))
        sides = [*(one for one in chosen if one.name != (base and base.name)), *([base] if base else [])]
        try:
            results = _run(TrialBench(faults, sides, asked.seeds, budget), asked.keep, asked.jobs)
        except TrialError as error:
            print(f"blockproof: {error}", file=sys.stderr)
            return 3
    return _tell(results, asked.write, asked.as_json, asked.command)


def _faults(only: Sequence[str]) -> "list[Fault]":
    """The faults that are asked for, without those that need torch where it is missing. BadParameter if a pattern fits
    none."""
    from ..engines.mutants import MUTANTS, can_be_tried
    from ..faults import LIST

    return [fault for fault in faults_named(only, MUTANTS, LIST) if can_be_tried(fault)]


def faults_named(only: Sequence[str], known: "Mapping[str, Fault]", listed: str) -> "list[Fault]":
    """Those that fit one of the patterns, or all. BadParameter if a pattern fits none; `listed` names what there is."""
    plain = [pattern for pattern in only if not any(fnmatch(name, pattern) for name in known)]
    known_or_usage("--only: no fault", plain, known, listed)
    return [one for name, one in known.items() if not only or any(fnmatch(name, pattern) for pattern in only)]


def _base(against: str | None, against_git: str | None, folder: Path) -> "Setting | None":
    """What the others are held against. BadParameter for a commit that is none."""
    from ..detection.trials import SETTINGS, Setting
    from ..releases.git import write_generator

    if against_git is None:
        return None if against is None else SETTINGS[against]
    with usage("--against-git"):
        commit = write_generator(against_git, folder)
    return Setting(commit, f"the generator of commit {commit}", generator=folder)


def _run(bench: "TrialBench", kept: Path | None, jobs: int) -> "Results":
    """Make the trials that are missing, and keep all of them, also where Ctrl-C or an error ends it."""
    from ..detection.report import Results
    from ..detection.runs import run_all
    from ..reports.progress import steps

    before = _read(kept)
    trials = [*bench.known(before).values()]
    others = [trial for trial in before if (trial.setting, trial.fault) not in _places(bench)]
    total = len(bench.faults) * len(bench.settings) * len(bench.seeds)
    timed_teller()(f"{total:,} trials, {len(trials):,} of them known")
    with steps(total, "trial") as show:

        def done(trial: "Trial") -> None:
            trials.append(trial)
            show(len(trials), f"{trial.setting}, {trial.fault}")
            if kept is not None and len(trials) % SAVED_EVERY == 0:
                _save(kept, [*others, *trials])

        try:
            run_all(bench, [*trials], jobs, done)
        finally:
            if kept is not None:
                _save(kept, [*others, *trials])
    results = Results(bench, trials)
    if kept is not None:
        _save(kept, [*others, *trials], results)
    return results


def _places(bench: "TrialBench") -> set[tuple[str, str]]:
    return {(setting.name, fault.name) for setting in bench.settings for fault in bench.faults}


def _read(path: Path | None) -> "list[Trial]":
    """The trials of an earlier benchmark. BadParameter if the file holds something else."""
    import msgspec

    from ..detection.report import VERSION, File
    from ..findings.reading import UnreadableError, read_bytes

    if path is None or not path.exists():
        return []
    try:
        file = msgspec.json.decode(read_bytes(path, "benchmark of detection", MOST_KEPT), type=File)
    except UnreadableError as error:
        raise typer.BadParameter(f"--keep: {path}: {error}") from None
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"--keep: {path} is no benchmark of detection ({error}); name another file") from None
    if file.detection != VERSION:
        raise typer.BadParameter(f"--keep: {path} is of version {file.detection}, not {VERSION}; name another file")
    return file.trials


def _save(path: Path, trials: "Sequence[Trial]", results: "Results | None" = None) -> None:
    import msgspec

    from ..detection.report import VERSION
    from ..findings.writing import write_file

    document: dict[str, Any] = {"detection": VERSION} if results is None else results.as_json()
    document["trials"] = [msgspec.to_builtins(trial) for trial in trials]
    write_file(path, json.dumps(document) + "\n")


def _tell(results: "Results", write: Path | None, as_json: bool, command: str) -> int:
    from ..detection.report import lines, markdown
    from ..findings.writing import write_file

    if write is not None:
        write_file(write, markdown(results, command))
    print(json.dumps(results.as_json()) if as_json else "\n".join(lines(results)))
    return 1 if results.is_worse() else 0
