"""T25 and T26: the free queue and the references, on the real methods and on methods with a line left out."""

import ast
import inspect
import linecache
import random
from itertools import pairwise
from types import ModuleType

import blockproof.impl.pool.block_pool as block_pool
import pytest
import z3
from blockproof import impl
from blockproof.impl import BlockPool
from blockproof.proofs import batch_rows, linked_queue, roles
from blockproof.proofs.free_list import SymbolicQueue
from blockproof.proofs.heap_theorem import HeapRun
from blockproof.proofs.linked_queue import FreeKVCacheBlockQueue, KVCacheBlock
from blockproof.proofs.plain_queue import PlainQueue
from blockproof.proofs.real_pool import PlainBatchPool
from blockproof.proofs.roles.free_queue import MODEL
from blockproof.proofs.theorem import Functions, Subject
from blockproof.proofs.theorems import free_queue, free_queue_any, queue_order, references

THEOREMS = (*free_queue.THEOREMS, *free_queue_any.THEOREMS, *references.THEOREMS)
BY_ID = {theorem.id: theorem for theorem in THEOREMS}


def test_a_queue_that_reads_otherwise_is_refuted_with_what_was_done():
    wrong = Subject("impl", lambda role: queue_order.wrong_orders("give"), ())
    verdict = queue_order.ORDER.settle(wrong)
    assert verdict.status == "refuted"
    assert verdict.replayed
    assert "give" in verdict.message


@pytest.mark.parametrize("seed", range(10))
def test_model_and_core_show_the_same_queue_on_longer_random_runs(seed):
    rng, blocks, steps, order = random.Random(seed), 9, [], list(range(1, 10))
    for _ in range(60):
        held = [block for block in range(1, blocks + 1) if block not in order]
        batch = tuple(rng.sample(held, rng.randint(0, len(held))))
        step = rng.choice(
            [
                queue_order.QueueStep("take", rng.randint(0, len(order))),
                queue_order.QueueStep(rng.choice(("give", "give to front")), 0, batch),
                *([queue_order.QueueStep("hit", rng.randrange(len(order)))] if order else []),
            ]
        )
        steps.append(step)
        order = queue_order.listed(blocks, steps)[-1]
    expected = queue_order.listed(blocks, steps)
    assert MODEL["queue_orders"](blocks, steps) == expected
    assert roles.impl().find("queue_orders")(blocks, steps) == expected


class Names:
    """The roles that a scene asks for."""

    block_kind, queue_kind = KVCacheBlock, FreeKVCacheBlockQueue


class OurNames:
    """The same of our core."""

    block_kind, queue_kind, pool_kind = impl.KVCacheBlock, impl.FreeKVCacheBlockQueue, BlockPool


def test_a_plain_scene_notices_each_part_of_a_broken_queue():
    def broken(change):
        scene = PlainQueue(Names, 3)
        assert all(scene.reads(scene.order))
        change(scene, scene.queue, scene.order.blocks)
        return [number for number, right in enumerate(scene.reads(scene.order)) if not right]

    def point(block, **links):
        for name, value in links.items():
            setattr(block, f"{name}_free_block", value)

    assert broken(lambda s, q, b: point(b[0], next=b[2])) == [2]
    assert broken(lambda s, q, b: point(b[1], prev=None)) == [2]
    assert broken(lambda s, q, b: setattr(q, "num_free_blocks", 2)) == [4]
    assert broken(lambda s, q, b: point(s.block(-1), next=b[0])) == [3]
    assert broken(lambda s, q, b: point(q.fake_free_list_head, prev=b[0])) == [0]


def test_a_plain_pool_notices_a_count_that_disagrees():
    scene = PlainBatchPool(OurNames, 2, True)
    assert all(scene.unchanged())
    scene.pool._num_shared = 1
    assert not all(scene.accounts(scene.order, []))
    scene.pool._num_shared = 0
    assert not all(scene.accounts(scene.order, [(scene.block(-2), 1)]))
    scene.block(-2).ref_cnt = 0
    assert not all(scene.unchanged())
    scene.block(-2).ref_cnt = 1
    assert all(scene.unchanged())
    scene.block(0).ref_cnt = 1
    assert not all(scene.accounts(scene.order, []))
    assert not all(scene.unchanged())


