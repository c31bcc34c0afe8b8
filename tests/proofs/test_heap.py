"""The symbolic heap: what it says of links must be what Python says of real objects."""

import inspect
import random
import textwrap
from itertools import islice
from typing import Any

import pytest
import z3
from blockproof.proofs import linked_queue as free_queue
from blockproof.proofs.heap import NONE, Heap
from blockproof.proofs.heap_theorem import HeapRun
from blockproof.proofs.linked_queue import FreeKVCacheBlockQueue, KVCacheBlock
from blockproof.proofs.solver import ProofError
from blockproof.proofs.symbolic import Run
from blockproof.proofs.theorems import BY_ID

LINKS = ("prev_free_block", "next_free_block")


def explored(body, assumptions=()):
    """The value of each path, with the hypotheses of the path."""
    return [(path.value, path.hypotheses, path.error) for path in Run("heap", assumptions).paths(body)]


def free_heap():
    return Heap(KVCacheBlock, "h", lambda reference: None)


def test_a_link_may_be_none_any_known_block_or_a_new_one():
    def follow():
        heap = free_heap()
        one, two = heap.block(z3.IntVal(1)), heap.block(z3.IntVal(2))
        after = one.next_free_block
        return "none" if after is None else "one" if after is one else "two" if after is two else "new"

    assert sorted(value for value, _, _ in explored(follow)) == ["new", "none", "one", "two"]


def test_the_same_link_leads_to_the_same_object_until_it_is_written():
    def follow():
        heap = free_heap()
        one = heap.block(z3.IntVal(1))
        first = one.next_free_block
        assert one.next_free_block is first
        one.next_free_block = one
        assert one.next_free_block is one
        one.next_free_block = None
        assert one.next_free_block is None

    assert [error for _, _, error in explored(follow) if error] == []


def test_two_references_are_one_object_exactly_where_they_are_equal():
    def compare():
        heap = free_heap()
        x, y = z3.Ints("x y")
        return heap.block(x) is heap.block(y)

    found = explored(compare, [])
    for same, hypotheses, _ in found:
        x, y = z3.Ints("x y")
        solver = z3.Solver()
        solver.add(*hypotheses, (x != y) if same else z3.And(x == y, x != NONE))
        assert solver.check() == z3.unsat
    assert {same for same, _, _ in found} == {True, False}


def test_a_write_changes_one_block_and_no_other():
    def write():
        heap = free_heap()
        one = heap.block(z3.IntVal(1))
        one.ref_cnt += 2
        one.is_null = True
        other = z3.Int("other")
        return z3.And(
            heap.value("ref_cnt", z3.IntVal(1)) == heap.before("ref_cnt", z3.IntVal(1)) + 2,
            heap.value("is_null", z3.IntVal(1)),
            z3.Implies(other != 1, heap.value("ref_cnt", other) == heap.before("ref_cnt", other)),
        )

    ((claim, hypotheses, _),) = explored(write)
    solver = z3.Solver()
    solver.add(*hypotheses, z3.Not(claim))
    assert solver.check() == z3.unsat


def test_an_identity_is_there_or_not_and_the_cores_own_methods_see_it():
    def look():
        block = free_heap().block(z3.IntVal(1))
        if block.block_hash is None:
            return "none"
        with pytest.raises(AssertionError, match="already carries"):
            block.block_hash = b"another"
        block.reset_hash()
        assert block.block_hash is None
        return "some"

    assert sorted(value for value, _, _ in explored(look)) == ["none", "some"]


def test_a_field_that_the_heap_does_not_know_is_refused():
    ((_, _, error),) = explored(lambda: free_heap().block(z3.IntVal(1)).owner)
    assert isinstance(error, AttributeError)


def test_what_holds_of_a_reference_is_assumed_once_when_it_is_met():
    told = []

    def follow():
        told.clear()
        heap = Heap(KVCacheBlock, "h", lambda reference: told.append(str(reference)))
        one = heap.block(z3.IntVal(1))
        assert heap.block(z3.IntVal(1)) is one
        heap.meet(z3.IntVal(1))

    explored(follow)
    assert told == ["1"]


SEEDS = range(20)


def program(seed):
    """A random straight-line program over three block variables, as instructions."""
    rng = random.Random(seed)
    lines = []
    for _ in range(6):
        kind = rng.choice(("read", "read", "write", "is", "count", "clear"))
        lines.append((kind, rng.randrange(3), rng.randrange(3), rng.choice(LINKS)))
    return lines


def perform(lines, blocks):
    """Run it on three blocks, symbolic or real: what it observed, and the variables in the end."""
    variables = list(blocks)
    seen: list[str | bool] = []
    for kind, i, j, link in lines:
        block = variables[i]
        if block is None:
            seen.append("none")
        elif kind == "read":
            variables[j] = getattr(block, link)
        elif kind == "write":
            setattr(block, link, variables[j])
        elif kind == "clear":
            setattr(block, link, None)
        elif kind == "is":
            seen.append(block is variables[j])
        else:
            block.ref_cnt += 1
            seen.append(bool(block.ref_cnt > 2))
    return seen, variables


