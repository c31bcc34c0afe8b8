"""Rows of batches of any length: what a proof assumes of one holds of real ones, and lists behave as Python's do."""

import random
from collections import deque
from typing import Any

import pytest
import z3
from blockproof import impl
from blockproof.proofs import batch_rows, roles, row_claims, row_code, row_theorem
from blockproof.proofs.batch_rows import Made
from blockproof.proofs.row_facts import GONE, NUMBER, WAITS, Row
from blockproof.proofs.row_lists import BatchRow, Entries
from blockproof.proofs.solver import ProofError
from blockproof.proofs.symbolic import Run
from blockproof.proofs.symbolic_bytes import globals_of
from blockproof.proofs.theorems import free_queue, free_queue_any
from blockproof.proofs.verdict import Verdict
from blockproof.proofs.watched import Watched

ROWS = list(batch_rows.rows())
THEOREMS = {theorem.id: theorem for theorem in (*free_queue.THEOREMS, *free_queue_any.THEOREMS)}
OUT = -1000


def function(values, otherwise=OUT):
    """A function of plain numbers, as a proof calls it."""

    def of(*arguments):
        value = values.get(tuple(z3.simplify(z3.IntVal(0) + one).as_long() for one in arguments), otherwise)
        return z3.BoolVal(value) if isinstance(value, bool) else z3.IntVal(value)

    return of


def described(made):
    """A real row, by the functions that the facts are about."""
    batches, order = list(made.queue.batches), made.order
    tables = {name: {} for name in Row.__dataclass_fields__}
    blocks = {block.block_id: block for block in (*made.outside, *made.blocks.values())}
    before = empties = 0
    for p, batch in enumerate(batches):
        unmade = hasattr(batch, "_make")
        values = {"unmade": unmade, "size": len(batch.blocks), "at": batch.at, "left": batch.left}
        for name, value in values.items():
            tables[name][p,] = value
        tables["before"][p,], tables["empties"][p,] = before, empties
        below = 0
        for e in range(batch.at, len(batch.blocks)):
            block = batch.blocks[e]
            tables["entry"][p, e], tables["below"][p, e] = block.block_id, below
            if block.state is batch:
                tables["entry_of"][block.block_id,] = e
                below += 1
        tables["below"][p, len(batch.blocks)] = below
        for i in range(before, before + batch.left):
            tables["home"][i,] = p
        before, empties = before + batch.left, empties + (not batch.left)
    tables["before"][len(batches),], tables["empties"][len(batches),] = before, empties
    for block_id in {*blocks, *order}:
        state = blocks[block_id].state if block_id in blocks else 0
        there = [p for p, batch in enumerate(batches) if batch is state]
        tables["kind"][block_id,] = NUMBER if isinstance(state, int) else WAITS if there else GONE
        tables["batch"][block_id,] = there[0] if there else OUT
        tables["count"][block_id,] = state if isinstance(state, int) else OUT
    for i, block_id in enumerate(order):
        tables["block"][i,], tables["place"][block_id,] = block_id, i
    numbers = {"n": made.queue.num_free_blocks, "end": len(batches), "empty": made.queue._empty}
    plain = {name: z3.IntVal(value) for name, value in (*numbers.items(), ("first", 0), ("taken", 0))}
    other = {"unmade": False, "kind": NUMBER}
    functions = {name: function(tables[name], other.get(name, OUT)) for name in tables if name not in plain}
    return Row(**plain, **functions), sorted({*blocks, *order})


def untrue(made):
    """What is not true of a real row, of all that a proof assumes."""
    row, blocks = described(made)
    batches, entries, places = row.end.as_long(), range(-1, 6), range(-1, len(made.order) + 2)
    said = {"all": row.of_all()}
    said |= {f"batch {p}": row.of_batch(z3.IntVal(p)) for p in range(-1, batches + 1)}
    said |= {f"entry {p, e}": row.of_entry(z3.IntVal(p), z3.IntVal(e)) for p in range(batches) for e in entries}
    said |= {f"block {x}": row.of_block(z3.IntVal(x)) for x in blocks}
    said |= {f"place {i}": row.of_place(z3.IntVal(i)) for i in places}
    return [what for what, fact in said.items() if not z3.is_true(z3.simplify(fact))]


def made(row):
    return Made(impl.FreeKVCacheBlockQueue, impl.KVCacheBlock, row)


@pytest.mark.parametrize("part", range(4))
def test_what_a_proof_assumes_of_a_row_is_true_of_real_ones(part):
    some = random.Random(part).sample(ROWS, 60)
    assert [(row, untrue(made(row))) for row in some if untrue(made(row))] == []


def test_what_a_proof_assumes_of_a_row_is_untrue_of_a_broken_one():
    row = (batch_rows.Form(2, 1), batch_rows.Form(0), batch_rows.Form(1, taken=True))

    def broken(change):
        real = made(row)
        assert untrue(real) == []
        change(real, real.queue)
        return untrue(real)

    assert broken(lambda real, queue: setattr(queue, "num_free_blocks", 4))
    assert broken(lambda real, queue: setattr(queue, "_empty", 0))
    assert broken(lambda real, queue: setattr(queue.batches[0], "left", 1))
    assert broken(lambda real, queue: setattr(queue.batches[0], "at", 1))
    assert broken(lambda real, queue: setattr(real.blocks[0], "state", 0))
    assert broken(lambda real, queue: setattr(real.outside[0], "state", queue.batches[0]))
    assert broken(lambda real, queue: queue.batches[0].blocks.append(real.blocks[0]))
    assert broken(lambda real, queue: queue.batches.rotate())


