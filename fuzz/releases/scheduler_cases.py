"""What an engine's own scheduler does in given cases, on a release: run in the release's interpreter.

The family's adapter has the cases (`Family.scheduler`); each drives the release's real scheduler with scripted requests
and says whether the finding that it is meant for shows. They run without a GPU.
"""

from collections.abc import Sequence

from ..adapters import family_of
from ..opening.commands import run
from ..opening.targets import python_of
from ..targets.base import TargetUnavailableError

DEADLINE_S = 120.0
"""For all cases of a release together; they take some seconds."""
SHOWS, NOTHING, NOT_BUILT = "shows", "nothing", "not built"


def run_cases(spec: str, cases: Sequence[str]) -> dict[str, str]:
    """By case, `shows`, `nothing`, or `not built: WHY` on the release of this name.

    A case that the process does not get to is `lost`, with how the process ended. TargetUnavailableError if the release
    is not installed or its family has no scheduler to run.
    """
    family = family_of(spec)
    if family is None or not family.scheduler:
        raise TargetUnavailableError(f"{spec}: there is no scheduler to run; name a release of an engine that has one")
    with python_of(spec) as python:
        ran = run(python.words(family.scheduler, *cases), environment=python.environment, seconds=DEADLINE_S)
    ended = f"no end within {DEADLINE_S:g} s" if ran.status is None else f"exit status {ran.status}"
    seen = {told["case"]: _said(told["shown"], told["what"]) for told in ran.documents()}
    return {case: seen.get(case, f"lost: {ended}") for case in cases}


def _said(shown: bool | None, what: str) -> str:
    return NOT_BUILT + what.removeprefix(NOT_BUILT) if shown is None else SHOWS if shown else NOTHING
