"""Symbolic byte strings and names against real ones."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from blockproof.proofs.claims import every
from blockproof.proofs.solver import ProofError, solve
from blockproof.proofs.symbolic import Run, symbol, term
from blockproof.proofs.symbolic_bytes import (
    EXACT_POWERS,
    OPERATOR,
    ByteParts,
    Integer,
    Name,
    SymbolicBytes,
    alike,
    any_range,
    byte_string,
    concatenated,
    is_bytes,
    seeing,
    text,
    whole,
)
from z3 import Not

STRINGS = [b"", b"\x00", b"\x00\x00", b"a", b"\x00a", b"\xff" * 5, b"abcdefgh", b"abcdefghi", bytes(12)]
OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "all but the last 4": lambda s: s[:-4],
    "the last 4": lambda s: s[-4:],
    "the last 8": lambda s: s[-8:],
    "from the end to the end": lambda s: s[-6:-2],
    "all": lambda s: s[:],
    "real bytes behind": lambda s: s + b"xyz",
    "real bytes before": lambda s: b"xyz" + s,
    "a number behind": lambda s: s + whole(77).to_bytes(4, "big"),
    "itself behind": lambda s: s + s,
}


def number(string: bytes) -> int:
    return int.from_bytes(string, "big")


def pinned(string: bytes) -> tuple[SymbolicBytes, list[Any]]:
    """Symbols that can only be this string, and what says so."""
    length, value = symbol("length"), symbol("value")
    known = [is_bytes(length, value), length == len(string), value == number(string)]
    return SymbolicBytes(length, value), known


def follows(paths: Any, claims: Callable[[Any], Any]) -> bool:
    """True if it holds on all paths, of which there is at least one."""
    found = list(paths)
    return bool(found) and all(
        path.error is None and solve([*path.hypotheses, Not(term(claims(path.value)))], 5)[0] == "unsat"
        for path in found
    )


@pytest.mark.parametrize("string", STRINGS, ids=repr)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_agree_with_those_of_bytes(operation, string):
    if len(string) >= EXACT_POWERS and operation in ("real bytes before", "itself behind"):
        pytest.skip("the power for so long a string is not known exactly")
    symbolic, known = pinned(string)
    run = Run("bytes", known)
    expected = OPERATIONS[operation](string)
    assert follows(run.paths(lambda: OPERATIONS[operation](symbolic)), lambda found: found == expected)


@pytest.mark.parametrize("string", STRINGS, ids=repr)
def test_plain_lengths_and_numbers_agree_with_bytes_too(string):
    symbolic = SymbolicBytes(len(string), number(string))
    for operation in OPERATIONS.values():
        found = operation(symbolic)
        assert (found.length, found.number) == (len(operation(string)), number(operation(string)))
    assert bool(symbolic) == bool(string)
    assert symbolic.symbolic_len() == len(string)


def test_strings_are_equal_if_length_and_number_are():
    for one in STRINGS:
        for other in STRINGS:
            left, right = (SymbolicBytes(len(each), number(each)) for each in (one, other))
            assert (left == right) is (one == other)
            assert (left == other) is (one == other)
            assert (left != right) is (one != other)
    assert (SymbolicBytes(1, 0) == "text") is False


@pytest.mark.parametrize("length", range(12))
def test_every_string_of_a_length_is_allowed_and_no_number_that_does_not_fit(length):
    n, x = symbol("n"), symbol("x")
    for value, fits in ((0, True), (256**length - 1, True), (256**length, False), (-1, False)):
        status, _ = solve([term(every(is_bytes(n, x), n == length, x == value))], 5)
        # Beyond the exact powers more may be allowed than there is; a proof then covers more.
        assert status == ("sat" if fits or (length >= EXACT_POWERS and value > 0) else "unsat")
        assert bool(is_bytes(length, value)) == fits


def test_a_plain_string_has_the_length_that_is_asked_for():
    assert byte_string(3, 256) == b"\x00\x01\x00"
    assert byte_string(1, 257) == b"\x01"


@pytest.mark.parametrize("value", [-1, 0, 1, 2**32 - 1, 2**32])
def test_numbers_are_written_and_read_as_by_python(value):
    x = symbol("x")

    def written() -> Any:
        return whole(x).to_bytes(4, "big")

    (path,) = Run("number", [x == value]).paths(written)
    try:
        expected = value.to_bytes(4, "big")
    except OverflowError:
        assert isinstance(path.error, OverflowError)
        return
    assert follows([path], lambda found: found == expected)
    assert follows([path], lambda found: Integer.from_bytes(found, "big") == value)
    assert Integer.from_bytes(expected, "big") == value


@pytest.mark.parametrize("value", [-5, 0, 2**64 - 1, 2**64 + 3])
def test_the_low_bits_are_those_of_python(value):
    x, mask = symbol("x"), 2**64 - 1
    assert follows(Run("mask", [x == value]).paths(lambda: whole(x) & mask), lambda found: found == value & mask)


def test_what_cannot_be_followed_is_refused():
    x = symbol("x")
    string = SymbolicBytes(x, x)
    refused: list[Callable[[], Any]] = [
        lambda: string[1:],
        lambda: string[:3],
        lambda: string[0],
        lambda: string[-4::2],
        lambda: whole(x).to_bytes(4, "little"),
        lambda: whole(x).to_bytes(4, "big", signed=True),
        lambda: Integer.from_bytes(string, "little"),
        lambda: whole(x) & 5,
        lambda: text(x) == "adapter",
        lambda: len(ByteParts().part(1)),
        lambda: ByteParts().part(1)[:1],
        lambda: ByteParts().part(1) == b"",
        lambda: ByteParts().part(1) + b"x",
        lambda: {ByteParts().part(1)},
    ]
    for number_, body in enumerate(refused):
        with pytest.raises(ProofError):
            list(Run(f"refused {number_}", [x >= 0, x <= 4]).paths(body))


def test_a_string_cannot_be_a_key():
    with pytest.raises(TypeError):
        hash(SymbolicBytes(1, 1))
    with pytest.raises(TypeError):
        hash(Name("text", 1))


# Names.


def test_names_agree_with_the_texts_they_stand_for():
    for one in range(4):
        assert bool(Name("text", one)) == bool(text(one))
        assert (Name("text", one) == "") == (text(one) == "")
        for other in range(4):
            assert (Name("text", one) == Name("text", other)) == (text(one) == text(other))
            assert (Name("text", one) != Name("text", other)) == (text(one) != text(other))
    assert (Name("text", 1) == Name("rows", 1)) is False
    assert (Name("text", 1) == b"t1") is False


def test_tuples_are_alike_where_python_says_so():
    generator = random.Random(1)

    def value(depth: int) -> Any:
        if depth and generator.random() < 0.4:
            return tuple(value(depth - 1) for _ in range(generator.randrange(3)))
        return generator.choice([0, 1, None, "a", b"a", Name("rows", generator.randrange(2))])

    for _ in range(500):
        one, other = value(2), value(2)
        assert bool(alike(one, other)) == (one == other)
        assert alike(one, one)


# Joining.


def test_what_is_joined_is_taken_apart_in_order():
    for chosen in ([], [0], [1, 0], [2, 2, 1]):
        parts = ByteParts()
        stamped = [parts.part(f"value {i}") for i in range(3)]
        joined = b"".join([stamped[i] for i in chosen])
        assert parts.values(joined) == [f"value {i}" for i in chosen]


@pytest.mark.parametrize("foreign", [b"x", bytes(32), bytes(33), None, "text"], ids=repr)
def test_bytes_that_are_not_the_parts_are_refused(foreign):
    def taken() -> Any:
        parts = ByteParts()
        parts.part(1)
        return parts.values(foreign)

    with pytest.raises(ProofError, match="not the parts joined"):
        list(Run("foreign", []).paths(taken))


def test_strings_are_concatenated_in_order():
    assert concatenated([b"a", b"b", b"cd"]) == b"abcd"
    assert concatenated([SymbolicBytes(1, 97), SymbolicBytes(2, number(b"bc"))]) == b"abc"


# What modules see.


def test_int_takes_symbols_for_integers_and_leaves_the_rest_alone():
    integer: Any = Integer  # stands for `int`, which its metaclass makes it
    assert isinstance(symbol("x"), integer)
    assert isinstance(3, integer)
    assert not isinstance("3", integer)
    assert integer("12") == 12
    assert integer("ff", 16) == 255
    x = symbol("x")
    assert integer(x) is x
    assert OPERATOR.index(x) is x
    assert OPERATOR.index(True) == 1


@pytest.mark.parametrize(("start", "stop", "step"), [(0, 6, 2), (3, 3, 4), (1, 8, 3), (2, 3, 5)])
def test_ranges_with_a_symbolic_step_are_those_of_python(start, stop, step):
    x, end = symbol("x"), symbol("end")
    run = Run("range", [x == step, end == stop], unroll=4)
    (path,) = run.paths(lambda: list(any_range(start, end, x)))
    expected = list(range(start, stop, step))
    assert len(path.value) == len(expected)
    assert follows([path], lambda found: every(*(i == j for i, j in zip(found, expected, strict=True)), True))
    assert list(any_range(start, stop, step)) == expected


def test_names_are_replaced_only_for_a_while():
    inside: dict[str, Any] = {"int": int}
    with seeing(inside, {"int": Integer, "other": 1}):
        assert inside == {"int": Integer, "other": 1}
    assert inside == {"int": int}

    def failing() -> None:
        with seeing(inside, {"int": Integer, "other": 1}):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    assert inside == {"int": int}
