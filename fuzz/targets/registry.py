"""From what the user calls a target to the target."""

import importlib
import os
import re
import sys
from importlib.metadata import version
from importlib.util import find_spec

from .base import Target, TargetUnavailableError
from .bindings import bind_impl, bind_vllm
from .child import ChildTarget, Limits
from .environments import find, installed, version_in
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
        return _installed_vllm(spec, limits)
    if not isolate:
        return open_here(spec)
    name = f"vllm=={version('vllm')}" if spec == "vllm" else spec
    return ChildTarget(name, "vllm" if name.startswith("vllm") else spec, limits=limits)


def open_here(spec: str) -> Target:
    """The target in this process. Errors as for `open_target`."""
    check_spec(spec)
    if spec == "impl":
        return VllmStyleTarget(spec, bind_impl())
    if spec.startswith("vllm"):
        return _vllm_here()
    if spec.startswith("fault:"):
        faults = importlib.import_module(f"{__name__.split('.')[0]}.fuzz.faults")
        try:
            fault: Target = faults.open_fault(spec.removeprefix("fault:"))
        except KeyError as error:
            raise ValueError(f"unknown fault {error}; write fault: and one of {', '.join(faults.FAULTS)}") from None
        return fault
    return _from_factory(spec)


def check_spec(spec: str) -> None:
    """ValueError, with what to write instead, unless `spec` has the form of a target's name."""
    if spec in ("impl", "vllm") or spec.startswith("fault:") or _FACTORY.fullmatch(spec):
        return
    if spec.startswith("vllm"):
        version_in(spec)
        return
    raise ValueError(f"unknown target {spec!r}; write one of {SPECS}")


def _is_here(spec: str) -> bool:
    """Can this interpreter import the vLLM that is asked for?"""
    return find_spec("vllm") is not None and spec in ("vllm", f"vllm=={version('vllm')}")


def _vllm_here() -> Target:
    try:
        binding = bind_vllm()
    except Exception as error:  # an import of that size can fail in any way
        raise TargetUnavailableError(
            f"vllm cannot be imported here: {type(error).__name__}: {error}; "
            "an environment of its own may do: blockproof targets install vllm==0.23.0"
        ) from error
    return VllmStyleTarget(f"vllm=={binding.version}", binding)


def _installed_vllm(spec: str, limits: Limits) -> Target:
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
    return ChildTarget(environment.name, "vllm", environment.python, limits)


def _from_factory(spec: str) -> Target:
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
        target: Target = factory()
    except (Exception, SystemExit) as error:
        raise TargetUnavailableError(f"{spec}: the factory failed: {_one_line(error)}") from error
    if missing := [name for name in ("name", "start", "step", "close") if not hasattr(target, name)]:
        raise TargetUnavailableError(
            f"{spec}: the factory returned a {type(target).__name__} without {missing[0]!r}; "
            "see blockproof.fuzz.targets.base.Target"
        )
    return target


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
