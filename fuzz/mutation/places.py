"""The places of a source that a random mutant may change, the changes that each can have, and mutants from a seed.

The changes are those of cosmic-ray (extra `mutation`), and three that it lacks: a statement removed, the first two
arguments of a call exchanged, `min` for `max` and the reverse. Annotations, docstrings and what is only for type
checkers are left alone. Needs cosmic-ray; everything else here runs without.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

TEXT_CALLS = ("logger", "warnings")
"""Calls on objects of these names only tell people something."""
_REMOVED, _EXCHANGED, _OTHER_END = "RemoveStatement", "ExchangeArguments", "MinMax"
_ENDS = {"min": "max", "max": "min"}


@dataclass(frozen=True)
class PlaceChange:
    """One way of changing a place."""

    operator: str
    """What changes it: an operator of cosmic-ray, or one of ours."""
    changed: Callable[[], str | None]
    """Returns the whole source with this change, or None if there is nothing to change after all."""


@dataclass(frozen=True)
class MutablePlace:
    """What one kind of operator can change: an operator, a number, a condition, a statement."""

    line: int
    """From 1."""
    column: int
    """From 0."""
    kind: str
    """The family of its operators."""
    text: bool
    """Only a text for people depends on it: of a log, a warning, or an error."""
    changes: tuple[PlaceChange, ...]


@dataclass(frozen=True)
class _Span:
    start: tuple[int, int]
    end: tuple[int, int]

    def holds(self, position: tuple[int, int]) -> bool:
        return self.start <= position < self.end


class Source:
    """A module's source, and what of it may be changed."""

    def __init__(self, text: str) -> None:
        """SyntaxError if it is no Python."""
        self.text = text
        self.lines = text.splitlines(keepends=True)
        self.tree = ast.parse(text)
        self._left_out = [*(_span(node) for node in _left_out(self.tree)), *_overloads(self.tree)]
        self._texts = [_span(node) for node in _texts(self.tree)]
        self._names = list(_names(self.tree, ""))
        self._heads = list(_heads(self.tree))

    def function_at(self, line: int) -> str:
        """The innermost function or class around a line, with what it stands in; `<module>` outside of all."""
        around = [(first, name) for first, last, name in self._names if first <= line <= last]
        return max(around, default=(0, "<module>"))[1]

    def lines_of(self, line: int) -> tuple[int, int]:
        """First and last line of the statement that a line belongs to; of one with a body, those of its head."""
        return max((lines for lines in self._heads if lines[0] <= line <= lines[1]), default=(line, line))

    def places(self) -> list[MutablePlace]:
        """All places, in the order in which they stand."""
        found: dict[tuple[tuple[int, int], tuple[int, int], str], list[PlaceChange]] = {}
        for start, end, kind, change in (*self._of_tool(), *self._of_ours()):
            if not any(span.holds(start) for span in self._left_out):
                found.setdefault((start, end, kind), []).append(change)
        return [
            MutablePlace(*start, kind, any(span.holds(start) for span in self._texts), tuple(changes))
            for (start, _, kind), changes in sorted(found.items(), key=lambda item: item[0])
        ]

    def _of_tool(self) -> Iterator[tuple[tuple[int, int], tuple[int, int], str, PlaceChange]]:
        """What cosmic-ray can change. It reads a statement of the module at a time: parsing is what takes time."""
        from cosmic_ray.ast import ast_nodes, get_ast
        from cosmic_ray.plugins import get_operator, operator_names

        operators = {
            name: get_operator(name)()
            for name in sorted(operator_names())
            if "ariable" not in name and "NoOp" not in name  # these two need to be told which variables
        }
        for first, last in self._statements():
            nodes = list(ast_nodes(get_ast("".join(self.lines[first:last]))))
            for name, operator in operators.items():
                occurrence, kind = 0, name.removeprefix("core/").split("_")[0]
                for node in nodes:
                    for start, end in operator.mutation_positions(node):
                        change = PlaceChange(name, self._by_tool(first, last, operator, occurrence))
                        yield (start[0] + first, start[1]), (end[0] + first, end[1]), kind, change
                        occurrence += 1

    def _by_tool(self, first: int, last: int, operator: object, occurrence: int) -> Callable[[], str | None]:
        def changed() -> str | None:
            from cosmic_ray.mutating import mutate_code

            part = mutate_code("".join(self.lines[first:last]), operator, occurrence)
            return None if part is None else "".join([*self.lines[:first], part, *self.lines[last:]])

        return changed

    def _statements(self) -> Iterator[tuple[int, int]]:
        """First line, from 0, and the line behind each statement of the module."""
        for node in self.tree.body:
            decorators = getattr(node, "decorator_list", [])
            yield min([node.lineno, *(one.lineno for one in decorators)]) - 1, node.end_lineno or node.lineno

    def _of_ours(self) -> Iterator[tuple[tuple[int, int], tuple[int, int], str, PlaceChange]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.stmt) and _can_go(node):
                yield self._put(node, node, _REMOVED, "pass")
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Name) and node.func.id in _ENDS:
                yield self._put(node, node.func, _OTHER_END, _ENDS[node.func.id])
            elif len(node.args) > 1 and not any(isinstance(one, ast.Starred) for one in node.args[:2]):
                one, other = (ast.get_source_segment(self.text, argument) or "" for argument in node.args[:2])
                between = self._between(node.args[0], node.args[1])
                whole = _Span(_span(node.args[0]).start, _span(node.args[1]).end)
                yield self._put_text(node, whole, _EXCHANGED, f"{other}{between}{one}")

    def _put(
        self, place: ast.expr | ast.stmt, old: ast.expr | ast.stmt, kind: str, new: str
    ) -> tuple[tuple[int, int], tuple[int, int], str, PlaceChange]:
        return self._put_text(place, _span(old), kind, new)

    def _put_text(
        self, place: ast.expr | ast.stmt, old: _Span, kind: str, new: str
    ) -> tuple[tuple[int, int], tuple[int, int], str, PlaceChange]:
        span = _span(place)
        return span.start, span.end, kind, PlaceChange(kind, lambda: self._replaced(old, new))

    def _between(self, one: ast.expr, other: ast.expr) -> str:
        return self._cut(_Span(_span(one).end, _span(other).start))

    def _cut(self, span: _Span) -> str:
        start, end = self._offset(span.start), self._offset(span.end)
        return self.text[start:end]

    def _replaced(self, old: _Span, new: str) -> str:
        start, end = self._offset(old.start), self._offset(old.end)
        lost = self.text.count("\n", start, end) - new.count("\n")
        line_end = end + self.text[end:].find("\n")
        rest = self.text[end:line_end] + "\n" * lost + self.text[line_end:]  # what follows keeps its line number
        return self.text[:start] + new + rest

    def _offset(self, position: tuple[int, int]) -> int:
        line, column = position
        before = sum(map(len, self.lines[: line - 1]))
        own = self.lines[line - 1] if line <= len(self.lines) else ""
        return before + len(own.encode()[:column].decode(errors="ignore"))


