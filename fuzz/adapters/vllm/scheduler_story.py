"""A story: an engine, and what happens to it while it runs, as data that can be drawn, stored, replayed and shrunk."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias

from ....model.ops import Submit
from ...findings.ops_json import operation_from_json, shape_from_json, to_json
from .scheduler_config import Setup
from .scheduler_device import DeviceJob

What: TypeAlias = Literal["add", "abort", "abort-in-flight", "reset", "reset-running"]


@dataclass(frozen=True)
class StoryEvent:
    """What happens before a step, or while it runs."""

    at: int
    """Number of the step, from 0 on. If nothing is left to do until then, it happens at once."""
    what: What
    """A request arrives, is aborted before the step or while it runs; the prefix cache is reset, with all running
    requests preempted for it or only if nothing runs."""
    job: DeviceJob | None = None
    """Who arrives."""
    request: str = ""
    """Who is aborted."""


@dataclass(frozen=True)
class Story:
    """An engine and the events of its life, in their order."""

    setup: Setup
    events: tuple[StoryEvent, ...]

    @property
    def jobs(self) -> list[DeviceJob]:
        """All requests, in the order in which they arrive."""
        return [event.job for event in self.events if event.job is not None]

    @property
    def kinds(self) -> str:
        """The attention types of the engine's groups, as in `full+sliding`."""
        return "+".join(group.kind for group in self.setup.shape.groups)

    @property
    def alike(self) -> tuple[object, ...]:
        """What findings of one cause mostly agree in, beside judge and rule."""
        setup = self.setup
        return self.kinds, setup.connector, setup.asynchronous, bool(setup.drafts), setup.shape.eagle

    @property
    def size(self) -> int:
        """How large it is, for a search for something smaller."""
        tokens = sum(len(job.submit.prompt) + job.max_tokens for job in self.jobs)
        extras = sum(bool(job.submit.items) + bool(job.submit.adapter) + bool(job.submit.salt) for job in self.jobs)
        return 100 * (len(self.events) + len(self.setup.shape.groups)) + tokens + extras + self.setup.shape.num_blocks


def with_job(event: StoryEvent, **changes: Any) -> StoryEvent:
    """The event with another job. `prompt`, `items`, ... are fields of what is submitted."""
    assert event.job is not None
    names = {field.name for field in fields(Submit)} - {"adapter_version"}  # the job tells versions apart
    submit = replace(event.job.submit, **{name: value for name, value in changes.items() if name in names})
    rest = {name: value for name, value in changes.items() if name not in names}
    return replace(event, job=replace(event.job, submit=submit, **rest))


# JSON.


def _fields_of(record: Any) -> dict[str, object]:
    """The fields of a record that are not at their default."""
    return {
        field.name: to_json(getattr(record, field.name))
        for field in fields(record)
        if getattr(record, field.name) != field.default
    }


def story_to_json(story: Story) -> dict[str, object]:
    """JSON-ready form; fields at their default are left out."""
    events = []
    for event in story.events:
        told: dict[str, object] = {"at": event.at, "what": event.what}
        if event.job is not None:
            told |= {"job": _fields_of(event.job)}
        events.append(told | ({"request": event.request} if event.request else {}))
    return {"setup": _fields_of(story.setup), "events": events}


def story_from_json(raw: Any) -> Story:
    """What `story_to_json` wrote. ValueError if it is something else."""
    try:
        setup = Setup(shape_from_json(raw["setup"]["shape"]), **_without(raw["setup"], "shape"))
        return Story(setup, tuple(_event(event) for event in raw["events"]))
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"no story of a scheduler: {type(error).__name__}: {error}") from None


def _event(raw: Mapping[str, Any]) -> StoryEvent:
    job = None
    if "job" in raw:
        submit = operation_from_json(raw["job"]["submit"])
        if not isinstance(submit, Submit):
            raise ValueError(f"no story of a scheduler: {type(submit).__name__} is no request")
        more = _without(raw["job"], "submit")
        if "drafts" in more:
            more["drafts"] = tuple((drafted, right) for drafted, right in more["drafts"])
        job = DeviceJob(submit, **more)
    return StoryEvent(job=job, **_without(raw, "job"))


def _without(raw: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key != name}
