"""What the theorems about hits rest on: roles and symbolic amounts do what they say."""

import random
from typing import Any

import pytest
import z3
from blockproof.proofs import roles
from blockproof.proofs.roles import amounts
from blockproof.proofs.roles import hits as hit_roles
from blockproof.proofs.solver import solve
from blockproof.proofs.symbolic import Run, SymbolicInt

SUBJECTS = {"model": roles.model, "impl": roles.impl}


def _reads(role: str, edge: int, b: int, size: int) -> range:
    """Blocks that the query behind `edge` blocks reads, from the definition of attention."""
    first = {
        "hit_full": 0,
        "hit_sliding": max(0, edge * b - size + 1),
        "hit_chunked": edge * b // size * size,
        "hit_mamba": edge * b - 1,
    }[role]
    return range(first // b, edge)


@pytest.mark.parametrize("role", ["hit_full", "hit_sliding", "hit_chunked", "hit_mamba"])
def test_a_search_finds_the_longest_hit_that_holds_what_is_read_among_up_to_eight_blocks(role: str) -> None:
    """The theorems bound the searches to three blocks; this looks further, on plain numbers."""
    rng = random.Random(7)
    found = 0
    for _ in range(1500):
        b, m, num_blocks = rng.randint(1, 4), rng.randint(1, 3), rng.randint(0, 8)
        size = rng.randint(1, 4) * b if role == "hit_chunked" else rng.randint(2, 14)
        m = 1 if role == "hit_chunked" else m
        registered = [rng.random() < 0.7 for _ in range(num_blocks)]
        limit = num_blocks * b + rng.randrange(b)
        arguments: list[Any] = [registered, limit, b, False, m * b]
        arguments += [size] if role in ("hit_sliding", "hit_chunked") else []
        longest = max(
            edge
            for edge in range(num_blocks + 1)
            if edge % m == 0 and (edge == 0 or all(registered[i] for i in _reads(role, edge, b, size)))
        )
        for subject in SUBJECTS.values():
            hit = subject().find(role)(*arguments)
            assert len(hit) == longest, (role, arguments)
            assert all(hit[i] == i and registered[i] for i in _reads(role, longest, b, size) if longest)
        found += longest > 0
    assert found > 500


@pytest.mark.parametrize(
    ("role", "draw"),
    [
        ("need", lambda rng: (rng.randint(1, 40), rng.randint(1, 9), rng.random() < 0.5)),
        ("limit", lambda rng: (rng.randint(1, 90),)),
        (
            "registers",
            lambda rng: (rng.randint(0, 90), b := rng.randint(1, 9), rng.random() < 0.5, rng.randint(1, 4) * b),
        ),
        (
            "kept",
            lambda rng: (
                rng.randint(0, 15),
                rng.randint(1, 30),
                b := rng.randint(1, 5),
                rng.random() < 0.5,
                a := rng.randint(1, 4) * b,
                rng.choice([None, 0, a, 2 * a]),
                rng.randint(1, 60),
            ),
        ),
    ],
)
def test_model_and_impl_agree_on_a_role(role: str, draw: Any) -> None:
    rng, answers = random.Random(11), set()
    model, impl = roles.model().find(role), roles.impl().find(role)
    for _ in range(800):
        arguments = draw(rng)
        assert model(*arguments) == impl(*arguments), (role, arguments)
        answers.add(model(*arguments))
    assert len(answers) > 1


@pytest.mark.parametrize("role", ["hit_full", "hit_sliding", "hit_mamba"])
def test_model_and_impl_find_the_same_eagle_hit(role: str) -> None:
    rng, lengths = random.Random(13), set()
    for _ in range(800):
        b, num_blocks = rng.randint(1, 4), rng.randint(0, 8)
        registered = [rng.random() < 0.8 for _ in range(num_blocks)]
        arguments: list[Any] = [registered, num_blocks * b + rng.randrange(b), b, True, rng.randint(1, 3) * b]
        arguments += [rng.randint(1, 20)] if role == "hit_sliding" else []
        hit = roles.model().find(role)(*arguments)
        assert hit == roles.impl().find(role)(*arguments), (role, arguments)
        lengths.add(len(hit))
    assert len(lengths) > 3


def test_the_mask_of_a_range_is_the_masks_of_its_blocks() -> None:
    """The roles ask about one block at a time."""
    from blockproof.impl import SlidingWindowManager, SlidingWindowSpec
    from blockproof.proofs.roles.bare import bare

    rng, kept = random.Random(17), roles.impl().find("kept")
    for _ in range(300):
        b, w, eagle, start = rng.randint(1, 4), rng.randint(1, 20), rng.random() < 0.5, rng.randint(0, 9)
        alignment, prompt = rng.randint(1, 4) * b, rng.randint(1, 50)
        retention, end = rng.choice([None, 0, 2 * alignment]), start + rng.randint(1, 9)
        spec = bare(SlidingWindowSpec, block_size=b, sliding_window=w)
        asked = (start, end, alignment, spec, eagle, retention, prompt, b if eagle else 1)
        mask = SlidingWindowManager.reachable_block_mask(*asked)
        single = [kept(i, w, b, eagle, alignment, retention, prompt) for i in range(start, end)]
        assert single == ([True] * (end - start) if mask is None else mask)


def test_groups_with_different_hits_are_an_error() -> None:
    with pytest.raises(ValueError, match="different hits"):
        hit_roles._entries([[(0, 0)], [(1, 1)]])
    with pytest.raises(ValueError, match="different hits"):
        hit_roles._entries([[(0, 0)], [(0, 0)]])


# Symbolic amounts: whatever they answer is what Python answers, and every law they use is an obligation that holds.


def _sized(kind: type[amounts.BlockSize], value: int) -> Any:
    return kind(z3.IntVal(value))


def _value(answer: Any) -> Any:
    return z3.simplify(answer.term).as_long() if isinstance(answer, SymbolicInt) else answer


def _truth(answer: Any) -> bool:
    return answer if isinstance(answer, bool) else z3.is_true(z3.simplify(answer.term))


def test_amounts_compute_as_python_does() -> None:
    rng, laws = random.Random(19), set()

    def compare() -> None:
        for _ in range(400):
            b, few, many, rest = rng.randint(1, 9), rng.randint(0, 6), rng.randint(1, 6), 0
            rest = rng.randrange(b)
            size = _sized(amounts.BlockSize, b)
            whole, unit = amounts.Amount(few, size), many * size
            mixed = amounts.Amount(few, size, SymbolicInt(z3.IntVal(rest)))
            assert _value(whole % unit) == few * b % (many * b)
            assert bool(whole % unit) == bool(few * b % (many * b))
            assert _value(whole // size) == _value(mixed // size) == few
            assert _value(mixed // unit) == (few * b + rest) // (many * b)
            assert _value((mixed // unit) * unit) == (few * b + rest) // (many * b) * (many * b)
            assert _value(SymbolicInt(z3.IntVal(rest)) // unit) == rest // (many * b)
            assert _value(SymbolicInt(z3.IntVal(-rest)) % unit) == -rest % (many * b)
            assert _value(SymbolicInt(z3.IntVal(rest)) // -size) == rest // -b
            assert _truth(whole <= mixed)
            assert _truth(unit <= mixed) == (many * b <= few * b + rest)
            assert _truth(mixed <= unit) == (few * b + rest <= many * b)
            assert _truth(whole == unit) == (few == many)
            assert _truth(whole != unit) == (few != many)
            assert _truth(size != unit) == (many != 1)
            assert _truth(whole == 0) == (few == 0)
            assert _value(amounts.last_token(few, size)) == few * b + b - 1
            assert _value(whole) == few * b
            assert _value(-whole) == -few * b
            assert _value(mixed) == few * b + rest

    run = Run("amounts", [])
    (path,) = run.paths(compare)
    assert path.error is None, path.error
    for obligation in path.obligations:
        laws.add(obligation.name)
        solver = z3.Solver()
        solver.add(*obligation.hypotheses, z3.Not(obligation.claim))
        assert solver.check() == z3.unsat, obligation.name
    assert len(laws) > 20


@pytest.mark.parametrize("eagle", [False, True])
@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_window_of_so_many_blocks_needs_so_many_on_every_core(subject: str, eagle: bool) -> None:
    """The theorems about searches speak of a window by the blocks that it needs: that is what a core makes of it."""
    needed = SUBJECTS[subject]().find("need")
    need, rest, b = (SymbolicInt(z3.Int(name)) for name in ("need", "rest", "b"))

    def body() -> list[Any]:
        size = amounts.positive(b, amounts.BlockSize)
        window = amounts.window(need, rest, size)
        return [window == need * b - rest + 1, needed(window, size, eagle) == need + eagle]

    paths = list(Run("window", [b >= 1, need >= 1, rest >= 0, rest < b]).paths(body))
    for path in paths:
        assert path.error is None, path.error
        claims = [(path.hypotheses, truth.term) for truth in path.value]
        for hypotheses, claim in [*claims, *((owed.hypotheses, owed.claim) for owed in path.obligations)]:
            assert solve([*hypotheses, z3.Not(claim)], 5)[0] == "unsat"
    assert paths
    for tokens in range(1, 6):
        for blocks in range(1, 5):
            assert {needed(blocks * tokens - short + 1, tokens, eagle) for short in range(tokens)} == {blocks + eagle}


def test_an_amount_that_is_not_what_it_claims_fails_the_run() -> None:
    """The rest of an amount must be less than a block: that is demanded, not believed."""
    b, rest = SymbolicInt(z3.Int("b")), SymbolicInt(z3.Int("rest"))
    run = Run("amount", [b >= 1, rest >= 0])
    (path,) = run.paths(lambda: amounts.amount(1, amounts.positive(b, amounts.BlockSize), rest))
    wrong = [o for o in path.obligations if "rest is less" in o.name]
    solver = z3.Solver()
    solver.add(*wrong[0].hypotheses, z3.Not(wrong[0].claim))
    assert solver.check() == z3.sat


def test_a_loop_is_stopped_after_one_round() -> None:
    def loop(x: Any, step: int) -> Any:
        while x % 3:
            x -= step
        return x

    assert amounts.next_round(loop, 7, 2) == (5, False)
    assert amounts.next_round(loop, 6, 2) == (6, True)
