"""Hypothesis' machine asks for what a target offers of today's rule."""

from typing import Any

import pytest
from blockproof.fuzz import kv_cache_machine
from blockproof.fuzz.findings.offered import OF_TODAY
from blockproof.fuzz.findings.oracle_names import LOCKSTEP
from blockproof.model import ops

from .test_stateful import Recording, run


class RecordingToday(Recording):
    """Our core by the rule of today, which notes what it is asked."""

    def __init__(self) -> None:
        super().__init__(core="impl-today")
        self.name = self._core.name
        self.hides: frozenset[str] = getattr(self._core, "hides", frozenset())
        self.lacks = getattr(self._core, "lacks", frozenset())

    @property
    def copies(self) -> Any:
        return getattr(self._core, "copies", ())

    @property
    def handed(self) -> Any:
        return getattr(self._core, "handed", ())


@pytest.mark.slow
def test_what_a_target_offers_of_todays_rule_is_asked_for():
    target = RecordingToday()
    attention = ("full+mamba", "full+mamba+mamba", "full+sliding")
    result = run(kv_cache_machine(target, attention=attention, oracles=(LOCKSTEP,)), max_examples=400)
    assert result.wasSuccessful(), result.failures or result.errors
    asked = {
        name: [getattr(one, name.partition(".")[2]) for one in target.asked if type(one).__name__ == kind]
        for name in OF_TODAY
        if (kind := name.partition(".")[0]) in ops.OPERATIONS
    }
    never = (None, False, ())
    assert not [name for name, values in asked.items() if all(value in never for value in values)]
    assert any(shape.watermark for shape in target.shapes)
    assert any(group.checkpoint for shape in target.shapes for group in shape.groups)
    assert any(shape.hash_block_size < shape.groups[0].block_size for shape in target.shapes)
    other = Recording()
    assert run(kv_cache_machine(other, attention=("full",)), max_examples=20).wasSuccessful()
    assert not any(getattr(one, "keep", False) or getattr(one, "watched", False) for one in other.asked)
