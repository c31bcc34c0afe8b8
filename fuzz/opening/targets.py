"""Opens a target or a calculator by the name that the user gave, in this process or in a child process."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar, cast

from ..adapters import families, family_of, forms
from ..adapters.impl import CORES, open_changed_impl, open_impl, open_impl_calculator
from ..faults import Part, fault_named
from ..findings.words import did_you_mean
from ..targets.base import Calculator, Target, TargetUnavailableError, check_declarations
from ..targets.family import Family
from ..targets.unharmed import notice_exits
from .child import ChildCalculator, ChildTarget, Place, environment_of
from .environments import Environment, find, installed
from .own_code import FORMS, in_one_line, is_factory, made_by
from .process import Limits
from .program import ProgramTarget, command_in, is_program

T = TypeVar("T")


def specs() -> str:
    """The forms of a target's name, for messages."""
    return f"{', '.join(CORES)}, {forms()}, {FORMS}, program:COMMAND, fault:NAME"


def open_target(
    spec: str,
    *,
    isolate: bool | None = False,
    deadline_s: float = Limits.operation_s,
    growth_bytes: int = Limits.growth_bytes,
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
    limits = Limits(operation_s=deadline_s, growth_bytes=growth_bytes)
    if is_program(spec):
        if fix is not None:
            raise ValueError(f"{spec}: {fix} is Python; it cannot change a program")
        return ProgramTarget(spec, limits)  # in a process of its own anyway
    there = _in_a_child(spec, True if fix is not None else isolate)
    if there is None and _is_own_code(spec):
        notice_exits()
    return ChildTarget(*there, limits, fix) if there else open_here(spec)


def isolate_words(spec: str, isolate: bool | None) -> list[str]:
    """The option of a command that opens the target as `open_target` does with this argument; none if that is usual."""
    if isolate is None or (not isolate and not _is_own_code(spec)):
        return []
    return ["--isolate" if isolate else "--no-isolate"]


def _is_own_code(spec: str) -> bool:
    """True for a factory of the user's; faults and programs are named in the same form."""
    return is_factory(spec) and not spec.startswith("fault:") and not is_program(spec)


def open_here(spec: str) -> Target:
    """The target in this process. Errors as for `open_target`."""
    check_spec(spec)
    if (family := family_of(spec)) is not None:
        return _imported(family, family.open_target)
    if spec in CORES:
        return _ours(lambda: open_impl(spec))
    if (fault := fault_named(spec, Part.CORE)) is not None:
        return _ours(lambda: open_changed_impl(spec, fault.plant, _core_in(spec)))
    if is_program(spec):
        return ProgramTarget(spec)
    made = cast(Target, made_by(spec, "Target", "start", "step"))
    check_declarations(made)
    return made


def open_calculator(spec: str, *, isolate: bool | None = False, deadline_s: float = Limits.operation_s) -> Calculator:
    """The calculator that `spec` names; arguments and errors as for `open_target`."""
    there = _in_a_child(spec, isolate)
    if there is None and _is_own_code(spec):
        notice_exits()
    return ChildCalculator(*there, Limits(operation_s=deadline_s)) if there else open_calculator_here(spec)


def open_calculator_here(spec: str) -> Calculator:
    """The calculator in this process. Errors as for `open_target`."""
    check_spec(spec)
    if (family := family_of(spec)) is not None:
        if family.open_calculator is None:
            raise ValueError(f"{spec} has no configuration arithmetic to ask about; write impl or another release")
        return _imported(family, family.open_calculator)
    if is_program(spec):
        raise ValueError(f"{spec} has no configuration arithmetic to ask about; programs are targets only")
    if spec in CORES:
        return _ours(lambda: open_impl_calculator(spec))
    if (fault := fault_named(spec, Part.CONFIGURATION)) is not None:
        faulty = _ours(lambda: open_impl_calculator(_core_in(spec)))
        faulty.name = spec
        fault.plant(faulty)
        return faulty
    return cast(Calculator, made_by(spec, "Calculator", "ask"))


def check_spec(spec: str) -> None:
    """ValueError, with what to write instead, unless `spec` has the form of a target's name."""
    if spec.startswith("fault:"):
        _core_in(spec)
        return
    if spec in (*CORES, *families()) or is_factory(spec):
        return
    if is_program(spec):
        command_in(spec)
        return
    if (family := family_of(spec)) is None:
        if spec.endswith(".py"):
            raise ValueError(f"{spec}: name the function that makes the target, too, as in {spec}:make_target")
        close = did_you_mean(spec.partition("==")[0], (*CORES, *families()))
        raise ValueError(f"unknown target {spec!r}; {close if close.endswith('?') else f'write one of {specs()}'}")
    family.version_in(spec)


def interpreter_of(spec: str) -> tuple[str, Place | None]:
    """The full name of a release, and its environment: None for this interpreter, if it can import the release.

    ValueError unless `spec` names a release of a family, TargetUnavailableError if it is not installed.
    """
    check_spec(spec)
    family = family_of(spec)
    if family is None:
        raise ValueError(f"{spec!r} names no release; write one of {forms()}")
    if (here := _here(family, spec)) is not None:
        return here, None
    environment = _installed(family, spec)
    return environment.name, environment.place


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
        yield ReleasePython(sys.executable if place is None else str(place.python), environment)


def _in_a_child(spec: str, isolate: bool | None) -> tuple[str, str, Place | None] | None:
    """For `ChildTarget`: name, what the child opens, and its environment. None for a target in this process."""
    check_spec(spec)
    family = family_of(spec)
    if family is None:
        return (spec, spec, None) if isolate or (isolate is None and _is_own_code(spec)) else None
    if (here := _here(family, spec)) is not None:
        # An engine refuses by asserts, which `python -O` leaves out; its child has them.
        return (here, family.name, None) if isolate or sys.flags.optimize else None
    environment = _installed(family, spec)
    return environment.name, family.name, environment.place


def _here(family: Family, spec: str) -> str | None:
    """The full name of the release, if this interpreter can import it; else None."""
    if (here := family.here) is None:
        return None
    name = family.spec(here)
    return name if spec in (family.name, name) else None


def _core_in(spec: str) -> str:
    """Which form of our core `fault:NAME@CORE` breaks. ValueError for one that there is not."""
    core = spec.partition("@")[2] or "impl"
    if core not in CORES:
        raise ValueError(f"{spec}: there is no core {core!r} to plant it into; write one of {', '.join(CORES)}")
    return core


def _ours(make: Callable[[], T]) -> T:
    try:
        return make()
    except ImportError as error:
        raise TargetUnavailableError(str(error)) from error


def _imported(family: Family, make: Callable[[], T]) -> T:
    try:
        return make()
    except Exception as error:  # importing an engine can fail in any way
        raise TargetUnavailableError(
            f"{family.name} cannot be imported here: {in_one_line(error)}; "
            f"an environment of its own may do: blockproof targets install {family.example}"
        ) from error


def _installed(family: Family, spec: str) -> Environment:
    """The environment of the release; if `spec` names only the family, its only installed release."""
    if spec == family.name:
        candidates = installed(family)
        if len(candidates) > 1:
            names = ", ".join(environment.name for environment in candidates)
            raise TargetUnavailableError(f"several releases of {spec} are installed: name one of {names}")
        environment = candidates[0] if candidates else None
    else:
        environment = find(spec)
    if environment is None:
        wanted = family.example if spec == family.name else spec
        raise TargetUnavailableError(f"{spec} is not installed; run: blockproof targets install {wanted}")
    return environment
