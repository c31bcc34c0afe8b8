"""A symbolic table does what a list does, and refuses what it cannot do."""

import random
from typing import Any

import pytest
import z3
from blockproof.proofs.quotients import Tokens, divisor, tokens
from blockproof.proofs.solver import ProofError
from blockproof.proofs.symbolic import Run, symbol, term
from blockproof.proofs.symbolic_builtins import symbolic_len
from blockproof.proofs.symbolic_table import Count, SymbolicTable, count


def values_of(number: Any, at: dict[str, int], run: Run, path: Any) -> int:
    """The value of a term where the variables have these values and the path's hypotheses hold."""

    solver = z3.Solver()
    solver.add(*path.hypotheses, *(z3.Int(name) == value for name, value in at.items()))
    assert solver.check() == z3.sat
    return (
        int(solver.model().eval(count(number).term, model_completion=True).as_long())
        if hasattr(number, "term")
        else number
    )


def a_program(draw: random.Random) -> list[tuple[Any, ...]]:
    """Some operations on a table; places and amounts are offsets to the symbols `i` and `n`."""
    kinds = ("append", "extend nulls", "assign", "slice", "overwrite", "concatenate", "prepend nulls", "copy")
    return [(draw.choice(kinds), draw.randint(-2, 3), draw.randint(-1, 2)) for _ in range(draw.randint(1, 4))]


def carried_out(program: list[tuple[Any, ...]], table: Any, i: Any, n: Any) -> Any:
    """The table after the program, whether it is a list or a symbolic table."""
    for kind, offset, amount in program:
        if kind == "append":
            table.append(7)
        elif kind == "extend nulls":
            table.extend([0] * (n + amount))
        elif kind == "assign":
            try:
                table[i + offset] = 9
            except IndexError:
                table.append(5)
        elif kind == "slice":
            table = table[i + offset : n + amount + 3]
        elif kind == "overwrite":
            end = symbolic_len(table)
            if end >= 2:
                table[end - 2 : end] = [0, 8]
        elif kind == "concatenate":
            table = table.__add__([4, 0])
        elif kind == "prepend nulls":
            table = [0] * (n + amount) + table
        else:
            table = table.copy()
    return table


