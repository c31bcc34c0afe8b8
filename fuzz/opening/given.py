"""A target as a test gives it: by name, as an object, or as a function that makes one."""

from collections.abc import Callable
from typing import TypeAlias, TypeGuard

from ..targets.base import Target
from .targets import check_spec, open_target

Factory: TypeAlias = Callable[[], Target]
Given: TypeAlias = str | Target | Factory
"""What `--target` takes, a target, or a function without arguments that returns one."""


def opened(given: Given) -> Target:
    """The target, not started yet. Errors as for `open_target`; TypeError if a function returns something else."""
    if isinstance(given, str):
        return open_target(given)
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
