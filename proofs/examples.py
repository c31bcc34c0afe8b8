"""The variables of a theorem, as symbols and as plain values, and examples of both."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import z3

from .solver import question
from .symbolic import Condition, SymbolicBool, symbol, term, truth

Meanings = Mapping[str, str]
"""The variables of a theorem (`Theorem.variables`): name to meaning."""


class Values:
    """The variables of a theorem by name, symbolic or plain."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the theorem has no variable {name!r}; it has {', '.join(vars(self))}")


def variable(name: str, meaning: str) -> Any:
    """The symbol for a variable of a theorem: a truth value if its meaning begins with `whether`, else an integer."""
    return truth(name) if meaning.startswith("whether") else symbol(name)


def conditions(claims: Condition | Iterable[Condition]) -> list[Condition]:
    """What a claim returned, one or several conditions, as a list."""
    return [claims] if isinstance(claims, bool | SymbolicBool) else list(claims)


def plain_values(model: z3.ModelRef | None, variables: Meanings) -> dict[str, int]:
    """The values that a model gives to the variables of a theorem, by name."""
    assert model is not None
    values: dict[str, int] = {}
    for name, meaning in variables.items():
        value = model.eval(variable(name, meaning).term, model_completion=True)
        values[name] = bool(z3.is_true(value)) if meaning.startswith("whether") else value.as_long()
    return values


def fixed_to(name: str, value: int, variables: Meanings) -> z3.BoolRef:
    """The formula that a variable of a theorem has this value."""
    return term(variable(name, variables[name]) == value)


def satisfiable_question(name: str, formulas: Sequence[z3.BoolRef]) -> str:
    """The question whether the formulas can hold together, as SMT-LIB 2; the answer must be `sat`."""
    return f"; {name}: must be sat\n{question(formulas)}"
