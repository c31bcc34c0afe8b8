"""What several commands share: their options, how the text of these is read, and where a command prints.

Every function whose name ends in `_or_usage` raises BadParameter, in one line, for a text that cannot be understood.
"""

import os
import re
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from ..adapters import forms
from ..opening.names import FORMS, runs_code
from ..targets.base import TargetUnavailableError
from .completion import attention_lists, oracle_lists, target_names
from .outputs import to_file, to_folder

if TYPE_CHECKING:
    from ...model.ops import Shape
    from ..oracles.shadow import Memory
    from ..page.live import LivePage
    from ..releases.commit_target import Wanted
    from ..targets.base import Calculator, Target

OpenedT = TypeVar("OpenedT", "Target", "Calculator")
T = TypeVar("T")
TargetOption = Annotated[
    str,
    typer.Option(
        help=f"impl, {forms()}, {FORMS}, program:COMMAND or fault:NAME.",
        show_default=True,
        autocompletion=target_names,
    ),
]


def duration(value: object) -> float:
    """Seconds: a number, or a text such as `90`, `90s`, `30m`, `8h`. BadParameter for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)(s|m|h|)", str(value).strip())
    if match is None or len(match[1]) > 30:
        raise typer.BadParameter(f"{value!r} is no time; write seconds, or as in 90s, 30m, 8h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3_600}[match[2]]


def seconds_option(text: str) -> Any:
    """An option for a time."""
    return typer.Option("--seconds", metavar="TIME", parser=duration, help=f"{text}; 90, 30m or 8h.")


def jobs_option(text: str, most: int = 1024) -> Any:
    """An option for a number of processes."""
    return typer.Option(min=0, max=most, callback=_of_cores, help=f"{text}; 0 takes as many as there are cores.")


def _of_cores(jobs: int) -> int:
    return jobs or os.cpu_count() or 1


SecondsOption = Annotated[float | None, seconds_option("How long to run, 30 s if no limit is given")]
ShrinkOption = Annotated[float, typer.Option(min=0.0, help="How long a finding is shrunk at most; 0: not at all.")]
SeedOption = Annotated[int | None, typer.Option(help="Same seed, same runs; drawn and printed by default.")]
AttentionOption = Annotated[
    str, typer.Option(help="Attention types, as in full,sliding,full+mamba.", autocompletion=attention_lists)
]
OracleOption = Annotated[
    list[str] | None,
    typer.Option(
        help="What judges: lockstep, shadow, contract, liveness, or all; several with commas or by repeating it. By "
        "default auto: what suits the target. With strict besides, known losses are findings; "
        "with landed, blocks are that two write into at once: a step, a load, a new owner (S13).",
        autocompletion=oracle_lists,
    ),
]
TensorsOption = Annotated[
    str | None, typer.Option(help="Shadow memory in tensors on cpu, cuda or auto; fault:NAME plants a fault there.")
]
OutOption = Annotated[Path, to_folder("Folder for what is found; made when something is.")]
FloorsOption = Annotated[Path | None, typer.Option(help="TOML file of what must have been reached.")]
AllowVacuousOption = Annotated[
    bool, typer.Option("--allow-vacuous", help="A run that tested nothing is no failure, only a note.")
]
IsolateOption = Annotated[
    bool | None,
    typer.Option(
        "--isolate/--no-isolate",
        help="Run the target in a process of its own; by default that is done with your own code and with releases.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document, for machines.")]
LiveOption = Annotated[
    Path | None,
    to_file("Write the page of the run to this file, anew every few seconds; a browser that has it open follows."),
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="Show also the changes that both sides of a difference have made alike.")
]
TraceArgument = Annotated[Path, typer.Argument(metavar="TRACE", help="A trace file.")]
RecordedTargetOption = Annotated[
    str | None, typer.Option(help="Which target; the one in the trace by default.", autocompletion=target_names)
]
PATIENCE_S = 120.0
PatienceOption = Annotated[
    float,
    typer.Option("--seconds", min=0.0, help="Give up after so much processor time: a file says how long it takes."),
]
AdapterOption = Annotated[
    Path | None,
    typer.Option(help="With --git: a file or folder with the target, which all commits use as it is now."),
]
PathOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DIR",
        help="A folder for the import path of the patched release; with --git: where modules are in it, such as src.",
    ),
]


def seed_or_drawn(seed: int | None) -> int:
    """The seed, or one that is drawn if none is given."""
    return secrets.randbelow(2**32) if seed is None else seed


def seconds_or_default(seconds: float | None, count: int | None) -> float | None:
    """The limit in seconds; the default one if there is no limit in operations (`count`) either."""
    from ..engines.plan import DEFAULT_SECONDS

    return DEFAULT_SECONDS if seconds is None and count is None else seconds


@contextmanager
def usage(option: str = "") -> Iterator[None]:
    """Turns a ValueError into BadParameter; the option that was wrong comes first in its text."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}" if option else str(error)) from None


def attention_names(text: str, *, few: bool = False) -> tuple[str, ...]:
    """As `attention_named`; BadParameter for an unknown one."""
    from ..opening.oracles import attention_named

    with usage("--attention"):
        return attention_named(text, few=few)


