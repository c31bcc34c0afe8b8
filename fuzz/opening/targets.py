"""Opens a target or a calculator by the name that the user gave, in this process or in a child process."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, TypeVar, cast

from ..adapters import family_of, forms
from ..adapters.impl import open_changed_impl, open_impl, open_impl_calculator
from ..faults import Part, fault_named
from ..targets.base import Calculator, Target, TargetUnavailableError, check_declarations
from ..targets.family import Family
from ..targets.garbage import without_collector
from ..targets.unharmed import notice_exits
from .child import ChildCalculator, ChildTarget, PythonPlace, environment_of
from .commands import run
from .environments import Environment, find, installed
from .names import OurCore, OwnCode, PlantedFault, Program, ReleaseName, TargetName, is_own_code, parsed
from .own_code import in_one_line, made_by
from .packages import with_packages
from .patch_hook import remedy_for
from .patches import PROBLEM, VARIABLE, is_patch_problem
from .process import ChildLimits
from .program import ProgramTarget

T = TypeVar("T")


def open_target(
    spec: str,
    *,
    isolate: bool | None = False,
    deadline_s: float = ChildLimits.operation_s,
    growth_bytes: int = ChildLimits.growth_bytes,
    fix: Path | None = None,
) -> Target:
    """The target that `spec` names, not started yet.

    With `isolate` every target runs in a child process. If it is None, as for the commands, a user's own code does: it
    may crash, hang, or end the process. If it is False, only a release does that this interpreter cannot import.
    `deadline_s`: seconds for an operation in a child;
    `growth_bytes`: how much its resident memory may grow; `fix`: a Python file whose function `fix()` a child calls
    before it opens the target. ValueError if `spec` has no known form, or is a program and there is a fix,
    TargetUnavailableError if the target is not installed or cannot be imported.
    """
    limits, named = ChildLimits(operation_s=deadline_s, growth_bytes=growth_bytes), parsed(spec)
    if isinstance(named, Program):
        if fix is not None:
            raise ValueError(f"{spec}: {fix} is Python; it cannot change a program")
        return ProgramTarget(named, limits)  # in a process of its own anyway
    there = _in_a_child(named, True if fix is not None else isolate)
    if there is None and isinstance(named, OwnCode):
        notice_exits()
    return ChildTarget(*there, limits, fix) if there else _opened_here(named)


def isolate_words(spec: str, isolate: bool | None) -> list[str]:
    """The option of a command that opens the target as `open_target` does with this argument; none if that is usual."""
    if isolate is None or (not isolate and not is_own_code(spec)):
        return []
    return ["--isolate" if isolate else "--no-isolate"]


def open_here(spec: str) -> Target:
    """The target in this process. Errors as for `open_target`."""
    return _opened_here(parsed(spec))


def _opened_here(named: TargetName) -> Target:
    match named:
        case ReleaseName(_, family):
            if family.open_target is None:
                raise TargetUnavailableError(
                    f"{family.name} is only simulated; write blockproof simulate --target {family.example}"
                )
            return _declared(_imported(family, family.open_target))
        case OurCore(spec):
            return _ours(lambda: open_impl(spec))
        case PlantedFault(spec, core):
            planted = fault_named(spec, Part.CORE)
            assert planted is not None
            return _ours(lambda: open_changed_impl(spec, planted.plant, core))
        case Program():
            return ProgramTarget(named)
    made = cast(Target, made_by(named, "targets.base.Target", "name", "start", "step", "close"))
    check_declarations(made)
    return made


def _declared(target: Target) -> Target:
    """The target of a release; of a patched one with what the patch says of it."""
    hook = sys.modules.get("sitecustomize")  # `patch_hook`, in a child of its own
    said, calls = getattr(hook, "SAID", {}), getattr(hook, "CALLS", ())
    if calls or any(said.values()):
        if not hasattr(target, "declare"):
            raise TargetUnavailableError(f"{target.name}: {', '.join(said)} and REFUSES of a patch have no effect here")
        try:
            target.declare(refuses=calls, **{name.lower(): names for name, names in said.items()})
        except ValueError as error:
            raise TargetUnavailableError(str(error)) from error
        check_declarations(target)
    return target


def open_calculator(
    spec: str, *, isolate: bool | None = False, deadline_s: float = ChildLimits.operation_s
) -> Calculator:
    """The calculator that `spec` names; arguments and errors as for `open_target`."""
    named = parsed(spec)
    there = _in_a_child(named, isolate)
    if there is None and isinstance(named, OwnCode):
        notice_exits()
    return ChildCalculator(*there, ChildLimits(operation_s=deadline_s)) if there else _calculator_here(named)


def open_calculator_here(spec: str) -> Calculator:
    """The calculator in this process. Errors as for `open_target`."""
    return _calculator_here(parsed(spec))


def _calculator_here(named: TargetName) -> Calculator:
    match named:
        case ReleaseName(spec, family):
            if family.open_calculator is None:
                raise ValueError(f"{spec} has no configuration arithmetic to ask about; write impl or another release")
            return _imported(family, family.open_calculator)
        case Program(spec):
            raise ValueError(f"{spec} has no configuration arithmetic to ask about; programs are targets only")
        case OurCore(spec):
            return _ours(lambda: open_impl_calculator(spec))
        case PlantedFault(spec, core):
            fault = fault_named(spec, Part.CONFIGURATION)
            assert fault is not None
            faulty = _ours(lambda: open_impl_calculator(core))
            faulty.name = spec
            fault.plant(faulty)
            return faulty
    return cast(Calculator, made_by(named, "targets.base.Calculator", "name", "ask", "close"))


def check_spec(spec: str) -> None:
    """ValueError, with what to write instead, unless `spec` has the form of a target's name."""
    parsed(spec)


