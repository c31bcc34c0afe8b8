"""Claims that are false must not come out proved, however the function under proof goes about it."""

import re
import sys
from types import ModuleType

import pytest
import z3
from blockproof.proofs.coverage import Watched
from blockproof.proofs.quotients import divisor
from blockproof.proofs.roles.stand_ins import key
from blockproof.proofs.solver import ProofError, solve
from blockproof.proofs.symbolic import Run, SymbolicInt, running, symbol, term
from blockproof.proofs.symbolic_builtins import common_divisor, symbolic_builtins
from blockproof.proofs.theorem import Subject, Theorem


def deep(x, choices=30):
    """A number with so many nested choices in it, without a fork: as a term it is too long for Z3 to print."""
    found = x.term
    for number in range(choices):
        found = z3.If(found > 2 * number, found + 1, z3.If(found < -number, found - 3, found + 2))
    return SymbolicInt(found)


def always(body, *assumptions):
    """True if the claim is proved on every path."""
    return all(
        solve([*path.hypotheses, z3.Not(term(path.value))], 5)[0] == "unsat"
        for path in Run("test", assumptions).paths(body)
    )


def test_two_dividends_that_z3_prints_alike_have_quotients_of_their_own():
    x, y, b = symbol("x"), symbol("y"), symbol("b")
    assert not always(lambda: deep(x) // divisor(b) == deep(y) // divisor(b), b >= 1)
    assert not always(lambda: deep(x) % divisor(b) == deep(y) % divisor(b), b >= 1)
    assert always(lambda: deep(x) // divisor(b) == deep(x) // divisor(b), b >= 1)


def test_two_pairs_that_z3_prints_alike_have_divisors_of_their_own():
    x, y = symbol("x"), symbol("y")
    tall = z3.IntVal(0)
    for number in range(60):
        tall = z3.If(x.term == number, tall + number, tall)
    one, other = SymbolicInt(z3.If(y.term > 5, tall + 6, 1)), SymbolicInt(z3.If(y.term > 5, tall + 7, 1))
    assert not always(lambda: common_divisor(one, x)[0] == common_divisor(other, x)[0], x >= 1)


SOURCE = """
import builtins
import logging
import math
import operator
from enum import IntEnum
from functools import partial
from numbers import Integral
from operator import is_not as differs

logger = logging.getLogger("drawn")

def kind(x): return 0 if isinstance(x, int) else 1
def kind_of_truth(x): return 0 if isinstance(x > 0, bool) and isinstance(x > 0, int) else 1
def abstract_kind(x): return 0 if isinstance(x, Integral) else 1
def exact_kind(x): return 0 if type(x) is int else 1
def matched(x):
    match x:
        case int(): return 0
    return 1
def truth_is_true(x): return 0 if (x == x) is True else 1
def negative_is_true(x): return 0 if (x != x) is not True else 1
def of_builtins(x): return 0 if builtins.type(x) is int and builtins.len(builtins.range(x)) >= 0 else 1
class Size(IntEnum):
    SMALL = 3
def of_enumeration(x): return x + Size.SMALL - 3 - x if x < Size.SMALL or x == Size.SMALL else 0
def is_a_type(x): return 0 if x is not str else 1
def truths_in_a_chain(x):
    truth = x == x
    return 0 if True is truth is not None else 1
def asked_by_operator(x): return 0 if operator.is_(x == x, True) and differs(x != x, True) else 1
TABLE = {"no": [lambda x: x, lambda x: x is True], "part": partial(lambda answer, x: x is answer, True)}
def asked_by_table(x): return 0 if TABLE["no"][0](x == x) and TABLE["no"][1](x == x) and TABLE["part"](x == x) else 1
decorated = lambda function: lambda x: function(x == x)
@decorated
def inside_a_decorator(x): return 0 if x is True else 1
def twice(x):
    numbers = range(x)
    return sum(numbers) - sum(numbers)
def floor(x): return math.floor(x) - x + round(x) - x
def squared(x): return x ** 2 - x * x
def chosen(x): return [0, 0][x > 3]
def of_truth(x): return int(x > 3) * int(x <= 3)
def complains(x):
    if x < 100:
        logger.debug("small: %s", x)
        return 0
    text = f"{x} is too much"
    raise ValueError(text)

def plain(x): return int(x)
def floating(x): return float(x)
def divided(x): return 0 if x / 3 * 3 == x else 1
def text(x): return len(str(x))
def formatted(x): return len(f"{x}")
def percent(x): return len("%d" % x)
def printed(x): return len(repr([x]))
def hashed(x): return hash(x)
def in_set(x): return len({x, 3})
def as_key(x): return {3: 0}.get(x, 1)
def shifted(x): return x << 1
def masked(x): return x & 1
def bits(x): return x.bit_length()
def asked_for_bits(x): return 0 if hasattr(x, "bit_length") else 1
def as_bytes(x): return x.to_bytes(8, "big")
def same(x): return 0 if x is x + 0 else 1
def same_by_operator(x): return 0 if operator.is_(x, x + 0) else 1
def same_in_a_chain(x): return 0 if x is len("abc") is x else 1
def truth_in_a_chain(x): return 0 if True is (x == x) is not None else 1
def evaluated(x): return eval("0 if (x == x) is True else 1", {"x": x})
def identity(x): return id(x)
def one_and_a_half(x): return 0 if x == 1.5 else 1
def indexed(x): return [1, 2, 3][x]
def as_range(x): return range(x)[0]
def member(x): return x in range(x)
def caught(x):
    try:
        hash(x)
        return 0
    except Exception:
        return 1
def caught_all(x):
    try:
        return int(x) * 0
    except BaseException:
        return 1
class Odd(int):
    def __radd__(self, other): return 0
class Equal(int):
    def __eq__(self, other): return True
def added_to_odd(x): return x + Odd(3)
def equal_to_all(x): return 0 if x == Equal(3) else 1
def of_factor(x): return math.factorial(x)
def of_text_before_raise(x):
    if len(str(x)) > 30:
        return 1
    raise ValueError(x)
"""
FAITHFUL = tuple(re.findall(r"^def (\w+)", SOURCE.partition("def plain")[0], re.MULTILINE))
REFUSED = tuple(re.findall(r"^def (\w+)", SOURCE[SOURCE.index("def plain") :], re.MULTILINE))


def module_of(source, path):
    """A module of this source, which stands in the file, too: what runs is looked up there."""
    path.write_text(source, encoding="utf-8")
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    exec(compile(source, str(path), "exec"), vars(module))
    return module


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    return module_of(SOURCE, tmp_path_factory.mktemp("drawn") / "drawn_functions.py")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FAITHFUL)
def test_what_can_be_told_of_a_symbol_is_what_python_tells_of_a_number(name, functions):
    x, function = symbol("x"), getattr(functions, name)
    with symbolic_builtins([functions]):
        found = list(Run("test", [x >= -3, x <= 3], unroll=4).paths(lambda: function(x) == 0))
    assert all(
        solve([*path.hypotheses, z3.Not(term(path.value))], 5)[0] == "unsat" for path in found if path.error is None
    )
    assert all(function(plain) == 0 for plain in range(-3, 4))
    assert not [path.error for path in found if path.error is not None]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_told_of_a_symbol_is_refused_with_the_place(name, functions):
    x, function = symbol("x"), getattr(functions, name)
    run = Run("test", [x >= 0], unroll=4)
    with symbolic_builtins([functions]), pytest.raises(ProofError) as caught:
        list(run.paths(lambda: function(x) == 0))
    line = SOURCE[: SOURCE.index(f"def {name}(")].count("\n") + 1
    said = re.search(r"^(\w+), drawn_functions.py line (\d+): ", str(caught.value))
    assert said, caught.value
    assert said[1] == name
    assert line <= int(said[2]) <= line + 5


def test_a_message_may_show_a_symbol_and_nothing_else_may(functions):
    x = symbol("x")
    with symbolic_builtins([functions]):
        errors = [path.error for path in Run("test", []).paths(lambda: functions.complains(x))]
    assert sorted(type(error).__name__ for error in errors) == ["NoneType", "ValueError"]


KEYED = """
def pages(x, y): return len({page for page in (x, y)})
def buckets(x, y):
    found = {}
    for page in (x, y, x):
        found.setdefault(page, []).append(1)
    return len(found)

def with_number(x, y): return len({x, 3})
def in_numbers(x, y): return 1 if x in {3, 4} else 0
def looked_for(x, y): return 1 if 3 in {x, y} else 0
def as_key(x, y): return {3: 0}.get(x, 1)
def got(x, y): return {x: 0}.get(3, 1)
def added(x, y):
    found = {x}
    found.add(len("abc"))
    return 1 if y in found else 0
"""


def keyed(tmp_path, name):
    path = tmp_path / "keyed.py"
    path.write_text(KEYED, encoding="utf-8")
    module = ModuleType("keyed")
    exec(compile(KEYED, str(path), "exec"), vars(module))
    return getattr(module, name)


@pytest.mark.parametrize("name", ["pages", "buckets"])
def test_keys_among_keys_are_counted_as_numbers_are(name, tmp_path):
    function, (x, y) = keyed(tmp_path, name), (symbol("x"), symbol("y"))
    for path in Run("test", []).paths(lambda: (function(key(x), key(y)), bool(x == y))):
        counted, equal = path.value
        assert counted == (1 if equal else 2)
    assert (function(key(3), key(3)), function(key(3), key(4))) == (1, 2)


@pytest.mark.parametrize("name", ["with_number", "in_numbers", "looked_for", "as_key", "got", "added"])
def test_a_key_among_plain_numbers_is_refused(name, tmp_path):
    function = keyed(tmp_path, name)
    with pytest.raises(ProofError, match="plain numbers are keys"):
        list(Run("test", []).paths(lambda: function(key(symbol("x")), key(symbol("y")))))


def test_in_a_proof_a_plain_number_is_made_a_key_as_well(tmp_path):
    function = keyed(tmp_path, "pages")
    found = [path.value for path in Run("test", []).paths(lambda: function(key(symbol("x")), key(3)))]
    assert sorted(found) == [1, 2]


CATCHING = """
import json
from contextlib import suppress

def goes_on(x):
    try:
        return len(json.dumps(x)) * 0 + 1
    except TypeError:
        return 0
def goes_on_after_all(x):
    try:
        return int.__add__(1, x) * 0 + 1
    except:
        return 0
def suppresses(x):
    with suppress(ValueError, TypeError):
        return len(json.dumps(x)) * 0 + 1
    return 0
def reads(x):
    try:
        raise ValueError(f"{x}")
    except ValueError as error:
        return 0 if len(str(error)) > 6 else 1

def says_more(x):
    try:
        return x * 0
    except TypeError as error:
        raise ValueError(f"{x}: {error}") from error
def passes_on(x):
    try:
        raise KeyError(x)
    except KeyError as error:
        return error.args[0] * 0 if x is None else 0
def own(x):
    try:
        assert x > 0
    except AssertionError:
        return 0
    return 0
"""


@pytest.fixture(scope="module")
def catching(tmp_path_factory):
    return module_of(CATCHING, tmp_path_factory.mktemp("catching") / "catching.py")


def settled(module, name):
    theorem = Theorem(
        id="T0",
        sentence="",
        variables={"x": "a number"},
        assume=lambda v: [v.x >= 0],
        claim=lambda f, v: f.role(v.x) == 0,
        controls=(),
    )
    sys.modules[module.__name__] = module
    try:
        return theorem.settle(Subject("drawn", lambda role: getattr(module, name), (module.__name__,)))
    finally:
        del sys.modules[module.__name__]


@pytest.mark.parametrize("name", ["goes_on", "goes_on_after_all", "suppresses", "reads"])
def test_what_catches_what_only_a_symbol_may_raise_proves_nothing(name, catching):
    verdict = settled(catching, name)
    assert verdict.status != "proved"
    said = ("a symbol may raise where a number does not", "a text of a symbol", "is not that of the number")
    assert verdict.replayed or any(one in verdict.message for one in said), verdict


@pytest.mark.parametrize("name", ["says_more", "passes_on", "own"])
def test_what_raises_on_or_catches_errors_of_its_own_is_followed(name, catching):
    assert settled(catching, name).status == "proved"


def test_a_proved_path_is_run_on_plain_numbers_and_refuted_if_it_fails_there(catching, monkeypatch):
    monkeypatch.setattr(Watched, "careless", lambda watched, texts: [])
    monkeypatch.setattr(Run, "_require_left", lambda run, path: None)
    verdict = settled(catching, "goes_on")
    assert (verdict.status, verdict.replayed) == ("refuted", True)
    assert "although path 1 is proved" in verdict.message


def loose(x):
    """Of a symbol any number: what is proved of it is true of the number itself, but not the other way round."""
    return symbol(running().fresh_name("any")) if isinstance(x, int) and type(x) is not int else x


@pytest.mark.parametrize(
    ("assume", "claim", "status"),
    [
        (lambda v: [], lambda f, v: loose(v.x) != 1, "refuted"),
        (lambda v: [], lambda f, v: loose(v.x) == v.x, "undecided"),
        (lambda v: [loose(v.x) == 5], lambda f, v: v.x == 5, "undecided"),
    ],
)
def test_a_counterexample_satisfies_the_assumptions_and_fails_on_plain_numbers_or_does_not_count(assume, claim, status):
    theorem = Theorem(id="T0", sentence="", variables={"x": "a number"}, assume=assume, claim=claim, controls=())
    verdict = theorem.settle(Subject("drawn", lambda role: None, ()))
    assert (verdict.status, verdict.counterexample) == (status, {"x": 1} if status == "refuted" else None)