class RealBlocks:
    """The heap of a model, as real objects; each is made when it is asked for, with all that it leads to."""

    def __init__(self, model, heap):
        self.model, self.heap, self.made = model, heap, {}

    def value(self, field, reference):
        return self.model.eval(self.heap.before(field, z3.IntVal(reference)), model_completion=True).as_long()

    def block(self, reference):
        if reference == NONE:
            return None
        waiting = [reference]
        while waiting:
            found = waiting.pop()
            if found != NONE and found not in self.made:
                self.made[found] = KVCacheBlock(found, self.value("ref_cnt", found))
                waiting += [self.value(link, found) for link in LINKS]
        for found, block in self.made.items():
            for link in LINKS:
                setattr(block, link, self.made.get(self.value(link, found)))
        return self.made[reference]


def differs(seed, kind=Heap):
    """How a random program goes otherwise on the heap than on real blocks, on some path; None if it does not."""
    lines, starts = program(seed), z3.Ints("a b c")
    run = HeapRun(f"seed {seed}", [], 0, 5.0)
    heaps = []

    def body():
        heaps.append(kind(KVCacheBlock, "h", lambda reference: None))
        return perform(lines, [heaps[-1].block(start) for start in starts])

    for path in islice(run.paths(body), 40):
        model = run.example(path, [start >= NONE for start in starts])
        if path.error is not None or model is None:
            return path.error or "a path that no heap takes"
        how = differs_on(model, heaps[-1], lines, starts, path.value)
        if how is not None:
            return how
    return None


def differs_on(model, heap, lines, starts, expected):
    real = RealBlocks(model, heap)

    def number(term):
        return model.eval(term, model_completion=True).as_long()

    references = [number(start) for start in starts]
    for reference in references:
        real.block(reference)
    seen, variables = perform(lines, [real.made.get(reference) for reference in references])
    if seen != expected[0]:
        return f"saw {expected[0]}, not {seen}"
    ids = [NONE if block is None else block.block_id for block in variables]
    if ids != [NONE if block is None else number(block.reference) for block in expected[1]]:
        return "the variables hold other blocks"
    for reference, block in real.made.items():
        links = [getattr(block, link) for link in LINKS]
        now = [NONE if after is None else after.block_id for after in links] + [block.ref_cnt]
        if now != [number(heap.value(field, z3.IntVal(reference))) for field in (*LINKS, "ref_cnt")]:
            return f"block {reference} has other fields"
    return None


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_program_sees_the_same_on_the_heap_and_on_real_blocks(seed):
    assert differs(seed) is None


class NeverTheSame(Heap):
    """Takes every link for a block that was not met before."""

    def block(self, reference):
        known, self.blocks = self.blocks, []
        found = super().block(reference)
        self.blocks = known + self.blocks
        return found


class FirstWriteOnly(Heap):
    """Forgets all writes to a field of a block but the first."""

    def write(self, block, field, value):
        if id(block) not in self._written[field]:
            super().write(block, field, value)


class WritesToAll(Heap):
    """A write changes the field of every block that was met."""

    def write(self, block, field, value):
        for other in self.blocks:
            super().write(other, field, value)


@pytest.mark.parametrize("kind", [NeverTheSame, FirstWriteOnly, WritesToAll])
def test_random_programs_find_out_a_wrong_heap(kind):
    assert any(differs(seed, kind) is not None for seed in SEEDS)


def test_a_run_whose_questions_never_end_is_refused():
    def endless():
        heap = free_heap()
        block = heap.block(z3.IntVal(1))
        while block is not None:
            block = block.next_free_block
            heap.write(heap.blocks[0], "next_free_block", heap.block(z3.Int(f"x{len(heap.blocks)}")))

    run = HeapRun("endless", [], 0, 5.0)
    with pytest.raises(ProofError, match="does not end"):
        next(iter(run.paths(endless)))


@pytest.mark.parametrize("line", ["block.prev_free_block = last", "last.next_free_block = self.fake_free_list_tail"])
def test_a_core_that_contradicts_a_proof_on_a_concrete_state_is_refuted_by_it(line, monkeypatch):
    """A symbolic queue begins in order; a real one is what the core's constructor makes of it."""
    source = textwrap.dedent(inspect.getsource(FreeKVCacheBlockQueue.__init__))
    made: dict[str, Any] = {}
    exec(source.replace(line, "pass"), vars(free_queue), made)
    monkeypatch.setattr(FreeKVCacheBlockQueue, "__init__", made["__init__"])
    verdict = BY_ID["T25.append"].settle(free_queue.subject(), with_controls=False)
    assert (verdict.status, verdict.replayed) == ("refuted", True)
    assert verdict.counterexample is not None
    n = verdict.counterexample["n"]
    assert verdict.message.startswith(f"raises OutOfOrderError: the core's constructor makes no queue of {n} blocks")
    assert verdict.satisfiable