def test_a_list_of_any_length_is_what_a_list_is():
    rng = random.Random(1)
    for path in Run("lists", []).paths(lambda: [_same_lists(rng) for _ in range(40)]):
        assert path.error is None
        assert all(path.value)


class Block:
    def __init__(self, reference):
        self.reference = z3.simplify(reference)


def _numbers(entries):
    length = z3.simplify(entries.length).as_long()
    return [entries[j].reference.as_long() for j in range(length)]


def _same_lists(rng):
    plain = [rng.randrange(9) for _ in range(rng.randrange(5))]
    entries = Entries(Block, len(plain), function({(j,): value for j, value in enumerate(plain)}))
    for _ in range(4):
        more = [rng.randrange(9) for _ in range(rng.randrange(3))]
        blocks = [Block(z3.IntVal(value)) for value in more]
        step = rng.randrange(5)
        if step == 0:
            plain, entries = plain + more, entries + blocks
        elif step == 1:
            plain, entries = more + plain, blocks + entries
        elif step == 2:
            start = rng.randint(0, len(plain))
            stop = rng.randint(start, len(plain))
            plain, entries = plain[start:stop], entries[start:stop]
        elif step == 3 and more:
            plain = [*plain, more[0]]
            entries.append(blocks[0])
        else:
            plain, entries = list(plain), entries.copy()
            plain += more
            entries += blocks
    return _numbers(entries) == plain and bool(entries) == bool(plain) and len(plain) == int(entries.symbolic_len())


def test_a_list_of_any_length_refuses_what_it_cannot_say():
    def body():
        entries = Entries(Block, z3.Int("n"), lambda j: j)
        refused = []
        for ask in (len, iter, list, reversed, lambda one: one[-1], lambda one: one[::2], lambda one: one == one):
            with pytest.raises(ProofError):
                ask(entries)
            ProofError.latest = None
            refused.append(True)
        return refused

    assert [path.value for path in Run("lists", []).paths(body)] == [[True] * 7]


def test_a_row_of_any_length_is_what_a_row_is():
    def body():
        rng = random.Random(2)
        for number in range(4):
            row = BatchRow(lambda p: z3.simplify(p).as_long(), z3.IntVal(0), z3.IntVal(number))
            plain: deque[Any] = deque(range(number))
            for _ in range(5):
                step = rng.randrange(3)
                if step == 0 and plain:
                    assert row.popleft() == plain.popleft()
                elif step == 1:
                    row.append("back")
                    plain.append("back")
                elif step == 2:
                    row.appendleft("front")
                    plain.appendleft("front")
                assert int(row.symbolic_len()) == len(plain)
                assert bool(row) == bool(plain)
                assert not plain or (row[0], row[-1]) == (plain[0], plain[-1])
        return []

    for path in Run("rows", []).paths(body):
        assert path.error is None


class Strange:
    """Loops that cannot be followed."""

    def __init__(self):
        pass

    def leaves(self, n):
        while n:
            n -= 1
            if n == 3:
                break

    def nested(self, n):
        while n:
            for _ in range(n):
                n -= 1


@pytest.mark.parametrize("method", ["leaves", "nested"])
def test_a_loop_that_cannot_be_followed_is_refused(method):
    kind = type("One", (), {"__init__": Strange.__init__, method: vars(Strange)[method]})
    with pytest.raises(ProofError, match="cannot be followed"), row_code.hooked((kind,), None, {}):
        pass


def settled(name, wrong=None):
    """The verdict about any length, of the core or of a wrong variant of it."""
    subject = roles.impl()
    verdict = Verdict(name, subject.name, "undecided")
    queue: Any = subject.find("queue_kind")
    arguments = verdict, row_claims.CLAIMS[name], subject, 20, Watched(subject.modules(), ignore=True)
    if wrong is None:
        row_theorem.settle_any_length(*arguments)
        return verdict
    owner: Any = queue if wrong.owner == "queue" else globals_of(queue.append_n)["Batch"]
    with batch_rows._changed(owner, wrong):
        row_theorem.settle_any_length(*arguments)
    return verdict


QUICK = ("popleft.empty", "popleft_n.refused", "remove.refused", "prepend_n.any")
WRONG = [
    pytest.param(name, wrong, id=f"{name}: {wrong.what}", marks=[] if name in QUICK else pytest.mark.slow)
    for name in row_claims.CLAIMS
    for wrong in THEOREMS[f"T25.{name}"].batches
]


@pytest.mark.parametrize(("name", "wrong"), WRONG)
def test_no_wrong_variant_is_proved_for_any_length(name, wrong):
    assert settled(name, wrong).status == "undecided"


@pytest.mark.parametrize("name", QUICK)
def test_what_is_right_is_proved_for_any_length(name):
    verdict = settled(name)
    assert verdict.status == "proved", verdict.message
