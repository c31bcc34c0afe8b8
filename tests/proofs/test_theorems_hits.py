"""What the theorems about hits rest on: roles and symbolic amounts do what they say."""

import random
from typing import Any

import pytest
import z3
from blockproof.proofs import roles
from blockproof.proofs.roles import amounts
from blockproof.proofs.roles import hits as hit_roles
from blockproof.proofs.roles.hits import Ends
from blockproof.proofs.solver import solve
from blockproof.proofs.symbolic import Run, SymbolicInt, is_plain

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
            "kept_sliding",
            lambda rng: (
                rng.randint(0, 15),
                b := rng.randint(1, 5),
                rng.random() < 0.5,
                Ends(a := rng.randint(1, 4) * b, rng.choice([None, 0, a, 2 * a]), rng.randint(1, 60), b),
                rng.randint(1, 30),
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
    from blockproof.proofs.bare import bare

    rng, kept = random.Random(17), roles.impl().find("kept_sliding")
    for _ in range(300):
        b, w, eagle, start = rng.randint(1, 4), rng.randint(1, 20), rng.random() < 0.5, rng.randint(0, 9)
        alignment, prompt = rng.randint(1, 4) * b, rng.randint(1, 50)
        retention, end = rng.choice([None, 0, 2 * alignment]), start + rng.randint(1, 9)
        spec = bare(SlidingWindowSpec, block_size=b, sliding_window=w)
        asked = (start, end, alignment, spec, eagle, retention, prompt, b if eagle else 1)
        mask = SlidingWindowManager.reachable_block_mask(*asked)
        ends = Ends(alignment, retention, prompt, b if eagle else 1)
        single = [kept(i, b, eagle, ends, w) for i in range(start, end)]
        assert single == ([True] * (end - start) if mask is None else mask)


def test_groups_with_different_hits_are_an_error() -> None:
    with pytest.raises(ValueError, match="different hits"):
        hit_roles._entries([[(0, 0)], [(1, 1)]])
    with pytest.raises(ValueError, match="different hits"):
        hit_roles._entries([[(0, 0)], [(0, 0)]])


# Symbolic amounts: whatever they answer is what Python answers, and every law they use is an obligation that holds.


def _value(answer: Any) -> Any:
    return z3.simplify(answer.term).as_long() if isinstance(answer, SymbolicInt) else answer


def _symbol(value: int) -> Any:
    return SymbolicInt(z3.IntVal(value))


def _owed(path: Any) -> list[str]:
    """Names of the obligations of a path, each of which is proved here."""
    assert path.error is None, path.error
    for obligation in path.obligations:
        assert solve([*obligation.hypotheses, z3.Not(obligation.claim)], 5)[0] == "unsat", obligation.name
    return [obligation.name for obligation in path.obligations]


def test_few_blocks_and_lengths_compute_as_python_does() -> None:
    def compare() -> None:
        rng = random.Random(19)
        for _ in range(150):
            b, few, many, rest = rng.randint(1, 9), rng.randint(0, 4), rng.randint(1, 4), rng.randint(-20, 20)
            size = amounts.positive(_symbol(b), amounts.Few)
            tokens = _symbol(few * b + rest % b)
            assert tokens // size == few
            assert _value(tokens % size) == rest % b
            assert tokens // -size == (few * b + rest % b) // -b
            assert tokens // (many * size) == (few * b + rest % b) // (many * b)
            assert _value(tokens % (many * size)) == (few * b + rest % b) % (many * b)
            assert (many * size) // size == many
            assert (many * size) % size == 0
            block = amounts.positive(_symbol(b), amounts.BlockSize)
            length = few * block + rest
            assert _value(length) == few * b + rest
            assert _value(length // block) == (few * b + rest) // b
            assert _value(-length // block) == (-few * b - rest) // b
            assert _value((_symbol(few) * block) // (many * block)) == few // many

    run = Run("amounts", [], unroll=5)
    (path,) = run.paths(compare)
    assert len(set(_owed(path))) > 3


@pytest.mark.parametrize("x", range(-6, 13))
def test_what_is_known_of_borders_of_chunks_is_true_and_leaves_the_right_one(x: int) -> None:
    """With the unit and the token given, the only border that is possible among small numbers is Python's."""
    for unit in (1, 2, 3):

        def border(unit: int = unit) -> Any:
            chunk = amounts.positive(_symbol(unit), amounts.Chunk)
            return _symbol(x) // chunk * chunk, -(_symbol(-x) // chunk) * chunk

        (path,) = Run("border", []).paths(border)
        down, up = path.value
        for found, real in ((down, x // unit * unit), (up, -(-x // unit) * unit)):
            assert solve([*path.hypotheses, found.term == real], 5)[0] == "sat", (x, unit)
            wrong = solve([*path.hypotheses, found.term != real], 5)[0]
            assert wrong == "unsat" or abs(x) > 2 * unit, (x, unit)


def test_a_quotient_beyond_the_bound_is_one_of_which_only_that_is_known() -> None:
    """A window of any size goes so often into few blocks that it matters no more how often."""
    b, x = SymbolicInt(z3.Int("b")), SymbolicInt(z3.Int("x"))
    paths = list(Run("beyond", [b >= 1, x >= 0], unroll=2).paths(lambda: x // amounts.positive(b, amounts.Few)))
    assert sorted(path.value for path in paths if is_plain(path.value)) == [0, 1, 2]
    (beyond,) = [path for path in paths if not is_plain(path.value)]
    assert solve([*beyond.hypotheses, z3.Not(beyond.value.term > 2)], 5)[0] == "unsat"
    assert all(_owed(path) for path in paths)
