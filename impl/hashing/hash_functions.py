"""Functions from a Python value to a digest, as used for block identities: first an encoding, then its digest."""

import hashlib
import pickle
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

HashFunction = Callable[[object], bytes]
"""Any function from a picklable value to bytes; equal values must give equal bytes."""

_new_sha256 = hashlib.sha256  # looked up once: block by block, the functions here take most of the time
_pickled = pickle.dumps
_PROTOCOL = pickle.HIGHEST_PROTOCOL


def sha256(value: object) -> bytes:
    """SHA-256 of the value's pickle, 32 bytes. Stable within one Python version; fast."""
    return _new_sha256(_pickled(value, _PROTOCOL)).digest()


def sha256_cbor(value: object) -> bytes:
    """SHA-256 of the value's canonical CBOR, 32 bytes. Stable across languages and Python versions.

    Raises ModuleNotFoundError where the package `cbor2` is not installed.
    """
    return _new_sha256(canonical_cbor(value)).digest()


def xxhash(value: object) -> bytes:
    """128-bit XXH3 of the value's pickle, 16 bytes. Faster than SHA-256, and for trusted prompts only: who may choose
    prompts can find two of one hash, and the request for the second one is served blocks of the first.

    Raises ModuleNotFoundError where the package `xxhash` is not installed.
    """
    return _xxh3(_pickled(value, _PROTOCOL))


def xxhash_cbor(value: object) -> bytes:
    """128-bit XXH3 of the value's canonical CBOR, 16 bytes; for trusted prompts only, as `xxhash`.

    Raises ModuleNotFoundError where the package `xxhash` or `cbor2` is not installed.
    """
    return _xxh3(canonical_cbor(value))


def canonical_cbor(value: object) -> bytes:
    """The value's canonical CBOR. ModuleNotFoundError where the package `cbor2` is not installed."""
    encoded: bytes = _package("cbor2").dumps(value, canonical=True)
    return encoded


def _xxh3(data: bytes) -> bytes:
    digest: bytes = _package("xxhash").xxh3_128_digest(data)
    return digest


@cache
def _package(name: str) -> Any:
    """An optional package, imported when it is first needed: of no use to those who choose another function."""
    return import_module(name)


class Recipe(NamedTuple):
    """How a hash function makes a digest: the bytes of the value, given to an object of `hashlib`'s kind."""

    encoding: Literal["pickle", "cbor"]
    new: Callable[[], Callable[[bytes], Any]]
    """Gives the class of such objects."""
    packages: tuple[str, ...] = ()
    """The optional packages that are needed."""


RECIPES: dict[HashFunction, Recipe] = {
    sha256: Recipe("pickle", lambda: hashlib.sha256),
    sha256_cbor: Recipe("cbor", lambda: hashlib.sha256, ("cbor2",)),
    xxhash: Recipe("pickle", lambda: _package("xxhash").xxh3_128, ("xxhash",)),
    xxhash_cbor: Recipe("cbor", lambda: _package("xxhash").xxh3_128, ("xxhash", "cbor2")),
}
"""The functions whose digests may be made without calling them (`chains.py`). A program that has functions of its own
with the same digests enters them here, before it asks for hashers."""


def recipe_of(function: HashFunction) -> Recipe | None:
    """Its entry in `RECIPES`, if it has one. A function of the caller may be an object without a hash."""
    return next((recipe for known, recipe in RECIPES.items() if known is function), None)


_BY_NAME: dict[str, HashFunction] = {
    "sha256": sha256,
    "sha256_cbor": sha256_cbor,
    "xxhash": xxhash,
    "xxhash_cbor": xxhash_cbor,
}


def get_hash_fn_by_name(name: str) -> HashFunction:
    """The hash function "sha256", "sha256_cbor", "xxhash" or "xxhash_cbor".

    ValueError for any other name or a missing package.
    """
    if name not in _BY_NAME:
        raise ValueError(f"unknown hash function {name!r}: choose one of {', '.join(_BY_NAME)}")
    for package in RECIPES[_BY_NAME[name]].packages:
        if find_spec(package) is None:
            raise ValueError(f"hash function {name!r} needs the package {package}: install it or choose 'sha256'")
    return _BY_NAME[name]
