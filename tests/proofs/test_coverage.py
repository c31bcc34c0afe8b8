"""Functions that run are noted, and their hash changes with what they do only."""

import importlib.util

import pytest
from blockproof.model import arith
from blockproof.proofs.coverage import Watched, source_hash

PLAIN = """
def f(a):
    if a:
        a = g(f"{a} {{b}}")
    return a
def g(a): return a
"""
SAME = '''
def f(a):
    """Says what it does."""
    if a:  # a comment
        a = g( f"{a} {{b}}" )

    return a
def g(a): return a
'''
OTHERS = [
    PLAIN.replace("if a", "if not a"),
    PLAIN.replace("    return", "        return"),
    PLAIN.replace("{a} {{b}}", "{a} {{c}}"),
    PLAIN.replace("(a):", "(a=1):", 1),
]


def made(tmp_path, name, source):
    path = tmp_path / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_hash_is_the_same_with_other_comments_docstrings_and_spaces(tmp_path):
    one, other = made(tmp_path, "one", PLAIN), made(tmp_path, "other", SAME)
    assert (
        source_hash(one.f.__code__) == source_hash(other.f.__code__) == "d85dfc124fc9"
    )  # under every version of Python


@pytest.mark.parametrize("source", OTHERS)
def test_a_hash_is_another_where_something_else_is_done(tmp_path, source):
    one, other = made(tmp_path, "one", PLAIN), made(tmp_path, "other", source)
    assert source_hash(one.f.__code__) != source_hash(other.f.__code__)


def test_functions_of_the_modules_are_noted_while_they_are_watched(tmp_path):
    module = made(tmp_path, "watched_here", PLAIN)
    watched = Watched([module])
    module.g(1)
    assert watched.functions() == {}
    with watched:
        module.f(1)
        arith.cdiv(1, 2)
    names = {"watched_here:f": module.f, "watched_here:g": module.g}
    assert watched.functions() == {name: source_hash(function.__code__) for name, function in names.items()}
    ignoring = Watched([module], ignore=True)
    with ignoring:
        module.f(1)
    assert ignoring.functions() == {}


def test_a_module_that_hands_out_a_name_has_not_run_a_function(tmp_path):
    module = made(tmp_path, "hands_out", "def __getattr__(name): return name")
    watched = Watched([module])
    with watched:
        assert module.anything == "anything"
    assert watched.functions() == {}
