"""What a story came to on an engine, and what two engines have in common, as data between processes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..findings.story_finding import StoryFinding, place_of, stack_of
from ..simulation.judges import FATE
from ..simulation.run import Fates
from ..simulation.traffic import EngineFacts


class StartEndsError(Exception):
    """An engine's start would have ended the process, or does not come back; neither is a refusal."""

    def __init__(self, finding: StoryFinding) -> None:
        super().__init__(finding.what)
        self.finding = finding


def started_wrong(error: BaseException) -> StoryFinding:
    """What is said of an engine in whose start this is raised, which is no refusal."""
    name, more = type(error).__name__, () if isinstance(error, Exception) else stack_of(error.__traceback__)
    what = f"start raises {name}: {str(error)[:300]}; the engine is not built"
    return StoryFinding(FATE, f"{name} in {place_of(error.__traceback__)}", what, 0, more=more)


def found_at_start(error: Exception) -> list[StoryFinding]:
    """An assertion that fails in an engine's start is a finding; whatever else is raised there may be a refusal."""
    if isinstance(error, StartEndsError):
        return [error.finding]
    return [started_wrong(error)] if isinstance(error, AssertionError) else []


@dataclass(frozen=True)
class Played:
    """What a story came to."""

    found: list[StoryFinding] = field(default_factory=list)
    fates: Fates = field(default_factory=dict)
    """What each client got that was served to its end."""
    reached: Mapping[str, int] = field(default_factory=dict)
    not_built: str = ""
    """Why the engine could not be started."""

    @classmethod
    def of_lost(cls, kind: str, what: str, printed: Sequence[str] = ()) -> "Played":
        """A story with which the process was lost, which has `printed` this last."""
        more = tuple(printed)
        return cls([StoryFinding(FATE, f"the process was lost: {kind}", f"the engine: {what}", 0, more=more)])


def played_from_json(raw: Mapping[str, Any]) -> Played:
    """What `asdict` made of it."""
    found = [StoryFinding(**{**one, "more": tuple(one["more"])}) for one in raw["found"]]
    fates = {name: (ended, tuple(got)) for name, (ended, got) in raw["fates"].items()}
    return Played(found, fates, raw["reached"], raw["not_built"])


def facts_to_json(facts: EngineFacts) -> dict[str, Any]:
    """JSON-ready, in an order that is the same in every process."""
    raw = asdict(facts)
    return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in raw.items()}


def facts_from_json(raw: Mapping[str, Any]) -> EngineFacts:
    """What `facts_to_json` made."""
    usual = asdict(EngineFacts())
    kinds = {name: type(value) for name, value in usual.items() if isinstance(value, frozenset | tuple)}
    values: dict[str, Any] = {name: kinds[name](value) if name in kinds else value for name, value in raw.items()}
    return EngineFacts(**values)


def in_common(old: EngineFacts, new: EngineFacts) -> EngineFacts:
    """What can be asked of both. An option that only one has is drawn for it: the other one does not know it.

    ValueError if they have no attention type, no block size, no mode of states, or no value of an option in common.
    """
    options = {name: tuple(values) for name, values in {**old.options, **new.options}.items()}
    for name in old.options.keys() & new.options.keys():
        options[name] = tuple(value for value in old.options[name] if value in new.options[name])
    common = EngineFacts(
        old.offers & new.offers,
        old.methods & new.methods,
        options,
        tuple(name for name in old.attention if name in new.attention),
        tuple(size for size in old.block_sizes if size in new.block_sizes),
        min(old.depth, new.depth),
        old.lacks | new.lacks,
        old.unequal_blocks and new.unequal_blocks,
        tuple(mode for mode in old.mamba_modes if mode in new.mamba_modes),
        max(old.own_blocks, new.own_blocks),
        old.survives & new.survives,
        {name: old.options_of[name] for name in old.options_of if new.options_of.get(name) == old.options_of[name]},
    )
    empty = [name for name in ("attention", "block_sizes", "mamba_modes") if not getattr(common, name)]
    empty += [f"options[{name!r}]" for name, values in options.items() if not values]
    if empty:
        raise ValueError(f"the engines have no value of {empty[0]} in common, so there is no story for both")
    return common