def links_of(scene, n, swapped):
    """The links of a real list of `n` blocks with ids 10, 11, ..; `swapped` lets the first point at itself."""
    ids = [-2, *range(10, 10 + n), -3]
    for number, (one, two) in enumerate(pairwise(ids)):
        target = one if swapped and number == 1 else two
        yield scene.heap.before("next_free_block", z3.IntVal(one)) == target
        yield scene.heap.before("prev_free_block", z3.IntVal(two)) == one
    for number, reference in enumerate(ids):
        yield scene.order.at(z3.IntVal(number - 1)) == reference
        yield scene.order.place(z3.IntVal(reference)) == number - 1


@pytest.mark.parametrize("n", range(1, 4))
def test_what_a_scene_assumes_holds_of_real_lists_and_of_no_broken_one(n):
    run = HeapRun("facts", [], 0, 5.0)
    found = []

    def body():
        scene = SymbolicQueue(Names, z3_int(n))
        for place in range(n):
            scene.block_at(z3_int(place))
        found.append(scene)

    for path in run.paths(body):
        for swapped in (False, True):
            solver = z3.Solver()
            solver.add(*path.hypotheses, *links_of(found[-1], n, swapped))
            assert solver.check() == (z3.unsat if swapped else z3.sat)


def z3_int(value):
    from blockproof.proofs.symbolic import SymbolicInt

    return SymbolicInt(z3.IntVal(value))


QUEUE_LINES = {
    "popleft_n": ("T25.popleft_n", "T25.popleft_n.refused"),
    "remove": ("T25.remove", "T25.remove.refused"),
    "append": ("T25.append",),
    "append_n": ("T25.append_n",),
    "prepend_n": ("T25.prepend_n",),
    "_insert_before": ("T25.append",),
}
POOL_LINES = {
    "touch": ("T26.stranger", "T26.touch"),
    "_give_back": ("T26.free.refused", "T26.free.different", "T26.stranger"),
}
KEPT = (
    "assert block is not None",  # guards against a broken chain, which no operation can make
    "assert before is not None",
    "assert front is not None",
    "if not n",  # a short cut
    "metrics.on_block_accessed",  # metrics are off
    "if metrics is not None",
    "if len(blocks) >= _BULK",  # S1.touch.batch is about many blocks
    "return",
    "pass",
)
"""Lines that change nothing on a queue that is in order."""


def without_a_line(module, kind, methods):
    """Each method with one statement left out: its name, the statement, and the source of the module."""
    source = inspect.getsource(module)
    tree, lines = ast.parse(source), source.splitlines(keepends=True)
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind)
    for method in found.body:
        if not isinstance(method, ast.FunctionDef) or method.name not in methods:
            continue
        for node in ast.walk(method):
            body = getattr(node, "body", None)
            for statement in body if isinstance(body, list) else []:
                line = ast.unparse(statement)
                if isinstance(statement, ast.Return | ast.Raise) or line.startswith(('"', "'", *KEPT)):
                    continue
                left = [*lines[: statement.lineno - 1], f"{' ' * statement.col_offset}pass\n"]
                yield method.name, line.partition("\n")[0], "".join([*left, *lines[statement.end_lineno :]])


def altered(module, kind, source, name):
    """Our core, with this source in place of one module's."""
    made = ModuleType(module.__name__)
    made.__package__, made.__file__ = module.__package__, f"<{name}>"
    linecache.cache[made.__file__] = (len(source), None, source.splitlines(True), made.__file__)
    exec(compile(source, made.__file__, "exec"), vars(made))
    ours, altered_kind = roles.impl() if kind == "BlockPool" else linked_queue.subject(), getattr(made, kind)
    role = {"FreeKVCacheBlockQueue": "queue_kind", "BlockPool": "pool_kind"}[kind]

    def find(wanted):
        if wanted == role:
            return altered_kind
        return getattr(altered_kind, wanted, None) or ours.find(wanted)

    class Altered(Subject):
        def modules(self):
            return [made, *ours.modules()]

    return Altered(ours.name, find, ours.packages)


