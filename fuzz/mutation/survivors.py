"""Which mutants nothing can find, or nothing here does, and why: a file that somebody has written after reading each.

An entry names a function and the lines before and after the change, so it holds whatever seed has drawn it:

    [[survivor]]
    module = "engine.pool"
    function = "Pool.free"
    line = "if count >= 1:"
    changed = "if count > 0:"
    class = "equivalent"
    because = "counts are integers"

`*` in place of the changed line stands for every change of that line, in place of both for every change of the
function.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .drawing import Mutant

EQUIVALENT, TEXT, OUTSIDE, OPEN = "equivalent", "text", "outside", "open"
CLASSES: Mapping[str, str] = {
    EQUIVALENT: "no caller can see a difference",
    TEXT: "only the text of a log, a warning or an error differs",
    OUTSIDE: "it concerns what is not modelled",
    OPEN: "a gap: it can be seen, and nothing here does",
}
"""The classes of survivors. Those that only a text depends on are recognised by themselves."""
ANY = "*"
_FIELDS = ("module", "function", "line", "changed", "class", "because")


@dataclass(frozen=True)
class Survivor:
    """An entry of the file."""

    module: str
    function: str
    line: str
    changed: str
    kind: str
    """One of `CLASSES`."""
    because: str

    @property
    def exact(self) -> bool:
        """True if it stands for one change."""
        return ANY not in (self.line, self.changed)

    def covers(self, mutant: Mutant) -> bool:
        """True if the mutant is one of those that it stands for."""
        own = (self.module, self.function, self.line, self.changed)
        return all(mine in (ANY, its) for mine, its in zip(own, mutant.key, strict=True))


class Survivors:
    """The entries of a file."""

    def __init__(self, text: str) -> None:
        """ValueError if it is no such file."""
        self.entries = tuple(_entries(tomllib.loads(text)))

    def of(self, mutant: Mutant) -> Survivor | None:
        """The entry for a mutant: the most exact one, or None."""
        covering = [entry for entry in self.entries if entry.covers(mutant)]
        return max(covering, key=lambda entry: (entry.changed != ANY, entry.line != ANY), default=None)

    def kind_of(self, mutant: Mutant) -> str:
        """The class of a mutant that has survived; empty if nobody has judged it."""
        entry = self.of(mutant)
        return entry.kind if entry is not None else TEXT if mutant.text else ""

    def stale(self, killed: Iterable[Mutant]) -> list[Survivor]:
        """Exact entries of mutants that were killed."""
        return [entry for mutant in killed if (entry := self.of(mutant)) is not None and entry.exact]

    def gone(self, sources: Mapping[str, str]) -> list[Survivor]:
        """Entries whose line does not stand in the source of their module any more."""
        lines = {module: _flat(text.splitlines()) for module, text in sources.items()}
        return [
            entry
            for entry in self.entries
            if entry.module not in lines
            or (entry.line != ANY and _flat(entry.line.split(" / ")) not in lines[entry.module])
        ]


def _flat(lines: Sequence[str]) -> str:
    """Lines without indentation and empty ones."""
    return "\n".join(line.strip() for line in lines if line.strip())


def _entries(document: Mapping[str, object]) -> Iterator[Survivor]:
    listed = document.get("survivor", [])
    if document.keys() - {"survivor"} or not isinstance(listed, list):
        raise ValueError("expected tables [[survivor]] alone")
    for number, raw in enumerate(listed, 1):
        if not isinstance(raw, dict) or set(raw) != set(_FIELDS) or not all(isinstance(raw[name], str) for name in raw):
            raise ValueError(f"survivor {number}: expected texts for {', '.join(_FIELDS)}")
        if raw["class"] not in CLASSES:
            raise ValueError(f"survivor {number}: class is {raw['class']!r}; write one of {', '.join(CLASSES)}")
        if not raw["because"].strip():
            raise ValueError(f"survivor {number}: it says not why")
        yield Survivor(*(raw[name] for name in _FIELDS))
