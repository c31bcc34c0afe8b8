"""A Hypothesis state machine for a KV-cache core, as users of Hypothesis know it.

    from blockproof.fuzz import kv_cache_machine
    TestMyCore = kv_cache_machine("my_package.my_module:make_target").TestCase

Each operation of a scheduler is a rule. Hypothesis draws, shrinks and remembers examples, and prints the steps of the
smallest; settings, profiles, `@seed` and `@reproduce_failure` work as for any other state machine.
"""

import sys
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from hypothesis import Phase, settings
from hypothesis.strategies import SearchStrategy

from ...model.ops import Shape
from ..engines.failing import FOLDER
from ..opening.given import Given, check_given, examples_apart
from ..workload.shapes import ATTENTION
from .stateful_rules import KVCacheMachine
from .stateful_run import TargetSource
from .stateful_strategies import check_attention


def kv_cache_machine(
    target: Given,
    *,
    attention: Sequence[str] = tuple(ATTENTION),
    shapes: SearchStrategy[Shape] | None = None,
    oracles: Sequence[str] | None = None,
    tensors: str | None = None,
    folder: str | PathLike[str] | None = FOLDER,
) -> type[KVCacheMachine]:
    """A state machine for a target; its `TestCase` is what pytest and unittest collect.

    `target` is what `--target` takes, a target, or a function without arguments that makes one; it is opened when the
    first test runs. `attention` are names of `ATTENTION`, or `shapes` draws the cores to be built. `oracles` judge the
    target, by default those that suit it; liveness, which judges whole schedules, is left to `blockproof fuzz`.
    `tensors`: where the shadow memory keeps its tags, as `--tensors` takes it. Trace and pytest file of a finding are
    written to `folder`; None for none. ValueError or TypeError for what can be seen to be wrong at once.
    """
    check_given(target)
    judges = None if oracles is None else tuple(oracles)
    source = TargetSource(target, judges, tensors, None if folder is None else Path(folder))
    choices = {"source": source, "attention": check_attention(attention), "shapes": shapes}
    choices |= examples_apart(target, tuple(attention), judges)
    machine: type[KVCacheMachine] = type("KVCacheMachine", (KVCacheMachine,), choices)
    if not hasattr(sys, "monitoring"):  # before Python 3.12 the explanation traces every line: shrinking takes minutes
        case = machine.TestCase
        case.settings = settings(case.settings, phases=set(case.settings.phases) - {Phase.explain})
    return machine
