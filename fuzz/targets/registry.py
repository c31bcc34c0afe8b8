"""From what the user calls a target to the target."""

import importlib
import os
import re
import sys
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from .base import Calculator, Target, TargetUnavailableError
from .bindings import Binding, bind_impl, bind_vllm
from .calculator import answer
from .child import ChildCalculator, ChildTarget, Limits
from .environments import Environment, find, installed, version_in
from .vllm_style import VllmStyleTarget

SPECS = "impl, vllm, vllm==VERSION, package.module:factory, fault:NAME"
"""Forms of a target's name."""
_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def open_target(spec: str, *, isolate: bool = False, deadline_s: float = Limits.operation_s) -> Target:
    """The target that `spec` names, not started yet.

    `isolate` puts a target that would live in this process into a child process. `deadline_s` is how many seconds an
    operation may take in a child. ValueError for a spec of no known form, TargetUnavailableError if it is not
    installed or cannot be imported.
    """
    check_spec(spec)
    limits = Limits(operation_s=deadline_s)
    if spec.startswith("vllm") and not _is_here(spec):
        environment = _installed_vllm(spec)
        return ChildTarget(environment.name, "vllm", environment.python, limits)
    if not isolate:
        return open_here(spec)
    return ChildTarget(*_names_in_a_child(spec), limits=limits)


def open_here(spec: str) -> Target:
    """The target in this process. Errors as for `open_target`."""
    check_spec(spec)
    if spec == "impl":
        return VllmStyleTarget(spec, bind_impl())
    if spec.startswith("vllm"):
        binding = _vllm_here()
        return VllmStyleTarget(f"vllm=={binding.version}", binding)
    if spec.startswith("fault:"):
        faults = importlib.import_module(f"{__name__.split('.')[0]}.fuzz.faults")
        try:
            fault: Target = faults.open_fault(spec.removeprefix("fault:"))
        except KeyError as error:
            raise ValueError(f"unknown fault {error}; write fault: and one of {', '.join(faults.FAULTS)}") from None
        return fault
    return cast(Target, _from_factory(spec, "Target", "start", "step"))


def open_calculator(spec: str, *, isolate: bool = False, deadline_s: float = Limits.operation_s) -> Calculator:
    """The calculator that `spec` names; arguments and errors as for `open_target`."""
    check_spec(spec)
    limits = Limits(operation_s=deadline_s)
    if spec.startswith("vllm") and not _is_here(spec):
        environment = _installed_vllm(spec)
        return ChildCalculator(environment.name, "vllm", environment.python, limits)
    if not isolate:
        return open_calculator_here(spec)
    return ChildCalculator(*_names_in_a_child(spec), limits=limits)


class CoreCalculator:
    """Answers with a core that can be imported here."""

    def __init__(self, name: str, binding: Binding) -> None:
        self.name = name
        self.version = binding.version
        self._names = binding.names

    def ask(self, op: str, inputs: Mapping[str, object]) -> dict[str, object]:
        """The answer; see `calculator.answer`."""
        return answer(self._names, op, inputs)

    def close(self) -> None:
        """Nothing is left behind."""


def open_calculator_here(spec: str) -> Calculator:
    """The calculator in this process. Errors as for `open_target`."""
    check_spec(spec)
    if spec == "impl":
        return CoreCalculator(spec, bind_impl())
    if spec.startswith("vllm"):
        binding = _vllm_here()
        return CoreCalculator(f"vllm=={binding.version}", binding)
    if spec.startswith("fault:"):
        faults = importlib.import_module(f"{__name__.split('.')[0]}.fuzz.configuration.faults")
        name = spec.removeprefix("fault:")
        if name not in faults.FAULTS:
            raise ValueError(f"unknown fault {name!r}; write fault: and one of {', '.join(faults.FAULTS)}")
        return cast(Calculator, faults.open_fault(name))
    return cast(Calculator, _from_factory(spec, "Calculator", "ask"))


def check_spec(spec: str) -> None:
    """ValueError, with what to write instead, unless `spec` has the form of a target's name."""
    if spec in ("impl", "vllm") or spec.startswith("fault:") or _FACTORY.fullmatch(spec):
        return
    if spec.startswith("vllm"):
        version_in(spec)
        return
    raise ValueError(f"unknown target {spec!r}; write one of {SPECS}")


def interpreter_of(spec: str) -> tuple[str, Path | None]:
    """The full name of a release, and the interpreter of its environment; None if this one can import it.

    ValueError unless `spec` names a vLLM, TargetUnavailableError if it is not installed.
    """
    if spec != "vllm":
        version_in(spec)
    if _is_here(spec):
        return f"vllm=={version('vllm')}", None
    environment = _installed_vllm(spec)
    return environment.name, environment.python


def _is_here(spec: str) -> bool:
    """Can this interpreter import the vLLM that is asked for?"""
    return find_spec("vllm") is not None and spec in ("vllm", f"vllm=={version('vllm')}")


def _names_in_a_child(spec: str) -> tuple[str, str]:
    """What a target of this interpreter is called, and what its child is to open."""
    name = f"vllm=={version('vllm')}" if spec == "vllm" else spec
    return name, "vllm" if name.startswith("vllm") else spec


def _vllm_here() -> Binding:
    try:
        return bind_vllm()
    except Exception as error:  # an import of that size can fail in any way
        raise TargetUnavailableError(
            f"vllm cannot be imported here: {type(error).__name__}: {error}; "
            "an environment of its own may do: blockproof targets install vllm==0.23.0"
        ) from error


def _installed_vllm(spec: str) -> Environment:
    if spec == "vllm":
        candidates = installed()
        if len(candidates) > 1:
            names = ", ".join(environment.name for environment in candidates)
            raise TargetUnavailableError(f"several releases of vllm are installed: name one of {names}")
        environment = candidates[0] if candidates else None
    else:
        environment = find(spec)
    if environment is None:
        wanted = "vllm==0.23.0" if spec == "vllm" else spec
        raise TargetUnavailableError(f"{spec} is not installed; run: blockproof targets install {wanted}")
    return environment


def _from_factory(spec: str, protocol: str, *methods: str) -> object:
    """What the factory makes, which must have these methods besides a name and `close`."""
    module_name, _, factory_name = spec.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # a module beside the caller is found as with `python -m`
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise TargetUnavailableError(f"{spec}: cannot import {module_name}: {_one_line(error)}") from error
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        raise TargetUnavailableError(f"{spec}: {module_name} has no function {factory_name!r}")
    try:
        made: object = factory()
    except (Exception, SystemExit) as error:
        raise TargetUnavailableError(f"{spec}: the factory failed: {_one_line(error)}") from error
    if missing := [name for name in ("name", *methods, "close") if not hasattr(made, name)]:
        raise TargetUnavailableError(
            f"{spec}: the factory returned a {type(made).__name__} without {missing[0]!r}; "
            f"see blockproof.fuzz.targets.base.{protocol}"
        )
    return made


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
