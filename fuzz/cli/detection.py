"""`blockproof bench detection`: how soon planted faults are found, by one way of drawing and by another."""

import json
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .completion import mutant_names
from .options import JsonOption, as_called, jobs_option, known_or_usage, timed_teller, usage
from .outputs import to_file

if TYPE_CHECKING:
    from ..detection.report import Results
    from ..detection.runs import Bench
    from ..detection.trials import Setting, Trial
    from ..faults import Fault

OPERATIONS = 20_000
"""The budget of a trial, where nothing is said."""
MOST_KEPT = 1 << 30
"""Bytes of a file that trials are kept in."""
SAVED_EVERY = 50
"""Trials, after which the file is written again."""


def detection(
    context: typer.Context,
    setting: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A way of drawing, see --list; several by repeating it.")
    ] = None,
    against: Annotated[str | None, typer.Option(metavar="NAME", help="Hold them against this one.")] = None,
    against_git: Annotated[
        str | None, typer.Option(metavar="REF", help="Hold them against the generator of this commit.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trials of each fault by each setting.")] = 10,
    first_seed: Annotated[int, typer.Option(help="The first of the seeds.")] = 0,
    operations: Annotated[int | None, typer.Option(min=1, help="Budget of a trial; 20,000 by default.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0.1, help="Budget in processor seconds instead.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only these faults, as in eagle*.", autocompletion=mutant_names),
    ] = None,
    jobs: Annotated[int, jobs_option("Processes")] = 1,
    keep: Annotated[
        Path | None, to_file("Keep all trials in this file; those in it are not made again.", metavar="FILE")
    ] = None,
    write: Annotated[Path | None, to_file("Write the page as Markdown.", metavar="FILE")] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Only name the settings.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Hunt all planted faults from many seeds and tell how soon each is found, and by which setting sooner.

    Exits with 0, with 1 if a setting is worse than the one it is held against (p < 0.01), 3 if nothing could be tried,
    130 if Ctrl-C ended it; what was done until then is kept in the file of --keep.
    """
    from ..detection.report import require_scipy
    from ..detection.runs import Bench, TrialError
    from ..detection.trials import SETTINGS, TrialBudget

    if list_only:
        print("\n".join(f"{one.name:16} {one.describe}" for one in SETTINGS.values()))
        return
    if operations is not None and seconds is not None:
        raise typer.BadParameter("--seconds: a budget is in operations or in seconds; name one of them")
    if against is not None and against_git is not None:
        raise typer.BadParameter("--against-git: not with --against; name one of them")
    with usage():
        require_scipy()
    known_or_usage("--setting: no setting", [*(setting or []), *([against] if against else [])], SETTINGS, "see --list")
    chosen, faults = [SETTINGS[name] for name in dict.fromkeys(setting or ["usual"])], _faults(only or [])
    budget = TrialBudget(None, seconds) if seconds is not None else TrialBudget(operations or OPERATIONS)
    with TemporaryDirectory(prefix="blockproof-") as folder:
        base = _base(against, against_git, Path(folder))
        sides = [*(one for one in chosen if one.name != (base and base.name)), *([base] if base else [])]
        bench = Bench(faults, sides, range(first_seed, first_seed + seeds), budget)
        try:
            results = _run(bench, keep, jobs)
        except TrialError as error:
            print(f"blockproof: {error}", file=sys.stderr)
            raise typer.Exit(3) from None
    raise typer.Exit(_tell(results, write, as_json, as_called(context).replace("blockproof ", "blockproof bench ", 1)))


def _faults(only: Sequence[str]) -> "list[Fault]":
    """The faults that are asked for, without those that need torch where it is missing. BadParameter if a pattern fits
    none."""
    from ..engines.mutants import MUTANTS, can_be_tried
    from ..faults import LIST

    plain = [pattern for pattern in only if not any(fnmatch(name, pattern) for name in MUTANTS)]
    known_or_usage("--only: no fault", plain, MUTANTS, LIST)
    chosen = [one for name, one in MUTANTS.items() if not only or any(fnmatch(name, pattern) for pattern in only)]
    return [fault for fault in chosen if can_be_tried(fault)]


def _base(against: str | None, against_git: str | None, folder: Path) -> "Setting | None":
    """What the others are held against. BadParameter for a commit that is none."""
    from ..detection.trials import SETTINGS, Setting
    from ..releases.git import write_generator

    if against_git is None:
        return None if against is None else SETTINGS[against]
    with usage("--against-git"):
        commit = write_generator(against_git, folder)
    return Setting(commit, f"the generator of commit {commit}", generator=folder)


def _run(bench: "Bench", kept: Path | None, jobs: int) -> "Results":
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


def _places(bench: "Bench") -> set[tuple[str, str]]:
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
