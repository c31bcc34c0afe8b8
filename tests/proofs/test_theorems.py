"""Every theorem, for the model and for our core: what comes out is what is declared, and negative controls are refuted.

Negative controls take the place of a core's functions, so one core is enough to refute them: ours, or the model where
our core has no such function. What takes long is left to `make test-all`; `blockproof prove` settles all of it, too.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from blockproof.proofs import batch_rows, campaign, expectations, pages, roles
from blockproof.proofs.batch_rows import QueueTheorem
from blockproof.proofs.theorem import Theorem
from blockproof.proofs.theorems import (
    FAMILIES,
    THEOREMS,
    extra_keys,
    first_steps,
    folded,
    free_queue,
    free_queue_any,
    horizons,
    identities,
    identities_events,
    invariants,
    invariants_names,
    invariants_pool,
    invariants_touch,
    items,
    references,
    runs,
    short_ways,
    slots,
    views,
)

LONG = 1.4
"""Theorems that take more seconds (`Statement.weight`) are marked slow, and so are on the model those that hold for our
core's functions, too: they run hardly a line alone. Where `prove --check` has settled them, they are left out."""
SETTLED = "BLOCKPROOF_THEOREMS_SETTLED"
"""Set by .ci/run, where `blockproof prove --check` has settled all theorems: what is slow is left out."""
NOT_OF_IMPL = {"T12.rounded", "T17.down", "T17.up"}
NOT_OF_IMPL |= {theorem.id for theorem in (*invariants.THEOREMS, *free_queue_any.THEOREMS)}
NOT_OF_IMPL |= {"T8.folded", "T22.last", "T3.nulled.open"}
"""Functions that our core has no counterpart of: it writes them out where it needs them, its queue has no links, and
its names, its map and its states are those of the older rule."""
_NOT_OF_MODEL = (
    first_steps,
    folded,
    free_queue,
    free_queue_any,
    horizons,
    invariants_touch,
    references,
    runs,
    short_ways,
    slots,
    views,
    identities,
    identities_events,
    extra_keys,
    items,
    invariants_names,
    invariants_pool,
)
"""The model has no links, no memory and no short ways; it knows neither bytes nor events."""
_BUT_OF_MODEL = {"T22.chain", "T23", "T23.only", "T23.converse", "T23.items", "T23.items.only", "T23.items.lengths"}
_BUT_OF_MODEL |= {
    "T23.overlap",
    "T23.resumed",
    "T23.items.any",
    "T23.reloaded",
    "T23.embeddings",
    "T23.dtype",
    "T23.mask",
}
NOT_OF_MODEL = {theorem.id for family in _NOT_OF_MODEL for theorem in family.THEOREMS} - _BUT_OF_MODEL
NOT_OF_MODEL |= {"T3.nulled.open"}
MISTAKES = ("TypeError", "AttributeError", "NameError", "KeyError")
"""A counterexample that ends so would say that a role is bound wrongly, not that a core is wrong."""
NOTHING_RAN = {("T1.full", "impl"), ("T1.reads", "impl")}
"""Pure arithmetic, and what is about the definition of attention, which our core has no function for."""
AT_LEAST = {"T25.order": 10_001}
"""Paths, or runs, without which a theorem would have looked at too little."""
OF_QUEUE_AND_POOL = {t.id for family in (free_queue, free_queue_any, references) for t in family.THEOREMS}


def is_slow(theorem: Any, subject: str) -> bool:
    return theorem.weight > LONG or (subject == "model" and theorem.id not in NOT_OF_IMPL)


def _case(theorem: Any, subject: str) -> Any:
    marks = [pytest.mark.slow] if is_slow(theorem, subject) else [pytest.mark.each_is_measured]
    return pytest.param(theorem, subject, id=f"{theorem.id}-{subject}", marks=marks)


CASES = [_case(theorem, subject) for theorem in THEOREMS for subject in ("impl", "model")]


@pytest.fixture(scope="module")
def record():
    return pages.read((Path(__file__).parents[2] / "docs/reference/theorems" / pages.RECORD).read_text("utf-8"))


@pytest.mark.parametrize(("theorem", "subject"), CASES)
def test_each_theorem_comes_out_as_declared_and_its_negative_controls_are_refuted(theorem, subject, record):
    if os.environ.get(SETTLED) and is_slow(theorem, subject):
        pytest.skip("settled by `blockproof prove --check` in the same run")
    with_controls = subject == "impl" or theorem.id in NOT_OF_IMPL
    verdict = theorem.settle(roles.subject(subject), seconds=20, with_controls=with_controls)
    if verdict.status == "undecided":  # what Z3 can decide depends on what this process has asked it before
        verdict = campaign.alone(theorem.id, campaign.Interpreter(subject), 20, with_controls)
    written = record.settled[theorem.id][subject]
    assert (verdict.status, verdict.paths) == (written.status, written.paths), "docs/reference/theorems is stale"
    assert set(verdict.covered) == set(written.functions), "docs/reference/theorems is stale"
    if theorem.id in (NOT_OF_IMPL if subject == "impl" else NOT_OF_MODEL):
        assert verdict.status == "unavailable"
        return
    assert expectations.differences(verdict, expectations.read([subject])[subject][theorem.id]) == []
    assert verdict.replayed == (verdict.status == "refuted")
    assert verdict.covered or (theorem.id, subject) in NOTHING_RAN, "no function of the core ran"
    assert verdict.paths >= AT_LEAST.get(theorem.id, 1)
    assert not any(mistake in verdict.message for mistake in MISTAKES)
    assert set(verdict.controls.values()) == ({"refuted"} if with_controls else set())
    if with_controls and isinstance(theorem, Theorem):
        declared = {one.wrong for one in theorem.controls}
        if isinstance(theorem, QueueTheorem) and subject == "impl":
            declared = {wrong.what for wrong in theorem.batches}
        assert declared
        assert set(verdict.controls) == declared
    if theorem.id in OF_QUEUE_AND_POOL:
        rows = verdict.bounded == batch_rows.BOUNDED
        assert verdict.smtlib or rows, "only what is tried on small rows asks no solver"
        assert any("FreeKVCacheBlockQueue" in name or "BlockPool" in name for name in verdict.covered)


def test_every_theorem_of_every_family_is_settled_here():
    assert {theorem.id for family in FAMILIES for theorem in family.THEOREMS} == {case.values[0].id for case in CASES}


def test_on_the_model_and_our_core_no_theorem_is_refuted():
    """What is said of a release is said of one that exists."""
    assert {subject for theorem in THEOREMS for subject in theorem.refuted_on} == {"vllm==0.23.0", "vllm==0.33.0"}
