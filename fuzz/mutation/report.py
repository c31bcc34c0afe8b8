"""What became of random mutants: counts for each module, and every survivor by name.

Which mutants nothing can find, or nothing here does, and why, says a file that somebody has written after reading each.
An entry names a function and the lines before and after the change, so it holds whatever seed has drawn it:

    [[survivor]]
    module = "engine.pool"
    function = "Pool.free"
    line = "if count >= 1:"
    changed = "if count > 0:"
    class = "equivalent"
    because = "counts are integers"

`*` in place of the changed line stands for every change of that line, in place of both for every change of the
function. An ellipsis in a line stands for any text.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from statistics import median
from typing import Any

from .hunting import Hunted
from .places import Mutant
from .stages import Budget
from .subject import Subject

EQUIVALENT, TEXT, OUTSIDE, OPEN = "equivalent", "text", "outside", "open"
CLASSES: Mapping[str, str] = {
    EQUIVALENT: "no caller can see a difference",
    TEXT: "only the text of a log, a warning or an error differs",
    OUTSIDE: "it concerns what is not modelled",
    OPEN: "a gap: it can be seen, and nothing here does",
}
"""The classes of survivors. Those that only a text depends on are recognised by themselves."""
ANY, SOME = "*", "\N{HORIZONTAL ELLIPSIS}"
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
        return ANY not in (self.line, self.changed) and SOME not in self.line

    def covers(self, mutant: Mutant) -> bool:
        """True if the mutant is one of those that it stands for."""
        own = (self.module, self.function, self.line, self.changed)
        return all(mine in (ANY, its) or _matches(mine, its) for mine, its in zip(own, mutant.key, strict=True))


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
            or (entry.line != ANY and not _stands(_flat(entry.line.split(" / ")), lines[entry.module]))
        ]


def _matches(mine: str, its: str) -> bool:
    """True if the text is the other one, but for what an ellipsis stands for."""
    return SOME in mine and re.fullmatch(".*".join(map(re.escape, mine.split(SOME))), its) is not None


def _stands(line: str, source: str) -> bool:
    """True if it stands in the source, with anything for an ellipsis."""
    return line in source or (SOME in line and any(_matches(line, one) for one in source.splitlines()))


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


NO_MISTAKE = (EQUIVALENT, TEXT)
"""Classes of mutants that are not wrong."""


@dataclass(frozen=True)
class HuntAsked:
    """What was asked for; the same is the same run on every machine."""

    of: str
    random: int
    seed: int
    operations: int
    cases: int

    @property
    def budget(self) -> Budget:
        """How much is tried on each mutant."""
        return Budget(self.operations, self.cases)


@dataclass
class MutantsDone:
    """The result of a run."""

    asked: HuntAsked
    subject: Subject
    mutants: Sequence[Mutant]
    hunted: list[Hunted] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.judged = Survivors(self.subject.mutable.survivors)

    @property
    def survivors(self) -> list[tuple[Hunted, str]]:
        """Those that nothing has found, with the class of each; in the order of the sources."""
        alive = [one for one in self.hunted if one.status == "survived"]
        alive.sort(key=lambda one: (self.subject.mutable.modules.index(one.mutant.module), one.mutant.line))
        return [(one, self.judged.kind_of(one.mutant)) for one in alive]

    @property
    def unjudged(self) -> list[Hunted]:
        """Survivors that nobody has judged."""
        return [one for one, kind in self.survivors if not kind]

    @property
    def stale(self) -> list[Survivor]:
        """Entries about mutants that were killed."""
        return self.judged.stale(one.mutant for one in self.hunted if one.status != "survived")

    @property
    def exit_code(self) -> int:
        """1 if a survivor is not judged, else 0."""
        return 1 if self.unjudged else 0

    def counts(self, modules: Iterable[str]) -> dict[str, int]:
        """Mutants of these modules: all, killed, killed when imported, and survivors by class."""
        names = set(modules)
        own = [one for one in self.hunted if one.mutant.module in names]
        kinds = [kind for one, kind in self.survivors if one.mutant.module in names]
        return {
            "mutants": len(own),
            "killed": sum(one.status != "survived" for one in own),
            "import": sum(one.status == "import" for one in own),
            **{kind: kinds.count(kind) for kind in (EQUIVALENT, TEXT, OUTSIDE, OPEN)},
            "unjudged": kinds.count(""),
        }

    def as_json(self) -> dict[str, Any]:
        """The result, JSON-ready."""
        modules = self.subject.mutable.modules
        kinds = {one.mutant.place: kind for one, kind in self.survivors}
        return {
            **asdict(self.asked),
            "total": self.counts(modules),
            "modules": {module: self.counts([module]) for module in modules},
            "own_tests": {name: list(figures) for name, figures in self.subject.mutable.own_tests.items()},
            "stale": [asdict(entry) for entry in self.stale],
            "hunted": [{**as_document(one), "class": kinds.get(one.mutant.place, "")} for one in self.hunted],
        }

    def lines(self) -> Iterator[str]:
        """The result for a person."""
        width = max(map(len, self.subject.mutable.modules))
        yield ""
        for module in (one for one in self.subject.mutable.modules if self.counts([one])["mutants"]):
            yield f"{module.ljust(width)}  {_beside(self.counts([module]), self.subject.mutable.own_tests.get(module))}"
        yield f"{'all'.ljust(width)}  {_beside(self.counts(self.subject.mutable.modules), None)}"
        for one, kind in self.survivors:
            entry = self.judged.of(one.mutant)
            yield f"survived: {place(one.mutant)}, {kind or 'NOT JUDGED'}{': ' + entry.because if entry else ''}"
            yield f"  - {one.mutant.before}"
            yield f"  + {one.mutant.after}"
        for entry in self.stale:
            yield f"stale: declared as {entry.kind}, but it was found: {entry.function}: {entry.changed}"
        yield headline(self.counts(self.subject.mutable.modules))
        yield effort(self.hunted)


def _beside(counts: Mapping[str, int], own: tuple[int, int] | None) -> str:
    named = [f"{counts[kind]} {kind}" for kind in (EQUIVALENT, TEXT, OUTSIDE, OPEN, "unjudged") if counts[kind]]
    tests = f"   (its own tests: {own[0]} of {own[1]} others)" if own else ""
    left = f"; left: {', '.join(named)}" if named else ""
    return f"{counts['killed']:3} of {counts['mutants']:3} killed{left}{tests}"


def headline(counts: Mapping[str, int]) -> str:
    """One line: how many of those that are wrong were killed."""
    wrong = counts["mutants"] - sum(counts[kind] for kind in NO_MISTAKE)
    modelled = wrong - counts[OUTSIDE]
    return (
        f"{counts['killed']} of {counts['mutants']} killed ({counts['import']} when imported); "
        f"of {wrong} that are wrong {share(counts['killed'], wrong)}, "
        f"of {modelled} that concern what is modelled {share(counts['killed'], modelled)}"
    )


def share(part: int, whole: int) -> str:
    """As a percentage."""
    return f"{100 * part / whole:.1f} %" if whole else "none"


def effort(hunted: Iterable[Hunted]) -> str:
    """One line: what it took to find them."""
    every = list(hunted)
    found = [one for one in every if one.status == "killed"]
    if not found:
        return f"{sum(one.seconds for one in every):.0f} s of processor time"
    return (
        f"median to be found: {median(one.operations for one in found):,.0f} operations, "
        f"{median(one.cases for one in found):,.0f} configurations, {median(one.seconds for one in found):.1f} s; "
        f"{sum(one.seconds for one in every):,.0f} s of processor time for all"
    )


def place(mutant: Mutant) -> str:
    """File, line and function."""
    return f"{mutant.module.rpartition('.')[2]}.py:{mutant.line} in {mutant.function}"


def as_document(one: Hunted) -> dict[str, Any]:
    """One mutant and its fate, JSON-ready; without its source."""
    mutant = {name: value for name, value in vars(one.mutant).items() if name != "source"}
    return mutant | {name: value for name, value in vars(one).items() if name != "mutant"}


def kept_text(told: MutantsDone) -> str:
    """What a file keeps, to go on from it."""
    return json.dumps(told.as_json(), indent=1) + "\n"


def read_kept(text: str) -> tuple[HuntAsked, list[Hunted]]:
    """What was asked for and what became of the mutants, in such a file, their sources left out. ValueError if it is no
    such file."""
    try:
        document = json.loads(text)
        asked = HuntAsked(**{one.name: document[one.name] for one in fields(HuntAsked)})
        return asked, [_hunted(raw) for raw in document["hunted"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"it is no result of such a run ({type(error).__name__}: {error})") from None


def _hunted(raw: Mapping[str, Any]) -> Hunted:
    own = {one.name: raw[one.name] for one in fields(Mutant) if one.name not in ("source", "lines")}
    mutant = Mutant(**own, lines=(raw["lines"][0], raw["lines"][1]), source="")
    return Hunted(mutant, **{one.name: raw[one.name] for one in fields(Hunted) if one.name != "mutant"})


def from_kept(text: str, asked: HuntAsked, mutants: Sequence[Mutant]) -> list[Hunted]:
    """The fates in such a file, of these mutants. ValueError if it is another run's, or no such file."""
    theirs, fates = read_kept(text)
    if theirs != asked:
        raise ValueError("it is not of the same run; name another file, or remove it")
    known = {one.mutant.place: one for one in fates}
    return [replace(known[mutant.place], mutant=mutant) for mutant in mutants if mutant.place in known]
