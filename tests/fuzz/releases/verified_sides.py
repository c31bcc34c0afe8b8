"""What tests of verifications compare: our core, also with some of its answers changed."""

from dataclasses import replace

import pytest
from blockproof.fuzz.engines.plan import Plan
from blockproof.fuzz.findings.oracle_names import MODEL_FREE
from blockproof.fuzz.opening.targets import Home, open_here
from blockproof.fuzz.releases import verify as verifying
from blockproof.fuzz.releases.verify import verify
from blockproof.fuzz.releases.verify_sides import VerifiedSide
from blockproof.fuzz.targets.base import TargetLostError
from blockproof.model.ops import Allocate


class Changed:
    """Our core, with some of what it says changed."""

    name = "changed"

    def __init__(self, allocate=None, lost_at=None):
        self._core = open_here("impl")
        self._allocate = allocate
        self._lost_at = lost_at
        self._shown = None
        self.close = self._core.close
        self.start = self._core.start

    def step(self, operation):
        if self._lost_at and isinstance(operation, self._lost_at):
            raise TargetLostError("crash", "died")
        if self._allocate and isinstance(operation, Allocate):
            return self._allocate, self._shown
        outcome, self._shown = self._core.step(operation)
        return outcome, self._shown


def side(target, name="impl"):
    return VerifiedSide(
        name, name, target if not isinstance(target, str) else open_here(target), Home("impl", None), MODEL_FREE
    )


def verified(old, new, known=(), operations=1_500, timed=False, prove=None, oracles=MODEL_FREE):
    """Without the clock, unless `timed`."""
    sides = [replace(side(one, name), oracles=oracles) for one, name in ((old, "old"), (new, "new"))]
    plan = Plan(1, operations=operations, attention=("full",), known=known)
    with pytest.MonkeyPatch.context() as patch:
        if not timed:
            patch.setattr(verifying, "compare_speed", lambda *arguments: "not timed")
        return verify(sides[0], sides[1], plan, lambda line: None, prove)
