"""Which solvers are here. Both are in the extra `prove`; nothing else in blockproof needs them."""

from importlib.util import find_spec

REMEDY = "run: pip install '/path/to/blockproof[prove]'"


def z3_installed() -> bool:
    """True if the solver that settles theorems is installed; without it nothing of them can be imported."""
    return find_spec("z3") is not None


def cvc5_installed() -> bool:
    """True if the solver that gives second opinions is installed."""
    return find_spec("cvc5") is not None