def changed_lines(before: str, after: str) -> tuple[str, str]:
    """What stands in the lines that differ, before and after, each in one line without its indentation."""
    old, new = before.splitlines(), after.splitlines()
    first = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    cut = [lines[first : len(lines) - last] for lines in (old, new)]
    one, other = (" / ".join(line.strip() for line in lines if line.strip()) for lines in cut)
    return one, other


def _span(node: Any) -> _Span:
    """Where an expression or a statement stands."""
    return _Span(
        (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
    )


def _can_go(node: ast.stmt) -> bool:
    """Removing it leaves a program that may still run: no name goes missing, nothing but a text is lost."""
    match node:
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Delete():
            return True
        case ast.Assign(targets=targets):
            return all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
    return False


def _left_out(tree: ast.Module) -> Iterator[ast.expr | ast.stmt]:
    """Annotations, docstrings, what only type checkers read, and imports.

    The order of what `min` and `max` compare is no place at all: exchanged, it is the same.
    """
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(annotation=annotation):
                yield annotation
            case ast.arg(annotation=ast.expr() as annotation):
                yield annotation
            case ast.Import() | ast.ImportFrom():
                yield node
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield node
            case ast.Expr(value=ast.Constant(value=str())):
                yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from filter(None, [node.returns])


def _overloads(tree: ast.Module) -> Iterator[_Span]:
    """Functions that only type checkers read, from their decorators on."""
    for node in ast.walk(tree):
        for decorator in getattr(node, "decorator_list", []):
            if isinstance(decorator, ast.Name) and decorator.id == "overload":
                yield _Span((decorator.lineno, 0), _span(node).end)


def _texts(tree: ast.Module) -> Iterator[ast.expr]:
    """Expressions on which only a text for people depends."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name in TEXT_CALLS:
                yield node
            case ast.Raise(exc=ast.Call(args=arguments)):
                yield from arguments
            case ast.Assert(msg=ast.expr() as message):
                yield message


def _heads(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """First and last line of each statement, decorators counted, bodies not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.ExceptHandler):
            body = [one.lineno for one in getattr(node, "body", [])]
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
            last = max(node.lineno, min(body) - 1) if body else node.end_lineno or node.lineno
            yield first, last


def _names(node: ast.AST, outer: str) -> Iterator[tuple[int, int, str]]:
    """First line, last line and full name of every function and class."""
    for child in ast.iter_child_nodes(node):
        name = outer
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{outer}.{child.name}" if outer else child.name
            first = min([child.lineno, *(one.lineno for one in child.decorator_list)])
            yield first, child.end_lineno or child.lineno, name
        yield from _names(child, name)


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


def _changed(module: str, source: Source, place: MutablePlace, random: Random) -> Mutant | None:
    """One of the changes of a place that is another program; None if there is none."""
    changes = random.sample(place.changes, len(place.changes))
    return next(filter(None, (_mutant(module, source, place, change) for change in changes)), None)


def _mutant(module: str, source: Source, place: MutablePlace, change: PlaceChange) -> Mutant | None:
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
