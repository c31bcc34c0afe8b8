"""A target as a test gives it: by name, as an object, or as a function that makes one."""

from collections.abc import Callable
from typing import TypeAlias, TypeGuard

from ..targets.base import Target
from .targets import check_spec, open_target

Factory: TypeAlias = Callable[[], Target]
Given: TypeAlias = str | Target | Factory
"""What `--target` takes, a target, or a function without arguments that returns one."""


def opened(given: Given, isolate: bool = False) -> Target:
    """The target, not started yet; with `isolate` what is named runs in a process of its own, without it in this one:
    tests replace parts of what they test, and measure which of its lines run.

    Errors as for `open_target`; TypeError if a function returns something else.
    """
    if isinstance(given, str):
        return open_target(given, isolate=isolate)
    return checked(given()) if is_factory(given) else checked(given)


def checked(target: object) -> Target:
    """The target. TypeError, with what is missing, if it is none."""
    if missing := [name for name in ("name", "start", "step", "close") if not hasattr(target, name)]:
        raise TypeError(f"expected a target, got a {type(target).__name__} without {missing[0]!r}")
    return target  # type: ignore[return-value]  # it has been looked at


def check_given(given: Given) -> None:
    """What can be seen without opening it. ValueError for a name of no known form, TypeError for what is no target."""
    if isinstance(given, str):
        check_spec(given)
    elif not is_factory(given):
        checked(given)


def is_factory(given: Given) -> TypeGuard[Factory]:
    """True for a function that returns a target; False for a name and for a target, even if it can be called."""
    return callable(given) and not hasattr(given, "start")


def is_owned(given: Given) -> bool:
    """True if whoever opened it also has to close it: a target that was given as an object belongs to who gave it."""
    return isinstance(given, str) or is_factory(given)


def examples_apart(given: Given, *options: object) -> dict[str, bytes]:
    """Attributes for a state machine of this target, so that Hypothesis keeps its examples apart from those of others.

    Hypothesis goes by the source of a class, which all these machines share: what one has found, another one would try
    and, where it shows nothing, delete. `options`: what else sets a machine apart, the same in every process.
    """
    name = given if isinstance(given, str) else getattr(given, "__qualname__", getattr(given, "name", ""))
    return {"_hypothesis_internal_add_digest": repr((name, *options)).encode()}