@pytest.mark.parametrize("seed", range(40))
def test_agrees_with_a_list_on_every_operation(seed: int) -> None:
    """On the path that plain values take, length, entries and marks are those of the list."""
    draw = random.Random(seed)
    program = a_program(draw)
    at = {"length": draw.randint(0, 4), "i": draw.randint(-3, 5), "n": draw.randint(-2, 3)}
    plain = carried_out(program, [place % 3 for place in range(at["length"])], at["i"], at["n"])
    length, i, n = (count(symbol(name)) for name in at)
    pinned = [count(symbol(name)) == value for name, value in at.items()]
    run = Run(f"seed {seed}", pinned, unroll=30)

    def body() -> Any:
        table = SymbolicTable(length, lambda k: k % 3, lambda k: k - (k + 2) // 3)
        table = carried_out(program, table, i, n)
        entries = [table[place] for place in range(len(plain))]
        return table.symbolic_len(), entries, table.marked(), list(table), list(reversed(table))

    (path,) = run.paths(body)
    assert path.error is None, f"seed {seed}, {program}: {path.error!r}"
    size, entries, marked, forwards, backwards = path.value
    found = [values_of(number, at, run, path) for number in (size, marked)]
    assert found == [len(plain), sum(entry != 0 for entry in plain)], f"seed {seed}: {program} at {at}"
    for symbolic in (entries, forwards, backwards[::-1]):
        assert [values_of(entry, at, run, path) for entry in symbolic] == plain, f"seed {seed}: {program} at {at}"


@pytest.mark.parametrize("length", range(4))
def test_every_slice_has_the_entries_of_the_list_s(length: int) -> None:
    size, low, high = (count(symbol(name)) for name in ("length", "low", "high"))
    table = SymbolicTable(size, lambda i: i + 1, lambda i: i)
    for start in range(-length - 2, length + 3):
        for stop in (-length - 1, -1, 0, 1, length + 1):
            at = {"length": length, "low": start, "high": stop}
            run = Run("slice", [size == length, low == start, high == stop])
            (path,) = run.paths(lambda: (table[low:high].symbolic_len(), table[low:].marked(), table[:high].marked()))
            plain = list(range(1, length + 1))
            want = [len(plain[start:stop]), len(plain[start:]), len(plain[:stop])]
            assert [values_of(number, at, run, path) for number in path.value] == want, at


def run_once(body: Any, *assumptions: Any, unroll: int = 0) -> Any:
    """The one path of a body."""
    (path,) = Run("test", list(assumptions), unroll).paths(body)
    return path


def test_a_subscript_outside_raises_as_that_of_a_list_does() -> None:
    table = SymbolicTable(3, lambda i: i)
    assert isinstance(run_once(lambda: table[count(symbol("i"))], symbol("i") == 3).error, IndexError)
    assert isinstance(run_once(lambda: table[count(symbol("i"))], symbol("i") == -4).error, IndexError)


@pytest.mark.parametrize(
    ("does", "complaint"),
    [
        (lambda table, n: list(table), "goes on after 2 entries"),
        (lambda table, n: list(reversed(table)), "goes on after 2 entries"),
        (lambda table, n: table[0:n:2], "a slice with step 2"),
        (lambda table, n: table.__setitem__(slice(0, 2), [1]), "another number of entries"),
        (lambda table, n: [1, 2] * n, "a list of 2 values is repeated"),
        (lambda table, n: ["x"] * n, "only the null block can be"),
        (lambda table, n: table.marked(), "does not know which entries are marked"),
        (lambda table, n: n | 1, "the bits of a symbolic number"),
    ],
)
def test_what_cannot_be_followed_is_refused(does: Any, complaint: str) -> None:
    n = count(symbol("n"))
    table = SymbolicTable(n, lambda i: i)
    with pytest.raises(ProofError, match=complaint):
        run_once(lambda: does(table, n), n >= 4, unroll=2)


def test_what_is_computed_from_a_count_is_one() -> None:
    n, m = count(symbol("n")), symbol("m")
    run = run_once(lambda: [n + m, m + n, n - m, m - n, n // 2, 7 // n, n % 3, 5 % n, -n, abs(n), n * 2, n | 0], n >= 1)
    assert run.error is None
    assert all(isinstance(number, Count) for number in run.value)


@pytest.mark.parametrize("seed", range(30))
def test_tokens_are_divided_like_integers(seed: int) -> None:
    """Sums, differences and quotients by the block size, also negative ones, as vLLM's rounding up divides."""
    draw = random.Random(seed)
    at = {"b": draw.randint(1, 5), "q": draw.randint(0, 4), "r": draw.randint(-9, 12)}
    at["r"] = max(-2 * at["b"], min(at["r"], 3 * at["b"]))
    extra = draw.randint(-2, 2)
    names = {name: count(symbol(name)) for name in at}

    def answers(b: Any, q: Any, r: Any) -> list[Any]:
        x = tokens(q, r, b)
        y = x + extra - q
        return [x // b, (x - extra) // b, -(-x // b), -(x // -b), y, extra - x, (x + x) // b, x + 0]

    run = Run(f"seed {seed}", [names[name] == value for name, value in at.items()])
    (path,) = run.paths(lambda: answers(**names))
    assert path.error is None, f"seed {seed}: {path.error!r}"
    assert [values_of(number, at, run, path) for number in path.value] == answers(**at), f"seed {seed}: {at}"
    assert isinstance(run_once(lambda: tokens(names["q"], 1, names["b"]), names["b"] >= 1).value, Tokens)


def test_tokens_far_from_their_blocks_are_refused() -> None:
    b, r = count(symbol("b")), count(symbol("r"))
    with pytest.raises(ProofError, match="a rest of more than 8 blocks"):
        run_once(lambda: tokens(1, r, b) // b, b >= 1, r >= 9 * b)
    with pytest.raises(ProofError, match="may not be positive"):
        run_once(lambda: tokens(1, r, b) // b, b < 0)


@pytest.mark.parametrize(("x", "b"), [(7, 3), (-7, 3), (6, 3), (0, 4), (-1, 1)])
def test_a_divisor_gives_the_quotient_a_name(x: int, b: int) -> None:
    given, unit = count(symbol("x")), symbol("b")

    def body() -> list[Any]:
        by = divisor(unit)
        return [given // by, given % by, given // -by, -(given // -by)]

    run = Run("test", [given == x, unit == b])
    (path,) = run.paths(body)
    found = [values_of(number, {"x": x, "b": b}, run, path) for number in path.value]
    assert found == [x // b, x % b, x // -b, -(x // -b)]
    assert len(path.obligations) == 1, "the sign of the divisor is to be proved"


def test_a_divisor_that_may_be_negative_owes_a_proof_that_fails() -> None:

    path = run_once(lambda: divisor(symbol("b")))
    (owed,) = path.obligations
    assert z3.Solver().check(z3.Not(owed.claim)) == z3.sat


@pytest.mark.parametrize("length", range(4))
def test_a_table_read_from_its_end_is_a_list_read_from_its_end(length):
    def read():
        table = SymbolicTable(symbol("n"), lambda i: i + 1, lambda i: i)[::-1]
        return [table[place] == length - place for place in range(length)]

    for path in Run("from the end", [symbol("n") == length]).paths(read):
        assert path.error is None
        for claim in path.value:
            solver = z3.Solver()
            solver.add(*path.hypotheses, z3.Not(term(claim)))
            assert solver.check() == z3.unsat
