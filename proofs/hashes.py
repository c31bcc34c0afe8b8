"""Hashes of functions: `python -m blockproof.proofs.hashes`.

Reads names (`module:name`) from stdin, one a line, and prints a JSON object with the hash of each, as the record of
theorems has it (`watched.source_hash`); null for a function that is not there. The interpreter may be that of a
target's environment.
"""

import json
import os
import sys
from functools import reduce
from importlib import import_module
from inspect import unwrap
from types import CodeType
from typing import Any

from .coverage import source_hash


def hash_of(name: str) -> str | None:
    """The hash of a function by its name, as `__qualname__` has it; None if there is none."""
    module, _, path = name.partition(":")
    outer, *inner = path.split(".<locals>.")
    try:
        found: Any = reduce(getattr, outer.split("."), import_module(module))
    except (ImportError, AttributeError):
        return None
    getters = (found.fget, found.fset, found.fdel) if isinstance(found, property) else (found,)
    codes = [getattr(unwrap(one), "__code__", None) for one in getters if one is not None]
    for nested in inner:
        codes = [_nested(code, nested.split(".")[-1]) for code in codes]
    hashes = [source_hash(code) for code in codes if code is not None]
    return " ".join(hashes) or None


def _nested(code: CodeType | None, name: str) -> CodeType | None:
    """The code of a function that is defined in another one."""
    constants = () if code is None else code.co_consts
    return next((one for one in constants if isinstance(one, CodeType) and one.co_name == name), None)


def main() -> None:
    """Answer, whatever the imports print."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answers.write(json.dumps({name: hash_of(name) for name in sys.stdin.read().split()}))
    answers.close()


if __name__ == "__main__":
    main()