def known_or_usage(what: str, names: Iterable[str], known: Collection[str], see: str) -> None:
    """BadParameter if one of the names is not known: what it may have been meant to be, or where all are listed.

    `what` begins the message, as in `--fault: no fault`.
    """
    from ..findings.words import did_you_mean

    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{what} is called {name!r}; {did_you_mean(name, known, see)}")


def is_auto(texts: Sequence[str] | None) -> bool:
    """True if the user leaves it open what judges."""
    return not texts or [*texts] == ["auto"]


def oracles_or_usage(texts: str | Sequence[str] | None, spec: str, target: "Target | None" = None) -> tuple[str, ...]:
    """The names in comma-separated lists, the strictest first; every one for `all`; for `auto` what suits the target
    of this name, and what it hides and lacks if it is given.
    """
    from ..opening.oracles import oracles_named

    with usage("--oracle"):
        return oracles_named(texts, spec, target)


def open_or_usage(spec: str, isolate: bool | None = None) -> "Target":
    """The target of this name. TargetUnavailableError if it cannot be started."""
    from ..opening.targets import open_target

    with usage("--target"):
        return open_target(spec, isolate=isolate)


def calculator_or_usage(spec: str, isolate: bool | None = None) -> "Calculator":
    """The configuration arithmetic of the target of this name. TargetUnavailableError if it cannot be started."""
    from ..opening.targets import open_calculator

    with usage("--target"):
        return open_calculator(spec, isolate=isolate)


def memory_or_usage(tensors: str | None) -> "Callable[[Shape], Memory]":
    """What makes the shadow memory. TargetUnavailableError without torch or without the device."""
    from ..opening.oracles import memory_named

    with usage("--tensors"):
        return memory_named(tensors)


def recorded_target(file: Path, spec: str) -> str:
    """The target that a file names. BadParameter if that is somebody's code: a file alone must not run code."""
    if not spec:
        raise typer.BadParameter(f"{file} does not say with what it was made; add --target")
    if (":" in spec and not spec.startswith("fault:")) or runs_code(spec):
        raise typer.BadParameter(
            f"{file} was made with {spec!r}; if you trust that code, add --target {shlex.quote(spec)}"
        )
    return spec


def commit_target_or_usage(target: str | None, paths: Sequence[str] | None, adapter: Path | None) -> "Wanted":
    """The target of each commit. BadParameter, in one line, if it is no factory or the path leads elsewhere."""
    from ..opening.names import FORMS, is_own_code
    from ..releases.commit_target import Wanted

    if target is None or not is_own_code(target):
        raise typer.BadParameter(f"--git needs --target with one of {FORMS}, a target that each commit makes")
    path = (paths or ["."])[-1]  # here it is one folder, so the last one counts, as of any option of one value
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise typer.BadParameter(f"--path: {path} is not below the repository; write it relative to that, as in src")
    return Wanted(target, path, adapter)


@contextmanager
def closed_after(opened: OpenedT) -> Iterator[OpenedT]:
    """Closes a target at the end of the block."""
    from ..targets.base import close_target
    from ..targets.unharmed import unharmed

    with unharmed():
        try:
            yield opened
        finally:
            close_target(opened)


def page_of(path: Path | None, say: Callable[[str], None]) -> "AbstractContextManager[LivePage | None]":
    """The page of a run while it goes on, if one is asked for; `say` is told where it is. BadParameter if it cannot be
    made.
    """
    from ..page.live import LivePage

    if path is None:
        return nullcontext()
    with usage("--live"):
        page = LivePage(path, say)
    say(f"live: {path}, written anew while it goes on")
    return page


def document_alone(as_json: bool) -> AbstractContextManager[object]:
    """Sends what is printed in the block to stderr where a JSON document will follow: the target may print, too."""
    return redirect_stdout(sys.stderr) if as_json else nullcontext()


def teller(as_json: bool) -> Callable[[str], None]:
    """What prints the steps of a run, a line each: to stderr where a JSON document will follow."""
    return (lambda text: print(text, file=sys.stderr)) if as_json else print


def timed_teller() -> Callable[[str], None]:
    """What prints steps to stderr, each with the time since this call."""
    begin = time.monotonic()
    return lambda step: print(f"[{time.monotonic() - begin:5.1f} s] {step}", file=sys.stderr, flush=True)


def as_called(context: typer.Context) -> str:
    """The command line of this command: its arguments, and the options that were given."""
    words = ["blockproof", context.info_name or ""]
    for parameter in context.command.params:
        name = parameter.name or ""
        source, value = context.get_parameter_source(name), context.params.get(name)
        if source is not None and source.name == "COMMANDLINE":
            option = [] if parameter.param_type_name == "argument" else [parameter.opts[0]]
            for one in value if isinstance(value, list | tuple) else [value]:
                words += [*option, *([] if one is True else [str(one)])]
    return shlex.join(words)


def guarded(work: Callable[[], T]) -> T:
    """The result, or the end of the program with one line and an exit code (see `main`)."""
    try:
        return work()
    except ValueError as error:
        _give_up(str(error), 2)
    except TargetUnavailableError as error:
        _give_up(str(error), 3)
    except KeyboardInterrupt:
        _give_up("interrupted", 130)


def _give_up(message: str, code: int) -> NoReturn:
    from ..findings.visible import one_line

    print(f"blockproof: {one_line(message)}", file=sys.stderr)
    raise typer.Exit(code)