LINES = [
    (module, kind, theorems[method], f"{method}: {line}", source)
    for module, kind, theorems in (
        (linked_queue, "FreeKVCacheBlockQueue", QUEUE_LINES),
        (block_pool, "BlockPool", POOL_LINES),
    )
    for method, line, source in without_a_line(module, kind, theorems)
]


@pytest.mark.parametrize(("module", "kind", "theorems", "line", "source"), LINES, ids=[line[3] for line in LINES])
def test_a_method_that_lacks_a_line_is_not_proved(module, kind, theorems, line, source):
    core = altered(module, kind, source, line)
    statuses = (BY_ID[name].settle(core, with_controls=False).status for name in theorems)
    assert any(status != "proved" for status in statuses)


def test_a_queue_recompiled_without_any_change_is_proved():
    core = altered(linked_queue, "FreeKVCacheBlockQueue", inspect.getsource(linked_queue), "unchanged")
    for name in ("T25.remove", "T25.append_n.any", "T25.popleft_n"):
        assert BY_ID[name].settle(core, with_controls=False).status == "proved"


def test_the_claims_hold_of_real_objects_for_random_values():
    rng = random.Random(4)
    for theorem in THEOREMS:
        of_links = theorem not in references.THEOREMS
        functions = Functions((linked_queue.subject() if of_links else roles.impl()).find, {})
        tried = 0
        for _ in range(4000):
            values = {
                name: rng.random() < 0.5 if meaning.startswith("whether") else rng.randint(-3, 6)
                for name, meaning in theorem.variables.items()
            }
            given = type("Given", (), values)
            if all(theorem.assume(given)):
                claimed = theorem.claim(functions, given)
                assert all(claimed if isinstance(claimed, list | tuple) else [claimed]), (theorem.id, values)
                tried += 1
                if tried == 20:
                    break
        assert tried >= 5, f"{theorem.id}: hardly any values satisfy its assumptions"


@pytest.mark.parametrize("theorem", [*free_queue.THEOREMS, *free_queue_any.THEOREMS], ids=lambda one: one.id)
def test_every_queue_theorem_is_proved_of_linked_blocks_and_its_controls_refuted(theorem):
    verdict = theorem.settle(linked_queue.subject())
    assert verdict.status == "proved", verdict.message
    assert set(verdict.controls) == {control.wrong for control in theorem.controls}


def test_a_row_that_is_not_in_order_is_noticed():
    kinds = impl.FreeKVCacheBlockQueue, impl.KVCacheBlock
    row = (batch_rows.Form(2, 1), batch_rows.Form(0), batch_rows.Form(1, unmade=True))
    right = batch_rows.Made(*kinds, row)
    assert right.order == [0, 1, batch_rows._UNMADE]
    right.require(right.order, "nothing")

    def broken(change):
        made = batch_rows.Made(*kinds, row)
        change(made, made.queue)
        with pytest.raises(AssertionError, match="nothing"):
            made.require([0, 1, batch_rows._UNMADE], "nothing")

    broken(lambda made, queue: setattr(queue, "num_free_blocks", 4))
    broken(lambda made, queue: setattr(queue, "_empty", 0))
    broken(lambda made, queue: setattr(queue.batches[0], "left", 1))
    broken(lambda made, queue: setattr(made.blocks[0], "state", 0))
    broken(lambda made, queue: setattr(made.outside[0], "state", queue.batches[0]))
    broken(lambda made, queue: queue.batches.rotate())


def test_rows_have_all_forms():
    found = {form for row in batch_rows.rows() for form in row}
    assert any(form.elsewhere for form in found)
    assert any(form.taken for form in found)
    assert any(form.taken and form.elsewhere for form in found)
    assert any(form.unmade for form in found)
    assert any(not form.left for form in found)
    assert max(len(row) for row in batch_rows.rows()) == 3
