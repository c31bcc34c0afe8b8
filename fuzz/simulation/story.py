"""A story of an engine under simulation: what is built, and what happens to it, as data that is drawn, kept, replayed
and made smaller.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from ..findings.ops_json import record_from_json, to_json
from .network import HALVES, PLACES, mishaps_of
from .protocol import ClientRequest, EngineShape

Deed: TypeAlias = Literal["add", "cancel", "reset", "reweigh", "pause", "resume", "fork", "truncate", "crash", "part"]


@dataclass(frozen=True)
class Happening:
    """What clients or an operator do, or what happens to the halves of a pair."""

    at: int
    """Before this round, counted from 0; at once, if nothing is left to do until then."""
    what: Deed
    flying: bool = False
    """After the round's step was scheduled, before the engine hears of a step that has ended."""
    request: ClientRequest | None = None
    """Who is added."""
    rights: tuple[int, ...] = ()
    """For one step with drafts after the other, how many of the device's drafts are right; repeated."""
    patience: int = 0
    """Who is added goes away when so many rounds have ended since it came or got something, that one counted; with an
    odd number, as if `flying`. 0: it waits for ever."""
    id: str = ""
    """Whom it is about, if nobody is added."""
    new: str = ""
    """The id of a fork."""
    length: int = 0
    """Tokens that are left of the one that is truncated."""
    then: tuple[int, ...] = ()
    """Tokens that follow there."""
    half: str = ""
    """Who crashes, or what is cut off, one of `network.PLACES`."""
    rounds: int = 0
    """For so many rounds."""


@dataclass(frozen=True)
class SimulatedStory:
    """An engine and its life."""

    shape: EngineShape
    happenings: tuple[Happening, ...]
    depth: int = 1
    """Steps in flight at most; never more than the engine declares."""
    delays: tuple[int, ...] = ()
    """Rounds that one transfer after the other takes, repeated; -1: it fails."""
    reports: tuple[str, ...] = ()
    """What becomes of one report of a transfer after the other, repeated (`reports.TransferReports`)."""
    network: tuple[str, ...] = ()
    """What becomes of which message between the halves of a pair (`network.mishaps_of`); of all others nothing."""

    @property
    def jobs(self) -> list[ClientRequest]:
        """All requests that arrive, in order."""
        return [one.request for one in self.happenings if one.request is not None]

    def asked_for(self) -> dict[str, int]:
        """How many of them are special in some way."""
        return {
            "requests with an adapter": sum(job.adapter is not None for job in self.jobs),
            "requests with items": sum(bool(job.items) for job in self.jobs),
            "requests with a salt": sum(job.salt is not None for job in self.jobs),
        }

    @property
    def kinds(self) -> str:
        """The attention types of the engine's groups, as in `full+sliding`."""
        return "+".join(group.kind for group in self.shape.groups)

    @property
    def alike(self) -> tuple[object, ...]:
        """What findings of one cause mostly agree in, beside judge and rule."""
        return self.kinds, self.depth, self.shape.core.caching, bool(self.shape.drafts), *self.shape.options.values()

    @property
    def size(self) -> int:
        """How large it is, for a search for something smaller."""
        tokens = sum(len(job.prompt) + job.max_tokens + len(job.stop) for job in self.jobs)
        extras = sum(bool(job.items) + bool(job.adapter) + bool(job.salt) + bool(job.priority) for job in self.jobs)
        times = sum(one.at + one.patience + one.rounds for one in self.happenings)
        many = 100 * (len(self.happenings) + len(self.shape.groups) + self.depth) + self.shape.max_requests
        return many + tokens + extras + self.shape.num_blocks + times + sum(map(bool, self.reports)) + len(self.network)


def story_to_json(story: SimulatedStory) -> dict[str, object]:
    """JSON-ready form; fields at their default are left out."""
    shape = {**_told(story.shape), "core": to_json(story.shape.core)}
    happenings = []
    for one in story.happenings:
        told = _told(one)
        if one.request is not None:
            told["request"] = _told(one.request)
        happenings.append(told)
    return {**_told(story), "shape": shape, "happenings": happenings}


def story_from_json(raw: Any) -> SimulatedStory:
    """What `story_to_json` wrote. ValueError says what is wrong with anything else, and where."""
    story = record_from_json(SimulatedStory, raw, "story")
    mishaps_of(story.network)
    for number, one in enumerate(story.happenings):
        halves = {"crash": HALVES, "part": PLACES}.get(one.what)
        if halves is not None and one.half not in halves:
            raise ValueError(f"story.happenings[{number}].half: expected one of {', '.join(halves)}, got {one.half!r}")
        if one.what == "add" and one.request is None:
            raise ValueError(f"story.happenings[{number}]: field 'request' is missing")
    return story


def _told(record: Any) -> dict[str, object]:
    default = {field.name: field.default for field in fields(record)}
    values = {name: getattr(record, name) for name in default}
    return {name: to_json(value) for name, value in values.items() if value != default[name] and value != {}}
