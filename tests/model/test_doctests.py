"""The examples in docstrings are true."""

import doctest
import importlib
import pkgutil

import blockproof.model
import pytest

MODULES = sorted(f"blockproof.model.{module.name}" for module in pkgutil.iter_modules(blockproof.model.__path__))
MODULES += ["blockproof.fuzz.findings.ops_json"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_are_true(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples_to_check():
    tried = sum(doctest.testmod(importlib.import_module(name)).attempted for name in MODULES)
    assert tried >= 2