def interpreter_of(spec: str) -> tuple[str, PythonPlace | None]:
    """The full name of a release, and its environment: None for this interpreter, if it can import the release.

    ValueError unless `spec` names a release of a family, TargetUnavailableError if it is not installed.
    """
    named = parsed(spec)
    if not isinstance(named, ReleaseName):
        raise ValueError(f"{spec!r} names no release; write one of {forms()}")
    return _interpreter_of(named)


def _interpreter_of(named: ReleaseName) -> tuple[str, PythonPlace | None]:
    if (here := _here(named)) is not None:
        name, place = here, cast(PythonPlace | None, None)
    else:
        environment = _installed(named)
        name, place = environment.name, environment.place
    if named.patch is None:
        return name, place
    patch, folders = with_packages(named.patch, named.family, place)
    # A process of this interpreter finds what this one does.
    place = place or PythonPlace(Path(sys.executable), tuple(Path(entry or os.getcwd()) for entry in sys.path))
    patched = patch.place(named.family.module or named.family.name, folders)
    return patch.over(name), place._replace(patch=patched)


class Home(NamedTuple):
    """What a process opens to get a target, and in which environment; None for this one."""

    spec: str
    place: PythonPlace | None


def home_of(spec: str) -> Home:
    """The home of a target that the user named. Errors as from `interpreter_of`."""
    named = parsed(spec)
    return Home(named.family.name, _interpreter_of(named)[1]) if isinstance(named, ReleaseName) else Home(spec, None)


@dataclass(frozen=True)
class ReleasePython:
    """The interpreter of a release, where packages of ours are found."""

    python: str
    environment: Mapping[str, str]

    def words(self, module: str, *arguments: str) -> list[str]:
        """The command that runs a module in it."""
        return [self.python, "-P", "-m", module, *arguments]


@contextmanager
def python_of(spec: str, packages: Sequence[str] = ("model", "fuzz")) -> Iterator[ReleasePython]:
    """The interpreter of a release, with these packages of ours, quiet; with none of them as a user has it. Errors as
    from `interpreter_of`."""
    family, (_, place) = family_of(spec), interpreter_of(spec)
    quiet = family.environment if family is not None and packages else {}
    with TemporaryDirectory(prefix="blockproof-python-") as modules:
        environment = {**environment_of(place, Path(modules), packages), **quiet}
        python = ReleasePython(sys.executable if place is None else str(place.python), environment)
        if family is not None and place is not None and place.patch is not None:
            check_patch(family, python)
        yield python


@contextmanager
def python_for(spec: str, at: Home | None = None) -> Iterator[ReleasePython]:
    """The same; for a user's own code and for a program this interpreter, in a process of its own. `at`: another one
    than the name says."""
    if at is None and isinstance(parsed(spec), ReleaseName):
        with python_of(spec) as python:
            yield python
        return
    with TemporaryDirectory(prefix="blockproof-python-") as modules:
        place = None if at is None else at.place
        interpreter = sys.executable if place is None else str(place.python)
        yield ReleasePython(interpreter, environment_of(place, Path(modules)))


def check_patch(family: Family, python: ReleasePython) -> None:
    """Import the engine once. TargetUnavailableError, with what the child says, if its patch cannot be applied."""
    ran = run([python.python, "-P", "-c", f"import {family.module or family.name}"], environment=python.environment)
    if ran.status:
        raise TargetUnavailableError(ran.error.partition(f"{PROBLEM}: ")[2] or ran.error)


def _in_a_child(named: TargetName, isolate: bool | None) -> tuple[str, str, PythonPlace | None] | None:
    """For `ChildTarget`: name, what the child opens, and its environment. None for a target in this process."""
    if isinstance(named, ReleaseName) and named.pair:
        raise TargetUnavailableError(f"{named.spec} is only simulated; write blockproof simulate --target {named.spec}")
    if not isinstance(named, ReleaseName):
        apart = isolate or (isolate is None and isinstance(named, OwnCode))
        return (named.spec, named.spec, None) if apart else None
    name, place = _interpreter_of(named)
    # An engine refuses by asserts, which `python -O` leaves out; its child has them.
    return (name, named.family.name, place) if place is not None or isolate or sys.flags.optimize else None


def _here(named: ReleaseName) -> str | None:
    """The full name of the release, if this interpreter can import it; else None."""
    here = named.family.here
    return named.family.spec(here) if here is not None and named.version in ("", here) else None


def _ours(make: Callable[[], T]) -> T:
    try:
        return make()
    except ImportError as error:
        raise TargetUnavailableError(str(error)) from error


def _imported(family: Family, make: Callable[[], T]) -> T:
    try:
        with without_collector():
            return make()
    except Exception as error:  # importing an engine can fail in any way
        if is_patch_problem(error):
            raise TargetUnavailableError(str(error)) from error
        remedy = f"; an environment of its own may do: blockproof targets install {family.example}"
        if VARIABLE in os.environ:  # the release can be imported, but not with what lies beside it
            remedy = remedy_for(error)
        raise TargetUnavailableError(f"{family.name} cannot be imported here: {in_one_line(error)}{remedy}") from error


def _installed(named: ReleaseName) -> Environment:
    """The environment of the release; if only the family is named, its only installed release."""
    spec, family = named.release, named.family
    if named.version:
        environment = find(spec)
    else:
        candidates = installed(family)
        if len(candidates) > 1:
            names = ", ".join(environment.name for environment in candidates)
            raise TargetUnavailableError(f"several releases of {spec} are installed: name one of {names}")
        environment = candidates[0] if candidates else None
    if environment is None:
        wanted = spec if named.version else family.example
        raise TargetUnavailableError(f"{spec} is not installed; run: blockproof targets install {wanted}")
    return environment
