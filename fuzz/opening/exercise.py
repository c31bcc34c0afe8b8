"""A quick check that a target works at all."""

from ...model.ops import Allocate, Done, Free, Group, Lookup, Outcome, Refused, Shape, Submit
from ..targets.base import Target, TargetLostError, TargetUnavailableError
from ..targets.family import Family
from .child import ChildTarget, Place


def exercise(target: Target) -> str:
    """Run one request on a tiny core: submit, lookup, allocate, free. Returns the target's version, or an empty text.

    TargetUnavailableError if the target cannot be started or an operation does not succeed.
    """
    group = Group("full", 4)
    shape = Shape((group,), 32, 24, hash_block_size=4, scheduler_block_size=4, max_num_batched_tokens=24)
    operations = (Submit("a", (1, 2, 3, 4, 5)), Lookup("a"), Allocate("a", 5, hit=True), Free("a"))
    try:
        started, _ = target.start(shape)
        outcomes: list[Outcome] = [started]
        if isinstance(started, Done):
            outcomes += [target.step(operation)[0] for operation in operations]
        version = str(getattr(target, "version", ""))
    except TargetLostError as lost:
        raise TargetUnavailableError(f"{target.name}: lost in a first try: {lost}") from None
    finally:
        target.close()
    for operation, outcome in zip(("start", *operations), outcomes, strict=False):
        if not isinstance(outcome, Done):
            said = "is refused" if isinstance(outcome, Refused) else f"ends in {outcome}"
            raise TargetUnavailableError(f"{target.name}: in a first try {operation} {said}")
    return version


def version_run_by(family: Family, place: Place) -> str:
    """Version of the release in this environment, checked with `exercise`. TargetUnavailableError if it fails."""
    return exercise(ChildTarget(family.name, family.name, place))
