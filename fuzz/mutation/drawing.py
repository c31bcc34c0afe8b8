"""Draws random mutants of some modules from a seed."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from .places import Change, Place, Source, changed_lines


@dataclass(frozen=True)
class Mutant:
    """One changed module."""

    module: str
    """Its import name."""
    function: str
    """The innermost function or class that is changed, with what it stands in."""
    line: int
    """From 1; where the change begins."""
    operator: str
    """What changed it."""
    before: str
    """The lines that are changed, as one."""
    after: str
    """The same, changed."""
    lines: tuple[int, int]
    """First and last line of the statement: unless one of them runs, nothing is changed."""
    text: bool
    """Only a text for people depends on it."""
    source: str
    """The whole source, changed."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What names it, whatever the seed: the same line may stand in a function twice."""
        return (self.module, self.function, self.before, self.after)

    @property
    def place(self) -> tuple[str, int, str]:
        """What tells it from all others of the same sources."""
        return (self.module, self.line, self.after)


def draw_mutants(sources: Mapping[str, str], count: int, seed: int) -> list[Mutant]:
    """So many mutants of the modules whose sources these are, each at a place of its own; fewer if there are fewer.

    Every place of every module is as likely as any other, and so is every change that it can have.
    """
    read = {module: Source(text) for module, text in sorted(sources.items())}
    places = [(module, place) for module, source in read.items() for place in source.places()]
    random, drawn = Random(f"mutants/{seed}"), list[Mutant]()
    for module, place in random.sample(places, len(places)):
        if len(drawn) == count:
            break
        mutant = _changed(module, read[module], place, random)
        if mutant is not None:
            drawn.append(mutant)
    return drawn


def number_of_places(sources: Mapping[str, str]) -> dict[str, int]:
    """How many places each module has."""
    return {module: len(Source(text).places()) for module, text in sources.items()}


def _changed(module: str, source: Source, place: Place, random: Random) -> Mutant | None:
    """One of the changes of a place that is another program; None if there is none."""
    changes = random.sample(place.changes, len(place.changes))
    return next(filter(None, (_mutant(module, source, place, change) for change in changes)), None)


def _mutant(module: str, source: Source, place: Place, change: Change) -> Mutant | None:
    """The module with this change; None if that is no other program."""
    changed = change.changed()
    if changed is None or not _differs(source.tree, changed):
        return None
    before, after = changed_lines(source.text, changed)
    return Mutant(
        module,
        source.function_at(place.line),
        place.line,
        change.operator.removeprefix("core/"),
        before,
        after,
        source.lines_of(place.line),
        place.text,
        changed,
    )


def _differs(tree: ast.Module, changed: str) -> bool:
    """True if the changed source is Python, and another program."""
    try:
        return ast.dump(ast.parse(changed)) != ast.dump(tree)
    except (SyntaxError, ValueError):
        return False
