"""What the theorems about memory rest on: each role is bound to what it says."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from blockproof.proofs import roles
from blockproof.proofs.roles import grouping as grouping_roles
from blockproof.proofs.roles import memory as memory_roles
from blockproof.proofs.roles import page_sizes as page_roles
from blockproof.proofs.roles.stand_ins import Sized, chosen, divisor, key, lenient, multiple
from blockproof.proofs.solver import ProofError
from blockproof.proofs.symbolic import Run, SymbolicBool, symbol

SUBJECTS = {"model": roles.model, "impl": roles.impl}


# Roles on plain integers.

ANY = tuple[int, int]
PAGE: tuple[ANY, ...] = ((1, 64), (1, 9), (0, 300), (0, 300), (1, 8))
NEED: tuple[ANY, ...] = ((0, 500), (1, 40), (1, 60), (1, 20), (1, 99))
ARGUMENTS: dict[str, tuple[ANY, ...]] = {
    "cdiv": ((-50, 50), (1, 9)),
    "page_full": PAGE,
    "page_window": PAGE,
    "page_four_bits": PAGE,
    "page_chunk": (PAGE[0], PAGE[1], PAGE[2], PAGE[4]),
    "page_latent": (PAGE[0], PAGE[1], PAGE[2], PAGE[4]),
    "nvfp4_width": ((0, 300),),
    "scales": PAGE[:2],
    "scales_latent": PAGE[:2],
    "scales_compressed": ((1, 40), (1, 10), (1, 9)),
    "stored_vectors": ((1, 40), (1, 10)),
    "page_aligned": ((1, 40), (0, 40), (1, 30), (1, 900)),
    "page_aligned_scaled": ((1, 40), (0, 40), (1, 30)),
    "page_copied": ((1, 40), (0, 40), (1, 30), (1, 40)),
    "page_uniform_copied": ((1, 40), (0, 40), (1, 40)),
    "num_blocks": ((-50, 9999), (1, 99), (1, 9)),
    "size_plain": ((-50, 999), (1, 30)),
    "size_one_type": ((-50, 999), (1, 30), (1, 30)),
    "size_several_types": ((-50, 999), (1, 3), (1, 3)),
    "check_plain": ((-50, 999), (1, 30), (1, 9), (1, 9)),
    "check_one_type": ((-50, 999), (1, 30), (1, 30), (1, 9)),
    "check_several_types": ((-50, 999), (1, 3), (1, 3), (1, 9), (1, 9)),
    "check_stage": ((-50, 999), (1, 3), (1, 3), (1, 9), (1, 9)),
    "concurrency": ((0, 99), (1, 30), (0, 9)),
    "blocks_full": ((0, 500), (1, 4), (1, 20)),
    "need_full": ((0, 500), (1, 4), (1, 20), (1, 99)),
    "need_window": NEED,
    "need_chunk": NEED,
    "need_mamba_all": ((0, 500), (1, 20), (0, 4), (1, 99)),
    "need_mamba_align": ((0, 500), (1, 20), (0, 4), (1, 99)),
    "need_mamba_none": ((0, 500), (1, 20), (0, 4), (1, 99)),
    "need_cross": ((0, 500), (0, 90), (1, 20), (1, 99)),
    "need_uniform": ((0, 500), (1, 20), (1, 99), (1, 99)),
    "longest": ((0, 60), (-5, 99)),
    "usage": ((0, 9), (10, 20)),
    "unify": ((1, 9), (1, 9), (1, 30)),
    "unify_padded": ((1, 9), (1, 9), (1, 9), (1, 9)),
    "unify_state": ((1, 9), (3, 9), (3, 9)),
    "grouped": ((1, 12), (1, 12)),
    "block_sizes": ((1, 30), (1, 30), (1, 30)),
}
APART = {"down", "up", "group_size", "padding", "page_states", "approximate_gcd"}
"""Roles that one of the cores does not have, or whose arguments are no integers; they have their own test."""


def test_every_role_is_compared():
    for family in (memory_roles, page_roles, grouping_roles):
        assert set(family.MODEL) - APART <= set(ARGUMENTS)
        assert set(family.API) <= set(family.MODEL)


@pytest.mark.parametrize("role", ARGUMENTS)
def test_a_role_of_both_cores_gives_the_same_numbers(role):
    model, impl = roles.model().find(role), roles.impl().find(role)
    chance = random.Random(role)
    answers = set()
    for _ in range(60):
        values = [chance.randint(*bounds) for bounds in ARGUMENTS[role]]
        ours = _plain(model(*values))
        assert ours == _plain(impl(*values)), values
        answers.add(str(ours))
    assert len(answers) > 1


def _plain(answer):
    if isinstance(answer, tuple | list):
        return [_plain(part) for part in answer]
    return answer


@pytest.mark.parametrize("subject", SUBJECTS)
def test_roles_give_the_numbers_worked_out_by_hand(subject):
    find = SUBJECTS[subject]().find
    assert find("page_full")(16, 8, 128, 128, 2) == 65_536
    assert find("page_four_bits")(16, 1, 128, 128, 1) == 2_304
    assert find("page_full")(16, 1, 128, 128, 1) + find("scales")(16, 1) == 4_224
    assert find("page_latent")(64, 1, 576, 2) == 73_728
    assert find("nvfp4_width")(72) == 41
    assert (find("scales_latent")(64, 1), find("scales_compressed")(64, 4, 1)) == (256, 64)
    assert find("page_aligned")(64, 584, 576, 1) == 37_440
    assert find("stored_vectors")(64, 128) is None
    assert find("page_states")(8, 24, dtypes=2) == 32
    assert find("page_states")(8, 24, dtypes=1) is None
    assert find("need_window")(32_768, 1024, 2048, 16, 1) == 193
    assert find("need_chunk")(65_536, 8192, 8192, 16, 1) == 1_024
    assert find("approximate_gcd")([11, 21, 11, 10], 11) == 11
    assert sorted(map(len, find("grouped")(10, 52))) == [8, 8, 9, 9, 9, 9, 10]
    assert find("block_sizes")(256, 64, 4) == (256, 4)
    assert find("check_stage")(4 * 7, 3, 4, 2, 3) == (7 * 6, 4)


def test_grouping_functions_of_the_model_alone():
    find = roles.model().find
    assert [find("group_size")(*counts) for counts in ((13, 12 * 2), (8, 12), (10, 14))] == [13, 8, 14]
    assert find("padding")((11, 21, 11, 10), 11) == 2
    assert (find("down")(37, 16), find("up")(37, 16)) == (32, 48)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_usage_in_floating_point_stays_within_bounds(subject):
    usage = SUBJECTS[subject]().find("usage")
    chance = random.Random(24)
    pools = [1, 2, 3, 4, 50, 2**31, 2**53 - 1, *(chance.randrange(1, 10**9) for _ in range(300))]
    for blocks in pools:
        usable = blocks - 1
        for free in {0, usable // 3, usable // 2, max(usable - 1, 0), usable, chance.randint(0, usable)}:
            value = usage(free, blocks)
            assert 0 <= value <= 1
            assert (value == 0) == (free == usable)
            assert usable == 0 or (value == 1) == (free == 0)


# What stands in for Python's own.


def _paths(body: Callable[[], Any], *assumptions: bool | SymbolicBool) -> list[Any]:
    return [path.value for path in Run("test", list(assumptions)).paths(body)]


def test_symbolic_keys_are_told_apart_by_value():
    x, y = symbol("x"), symbol("y")
    sizes = _paths(lambda: len({key(x), key(y)}))
    assert sorted(sizes) == [1, 2]
    assert _paths(lambda: len({key(x), key(y)}), x < y) == [2]
    assert {key(3), key(3)} == {3}


def test_a_value_is_chosen_from_its_bounds():
    x = symbol("x")
    assert sorted(_paths(lambda: chosen(x, 1, 3), x >= 1, x <= 3)) == [1, 2, 3]
    with pytest.raises(ProofError, match="may lie outside"):
        _paths(lambda: chosen(x, 1, 3), x >= 1)
    assert chosen(7, 1, 3) == 7


def test_divisors_and_multiples_are_those_of_python_on_plain_numbers():
    assert (divisor(12, 18), multiple(4, 6)) == (6, 12)
    assert (divisor(12, 18, 8), multiple(4, 6, 10)) == (math.gcd(12, 18, 8), math.lcm(4, 6, 10))


def test_a_symbolic_divisor_is_the_same_each_time_and_of_positive_numbers_only():
    x, y = symbol("x"), symbol("y")
    assert _paths(lambda: bool(divisor(x, y) == divisor(x, y)), x >= 1, y >= 1) == [True]
    assert _paths(lambda: bool(x % divisor(x, y) == 0), x >= 1, y >= 1) == [True]
    assert _paths(lambda: bool(multiple(x, y) % y == 0), x >= 1, y >= 1) == [True]
    with pytest.raises(ProofError, match="assume it positive"):
        _paths(lambda: divisor(x, y), x >= 1)


def _rounds(value: float) -> int:
    return int(value)


def test_a_module_sees_the_stand_ins_only_while_a_function_runs():
    x = symbol("x")
    assert _paths(lambda: lenient(_rounds)(x) is x) == [True]
    assert "int" not in globals()
    with pytest.raises(ZeroDivisionError):
        lenient(_fails)()
    assert "int" not in globals()
    assert math.gcd is not divisor
    assert Sized(4).itemsize == 4


def _fails() -> int:
    return int(symbol is None) // 0
