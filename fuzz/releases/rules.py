"""The sentences of the rules that a finding violates, each read from the place where the rule is written."""

import re
from functools import cache
from pathlib import Path

from ..oracles.contract.properties import PROPERTIES as CONTRACT
from ..oracles.liveness.rules import PROPERTIES as LIVENESS
from ..planning.shipped import THEOREMS, shipped

REFERENCE = "../reference"
"""Where the pages with the rules are, seen from the page of the findings."""
_ROW = re.compile(r"^\| \[(T[\w.]+)\]\(([\w.#-]+)\) \| (.*?) \|", re.MULTILINE)
"""A theorem in the table of all theorems: its name, where its page has it, and what it says."""


def rule_text(name: str) -> str:
    """A rule as Markdown: its name as a link, and its sentence; only the name, if no rule is called so."""
    if name in CONTRACT:
        return f"[{name}]({REFERENCE}/contract.md#properties): {CONTRACT[name]}"
    if name in LIVENESS:
        return f"[{name}]({REFERENCE}/liveness.md#the-properties): {LIVENESS[name]}."
    if name in (theorems := _theorems(str(shipped(THEOREMS / "README.md")))):
        place, says = theorems[name]
        return f"[{name}]({REFERENCE}/theorems/{place}): {says}"
    return name


@cache
def _theorems(path: str) -> dict[str, tuple[str, str]]:
    """Where each theorem stands and what it says, by name; empty if there is no such file."""
    table = Path(path)
    text = table.read_text(encoding="utf-8") if table.exists() else ""
    return {name: (place, says) for name, place, says in _ROW.findall(text)}
