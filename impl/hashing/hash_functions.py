"""Functions from a Python value to a digest, as used for block identities."""

import hashlib
import pickle
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

HashFunction = Callable[[object], bytes]
"""Any function from a picklable value to bytes; equal values must give equal bytes."""


def sha256(value: object) -> bytes:
    """SHA-256 of the value's pickle, 32 bytes. Stable within one Python version; fast."""
    return hashlib.sha256(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)).digest()


def sha256_cbor(value: object) -> bytes:
    """SHA-256 of the value's canonical CBOR, 32 bytes. Stable across languages and Python versions.

    Raises ModuleNotFoundError where the package `cbor2` is not installed.
    """
    cbor2 = import_module("cbor2")  # optional, and of no use to those who hash pickles
    return hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()


_BY_NAME: dict[str, HashFunction] = {"sha256": sha256, "sha256_cbor": sha256_cbor}


def get_hash_fn_by_name(name: str) -> HashFunction:
    """The hash function "sha256" or "sha256_cbor". ValueError for any other name or a missing package."""
    if name not in _BY_NAME:
        raise ValueError(f"unknown hash function {name!r}: choose one of {', '.join(_BY_NAME)}")
    if name == "sha256_cbor" and find_spec("cbor2") is None:
        raise ValueError("hash function 'sha256_cbor' needs the package cbor2: install it or choose 'sha256'")
    return _BY_NAME[name]
